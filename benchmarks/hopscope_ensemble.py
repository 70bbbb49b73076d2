"""Ours: many members as one tensor program, trained exactly as a study's worker trains them.

The step is the trainer's (`hopscope.executors.timing.Steps`) without its record keeping: nothing is evaluated and
nothing is written, as in the other contestants.  `--engine` is how the gradient is found: `general` by autograd,
`fused` by loops written out for one-layer models, `auto` what a study would choose.  The options that change the
model are for `growth.py`.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import torch
from pydantic import ValidationError

from _common import (
    FFN_WIDTH,
    HEADS,
    LEARNING_RATE,
    REPEAT_RATIO,
    SYMBOLS,
    WIDTH,
    arguments,
    measure,
    parse,
    prepare_torch,
    stop,
)
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.executors.timing import Steps
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import PermutationConfig, RetrievalConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES, EngineName, chosen_engine

FOR = {
    "fused": "one layer on tokens",
    "stacked": "pre-norm layers on vectors",
    "virtual": "narrow heads on a wide stream",
}
"""What each engine with loops of its own is for."""

STEPS = 10**8  # more than any clock allows: batches of coming steps are drawn together, up to the last


def job_of(
    batch: int,
    members: int,
    seed: int,
    values: int = SYMBOLS,
    layers: int = 1,
    width: int = WIDTH,
    heads: int = HEADS,
) -> TrainJob:
    """A unit as a study would have it; members have the seeds from ``seed`` on."""
    task = PermutationConfig(values=values, repeat_ratio=REPEAT_RATIO)
    model = TransformerConfig(
        layers=layers,
        heads=heads,
        width=width,
        mlp_ratio=FFN_WIDTH / WIDTH,
        activation="relu",
        norm="post",
        init="encoder",
        length=task.positions,
        input_size=values + 1,
        output_size=values + 1,
        readout=tuple(range(0, task.positions, 2)),
    )
    return TrainJob(
        label="bench",
        task=task,
        model=model,
        training=TrainingConfig(
            steps=STEPS,
            batch_size=batch,
            optimizer="adam",
            learning_rate=LEARNING_RATE,
            betas=(0.9, 0.999),
            weight_decay=0.0,
            warmup_steps=0,
            schedule="constant",
            clip_norm=None,
        ),
        members=tuple(MemberPlan(member=index, seed=seed + index) for index in range(members)),
    )


def engine_of(asked: str, job: TrainJob) -> EngineName:
    """The engine that trains the job; one that cannot ends the contestant."""
    name = chosen_engine(job, "cpu") if asked == "auto" else next(e for e in ENGINES if e == asked)
    engine = ENGINES[name]
    if name in FOR and not engine.fits(job, "cpu"):
        stop(f"--engine: expected {name} for {FOR[name]} only, found another model; use --engine auto")
    try:
        engine.check("cpu")
    except UserError as error:
        stop(str(error))
    return name


class EnsembleLoop:
    """One training step of all members per call."""

    def __init__(self, job: TrainJob, engine: EngineName) -> None:
        self.batch, self.members = job.training.batch_size, len(job.members)
        config = job.task
        task = RetrievalTask(config) if isinstance(config, RetrievalConfig) else PermutationTask(config)
        self.steps = Steps(job, task, engine)
        self.latest = torch.full((self.members,), float("nan"))

    def advance(self) -> int:
        self.latest = self.steps.take()
        return self.members * self.batch

    def loss(self) -> float:
        return self.latest.mean().item()


def options_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments("hopscope_ensemble", members=8)
    parser.add_argument(
        "--engine", choices=("auto", *ENGINES), default="auto", help="how the gradient is found"
    )
    parser.add_argument("--values", type=int, default=SYMBOLS, help="V, the number of symbols")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument(
        "--width", type=int, default=WIDTH, help="of the residual stream; the FFN is twice as wide"
    )
    parser.add_argument("--heads", type=int, default=HEADS)
    return parse(parser, argv, single=False)


def train(name: str, options: argparse.Namespace, make_job: Callable[[], TrainJob]) -> int:
    """Plan, choose the engine, measure; returns the exit status."""
    try:
        job = make_job()
    except ValidationError as error:
        stop(validation_line(error))
    engine = engine_of(options.engine, job)
    flushed = prepare_torch(options.threads)
    packages = ["torch", *ENGINES[engine].packages]
    return measure(
        name,
        options,
        lambda _: EnsembleLoop(job, engine),
        packages,
        engine=engine,
        subnormals_flushed=flushed,
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(argv)
    shape = {name: getattr(options, name) for name in ("values", "layers", "width", "heads")}
    return train(
        "hopscope_ensemble",
        options,
        lambda: job_of(options.batch, options.members, options.seed, **shape),
    )


if __name__ == "__main__":
    sys.exit(main())
