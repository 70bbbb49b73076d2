"""Gradients of deep pre-norm models, several times as fast as by autograd (optional).

Between the large matrix products, which torch does best, everything is a loop over vectors of samples that stays in
registers, compiled by numba (`stacked_loops`), with the derivatives written out.  What norms and biases do is folded
into the matrices once a step (`stacked_weights`).  A chunk of a few dozen samples passes all layers up and down
before the next one begins, so that what it leaves on its way up is still in cache on its way down.

It gives what autograd gives, to rounding (tested).  Without numba training takes the general way; `docs/performance.md`
has the ratios.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters

Judge = Callable[[int, slice, Tensor], Tensor]
"""From a member, samples and predictions `[batch, readout, output]` for them to the loss's gradient by these."""

_COLUMNS = 900
"""Columns of a chunk, at most: enough that a call costs little, few enough that a layer's activations stay in cache."""


class StackedGradient:
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of members that `engines.fits_stacked` accepts, on the CPU.
        batch: samples of each member in a batch.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters, batch: int):
        from hopscope.training.stacked_lanes import LANES
        from hopscope.training.stacked_layer import Columns, FirstLayer, LastLayer, Layer, Readout, Room
        from hopscope.training.stacked_weights import StackedWeights

        self.config, self.parameters, self.batch = config, parameters, batch
        self._weights = StackedWeights(config, parameters)
        needed = -(-batch // LANES)
        chunks = -(-needed // max(1, _COLUMNS // (LANES * config.length)))
        tiles = -(-needed // chunks)
        self._size = tiles * LANES
        self._inputs = Columns.of(self._weights.inputs + 1, tiles, config.length)
        self._inputs.apart[-1] = 1.0
        self._mark_positions()
        self._stream = Columns.of(config.width, tiles, config.length)
        room = top = Room(config, tiles, config.length)
        self._layers = [Layer(config, tiles, room) for _ in range(config.layers)]
        if len(config.readout_positions) < config.length:
            top = Room(config, tiles, len(config.readout_positions))
            self._layers[-1] = LastLayer(config, tiles, top, room)
        if self._weights.few_inputs:
            self._layers[0] = FirstLayer(config, tiles, room, self._inputs)
        self._readout, self._room = Readout(config, tiles, top), room

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
                self._forward(member, inputs[member, samples])
                predictions = samples_of(self._readout.predictions.apart)[: samples.stop - first]
                self._backward(member, judge(member, samples, predictions))
        self._weights.unfold(gradient)

    def _mark_positions(self) -> None:
        """Learned codes of positions are columns of the embedding: which one a position has never changes."""
        if self.config.position_count:
            for position, code in enumerate(self.config.position_codes):
                self._inputs.apart[self.config.input_size + code, :, position] = 1.0

    def _forward(self, member: int, inputs: Tensor) -> None:
        symbols = self._inputs.apart[: self.config.input_size]
        if self.config.input_kind == "tokens":
            inputs = functional.one_hot(inputs, self.config.input_size).float()
        fill(symbols, inputs)
        stream = self._stream
        torch.mm(self._weights.source.matrix[member].t(), self._inputs.matrix, out=stream.matrix)
        for weights, layer in zip(self._weights.layers[member], self._layers, strict=True):
            stream = layer.forward(weights, stream)
        self._readout.forward(self._weights.readouts[member], stream)

    def _backward(self, member: int, slope: Tensor) -> None:
        fill(self._readout.slope.apart, slope)
        self._readout.backward(self._weights.readouts[member])
        for weights, layer in zip(
            reversed(self._weights.layers[member]), reversed(self._layers), strict=True
        ):
            layer.backward(weights)
        self._weights.source.back_matrix[member].addmm_(self._inputs.matrix, self._room.back.rows)


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
