"""Gradients of deep attention-only models with a wide stream and narrow heads, which never make that stream (optional).

What a layer reads is a sum over the inputs and over what every head below it has mixed (see `virtual_weights`).  While
these are fewer than the stream has dimensions, products with them cost less than products with the stream, and there is
no stream to norm, to keep and to go back through: the paper's model of 24 layers and width 512 has 16 numbers a head.

It gives what autograd gives, to rounding (tested).  Samples lie as in the stacked way, whose attention it shares.
"""

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.training import stacked_loops, virtual_loops
from hopscope.training.chunks import ChunkedGradient, fill
from hopscope.training.stacked_lanes import LANES
from hopscope.training.stacked_layer import Columns, Heads
from hopscope.training.virtual_weights import VirtualWeights


class VirtualGradient(ChunkedGradient):
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of members that `engines.fits_virtual` accepts, on the CPU.
        batch: samples of each member in a batch.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters, batch: int):
        super().__init__(config, parameters, batch, LANES)
        self._weights: VirtualWeights = VirtualWeights(config, parameters)
        tiles = self.tiles
        rows, inner, length = self._weights.rows, self._weights.inner, config.length
        self._known, self._back_known = (Columns.of(rows[-1], tiles, length) for _ in range(2))
        self._inputs = self._known.part(0, rows[0])
        self._inputs.apart[-1] = 1.0
        self._layers = [
            _Layer(config, tiles, self._known, self._back_known, first, inner) for first in rows[:-1]
        ]
        self._back_read = Columns.of(4 * inner + 1, tiles, length)
        self._scores = np.zeros((length, length, LANES), dtype=np.float32)
        self._squares = [np.zeros((tiles, length, LANES), dtype=np.float32) for _ in range(2)]
        self._back_square = torch.zeros(tiles, length, LANES)
        self._last_inverse = torch.zeros(tiles, length, LANES)
        self._positions = torch.tensor(config.readout_positions)
        asked = len(self._positions)
        self._asked, self._back_asked = (Columns.of(rows[-1], tiles, asked) for _ in range(2))
        self._read_out, self._slope = (Columns.of(config.output_size, tiles, asked) for _ in range(2))

    def _forward(self, member: int, inputs: Tensor) -> Tensor:
        fill(self._inputs.apart[:-1], inputs)
        weights, share = self._weights, 1.0 / self.config.width
        square, other = self._squares
        gram = weights.first_gram[member].numpy()
        virtual_loops.first_square(self._inputs.array, gram, share, square, self._layers[0].inverse)
        above = [*(layer.inverse for layer in self._layers[1:]), self._last_inverse.numpy()]
        for number, layer in enumerate(self._layers):
            bias = weights.query_bias[member, number].view(self.config.heads, -1).numpy()
            layer.forward(weights.reads[member][number], bias)
            gram = weights.gram[member, number].numpy()
            virtual_loops.grow(
                layer.along.array, layer.mixed.array, gram, share, square, other, above[number]
            )
            square, other = other, square
        torch.index_select(self._known.apart, 2, self._positions, out=self._asked.apart)
        torch.mm(weights.readout[member].t(), self._asked.matrix, out=self._read_out.matrix)
        self._read_out.apart.mul_(self._asked_inverse())
        self._read_out.matrix.add_(weights.bias[member][:, None])
        return self._read_out.apart

    def _asked_inverse(self) -> Tensor:
        return self._last_inverse.index_select(1, self._positions)

    def _backward(self, member: int, slope: Tensor) -> None:
        """Add to the gradients of the virtual weights."""
        fill(self._slope.apart, slope)
        weights, share = self._weights, 1.0 / self.config.width
        self._readout_back(member)
        for number, layer in reversed(list(enumerate(self._layers))):
            back_read, inner = self._back_read, weights.inner
            virtual_loops.grow_back(
                layer.along.array, layer.mixed.array, self._back_square.numpy(), share, layer.back_mixed.array,
                back_read.array[3 * inner :],
            )  # fmt: skip
            back_along = back_read.matrix[3 * inner :]
            back_gram = weights.back_gram[member, number]
            back_gram[:, :-1].addmm_(back_along, layer.mixed.rows, alpha=0.5)
            back_gram[:, -1].add_(back_along.sum(1), alpha=0.5)
            heads = self.config.heads
            layer.attend_back(
                back_read, weights.back_query_bias[member, number].view(heads, -1).numpy(), self._scores
            )
            virtual_loops.scale_back(
                layer.read.array[: 3 * inner], weights.query_bias[member, number].numpy(), layer.inverse,
                back_read.array[: 3 * inner], self._back_square.numpy(),
            )  # fmt: skip
            first, rows = weights.rows[0], weights.rows[number]
            weights.back_reads[member][number].addmm_(self._known.matrix[:rows], back_read.rows)
            if rows > first:
                self._back_known.matrix[first:rows].addmm_(
                    weights.reads[member][number][first:], back_read.matrix
                )
        weighted = self._inputs.apart * self._back_square
        weights.back_first_gram[member].addmm_(weighted.flatten(1), self._inputs.rows, alpha=share)

    def _readout_back(self, member: int) -> None:
        """From the slope to the gradients at what was mixed and at the last variance."""
        weights, inverse, slope = self._weights, self._asked_inverse(), self._slope
        weights.back_bias[member].add_(slope.matrix.sum(1))
        self._read_out.matrix.sub_(weights.bias[member][:, None])
        along = (slope.apart * self._read_out.apart).sum(0)
        self._back_square.zero_().index_copy_(1, self._positions, -0.5 * along * inverse.square())
        slope.apart.mul_(inverse)
        weights.back_readout[member].addmm_(self._asked.matrix, slope.rows)
        torch.mm(weights.readout[member], slope.matrix, out=self._back_asked.matrix)
        self._back_known.apart.zero_().index_copy_(2, self._positions, self._back_asked.apart)


class _Layer:
    """What one layer keeps of a chunk of samples.

    Attributes:
        inverse: `[tile, position, lane]`, one over the deviation of the stream at its norm.
        read: what it reads: queries, keys, values, and the stream along what it writes.
        along: the last of these.
        mixed, back_mixed: what its heads mix, and the gradient there.
    """

    def __init__(
        self,
        config: TransformerConfig,
        tiles: int,
        known: Columns,
        back_known: Columns,
        first: int,
        inner: int,
    ):
        self.config, self.inner, self._below = config, inner, known.matrix[:first]
        length = config.length
        self.inverse = np.zeros((tiles, length, LANES), dtype=np.float32)
        self.read = Columns.of(4 * inner + 1, tiles, length)
        self.along = self.read.part(3 * inner, inner + 1)
        self.mixed, self.back_mixed = known.part(first, inner), back_known.part(first, inner)
        self._heads = self._heads_of(self.read)
        self._visible = np.arange(1, length + 1) if config.causal else np.full(length, length)
        self._pattern = np.zeros((tiles, config.heads, length, length, LANES), dtype=np.float32)

    def _heads_of(self, read: Columns) -> Heads:
        parts = (read.part(place * self.inner, self.inner) for place in range(3))
        return Heads(*(part.heads(self.config.heads) for part in parts))

    def forward(self, reads: Tensor, bias: np.ndarray) -> None:
        """Read, and mix."""
        torch.mm(reads.t(), self._below, out=self.read.matrix)
        virtual_loops.scale(self.read.array[: 3 * self.inner], self.inverse)
        query, key, value = self._heads
        mixed = self.mixed.heads(self.config.heads)
        stacked_loops.attend(query, key, value, bias, self._visible, self._pattern, mixed)

    def attend_back(self, back_read: Columns, back_bias: np.ndarray, scores: np.ndarray) -> None:
        """From the gradient at what was mixed to that at queries, keys and values."""
        query, key, value = self._heads
        back_query, back_key, back_value = self._heads_of(back_read)
        stacked_loops.attend_back(
            query, key, value, self._visible, self._pattern, self.back_mixed.heads(self.config.heads),
            back_query, back_key, back_value, back_bias, scores,
        )  # fmt: skip
