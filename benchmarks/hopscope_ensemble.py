"""Ours: many members as one tensor program, with the package's own task, model and optimiser.

The step is the trainer's (`hopscope.training.trainer`) without its record keeping: nothing is evaluated and
nothing is written, as in the other contestants.
"""

import argparse
import sys
from collections.abc import Sequence

import torch

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
)
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer


class EnsembleLoop:
    """One training step of all members per call."""

    def __init__(self, batch: int, members: int, seed: int) -> None:
        self.batch, self.members, self.step = batch, members, 0
        self.seeds = torch.arange(seed, seed + members)
        self.task = PermutationTask(PermutationConfig(values=SYMBOLS, repeat_ratio=REPEAT_RATIO))
        self.model = Transformer.initial(self._shape(), self.seeds)
        self.weights = {name: weight.requires_grad_() for name, weight in self.model.weights.items()}
        training = TrainingConfig(steps=1, batch_size=batch, learning_rate=LEARNING_RATE)
        self.optimizer = Optimizer(self.model.parameters, training)
        self.latest = torch.full((members,), float("nan"))

    def _shape(self) -> TransformerConfig:
        return TransformerConfig(
            layers=1,
            heads=HEADS,
            width=WIDTH,
            mlp_ratio=FFN_WIDTH / WIDTH,
            activation="relu",
            norm="post",
            init="torch",
            length=self.task.positions,
            input_size=self.task.input_size,
            output_size=self.task.output_size,
            readout=self.task.readout,
        )

    def advance(self) -> int:
        batch = self.task.sample(self.seeds, "train", self.step, self.batch, annotate=False)
        losses = self.task.losses(self.model(batch.inputs), batch)["loss"]
        gradients = torch.autograd.grad(losses.sum(), list(self.weights.values()))
        self.latest = losses.detach()
        self.optimizer.step(self.step, self.latest, dict(zip(self.weights, gradients, strict=True)))
        self.step += 1
        return self.members * self.batch

    def loss(self) -> float:
        return self.latest.mean().item()


def build(options: argparse.Namespace) -> EnsembleLoop:
    return EnsembleLoop(options.batch, options.members, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(arguments("hopscope_ensemble", members=8), argv, single=False)
    flushed = prepare_torch(options.threads)
    return measure("hopscope_ensemble", options, build, ["torch"], subnormals_flushed=flushed)


if __name__ == "__main__":
    sys.exit(main())
