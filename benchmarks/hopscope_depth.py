"""Ours on the retrieval problem: many members as one program, trained exactly as a study's worker trains them.

`--engine` is how the gradient is found: `general` by autograd, `stacked` by derivatives written out for these models,
`auto` what a study would choose.  The options that change task and model are for `growth.py`.
"""

import argparse
import sys
from collections.abc import Sequence

from _depth import (
    BETAS,
    CHAINS,
    EPSILON,
    HEADS,
    LAYERS,
    LEARNING_RATE,
    STEPS,
    SYMBOL_DIM,
    WEIGHT_DECAY,
    WIDTH,
    depth_arguments,
    depth_parse,
)
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, UnitPlan
from hopscope.training.engines import ENGINES
from hopscope_ensemble import STEPS as TRAINING_STEPS
from hopscope_ensemble import train


def plan_of(
    batch: int,
    members: int,
    seed: int,
    steps: int = STEPS,
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    mlp_ratio: int = 0,
) -> UnitPlan:
    """A unit as a study would plan it; members have the seeds from ``seed`` on."""
    task = RetrievalConfig(chains=CHAINS, symbol_dim=SYMBOL_DIM, steps=steps)
    model = TransformerConfig(
        layers=layers,
        heads=heads,
        width=width,
        mlp_ratio=mlp_ratio,
        positions="carried",
        position_size=SYMBOL_DIM,
        length=task.positions,
        input_kind="vectors",
        input_size=2 * SYMBOL_DIM,
        output_size=steps * SYMBOL_DIM,
        readout=tuple(range(task.positions - CHAINS, task.positions)),
    )
    training = TrainingConfig(
        steps=TRAINING_STEPS,
        batch_size=batch,
        optimizer="adamw",
        learning_rate=LEARNING_RATE,
        betas=BETAS,
        epsilon=EPSILON,
        weight_decay=WEIGHT_DECAY,
    )
    return UnitPlan(
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
    parser.add_argument("--steps", type=int, default=STEPS, help="D, the retrieval steps of a chain")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the residual stream")
    parser.add_argument("--heads", type=int, default=HEADS)
    return depth_parse(parser, argv, single=False)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_of(argv)
    shape = {name: getattr(options, name) for name in ("steps", "layers", "width", "heads", "mlp_ratio")}
    return train(
        "hopscope_depth",
        options,
        lambda: plan_of(options.batch, options.members, options.seed, **shape),
        "stacked",
    )


if __name__ == "__main__":
    sys.exit(main())
