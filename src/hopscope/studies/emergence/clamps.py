"""Members that are trained again from a checkpoint, with the read for one step of the chain clamped (appendix D)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import first_crossing
from hopscope.studies.chains.circuits import Place
from hopscope.studies.chains.comparisons import reading_of
from hopscope.studies.chains.evidence import LEARNED
from hopscope.studies.chains.readings import circuits, time_rows
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from hopscope.circuits.circuit import Path
    from hopscope.circuits.interventions import ReplacePattern
    from hopscope.circuits.reader import Reading

Rows = Iterator[dict[str, Any]]

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


def _again(context: Context, place: int, file: str, rows: Sequence[dict[str, Any]]) -> Rows:
    import torch

    from hopscope.circuits.history import clamp, controls, trained_again

    member, job, options = context.members[place], context.job, context.options
    reading = reading_of(context, file, member)
    chosen = _reads(reading)
    if not chosen:
        return
    start = _before(context, [path for same in chosen.values() for path in same], rows)
    taken = [each for each, _ in reading.minimal]
    on = _execution(context, place)
    runs: dict[str, Sequence[ReplacePattern]] = {LEFT_ALONE: ()}
    for name, paths in chosen.items():
        runs[name] = [clamp(path.layer, path.head, path.roles) for path in paths]
        if (control := controls(paths, taken, on)) is not None:
            runs[f"{CONTROL}{name}"] = control
    weights = context.unit.weights(start).items()
    arrays = {f"weights/{name}": each[place : place + 1] for name, each in weights}
    state, seed = (arrays, {"step": start, "diverged_at": [None]}), context.unit.members[place].data_seed
    with torch.enable_grad():
        found = trained_again(
            context.task, job.model, job.training, seed or 0, state, runs, steps=options.clamp_steps,
            every=options.checkpoint_every, samples=options.evaluation_samples,
        )  # fmt: skip
    words = {str(path.roles): path.query for same in chosen.values() for path in same}

    def row(metric: str, value: float | None, **where: Any) -> dict[str, Any]:
        return {"metric": metric, "value": None if value is None else float(value), "member": member, **where}

    yield row("clamped_from", start)
    for name, losses in found.items():
        for each in runs[name]:
            head = (each.heads or (0,))[0]
            part = f"{name}: {words[str(each.rows)]}"
            yield row("clamped_rows", 1.0, layer=each.layer, head=head, part=part)
        for metric, curve in losses.items():
            for step, value in curve.items():
                yield row(f"clamped_{metric}", value, part=name, step=step)
        for step in range(1, options.steps + 1):
            if own := losses.get(f"loss_step_{step}"):
                fell = first_crossing([*own], [*own.values()], LEARNED, rising=False)
                yield from time_rows(row, f"clamped_fell_step_{step}", fell, part=name)


def _execution(context: Context, place: int) -> Any:
    from hopscope.studies.chains.comparisons import plain_reader

    return plain_reader(context, context.ensemble.member(place)).fresh


def _reads(reading: "Reading") -> "dict[str, list[Path]]":
    # For each step the paths that do the read of a single token whose removal costs most of those for the step.
    # Several heads may do one read, and while one of them is clamped another would serve.
    found: dict[str, list[Path]] = {}
    pairs = [
        (path, evidence)
        for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True)
        if path.rule.kind in ("related", "own_chain") and evidence.needed_for is not None
    ]
    for path, evidence in sorted(pairs, key=lambda pair: -pair[1].removed["recomputed"]):
        same = [each for each, _ in pairs if (each.roles, each.target) == (path.roles, path.target)]
        found.setdefault(evidence.needed_for or "", same)
    return dict(sorted(found.items()))


def _before(context: Context, paths: "Sequence[Path]", rows: Sequence[dict[str, Any]]) -> int:
    # The last checkpoint before any of some paths had formed.
    wanted = {Place(0, path.layer, path.head, f"{path.query} → {path.read}")[1:] for path in paths}
    low = [
        row["value"]
        for row in rows
        if row["metric"] == "formed_at_low" and (row.get("layer"), row.get("head"), row.get("part")) in wanted
    ]
    formed = {
        (row.get("layer"), row.get("head"), row.get("part"))
        for row in rows
        if row["metric"] == "formed" and row["value"] == 1.0
    }
    if not formed & wanted:
        return context.unit.steps[0]
    return int(min(low))
