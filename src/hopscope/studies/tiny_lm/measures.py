"""What is measured of small language models: accuracy in training, an exam through Inspect, and circuits.

The part of a depth is `depth_k`.  A member that diverged has null in the exam, and no other row.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hopscope.claims.crossings import first_crossing
from hopscope.study.measure import Context, measure

Rows = Iterator[dict[str, Any]]

LEARNED = 0.9
"""Held-out accuracy from which on a depth counts as learned."""


def part_of(depth: int) -> str:
    """What a depth is called in the evidence table."""
    return f"depth_{depth}"


@measure(when="training")
def depths(context: Context) -> Rows:
    """Loss and accuracy of the answers to held-out questions of each depth: `loss_depth_k`, `accuracy_depth_k`."""
    import torch

    from hopscope.tasks import Draws, losses

    task: Any = context.task
    seeds = torch.tensor([task.split_seed], device=context.ensemble.readout.weight.device)
    for depth in task.depths:
        batch = task.questions(Draws(seeds, "held-out", 0, context.job.held_out), depth)
        found = losses(task, context.ensemble(batch.inputs), batch)
        yield {"metric": f"loss_{part_of(depth)}", "value": found["loss_answer"]}
        yield {"metric": f"accuracy_{part_of(depth)}", "value": found["accuracy"]}


@measure
def exam(context: Context) -> Rows:
    """What every member answers to held-out questions, asked as any language model is, by depth.

    Metrics and their intervals as of `hopscope.language.answers.rows`, without single questions.  The models are
    written as folders `models/member-N`, which any tool reads.
    """
    task: Any = context.task
    yield from _of_each(context, _examined)
    for member, gone in zip(context.members, context.unit.diverged_at(context.step or 0), strict=True):
        for depth in task.depths if gone is not None else ():
            yield {"metric": "first_accuracy", "part": part_of(depth), "value": None, "member": member}


@measure(name="circuit")
def circuits(context: Context) -> Rows:
    """The circuit of every member, and when each depth was learned.

    `was_read`, `heads`, `paths`, `minimal_circuits` and `circuit_loss` (parts `full`, `rules`) of a circuit that was
    found, and `circuit`, whose file the page's player shows; by depth `rose_at`: step at which the held-out accuracy
    reached 90 %, if it did.
    """
    return _of_each(context, _read)


def _of_each(context: Context, function: Callable[[Context, int, int], Rows]) -> Rows:
    gone = context.unit.diverged_at(context.step or 0)
    for place, member in enumerate(context.members):
        if gone[place] is None:
            yield from context.part(f"member-{member}", partial(function, context, place, member))


def _examined(context: Context, place: int, member: int) -> Rows:
    from hopscope.language import kinds
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask
    from hopscope.language.local import export

    task: Any = context.task
    folder, logs = (context.run.path / name / f"member-{member}" for name in ("models", "logs"))
    export(context.ensemble.member(place), task.vocabulary, folder)
    held = {"held_out": task.held_out_share, "split_seed": task.split_seed}
    asked = kinds(("equations",), task.depths, task.chains, count=context.options.questions, **held)
    found = ask([f"hf/{folder}"], asked, logs, temperature=0.0, budget=context.budget, say=context.say)
    for row in (each for each in rows(found) if each["metric"] != "correct"):
        depth, colon, what = row["part"].rpartition("D = ")[2].partition(": ")
        yield {**row, "part": f"{part_of(int(depth))}{colon}{what}", "member": member}


def _read(context: Context, place: int, member: int) -> Rows:
    from hopscope.circuits.reader import READ, ReaderConfig, read
    from hopscope.page.explorer import MOST_CHECKPOINTS, circuit, spread

    task: Any = context.task
    row: Callable[..., dict[str, Any]] = partial(dict, member=member)
    for depth in task.depths:
        curve = context.evidence.curve(f"accuracy_{part_of(depth)}")[member].dropna()
        rose = first_crossing([*map(float, curve.index)], curve.tolist(), LEARNED, rising=True)
        if rose.time is not None:
            yield row(metric="rose_at", value=rose.time, part=part_of(depth))
    names = ("orders", "further_orders", "most_circuits", "random_circuits")
    config = ReaderConfig(**{name: getattr(context.options, name) for name in names})
    shown = spread(context.unit.steps, MOST_CHECKPOINTS)
    models = [(step, context.at(context.unit, step).ensemble.member(place)) for step in shown]
    reading = read(models[-1][1], task, config)
    yield row(metric="was_read", value=float(reading.verdict == READ))
    if not reading.circuit.paths:
        return
    file = context.save(f"circuit-{member}", circuit(reading, models, task))
    yield row(metric="circuit", value=1.0, file=file)
    heads, paths = reading.circuit.heads, reading.circuit.paths
    for name, several in (("heads", heads), ("paths", paths), ("minimal_circuits", reading.minimal)):
        yield row(metric=name, value=float(len(several)))
    for part in ("full", "rules"):
        yield row(metric="circuit_loss", part=part, value=reading.loss[part])
