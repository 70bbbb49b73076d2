"""Losses and gradients of one training step after another, by the engine of a unit."""

from collections.abc import Callable, Mapping
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import DeviceTask, TaskOnDevice
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Engine, check_engine

Gradient = Callable[[int], Mapping[str, Float[Tensor, " member"]]]
"""From the number of a step to each member's losses; the gradient of their sum is left in a buffer."""

_DRAWN_AHEAD = 1 << 14
"""Samples drawn at a time: enough that drawing is arithmetic rather than overhead, few enough to stay in cache."""

_NUMBERS_AHEAD = 1 << 22
"""Input numbers drawn at a time, at most: they lie in memory."""


def gradient_of(
    engine: Engine,
    model: Transformer,
    task: DeviceTask,
    training: TrainingConfig,
    seeds: Int[Tensor, " member"],
    buffer: Float[Tensor, "member size"],
) -> Gradient:
    """The training step of a unit.

    Args:
        engine: how.
        model: the members.
        task, training, seeds: what they are trained on, and each member's data seed.
        buffer: where the gradient goes, laid out as the weights.

    Raises:
        UserError: the engine lacks what it needs on this machine.
    """
    check_engine(engine, model.parameters.flat.device.type)
    model = model.at(training.precision)
    if engine in ("fused", "compiled") and isinstance(task, TaskOnDevice):
        # These know the tasks of this package by their own classes.
        task = task.task.on(task.device, task.examples)
    if engine == "fused":
        return _fused(model, cast(PermutationTask, task), training, seeds, buffer)
    if engine in ("stacked", "virtual"):
        return _sloped(engine, model, task, training, seeds, buffer)
    if engine == "compiled":
        from hopscope.training.compiled import compiled_gradient

        return compiled_gradient(model, task, training, seeds, buffer)
    return _general(model, task, training, seeds, buffer)


def _general(
    model: Transformer, task: DeviceTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    weights = [weight.requires_grad_() for weight in model.weights.values()]
    views = model.parameters.views(buffer)
    # A declared task may be slow to draw, one small batch after another; those of this package are as they always were.
    ahead = _Ahead(task, training, seeds) if isinstance(task, TaskOnDevice) else None

    def gradient(step: int) -> Mapping[str, Tensor]:
        batch = (
            ahead.batch(step)
            if ahead is not None
            else task.sample(seeds, "train", step, training.batch_size, annotate=False)
        )
        losses = task.losses(model(batch.inputs), batch)
        found = torch.autograd.grad(losses["loss"].sum(), weights)
        for name, each in zip(model.weights, found, strict=True):
            views[name].copy_(each)
        return {name: loss.detach() for name, loss in losses.items()}

    return gradient


def _fused(
    model: Transformer, task: PermutationTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    from hopscope.training.fused import FusedGradient

    fused = FusedGradient(model.config, model.parameters, training.batch_size)
    ahead = _Ahead(task, training, seeds)

    def gradient(step: int) -> Mapping[str, Tensor]:
        batch = ahead.batch(step)
        return task.named_losses(fused(batch.inputs, batch.targets, buffer))

    return gradient


def _sloped(
    engine: Engine,
    model: Transformer,
    task: DeviceTask,
    training: TrainingConfig,
    seeds: Tensor,
    buffer: Tensor,
) -> Gradient:
    from hopscope.training.stacked import StackedGradient
    from hopscope.training.virtual import VirtualGradient

    kind = VirtualGradient if engine == "virtual" else StackedGradient
    way = kind(model.config, model.parameters, training.batch_size)
    ahead = _Ahead(task, training, seeds)

    def gradient(step: int) -> Mapping[str, Tensor]:
        batch = ahead.batch(step)
        shape = (*batch.inputs.shape[:2], len(task.readout), task.output_size)
        predictions = batch.inputs.new_empty(shape, dtype=torch.float32)

        def judge(member: int, samples: slice, found: Tensor) -> Tensor:
            predictions[member, samples] = found
            # The loss is a mean over the batch, of which these samples are a part.
            share = len(found) / training.batch_size
            return task.slope(found[None], batch.member(member).take(samples))[0] * share

        way(batch.inputs, judge, buffer)
        return task.losses(predictions, batch)

    return gradient


class _Ahead:
    """Batches of coming steps, drawn together."""

    def __init__(self, task: DeviceTask, training: TrainingConfig, seeds: Tensor):
        self.task, self.training, self.seeds = task, training, seeds
        size = task.positions * (task.input_size if task.input_kind == "vectors" else 1)
        samples = min(_DRAWN_AHEAD, _NUMBERS_AHEAD // size)
        self.many = max(1, samples // (training.batch_size * len(seeds)))
        self.steps = range(0)
        self.drawn: Batch | None = None

    def batch(self, step: int) -> Batch:
        """The batch of one step."""
        size = self.training.batch_size
        if step not in self.steps or self.drawn is None:
            self.steps = range(step, min(step + self.many, max(self.training.steps, step + 1)))
            self.drawn = self.task.sample(self.seeds, "train", self.steps, size, annotate=False)
        first = (step - self.steps.start) * size
        return self.drawn.take(slice(first, first + size))
