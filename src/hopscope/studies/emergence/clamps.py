"""Members that are trained again from a checkpoint, with the read for one step of the chain clamped (appendix D)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import first_crossing
from hopscope.studies.chains.evidence import LEARNED, of_plateau
from hopscope.studies.chains.measures import Rows
from hopscope.studies.chains.readings import circuits, reading_of, time_rows
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.circuits.circuit import Path
    from hopscope.circuits.interventions import ReplacePattern
    from hopscope.circuits.reader import Reading

CONTROL, LEFT_ALONE = "control for ", "nothing clamped"
"""Begins the name of a run in which rows of unused heads are clamped; name of the run in which no row is."""


@measure(needs=(circuits,))
def clamps(context: Context) -> Rows:
    """Members that were read, trained again on their own samples while rows read uniformly.

    Part: the run, which is `nothing clamped`, `step_k` (the read for step k clamped, in every head that does it) or
    `control for step_k` (as many rows clamped that no circuit uses).  Metrics: `clamped_from`, the checkpoint that all
    began at; `clamped_rows`, 1 for each group of rows, at its layer and head, part `run: rows`; `clamped_loss` and
    `clamped_loss_step_k` at each evaluation; the time `clamped_fell_step_k` of the loss of step k under one half.
    """
    rows = context.rows("circuit")
    for place, member in enumerate(context.members):
        own = [row for row in rows if row["member"] == member and row["value"] is not None]
        read = [row for row in own if row["metric"] == "was_read" and row["value"] == 1.0]
        if member < context.options.clamped and read:
            yield from context.part(f"member-{member}", partial(_again, context, place, read[0]["file"], own))


def _again(context: Context, place: int, file: str, rows: Sequence[Mapping[str, Any]]) -> Rows:
    from hopscope.circuits.history import clamp, controls, trained_again
    from hopscope.circuits.reader import Reader, ReaderConfig

    member, options = context.members[place], context.options
    reading = reading_of(context, file, member)
    chosen, start = _reads(reading), context.unit.steps[0]
    if options.clamp_from == "start":
        chosen = {name: paths for name, paths in chosen.items() if name == "step_1"}
    else:
        start = _before([path for same in chosen.values() for path in same], rows, start)
    if not chosen:
        return
    taken = [each for each, _ in reading.minimal]
    on = Reader(context.ensemble.member(place), context.task, ReaderConfig()).fresh
    runs: dict[str, Sequence[ReplacePattern]] = {LEFT_ALONE: ()}
    for name, paths in chosen.items():
        runs[name] = [clamp(path.layer, path.head, path.roles) for path in paths]
        if (control := controls(paths, taken, on)) is not None:
            runs[f"{CONTROL}{name}"] = control
    again, every = context.at(context.unit, start).ensemble.select([place]), options.checkpoint_every
    how = {"steps": options.clamp_steps, "every": every, "samples": options.evaluation_samples}
    found = trained_again(again, context.job.training, runs, **how)
    bound = of_plateau(LEARNED, options.chains)
    words = {str(path.roles): path.query for same in chosen.values() for path in same}
    yield {"metric": "clamped_from", "value": start, "member": member}
    for name, losses in found.items():
        for each in runs[name]:
            where = {"layer": each.layer, "head": (each.heads or (0,))[0], "member": member}
            part = f"{name}: {words[str(each.rows)]}"
            yield {"metric": "clamped_rows", "value": 1.0, "part": part, **where}
        at = {"part": name, "member": member}
        for metric, curve in losses.items():
            for step, value in curve.items():
                yield {"metric": f"clamped_{metric}", "value": value, "step": step, **at}
        for step in range(1, options.steps + 1):
            if own := losses.get(f"loss_step_{step}"):
                fell = first_crossing([*own], [*own.values()], bound, rising=False)
                yield from time_rows(f"clamped_fell_step_{step}", fell, **at)


def _reads(reading: "Reading") -> "dict[str, list[Path]]":
    # For each step the paths that do the read of a single token whose removal costs most of those for the step.
    # Several heads may do one read, and while one of them is clamped another would serve.
    found: dict[str, list[Path]] = {}
    kinds, every = ("related", "own_chain"), zip(reading.circuit.paths, reading.evidence, strict=True)
    pairs = [(path, own) for path, own in every if path.rule.kind in kinds and own.needed_for is not None]
    for path, evidence in sorted(pairs, key=lambda pair: -pair[1].removed["recomputed"]):
        same = [each for each, _ in pairs if (each.roles, each.target) == (path.roles, path.target)]
        found.setdefault(evidence.needed_for or "", same)
    return dict(sorted(found.items()))


def _before(paths: "Sequence[Path]", rows: Sequence[Mapping[str, Any]], otherwise: int) -> int:
    # The last checkpoint before any of some paths had formed.
    wanted = {(path.layer, path.head, f"{path.query} → {path.read}") for path in paths}
    own = [row for row in rows if (row.get("layer"), row.get("head"), row.get("part")) in wanted]
    formed = any(row["metric"] == "formed" and row["value"] == 1.0 for row in own)
    low = [row["value"] for row in own if row["metric"] == "formed_at_low"]
    return int(min(low)) if formed else otherwise
