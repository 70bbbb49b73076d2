"""The batches of an engine: drawn for several steps together, and worked on a few samples after another."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import DeviceTask, TaskOnDevice
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Gradient

LossGradient = Callable[[int, slice, Tensor], Tensor]
"""From a member, samples and predictions `[batch, readout, output]` for them to the loss's gradient by these."""

_DRAWN_AHEAD = 1 << 14
"""Samples drawn at a time: enough that drawing is arithmetic rather than overhead, few enough to stay in cache."""

_NUMBERS_AHEAD = 1 << 22
"""Input numbers drawn at a time, at most: they lie in memory."""

_COLUMNS = 900
"""Columns of a chunk, at most: enough that a call costs little, few enough that its activations stay in cache."""


def own_task(task: DeviceTask) -> DeviceTask:
    """A task of this package as its own class, for engines that know those."""
    return task.task.on(task.device, task.examples) if isinstance(task, TaskOnDevice) else task


class TrainingBatches:
    """The batches of training steps; where steps are drawn `ahead`, those of several together."""

    def __init__(self, task: DeviceTask, training: TrainingConfig, seeds: Tensor, *, ahead: bool = True):
        self._task, self._training, self._seeds, self._ahead = task, training, seeds, ahead
        size = task.positions * (task.input_size if task.input_kind == "vectors" else 1)
        samples = min(_DRAWN_AHEAD, _NUMBERS_AHEAD // size)
        self._many = max(1, samples // (training.batch_size * len(seeds)))
        self._steps = range(0)
        self._drawn: Batch | None = None

    def of(self, step: int) -> Batch:
        """The batch of one step."""
        size = self._training.batch_size
        if not self._ahead:
            return self._task.sample(self._seeds, "train", step, size, annotate=False)
        if step not in self._steps or self._drawn is None:
            self._steps = range(step, min(step + self._many, max(self._training.steps, step + 1)))
            self._drawn = self._task.sample(self._seeds, "train", self._steps, size, annotate=False)
        first = (step - self._steps.start) * size
        return self._drawn.take(slice(first, first + size))


class Folded(Protocol):
    """Weights that are made of others once a step."""

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""

    def unfold(self, gradient: Float[Tensor, "member size"]) -> None:
        """Write the gradient, laid out as the weights."""


class ChunkedGradient:
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of the members, on the CPU.
        batch: samples of each member in a batch.
        tiles: of samples side by side, in a chunk.
    """

    _weights: Folded

    def __init__(self, config: TransformerConfig, parameters: Parameters, batch: int, lanes: int):
        self.config, self.parameters, self.batch = config, parameters, batch
        needed = -(-batch // lanes)
        chunks = -(-needed // max(1, _COLUMNS // (lanes * config.length)))
        self.tiles = -(-needed // chunks)
        self._size = self.tiles * lanes

    @torch.no_grad()
    def __call__(
        self,
        inputs: Float[Tensor, "member batch position feature"] | Int[Tensor, "member batch position"],
        loss_gradient: LossGradient,
        gradient: Float[Tensor, "member size"],
    ) -> None:
        """Compute the gradient of the sum of the members' losses.

        Args:
            inputs: vectors or token ids, of all members.
            loss_gradient: called for every member and every few samples.
            gradient: laid out as the weights; overwritten.
        """
        self._weights.fold()
        for member in range(len(inputs)):
            for first in range(0, self.batch, self._size):
                samples = slice(first, min(first + self._size, self.batch))
                predictions = samples_of(self._forward(member, inputs[member, samples]))
                self._backward(member, loss_gradient(member, samples, predictions[: samples.stop - first]))
        self._weights.unfold(gradient)

    def _forward(self, member: int, inputs: Tensor) -> Float[Tensor, "output tile position lane"]:
        raise NotImplementedError

    def _backward(self, member: int, slope: Tensor) -> None:
        raise NotImplementedError


def in_chunks(
    kind: Callable[[TransformerConfig, Parameters, int], ChunkedGradient],
    model: Transformer,
    task: DeviceTask,
    training: TrainingConfig,
    seeds: Tensor,
    buffer: Tensor,
) -> Gradient:
    """Training steps by a chunked gradient, of a task that knows the derivative of its loss; see `Engine.gradient`."""
    compute = kind(model.config, model.parameters, training.batch_size)
    batches = TrainingBatches(task, training, seeds)

    def gradient(step: int) -> Mapping[str, Tensor]:
        batch = batches.of(step)
        shape = (*batch.inputs.shape[:2], len(task.readout), task.output_size)
        predictions = batch.inputs.new_empty(shape, dtype=torch.float32)

        def loss_gradient(member: int, samples: slice, found: Tensor) -> Tensor:
            predictions[member, samples] = found
            # The loss is a mean over the batch, of which these samples are a part.
            share = len(found) / training.batch_size
            return task.slope(found[None], batch.member(member).take(samples))[0] * share

        compute(batch.inputs, loss_gradient, buffer)
        return task.losses(predictions, batch)

    return gradient


def samples_of(
    apart: Float[Tensor, "feature tile position lane"],
) -> Float[Tensor, "sample position feature"]:
    """Sample by sample what lies in lanes; as many as there is room for."""
    return apart.permute(1, 3, 2, 0).flatten(0, 1)


def fill(
    apart: Float[Tensor, "feature tile position lane"], samples: Float[Tensor, "sample position feature"]
) -> None:
    """Take over samples; the lanes that are left become zero."""
    lanes = apart.shape[3]
    whole = len(samples) // lanes
    rest = samples[whole * lanes :]
    apart[:, :whole].copy_(samples[: whole * lanes].unflatten(0, (whole, lanes)).permute(3, 0, 2, 1))
    if whole < apart.shape[1]:
        apart[:, whole:].zero_()
    if len(rest):
        apart[:, whole, :, : len(rest)].copy_(rest.permute(2, 1, 0))
