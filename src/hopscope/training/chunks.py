"""Gradients that are written out, a few samples after another: what the stacked and the virtual way have in common."""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters

Judge = Callable[[int, slice, Tensor], Tensor]
"""From a member, samples and predictions `[batch, readout, output]` for them to the loss's gradient by these."""

_COLUMNS = 900
"""Columns of a chunk, at most: enough that a call costs little, few enough that its activations stay in cache."""


class Folded(Protocol):
    """Weights that are made of others once a step."""

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""

    def unfold(self, gradient: Float[Tensor, "member size"]) -> None:
        """Write the gradient, laid out as the weights."""


class ChunkedGradient:
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of the members.
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
        judge: Judge,
        gradient: Float[Tensor, "member size"],
    ) -> None:
        """Compute the gradient of the sum of the members' losses.

        Args:
            inputs: vectors or token ids, of all members.
            judge: called for every member and every few samples.
            gradient: laid out as the weights; overwritten.
        """
        self._weights.fold()
        for member in range(len(inputs)):
            for first in range(0, self.batch, self._size):
                samples = slice(first, min(first + self._size, self.batch))
                predictions = samples_of(self._forward(member, inputs[member, samples]))
                self._backward(member, judge(member, samples, predictions[: samples.stop - first]))
        self._weights.unfold(gradient)

    def _forward(self, member: int, inputs: Tensor) -> Float[Tensor, "output tile position lane"]:
        raise NotImplementedError

    def _backward(self, member: int, slope: Tensor) -> None:
        raise NotImplementedError


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
