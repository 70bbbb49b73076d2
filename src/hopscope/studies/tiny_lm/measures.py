"""What is measured of small language models: accuracy in training, an exam through Inspect, circuits and how they form.

The part of a depth is `depth_k`.  A member that diverged has null for what every member has, and no other row.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hopscope.claims.crossings import Crossing, first_crossing
from hopscope.study.measure import Context, measure

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.circuits.reader import Reading

Rows = Iterator[dict[str, Any]]

LEARNED, FORMED = 0.9, 0.5
"""Held-out accuracy from which on a depth counts as learned; mean attention of a path that has formed."""

EXAM_SEED, SEQUENCES = 0, 32
"""Seed of the questions of the exam, which all members answer alike; questions on which paths are followed."""


def part_of(depth: int) -> str:
    """What a depth is called in the evidence table."""
    return f"depth_{depth}"


@measure(when="training")
def depths(context: Context) -> Rows:
    """Loss and accuracy of the answers to held-out questions of each depth: `loss_depth_k`, `accuracy_depth_k`."""
    import torch

    from hopscope.tasks import Draws

    task: Any = context.task
    device = context.ensemble.readout.weight.device
    seeds, readout = torch.tensor([task.split_seed], device=device), task.shape().readout
    for depth in task.depths:
        batch = task.questions(Draws(seeds, "held-out", 0, context.options.evaluation_samples), depth)
        at = readout.index(task.prompt_length(depth) - 1)
        logits: Tensor = context.ensemble(batch.inputs)[:, :, at]
        answers = batch.targets[:, :, at].expand(logits.shape[:2])
        losses = -logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]
        yield {"metric": f"loss_{part_of(depth)}", "value": losses.mean(-1)}
        right = (logits.argmax(-1) == answers).float()
        yield {"metric": f"accuracy_{part_of(depth)}", "value": right.mean(-1)}


@measure
def exam(context: Context) -> Rows:
    """What every member answers to held-out questions, asked as any language model is, by depth.

    Metrics and their intervals as of `hopscope.language.answers.rows`, without single questions.  The models are
    written as folders `models/member-N`, which any tool reads.
    """
    shares, depths = ("accuracy", "first_accuracy", "acceptance", "answered"), context.options.depths
    nulls = [{"metric": name, "part": part_of(depth)} for depth in depths for name in shares]
    return _of_each(context, _examined, nulls)


def _examined(context: Context, place: int, member: int) -> Rows:
    from hopscope.language import kinds
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask
    from hopscope.language.local import export

    options, task = context.options, context.task
    folder, logs = (context.run.path / name / f"member-{member}" for name in ("models", "logs"))
    export(context.ensemble.member(place), task.vocabulary, folder)  # type: ignore[attr-defined]
    asked = kinds(
        ("equations",), options.depths, options.chains, count=options.questions, seed=EXAM_SEED,
        held_out=options.held_out_share, split_seed=options.split_seed,
    )  # fmt: skip
    found = ask([f"hf/{folder}"], asked, logs, temperature=0.0, budget=context.budget, say=context.say)
    for row in (each for each in rows(found) if each["metric"] != "correct"):
        depth, colon, what = row["part"].rpartition("D = ")[2].partition(": ")
        yield {**row, "part": f"{part_of(int(depth))}{colon}{what}", "member": member}


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of every member, and when its paths formed.

    * `learned` (by depth), `learned_all`, `was_read`, `threshold`, `circuit_loss` (parts `full`, `rules`, `recomputed`,
      `complement`, `random_circuits`, and its range), `accuracy_lost` (of the depth that stands worst, recomputed),
      `heads`, `heads_needed` (one less where two could be one), `paths`, `minimal_circuits`;
    * of each path, part `rows → what they read`: `mean_attention`, `loss_without_MODE`, `to_one_token`, `needed_for`,
      `rise_if_exchanged`; `attention` at each checkpoint; time `formed`;
    * time `rose`, by depth, of the held-out accuracy to 90 %.  A time is four metrics: `X` (1 if it happened), `X_at`,
      `X_at_low`, `X_at_high`; what never happened has the first, which is 0, and the third, until which it was watched.
    """
    nulls = [{"metric": "learned", "part": part_of(depth)} for depth in context.options.depths]
    return _of_each(context, _read, [*nulls, {"metric": "learned_all"}, {"metric": "was_read"}])


def _of_each(
    context: Context, function: Callable[[Context, int, int], Rows], nulls: Iterable[dict[str, Any]]
) -> Rows:
    gone = context.unit.diverged_at(context.step or 0)
    for place, member in enumerate(context.members):
        if gone[place] is None:
            yield from context.part(f"member-{member}", partial(function, context, place, member))
        else:
            yield from ({**each, "value": None, "member": member} for each in nulls)


def _read(context: Context, place: int, member: int) -> Rows:
    from hopscope.circuits.history import formation
    from hopscope.circuits.reader import ReaderConfig, read
    from hopscope.page.explorer import MOST_CHECKPOINTS, circuit, spread

    options, task, steps = context.options, context.task, list(context.unit.steps)
    names = ("orders", "further_orders", "most_circuits", "random_circuits")
    config = ReaderConfig(**{name: getattr(options, name) for name in names})
    models = [(step, context.at(context.unit, step).ensemble.member(place)) for step in steps]
    reading = read(models[-1][1], task, config, lambda words: None)

    def row(metric: str, value: float, **where: Any) -> dict[str, Any]:
        return {"metric": metric, "value": float(value), "member": member, **where}

    yield from _rows_of(reading, row, options.depths)
    if reading.circuit.paths:
        shown = spread(steps, MOST_CHECKPOINTS)
        player = circuit(reading, [each for each in models if each[0] in shown], task)
        yield row("circuit", 1.0, file=context.save(f"circuit-{member}", player))
        for path, attention in formation(reading.circuit, models, task, SEQUENCES):
            where = {"layer": path.layer, "head": path.head, "part": f"{path.query} → {path.read}"}
            values = [attention[step] for step in steps]
            yield from (row("attention", value, step=at, **where) for at, value in attention.items())
            yield from _time(row, "formed", first_crossing(steps, values, FORMED), **where)
    for depth in options.depths:
        curve = context.evidence.curve(f"accuracy_{part_of(depth)}")[member].dropna()
        found = first_crossing([*map(float, curve.index)], curve.tolist(), LEARNED, rising=True)
        yield from _time(row, "rose", found, part=part_of(depth))


def _rows_of(reading: "Reading", row: Callable[..., dict[str, Any]], depths: tuple[int, ...]) -> Rows:
    from hopscope.circuits.reader import READ

    learned = [f"D = {depth}" in reading.learned for depth in depths]
    yield from (
        row("learned", each, part=part_of(depth)) for depth, each in zip(depths, learned, strict=True)
    )
    numbers: dict[str, float] = {"learned_all": all(learned), "was_read": reading.verdict == READ}
    numbers["threshold"] = reading.threshold
    if paths := reading.circuit.paths:
        heads = len(reading.circuit.heads)
        numbers |= {"heads": heads, "heads_needed": heads - min(1, len(reading.merges)), "paths": len(paths)}
        numbers["minimal_circuits"] = len(reading.minimal)
        yield row("accuracy_lost", reading.worst, part="worst_recomputed")
        random = reading.random
        losses = {name: reading.loss[name] for name in ("full", "rules", "recomputed", "complement")}
        ends = zip(("", "_low", "_high"), (fmean(random), min(random), max(random)), strict=True)
        losses |= {f"random_circuits{end}": loss for end, loss in ends}
        yield from (row("circuit_loss", loss, part=part) for part, loss in losses.items())
    yield from (row(metric, value) for metric, value in numbers.items())
    for path, evidence in zip(paths, reading.evidence, strict=True):
        at = {"layer": path.layer, "head": path.head}
        place = {**at, "part": f"{path.query} → {path.read}"}
        yield row("to_one_token", _one_token(path.target), **place)
        yield row("mean_attention", evidence.mean_attention, **place)
        for mode, loss in evidence.removed.items():
            yield row(f"loss_without_{mode}", loss, **place)
        if evidence.needed_for is not None:
            yield row("needed_for", float(evidence.needed_for.rpartition(" ")[2]), **place)
        for thing, rise in evidence.carries.items():
            yield row("rise_if_exchanged", rise, **at, part=f"{path.query}: {thing}")


def _one_token(target: str) -> bool:
    # Not all tokens of a role alike, and no mixture.
    return bool(target) and not target.startswith("all ") and " + " not in target


def _time(row: Callable[..., dict[str, Any]], event: str, found: Crossing, **where: Any) -> Rows:
    yield row(event, found.time is not None, **where)
    ends = {"at": found.time, "at_low": found.low, "at_high": found.high}
    if found.time is None:
        ends = {"at_low": found.censored_at}
    yield from (row(f"{event}_{end}", value, **where) for end, value in ends.items() if value is not None)
