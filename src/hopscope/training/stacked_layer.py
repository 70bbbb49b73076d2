"""One layer of the stacked way: what it keeps of a chunk of samples on the way up, and the way down.

Activations lie as `[feature, tile, position, lane]`, the samples innermost: a matrix product sees a matrix with a
column for each position of each sample, and a loop sees vectors of samples.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.training import stacked_loops as loops
from hopscope.training.stacked_lanes import LANES
from hopscope.training.stacked_weights import LayerWeights, ReadoutWeights

_gelu, _gelu_back = torch.ops.aten.gelu.out, torch.ops.aten.gelu_backward.grad_input
_relu, _relu_back = torch.ops.aten.relu.out, torch.ops.aten.threshold_backward.grad_input


class Columns:
    """A column of features for each position of each sample of a chunk.

    Attributes:
        apart, array: `[feature, tile, position, lane]`, as a tensor and as an array of the same memory.
        matrix, rows: `[feature, column]` and `[column, feature]`.
    """

    def __init__(self, apart: Tensor):
        self.apart, self.array = apart, apart.numpy()
        self.matrix = apart.flatten(1)
        self.rows = self.matrix.t()

    @classmethod
    def of(cls, features: int, tiles: int, positions: int) -> "Columns":
        """Room for them."""
        return cls(torch.zeros(features, tiles, positions, LANES))

    def part(self, first: int, count: int) -> "Columns":
        """Some of the features."""
        return Columns(self.apart[first : first + count])

    def heads(self, heads: int) -> np.ndarray:
        """`[head, j, tile, position, lane]`."""
        return self.array.reshape(heads, -1, *self.array.shape[1:])


class Heads(NamedTuple):
    """Queries, keys and values, each `[head, j, tile, position, lane]`."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


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


class Layer:
    """A layer that computes every position.

    Attributes:
        room: where the gradient at the stream that leaves the layer is expected.
        below: where that at the stream which enters it is left.
    """

    def __init__(self, config: TransformerConfig, tiles: int, room: Room):
        self._keep(config, tiles, room, room, np.arange(config.length))
        projected = Columns.of(3 * self._inner, tiles, config.length)
        self._projected, self._back_projected = projected, room.projected
        self._heads, self._back_heads = self._heads_of(projected), self._heads_of(room.projected)

    def _keep(
        self, config: TransformerConfig, tiles: int, room: Room, below: Room, positions: np.ndarray
    ) -> None:
        self.config, self.room, self.below = config, room, below
        self._inner = config.heads * config.head_size
        rows, length = len(positions), config.length
        self._visible = positions + 1 if config.causal else np.full(rows, length)
        self._normed, self._scale = _normed(config, tiles, length)
        self._pattern = np.zeros((tiles, config.heads, rows, length, LANES), dtype=np.float32)
        self._mixed = Columns.of(self._inner, tiles, rows)
        self._mixed_heads, self._back_mixed_heads = (x.heads(config.heads) for x in (self._mixed, room.mixed))
        if config.mlp_size:
            self._mlp_normed, self._mlp_scale = _normed(config, tiles, rows)
            self._before, self._after = (Columns.of(config.mlp_size, tiles, rows) for _ in range(2))

    def _heads_of(self, projected: Columns, pairs: Columns | None = None) -> Heads:
        """Of queries, keys and values one after another, or of queries, and keys and values."""
        inner, first = self._inner, self._inner if pairs is None else 0
        pairs = projected if pairs is None else pairs
        parts = (projected.part(0, inner), pairs.part(first, inner), pairs.part(first + inner, inner))
        return Heads(*(part.heads(self.config.heads) for part in parts))

    # Up.

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """Add to the stream, in place; returns it."""
        loops.standardise(stream.array, weights.attention_shift, self._normed.array, self._scale)
        torch.mm(weights.projections_t, self._normed.matrix, out=self._projected.matrix)
        return self._attend(weights, stream)

    def _attend(self, weights: LayerWeights, stream: Columns) -> Columns:
        query, key, value = self._heads
        loops.attend(query, key, value, weights.query_bias, self._visible, self._pattern, self._mixed_heads)
        stream.matrix.addmm_(weights.output_t, self._mixed.matrix)
        if self.config.mlp_size:
            self._mlp(weights, stream)
        return stream

    def _mlp(self, weights: LayerWeights, stream: Columns) -> None:
        loops.standardise(stream.array, weights.mlp_shift, self._mlp_normed.array, self._mlp_scale)
        before, after = self._before.matrix, self._after.matrix
        torch.addmm(weights.inner_bias, weights.inner_t, self._mlp_normed.matrix, out=before)
        if self.config.activation == "relu":
            _relu(before, out=after)
        else:
            _gelu(before, out=after)
        stream.matrix.addmm_(weights.outer_t, after)

    # Down.

    def backward(self, weights: LayerWeights) -> None:
        """From the gradient at the stream that leaves the layer to that at the one that enters it."""
        self._attend_back(weights)
        weights.back_projections.addmm_(self._normed.matrix, self._back_projected.rows)
        torch.mm(weights.projections, self._back_projected.matrix, out=self.below.normed.matrix)
        self._stream_back(weights)

    def _attend_back(self, weights: LayerWeights) -> None:
        room = self.room
        if self.config.mlp_size:
            self._mlp_back(weights)
        torch.mm(weights.output, room.back.matrix, out=room.mixed.matrix)
        weights.back_output.addmm_(self._mixed.matrix, room.back.rows)
        query, key, value = self._heads
        back_query, back_key, back_value = self._back_heads
        loops.attend_back(
            query, key, value, self._visible, self._pattern, self._back_mixed_heads,
            back_query, back_key, back_value, weights.back_query_bias, room.scores,
        )  # fmt: skip

    def _stream_back(self, weights: LayerWeights) -> None:
        below = self.below
        loops.standardise_back(
            below.normed.array, self._normed.array, self._scale, below.back.array, weights.attention_totals
        )

    def _mlp_back(self, weights: LayerWeights) -> None:
        room, hidden = self.room, self.room.hidden.matrix
        torch.mm(weights.outer, room.back.matrix, out=hidden)
        weights.back_outer.addmm_(self._after.matrix, room.back.rows)
        if self.config.activation == "relu":
            _relu_back(hidden, self._after.matrix, 0, grad_input=hidden)
        else:
            _gelu_back(hidden, self._before.matrix, grad_input=hidden)
        weights.back_inner.addmm_(self._mlp_normed.matrix, room.hidden.rows)
        weights.back_inner_bias.add_(hidden.sum(1))
        torch.mm(weights.inner, hidden, out=room.normed.matrix)
        loops.standardise_back(
            room.normed.array, self._mlp_normed.array, self._mlp_scale, room.back.array, weights.mlp_totals
        )


class FirstLayer(Layer):
    """A first layer over few inputs.

    Its stream is a linear map of the inputs, and so is the normed stream, but for one factor of each position.  So
    projections are linear maps of the inputs over the deviation, and nothing here is as large as the stream.  On the
    way down it leaves the gradient at the stream as it is, and what its norm adds to the embedding's to the weights.
    """

    def __init__(self, config: TransformerConfig, tiles: int, room: Room, inputs: Columns):
        super().__init__(config, tiles, room)
        self._inputs = inputs
        self._scaled, self._weighted = (Columns(torch.zeros_like(inputs.apart)) for _ in range(2))

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """As of any layer, with the inputs as they are at the time."""
        loops.standardise_inputs(stream.array, self._inputs.array, self._scaled.array)
        torch.mm(weights.source_t, self._scaled.matrix, out=self._projected.matrix)
        return self._attend(weights, stream)

    def backward(self, weights: LayerWeights) -> None:
        """Add to the gradients of this layer's weights."""
        self._attend_back(weights)
        weights.back_source.addmm_(self._scaled.matrix, self._back_projected.rows)
        torch.mm(weights.source, self._back_projected.matrix, out=self._weighted.matrix)
        loops.weigh_inputs(self._scaled.array, self._weighted.array, self.config.width)
        weights.along_source.addmm_(self._weighted.matrix, self._scaled.rows)


class LastLayer(Layer):
    """A last layer whose other rows reach no prediction: keys and values everywhere, all else at the readout."""

    def __init__(self, config: TransformerConfig, tiles: int, room: Room, below: Room):
        self._positions = torch.tensor(config.readout_positions)
        rows = len(self._positions)
        self._keep(config, tiles, room, below, self._positions.numpy())
        inner, length = self._inner, config.length
        self._stream, self._asked = (Columns.of(config.width, tiles, rows) for _ in range(2))
        self._query, self._pairs = Columns.of(inner, tiles, rows), Columns.of(2 * inner, tiles, length)
        self._back_query, self._back_pairs = room.projected.part(0, inner), below.projected.part(0, 2 * inner)
        self._heads = self._heads_of(self._query, self._pairs)
        self._back_heads = self._heads_of(self._back_query, self._back_pairs)

    def forward(self, weights: LayerWeights, stream: Columns) -> Columns:
        """Returns the stream at the readout."""
        loops.standardise(stream.array, weights.attention_shift, self._normed.array, self._scale)
        torch.index_select(self._normed.apart, 2, self._positions, out=self._asked.apart)
        torch.index_select(stream.apart, 2, self._positions, out=self._stream.apart)
        query, pairs = (part.t() for part in self._split(weights.projections))
        torch.mm(query, self._asked.matrix, out=self._query.matrix)
        torch.mm(pairs, self._normed.matrix, out=self._pairs.matrix)
        return self._attend(weights, self._stream)

    def backward(self, weights: LayerWeights) -> None:
        """As of any layer; the other rows have a gradient as keys and values alone."""
        self._attend_back(weights)
        back_query, back_pairs = self._split(weights.back_projections)
        back_query.addmm_(self._asked.matrix, self._back_query.rows)
        back_pairs.addmm_(self._normed.matrix, self._back_pairs.rows)
        query, pairs = self._split(weights.projections)
        torch.mm(query, self._back_query.matrix, out=self.room.normed.matrix)
        torch.mm(pairs, self._back_pairs.matrix, out=self.below.normed.matrix)
        self.below.normed.apart.index_add_(2, self._positions, self.room.normed.apart)
        self.below.back.apart.zero_().index_copy_(2, self._positions, self.room.back.apart)
        self._stream_back(weights)

    def _split(self, projections: Tensor) -> tuple[Tensor, Tensor]:
        return projections[:, : self._inner], projections[:, self._inner :]


def _normed(config: TransformerConfig, tiles: int, rows: int) -> tuple[Columns, np.ndarray]:
    """Room for what `loops.standardise` writes."""
    return Columns.of(config.width, tiles, rows), np.zeros((tiles, rows, LANES), dtype=np.float32)


class Readout:
    """The last norm and the predictions of a chunk."""

    def __init__(self, config: TransformerConfig, tiles: int, room: Room):
        rows = len(config.readout_positions)
        self.room = room
        self._normed, self._scale = _normed(config, tiles, rows)
        self.predictions, self.slope = (Columns.of(config.output_size, tiles, rows) for _ in range(2))

    def forward(self, weights: ReadoutWeights, stream: Columns) -> None:
        """Predict."""
        loops.standardise(stream.array, weights.shift, self._normed.array, self._scale)
        torch.addmm(weights.bias, weights.matrix_t, self._normed.matrix, out=self.predictions.matrix)

    def backward(self, weights: ReadoutWeights) -> None:
        """From `slope` to the gradient at the stream that leaves the last layer."""
        weights.back_matrix.addmm_(self._normed.matrix, self.slope.rows)
        weights.back_bias.add_(self.slope.matrix.sum(1))
        torch.mm(weights.matrix, self.slope.matrix, out=self.room.normed.matrix)
        self.room.back.apart.zero_()
        loops.standardise_back(
            self.room.normed.array, self._normed.array, self._scale, self.room.back.array, weights.totals
        )
