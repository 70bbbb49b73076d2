"""Gradients of deep attention-only models with a wide stream and narrow heads, which never make that stream.

What a layer reads is a sum over the inputs and over what every head below it has mixed (see `weights`).  While these
are fewer than the stream has dimensions, products with them cost less than products with the stream, and there is no
stream to norm, to keep and to go back through: the paper's model of 24 layers and width 512 has 16 numbers a head.

It gives what autograd gives, to rounding (tested).  Samples lie, and attend, as `attention` says.
"""

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.models.transformer import Transformer
from hopscope.tasks.device import DeviceTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Gradient
from hopscope.training.engines.attention import Attention, Columns
from hopscope.training.engines.batches import ChunkedGradient, fill, in_chunks
from hopscope.training.engines.lanes import LANES
from hopscope.training.engines.virtual_weights import loops
from hopscope.training.engines.virtual_weights.weights import VirtualWeights


class VirtualGradient(ChunkedGradient):
    """Predictions and gradients for one batch after another, in buffers that are made once.

    Attributes:
        config, parameters: of members that `engines.fits_deep` accepts, of a narrow model (`engines.is_narrow`).
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
        back_read = Columns.of(4 * inner + 1, tiles, length)
        self._back_read, self._back_along = back_read, back_read.part(3 * inner, inner + 1)
        scores = np.zeros((length, length, LANES), dtype=np.float32)
        self._layers = [
            _Layer(config, self._known, self._back_known, back_read, first, scores) for first in rows[:-1]
        ]
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
        loops.first_square(self._inputs.array, gram, share, square, self._layers[0].inverse)
        above = [*(layer.inverse for layer in self._layers[1:]), self._last_inverse.numpy()]
        for number, layer in enumerate(self._layers):
            bias = weights.query_bias[member, number]
            layer.forward(weights.reads[member][number], bias.view(self.config.heads, -1).numpy())
            gram = weights.gram[member, number].numpy()
            loops.grow(layer.along.array, layer.mixed.array, gram, share, square, other, above[number])
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
            self._layer_back(member, number, layer)
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

    def _layer_back(self, member: int, number: int, layer: "_Layer") -> None:
        """From the gradients at what the layer mixed and at the variance after it to those below it."""
        weights, share, back_along = self._weights, 1.0 / self.config.width, self._back_along
        square = self._back_square.numpy()
        loops.grow_back(
            layer.along.array, layer.mixed.array, square, share, layer.back_mixed.array, back_along.array
        )
        back_gram = weights.back_gram[member, number]
        back_gram[:, :-1].addmm_(back_along.matrix, layer.mixed.rows, alpha=0.5)
        back_gram[:, -1].add_(back_along.matrix.sum(1), alpha=0.5)
        back_bias, bias = weights.back_query_bias[member, number], weights.query_bias[member, number].numpy()
        layer.attention.backward(back_bias.view(self.config.heads, -1).numpy())
        pairs = 3 * weights.inner
        loops.scale_back(layer.read.array[:pairs], bias, layer.inverse, self._back_read.array[:pairs], square)
        first, rows = weights.rows[0], weights.rows[number]
        weights.back_reads[member][number].addmm_(self._known.matrix[:rows], self._back_read.rows)
        if rows > first:
            self._back_known.matrix[first:rows].addmm_(
                weights.reads[member][number][first:], self._back_read.matrix
            )


class _Layer:
    """What one layer keeps of a chunk of samples.

    Attributes:
        inverse: `[tile, position, lane]`, one over the deviation of the stream at its norm.
        read: what it reads: queries, keys, values, and the stream along what it writes.
        along: the last of these.
        mixed, back_mixed: what its heads mix, and the gradient there.
        attention: from what is read to what is mixed.
    """

    def __init__(
        self,
        config: TransformerConfig,
        known: Columns,
        back_known: Columns,
        back_read: Columns,
        first: int,
        scores: np.ndarray,
    ):
        """`first` is the place, in what is known, of what this layer mixes."""
        inner, (_, tiles, length, _) = config.heads * config.head_size, known.array.shape
        self._below, self._heads = known.matrix[:first], 3 * inner
        self.inverse = np.zeros((tiles, length, LANES), dtype=np.float32)
        self.read = Columns.of(4 * inner + 1, tiles, length)
        self.along = self.read.part(3 * inner, inner + 1)
        self.mixed, self.back_mixed = known.part(first, inner), back_known.part(first, inner)
        up = [*self.read.parts(inner)[:3], self.mixed]
        self.attention = Attention(config, up, [*back_read.parts(inner)[:3], self.back_mixed], scores)

    def forward(self, reads: Tensor, bias: np.ndarray) -> None:
        """Read, and mix."""
        torch.mm(reads.t(), self._below, out=self.read.matrix)
        loops.scale(self.read.array[: self._heads], self.inverse)
        self.attention.forward(bias)


def gradient(
    model: Transformer, task: DeviceTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    """Losses and gradients by virtual weights; see `Engine.gradient`."""
    return in_chunks(VirtualGradient, model, task, training, seeds, buffer)
