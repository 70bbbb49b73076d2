"""Ours on the retrieval problem: many members as one program, trained exactly as a study's worker trains them.

`--engine` is how the gradient is found: `general` by autograd, `stacked` and `virtual` by derivatives written out for
these models, `auto` what a study would choose.
"""

import argparse
import sys
from collections.abc import Sequence

from _depth import (
    BETAS,
    CHAINS,
    EPSILON,
    INPUT_SIZE,
    LEARNING_RATE,
    SYMBOL_DIM,
    WEIGHT_DECAY,
    Shape,
    depth_arguments,
    depth_parse,
    shape_of,
)
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES
from hopscope_ensemble import STEPS, train


def job_of(shape: Shape, batch: int, members: int, seed: int) -> TrainJob:
    """A unit as a study would have it; members have the seeds from ``seed`` on."""
    task = RetrievalConfig(chains=CHAINS, symbol_dim=SYMBOL_DIM, steps=shape.steps)
    model = TransformerConfig(
        layers=shape.layers,
        heads=shape.heads,
        width=shape.width,
        head_dim=shape.head_dim,
        mlp_ratio=shape.mlp_ratio,
        positions="carried",
        position_size=SYMBOL_DIM,
        length=task.positions,
        input_kind="vectors",
        input_size=INPUT_SIZE,
        output_size=shape.output_size,
        readout=tuple(range(task.positions - CHAINS, task.positions)),
        init="gpt2",
    )
    training = TrainingConfig(
        steps=STEPS,
        batch_size=batch,
        optimizer="adamw",
        learning_rate=LEARNING_RATE,
        betas=BETAS,
        epsilon=EPSILON,
        weight_decay=WEIGHT_DECAY,
        warmup_steps=0,
        schedule="constant",
        clip_norm=None,
    )
    return TrainJob(
        label="bench",
        task=task,
        model=model,
        training=training,
        members=tuple(MemberPlan(member=index, seed=seed + index) for index in range(members)),
    )


def options_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = depth_arguments("hopscope_depth", members=8)
    parser.add_argument(
        "--engine", choices=("auto", *ENGINES), default="auto", help="how the gradient is found"
    )
    return depth_parse(parser, argv, single=False)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(argv)
    return train(
        "hopscope_depth",
        options,
        lambda: job_of(shape_of(options), options.batch, options.members, options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
