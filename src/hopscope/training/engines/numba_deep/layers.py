"""Layers and readout of the deep engine: what each keeps of a chunk of samples on the way up, and the way down.

Activations lie as `attention` says.
"""

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.training.engines.attention import Attention, Columns
from hopscope.training.engines.lanes import LANES
from hopscope.training.engines.numba_deep import loops
from hopscope.training.engines.numba_deep.weights import LayerWeights, NormInput, ReadoutWeights

_gelu, _gelu_back = torch.ops.aten.gelu.out, torch.ops.aten.gelu_backward.grad_input
_relu, _relu_back = torch.ops.aten.relu.out, torch.ops.aten.threshold_backward.grad_input


class Room:
    """Gradients on the way down, in which all layers with the same rows take turns.

    Attributes:
        back: at the stream.
        normed, mixed, projected, hidden: at what a layer keeps under these names.
        scores: at the scores of one head.
    """

    def __init__(self, config: TransformerConfig, tiles: int, rows: int):
        inner = config.heads * config.head_size
        self.back, self.normed = (Columns.of(config.width, tiles, rows) for _ in range(2))
        self.mixed, self.projected = Columns.of(inner, tiles, rows), Columns.of(3 * inner, tiles, rows)
        self.hidden = Columns.of(config.mlp_size, tiles, rows)
        self.scores = np.zeros((rows, config.length, LANES), dtype=np.float32)


class Norm:
    """A layer norm without gain and shift, which are in the matrix behind it.

    Attributes:
        normed: what it leaves of the stream.
    """

    def __init__(self, config: TransformerConfig, tiles: int, rows: int):
        self.normed = Columns.of(config.width, tiles, rows)
        self._scale = np.zeros((tiles, rows, LANES), dtype=np.float32)

    def forward(self, stream: Columns, given: NormInput) -> None:
        """Standardise the stream into `normed`."""
        loops.standardise(stream.array, given.shift, self.normed.array, self._scale)

    def backward(self, back_normed: Columns, back: Columns, given: NormInput) -> None:
        """Add to the gradient at the stream, `back`, and to its sums."""
        loops.standardise_back(back_normed.array, self.normed.array, self._scale, back.array, given.totals)


class Layer:
    """A layer that computes every position.

    Attributes:
        room: where the gradient at the stream that leaves the layer is expected.
        below: where that at the stream which enters it is left.
    """

    def __init__(self, config: TransformerConfig, tiles: int, room: Room):
        self._keep(config, tiles, room, room, config.length)
        self._projected, self._back_projected = (
            Columns.of(3 * self._inner, tiles, config.length),
            room.projected,
        )
        up, down = (side.parts(self._inner) for side in (self._projected, self._back_projected))
        self._attention = Attention(config, [*up, self._mixed], [*down, room.mixed], room.scores)

    def _keep(self, config: TransformerConfig, tiles: int, room: Room, below: Room, rows: int) -> None:
        self.room, self.below = room, below
        self._inner = config.heads * config.head_size
        self._norm = Norm(config, tiles, config.length)
        self._mixed = Columns.of(self._inner, tiles, rows)
        self._mlp = Mlp(config, tiles, room, rows) if config.mlp_size else None

    # Up.

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """Add to the stream, in place; returns it."""
        self._norm.forward(stream, weights.attention_input)
        torch.mm(weights.projections.matrix.t(), self._norm.normed.matrix, out=self._projected.matrix)
        return self._attend(weights, stream)

    def _attend(self, weights: LayerWeights, stream: Columns) -> Columns:
        self._attention.forward(weights.query_bias)
        stream.matrix.addmm_(weights.output.matrix.t(), self._mixed.matrix)
        if self._mlp is not None:
            self._mlp.forward(weights, stream)
        return stream

    # Down.

    def backward(self, weights: LayerWeights) -> None:
        """From the gradient at the stream that leaves the layer to that at the one that enters it."""
        self._attend_back(weights)
        weights.projections.gradient.addmm_(self._norm.normed.matrix, self._back_projected.rows)
        torch.mm(weights.projections.matrix, self._back_projected.matrix, out=self.below.normed.matrix)
        self._norm.backward(self.below.normed, self.below.back, weights.attention_input)

    def _attend_back(self, weights: LayerWeights) -> None:
        room = self.room
        if self._mlp is not None:
            self._mlp.backward(weights)
        torch.mm(weights.output.matrix, room.back.matrix, out=room.mixed.matrix)
        weights.output.gradient.addmm_(self._mixed.matrix, room.back.rows)
        self._attention.backward(weights.back_query_bias)


class FirstLayer(Layer):
    """A first layer over few inputs.

    Its stream is a linear map of the inputs, and so is the normed stream, but for one factor of each position.  So
    projections are linear maps of the inputs over the deviation, and nothing here is as large as the stream.  On the
    way down it leaves the gradient at the stream as it is, and what its norm adds to the embedding's to the weights.
    """

    def __init__(self, config: TransformerConfig, tiles: int, room: Room, inputs: Columns):
        super().__init__(config, tiles, room)
        self._width, self._inputs = config.width, inputs
        self._scaled, self._weighted = (Columns(torch.zeros_like(inputs.apart)) for _ in range(2))

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """The stream after this layer; reads the inputs as they are at the time."""
        loops.standardise_inputs(stream.array, self._inputs.array, self._scaled.array)
        torch.mm(weights.source.matrix.t(), self._scaled.matrix, out=self._projected.matrix)
        return self._attend(weights, stream)

    def backward(self, weights: LayerWeights) -> None:
        """Add to the gradients of this layer's weights."""
        self._attend_back(weights)
        weights.source.gradient.addmm_(self._scaled.matrix, self._back_projected.rows)
        torch.mm(weights.source.matrix, self._back_projected.matrix, out=self._weighted.matrix)
        loops.weigh_inputs(self._scaled.array, self._weighted.array, self._width)
        weights.along_source.addmm_(self._weighted.matrix, self._scaled.rows)


class LastLayer(Layer):
    """A last layer whose other rows reach no prediction: keys and values everywhere, all else at the readout."""

    def __init__(self, config: TransformerConfig, tiles: int, room: Room, below: Room):
        self._positions = torch.tensor(config.readout_positions)
        rows = len(self._positions)
        self._keep(config, tiles, room, below, rows)
        inner = self._inner
        self._stream, self._asked = (Columns.of(config.width, tiles, rows) for _ in range(2))
        self._query, self._pairs = Columns.of(inner, tiles, rows), Columns.of(2 * inner, tiles, config.length)
        self._back_query, self._back_pairs = room.projected.part(0, inner), below.projected.part(0, 2 * inner)
        up = [self._query, *self._pairs.parts(inner), self._mixed]
        down = [self._back_query, *self._back_pairs.parts(inner), room.mixed]
        self._attention = Attention(config, up, down, room.scores, self._positions.numpy())

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """Returns the stream at the readout."""
        self._norm.forward(stream, weights.attention_input)
        torch.index_select(self._norm.normed.apart, 2, self._positions, out=self._asked.apart)
        torch.index_select(stream.apart, 2, self._positions, out=self._stream.apart)
        query, pairs = self._split(weights.projections.matrix)
        torch.mm(query.t(), self._asked.matrix, out=self._query.matrix)
        torch.mm(pairs.t(), self._norm.normed.matrix, out=self._pairs.matrix)
        return self._attend(weights, self._stream)

    def backward(self, weights: LayerWeights) -> None:
        """Add to the gradients of this layer's weights; other rows have a gradient as keys and values alone."""
        room, below = self.room, self.below
        self._attend_back(weights)
        back_query, back_pairs = self._split(weights.projections.gradient)
        back_query.addmm_(self._asked.matrix, self._back_query.rows)
        back_pairs.addmm_(self._norm.normed.matrix, self._back_pairs.rows)
        query, pairs = self._split(weights.projections.matrix)
        torch.mm(query, self._back_query.matrix, out=room.normed.matrix)
        torch.mm(pairs, self._back_pairs.matrix, out=below.normed.matrix)
        below.normed.apart.index_add_(2, self._positions, room.normed.apart)
        below.back.apart.zero_().index_copy_(2, self._positions, room.back.apart)
        self._norm.backward(below.normed, below.back, weights.attention_input)

    def _split(self, projections: Tensor) -> tuple[Tensor, Tensor]:
        return projections[:, : self._inner], projections[:, self._inner :]


class Mlp:
    """The MLP of a layer, which adds to the stream."""

    def __init__(self, config: TransformerConfig, tiles: int, room: Room, rows: int):
        self.room, self._relu = room, config.activation == "relu"
        self._norm = Norm(config, tiles, rows)
        self._before, self._after = (Columns.of(config.mlp_size, tiles, rows) for _ in range(2))

    def forward(self, weights: LayerWeights, stream: Columns) -> None:
        """Add to the stream, in place."""
        self._norm.forward(stream, weights.mlp_input)
        before, after = self._before.matrix, self._after.matrix
        torch.addmm(weights.inner_bias, weights.inner.matrix.t(), self._norm.normed.matrix, out=before)
        (_relu if self._relu else _gelu)(before, out=after)
        stream.matrix.addmm_(weights.outer.matrix.t(), after)

    def backward(self, weights: LayerWeights) -> None:
        """Add to the gradient at the stream."""
        room, hidden = self.room, self.room.hidden.matrix
        torch.mm(weights.outer.matrix, room.back.matrix, out=hidden)
        weights.outer.gradient.addmm_(self._after.matrix, room.back.rows)
        if self._relu:
            _relu_back(hidden, self._after.matrix, 0, grad_input=hidden)
        else:
            _gelu_back(hidden, self._before.matrix, grad_input=hidden)
        weights.inner.gradient.addmm_(self._norm.normed.matrix, room.hidden.rows)
        weights.back_inner_bias.add_(hidden.sum(1))
        torch.mm(weights.inner.matrix, hidden, out=room.normed.matrix)
        self._norm.backward(room.normed, room.back, weights.mlp_input)


class Readout:
    """The last norm and the predictions of a chunk."""

    def __init__(self, config: TransformerConfig, tiles: int, room: Room):
        rows = len(config.readout_positions)
        self.room, self._norm = room, Norm(config, tiles, rows)
        self.predictions, self.slope = (Columns.of(config.output_size, tiles, rows) for _ in range(2))

    def forward(self, weights: ReadoutWeights, stream: Columns) -> None:
        """Compute the predictions from the last stream."""
        self._norm.forward(stream, weights.input)
        torch.addmm(
            weights.bias, weights.map.matrix.t(), self._norm.normed.matrix, out=self.predictions.matrix
        )

    def backward(self, weights: ReadoutWeights) -> None:
        """From `slope` to the gradient at the stream that leaves the last layer."""
        weights.map.gradient.addmm_(self._norm.normed.matrix, self.slope.rows)
        weights.back_bias.add_(self.slope.matrix.sum(1))
        torch.mm(weights.map.matrix, self.slope.matrix, out=self.room.normed.matrix)
        self.room.back.apart.zero_()
        self._norm.backward(self.room.normed, self.room.back, weights.input)
