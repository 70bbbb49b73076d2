"""quick_shapes.py: which model learns a chain soonest, under the completion `torch-schedule`?

One thing at a time around one shape: chains of three steps (`hopscope run campaigns/quick_shapes.py`, a quarter of an
hour on two cores), of two (`campaigns/quick_shapes.py:two`, three minutes), of four (`:four`), and of three once more
around what came out, a position code per pair (`:pairs`), and in 12 layers of one head (`:one_head`).  The rule, fixed
before the first run: of the shapes whose every seed learns the last step (held-out loss under 0.25 at the end), take
the one with the least mean work until that step is under 0.5.  Eight more seeds of it (`:check`) say how long to train.
For 12 layers of one head `:one_head_check` says so, by a rule that was added before its own run: the fewest steps with
which seven of eight learn the last step, or the most if none does.  The search has seeds of its own; studies train
seeds 0, 1, …
"""

from collections.abc import Iterator
from typing import Any

import hopscope as hs
from hopscope.studies.quick import learned_at

BASE = {"model.layers": 6, "model.width": 128, "model.heads": 8, "training.batch_size": 64}
CHANGES: dict[str, dict[str, Any]] = {
    "4 layers": {"model.layers": 4},
    "5 layers": {"model.layers": 5},
    "8 layers": {"model.layers": 8},
    "width 96": {"model.width": 96},
    "width 192": {"model.width": 192},
    "width 256": {"model.width": 256},
    "4 heads of 16": {"model.heads": 4},
    "8 heads of 8": {"model.head_dim": 8},
    "4 heads of 32": {"model.heads": 4, "model.head_dim": 32},
    "batch 32": {"training.batch_size": 32},
    "batch 128": {"training.batch_size": 128},
    "rate 0.002": {"training.learning_rate": 2e-3},
    "rate 0.006": {"training.learning_rate": 6e-3},
    "code per pair": {"task.position": "pair"},
}
CHANGES_OF_TWO: dict[str, dict[str, Any]] = {
    "3 layers": {"model.layers": 3},
    "6 layers": {"model.layers": 6},
    "width 64": {"model.width": 64},
    "width 256": {"model.width": 256},
    "4 heads of 16": {"model.heads": 4},
    "rate 0.002": {"training.learning_rate": 2e-3},
    "rate 0.006": {"training.learning_rate": 6e-3},
    "code per pair": {"task.position": "pair"},
}


SEEDS = (100, 101, 102)


@hs.measure(needs=[learned_at])
def work(context: hs.Context) -> Iterator[dict[str, Any]]:
    """10¹² multiply-adds of training until the last step was under 0.5; infinite where it never was.

    Three products of every weight with every position: one forward, two backward.
    """
    from hopscope.training.config import job_of

    assert context.unit is not None
    job = job_of(context.unit)
    model, last = job.model, job.task.asked[-1]
    weights = 4 * model.layers * model.width * model.heads * model.head_size
    every_step = 3e-12 * weights * model.length * job.training.batch_size
    steps = {row.member: row.value for row in context.rows("learned_at") if row.part == f"step_{last}"}
    yield {"metric": "work", "value": [every_step * steps[member] for member in context.members]}


def grid(changes: dict[str, dict[str, Any]], base: dict[str, Any]) -> Any:
    """The base shape, and each change of it."""
    return lambda options: [
        hs.Configuration(label=name, overrides={**base, **each}, seeds=SEEDS)
        for name, each in {"base": {}, **changes}.items()
    ]


study = hs.Study(
    name="quick-shapes",
    question="Which model learns three steps of a chain soonest?",
    task=hs.tasks.Retrieval(steps=3, chains=4),
    completion="torch-schedule",
    model=hs.Model(layers=6, heads=8, width=128, head_dim=16, mlp_ratio=0.0),
    training=hs.Training(
        steps=800, batch_size=64, learning_rate=4e-3, evaluate_every=20, checkpoint_every=800
    ),
    configurations=grid(CHANGES, BASE),
    held_out=256,
    measures=[learned_at, work],
    figures=[
        hs.figures.bars("loss", by="configuration"),
        hs.figures.curves("loss_step_3", by="configuration"),
    ],
)

two = hs.Study(
    name="quick-shapes-two",
    question="Which model learns two steps of a chain soonest?",
    task=hs.tasks.Retrieval(steps=2, chains=4),
    completion="torch-schedule",
    model=study.model,
    training=study.training.model_copy(update={"steps": 400, "checkpoint_every": 400}),
    configurations=grid(CHANGES_OF_TWO, {**BASE, "model.layers": 4}),
    held_out=256,
    measures=study.measures,
    figures=[hs.figures.bars("loss", by="configuration")],
)

CHANGES_OF_PAIRS: dict[str, dict[str, Any]] = {
    "4 layers": {"model.layers": 4},
    "5 layers": {"model.layers": 5},
    "4 heads of 16": {"model.heads": 4},
    "4 heads of 32": {"model.heads": 4, "model.head_dim": 32},
    "2 heads of 32": {"model.heads": 2, "model.head_dim": 32},
    "rate 0.006": {"training.learning_rate": 6e-3},
}

pairs = hs.Study(
    name="quick-shapes-pairs",
    question="Which model learns three steps soonest, where both tokens of a pair share a position code?",
    task=hs.tasks.Retrieval(steps=3, chains=4, position="pair"),
    completion="torch-schedule",
    model=study.model,
    training=study.training,
    configurations=grid(CHANGES_OF_PAIRS, BASE),
    held_out=256,
    measures=study.measures,
    figures=study.figures,
)


def durations(*counts: int) -> Any:
    """The same model, trained for several numbers of steps."""
    return lambda options: [
        hs.Configuration(
            label=f"{steps:,} steps", overrides={"training.steps": steps}, seeds=tuple(range(200, 208))
        )
        for steps in counts
    ]


check = hs.Study(
    name="quick-shapes-check",
    question="How long must the quickest model train, so that nearly every seed learns three steps?",
    task=pairs.task,
    completion="torch-schedule",
    model=study.model.model_copy(update={"layers": 4}),
    training=study.training,
    configurations=durations(600, 800, 1_000),
    held_out=256,
    measures=study.measures,
    figures=study.figures,
)

CHANGES_OF_ONE_HEAD: dict[str, dict[str, Any]] = {
    "head of 16": {"model.head_dim": 16},
    "head of 128": {"model.head_dim": 128},
    "rate 0.001": {"training.learning_rate": 1e-3},
    "rate 0.004": {"training.learning_rate": 4e-3},
}

one_head = hs.Study(
    name="quick-shapes-one-head",
    question="Which model of 12 layers with one head learns three steps soonest?",
    task=pairs.task,
    completion="torch-schedule",
    model=hs.Model(layers=12, heads=1, width=128, head_dim=32, mlp_ratio=0.0),
    training=study.training.model_copy(update={"learning_rate": 2e-3}),
    configurations=grid(CHANGES_OF_ONE_HEAD, {}),
    held_out=256,
    measures=study.measures,
    figures=study.figures,
)

one_head_check = hs.Study(
    name="quick-shapes-one-head-check",
    question="How long must a model of 12 layers with one head train, so that nearly every seed learns three steps?",
    task=pairs.task,
    completion="torch-schedule",
    model=one_head.model,
    training=study.training,
    configurations=durations(1_000, 1_500, 2_000),
    held_out=256,
    measures=study.measures,
    figures=study.figures,
)

CHANGES_OF_FOUR: dict[str, dict[str, Any]] = {
    "6 layers": {"model.layers": 6},
    "12 layers, rate 0.002": {"model.layers": 12, "training.learning_rate": 2e-3},
    "code per token": {"task.position": "token"},
    "batch 128, rate 0.003": {"training.batch_size": 128, "training.learning_rate": 3e-3},
}

four = hs.Study(
    name="quick-shapes-four",
    question="Which model learns four steps of a chain soonest?",
    task=hs.tasks.Retrieval(steps=4, chains=4, position="pair"),
    completion="torch-schedule",
    model=study.model,
    training=study.training.model_copy(update={"steps": 1_500, "checkpoint_every": 1_500}),
    configurations=grid(CHANGES_OF_FOUR, {**BASE, "model.layers": 8}),
    held_out=256,
    measures=study.measures,
    figures=[hs.figures.bars("loss", by="configuration")],
)
