"""A model as the reader runs it fastest: one without MLPs, with narrow heads, in which the stream is never made.

Such a stream is a sum over the inputs and over what the heads below have mixed.  Whatever reads it reads these, through
virtual weights (see `hopscope.training.engines.virtual_weights`).  The paper's model of 24 layers and width 512 has one
head of 16 numbers in each layer: a layer reads 9 to 377 numbers instead of 512, writes 16, and norms none.

A `VirtualModel` does for the reader what a `Transformer` does, to rounding (tested): the reader never looks into the
stream, it only hands it on.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.resolving import visible_keys
from hopscope.models.transformer import Transformer
from hopscope.training.engines import is_narrow
from hopscope.training.engines.virtual_weights.weights import VirtualWeights

_EPSILON = 1e-5
"""Of the layer norm, as in torch."""

Heads = Float[Tensor, "1 batch head row head_dim"]


class VirtualStream:
    """The stream at some positions, as the numbers that it is a sum of.

    Streams of later layers begin with the numbers of earlier ones, and share them.

    Attributes:
        batch, positions: how many of each; a column is a position of a sample.
        count: of numbers in a column.
        square: `[column]`, the variance over the stream's dimensions.
    """

    def __init__(self, room: "_Room", count: int, square: Float[Tensor, " column"], positions: int):
        self._room, self.count, self.square, self.positions = room, count, square, positions
        self.batch = len(square) // positions

    @property
    def numbers(self) -> Float[Tensor, "count column"]:
        """What the stream is a sum of."""
        return self._room.numbers[: self.count]

    @property
    def inverse(self) -> Float[Tensor, " column"]:
        """One over the deviation that the layer norm divides by."""
        return (self.square + _EPSILON).rsqrt_()

    def at(self, rows: slice | Tensor) -> "VirtualStream":
        """The stream at some of its positions."""
        numbers = self.numbers.unflatten(1, (self.batch, -1))[:, :, rows]
        square = self.square.view(self.batch, -1)[:, rows].reshape(-1)
        room = _Room(len(self._room.numbers), len(square), square.device)
        room.numbers[: self.count].view(numbers.shape).copy_(numbers)
        room.filled = self.count
        return VirtualStream(room, self.count, square, numbers.shape[2])

    def grown(
        self, more: Float[Tensor, "head size batch position"], square: Float[Tensor, " column"]
    ) -> "VirtualStream":
        """The stream with more numbers, and its variance then."""
        room, count = self._room, self.count + more.shape[0] * more.shape[1]
        if room.filled > self.count:  # by another stream that grew from this one
            room = _Room(len(room.numbers), len(square), square.device)
            room.numbers[: self.count] = self.numbers
        room.numbers[self.count : count].view(more.shape).copy_(more)
        room.filled = count
        return VirtualStream(room, count, square, self.positions)


class _Room:
    """Where streams that grow from one another keep their numbers.

    Attributes:
        numbers: `[number, column]`, as many as the stream has after the last layer.
        filled: how many the longest of them has.
    """

    def __init__(self, numbers: int, columns: int, device: torch.device):
        self.numbers, self.filled = torch.empty(numbers, columns, device=device), 0


class VirtualBlock:
    """One layer of a virtual model, with the methods of a `Block` that the reader uses.

    Args:
        weights: of the whole model.
        layer: its number.
        visible: `[query, key]`.
    """

    def __init__(self, weights: VirtualWeights, layer: int, visible: Tensor):
        inner, self._heads, self._size = weights.inner, weights.config.heads, weights.config.head_size
        reads = weights.reads[0][layer]
        self._count, self._inner = len(reads), inner
        # As torch multiplies quickest: what is read, by what the stream is a sum of.
        self._reads = reads.t().contiguous()
        self._query_bias = weights.query_bias[0, layer].unflatten(0, (self._heads, 1, self._size)).clone()
        gram = weights.gram[0, layer]
        self._gram, self._gram_bias = gram[:, :inner].contiguous(), gram[:, inner:].clone()
        self._share = 1.0 / weights.config.width
        hidden = torch.zeros(visible.shape, device=visible.device)
        self._mask = hidden.masked_fill_(~visible, -torch.inf)

    def pattern(
        self,
        queries: VirtualStream,
        keys: VirtualStream | None = None,
        rows: slice | Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "1 batch head row key"]:
        """Attention patterns of all heads, or of some; see `Block.pattern`."""
        inner = self._inner
        if keys is None:
            query, key = self._read(queries, 0, 2 * inner).view(2, inner, -1)
        else:
            query, key = self._read(queries, 0, inner), self._read(keys, inner, 2 * inner)
        query, key = (
            self._of_heads(x * stream.inverse, stream, heads)
            for x, stream in ((query, queries), (key, keys or queries))
        )
        query = query if rows is None else query[:, :, rows]
        bias = self._query_bias if heads is None else self._query_bias[list(heads)]
        # The weights give scores to the base 2.
        scores = (query + bias) @ key.transpose(-1, -2) * math.log(2.0)
        mask = self._mask[: scores.shape[-1], : scores.shape[-1]]
        return (scores + (mask if rows is None else mask[rows])).softmax(-1)[None]

    def under(
        self,
        stream: VirtualStream,
        pattern: Float[Tensor, "1 batch head row key"],
        rows: slice | Tensor | None = None,
    ) -> VirtualStream:
        """The stream after this layer under given attention patterns; see `Block.under`."""
        if rows is not None:
            return self.after_heads(stream, self.heads_under(stream, pattern), rows)
        read = self._read(stream, 2 * self._inner, None)
        return self._after(stream, self._mixed(read[: self._inner], stream, pattern), read[self._inner :])

    def heads_under(
        self,
        stream: VirtualStream,
        pattern: Float[Tensor, "1 batch head row key"],
        heads: Sequence[int] | None = None,
    ) -> Heads:
        """Outputs of all heads, or of some, under their attention patterns; see `Block.heads_under`.

        They lack what the values' biases add, which is the same under every pattern.
        """
        value = self._read(stream, 2 * self._inner, 3 * self._inner)
        return self._mixed(value, stream, pattern, heads).transpose(-1, -2)[None]

    def after_heads(
        self, stream: VirtualStream, heads: Heads, rows: slice | Tensor | None = None
    ) -> VirtualStream:
        """The stream after this layer; see `Block.after_heads`."""
        here = stream if rows is None else stream.at(rows)
        along = self._read(here, 3 * self._inner, None)
        return self._after(here, heads[0].transpose(-1, -2), along)

    def _read(self, stream: VirtualStream, first: int, end: int | None) -> Float[Tensor, "read column"]:
        """Some of what this layer reads, not yet divided by the stream's deviation."""
        return self._reads[first:end] @ stream.numbers[: self._count]

    def _of_heads(
        self, x: Float[Tensor, "inner column"], stream: VirtualStream, heads: Sequence[int] | None
    ) -> Float[Tensor, "batch head position head_dim"]:
        found = x.view(self._heads, self._size, stream.batch, stream.positions).permute(2, 0, 3, 1)
        return found if heads is None else found[:, list(heads)]

    def _mixed(
        self,
        value: Float[Tensor, "inner column"],
        stream: VirtualStream,
        pattern: Float[Tensor, "1 batch head row key"],
        heads: Sequence[int] | None = None,
    ) -> Float[Tensor, "batch head head_dim row"]:
        values = self._of_heads(value.mul_(stream.inverse), stream, heads)
        return values.transpose(-1, -2) @ pattern[0].transpose(-1, -2)

    def _after(
        self,
        stream: VirtualStream,
        mixed: Float[Tensor, "batch head head_dim row"],
        along: Float[Tensor, "along column"],
    ) -> VirtualStream:
        """The stream with what the heads add; its squared length grows by twice what lies along it, and its own."""
        inner, more = self._inner, mixed.permute(1, 2, 0, 3)
        numbers = more.reshape(inner, -1)
        grown = torch.addmm(self._gram_bias, self._gram, numbers).add_(along, alpha=2.0)
        total = (grown[:inner] * numbers).sum(0).add_(grown[inner])
        return stream.grown(more, total.mul_(self._share).add_(stream.square))


class VirtualModel:
    """A model whose stream is never made, with the attributes and methods of a `Transformer` that the reader uses.

    Attributes:
        config: of the model.
        blocks: its layers.
        rows: readout positions.
    """

    def __init__(self, model: Transformer):
        """Make the virtual weights.

        Args:
            model: one that `fits` holds for.
        """
        self.config, self.rows = model.config, model.rows
        with torch.no_grad():
            weights = VirtualWeights(model.config, model.parameters)
            weights.fold()
            visible = visible_keys(self.config.length, self.config.causal, model.parameters.flat.device)
            made = partial(VirtualBlock, weights, visible=visible)
            self.blocks = [made(layer=layer) for layer in range(self.config.layers)]
            self._gram = weights.first_gram[0].clone()
            self._readout = weights.readout[0].t().contiguous()
            self._bias = weights.bias[0].clone()

    def embedded(self, inputs: Float[Tensor, "1 batch position feature"]) -> VirtualStream:
        """The stream before the first layer."""
        columns = inputs[0].flatten(0, 1).t()
        features, count = columns.shape
        room = _Room(self._readout.shape[1], count, inputs.device)
        first = room.numbers[: features + 1]
        first[:features], first[features] = columns, 1.0
        room.filled = features + 1
        square = ((self._gram @ first) * first).sum(0) / self.config.width
        return VirtualStream(room, features + 1, square, inputs.shape[2])

    def read_out(self, stream: VirtualStream) -> Float[Tensor, "1 batch position output"]:
        """Predictions from the stream after the last layer."""
        found = (self._readout @ stream.numbers).mul_(stream.inverse).add_(self._bias[:, None])
        return found.t().unflatten(0, (stream.batch, stream.positions))[None]


def fits(model: Transformer) -> bool:
    """Whether the reader is quicker with a model's virtual weights: on a CPU, in float32, as `is_narrow` says."""
    plain = model.precision == "float32" and model.parameters.flat.device.type == "cpu"
    return plain and model.members == 1 and model.config.norm == "pre" and is_narrow(model.config)


Stream = Any
"""What a model hands from layer to layer: a tensor `[1, batch, position, model]`, or a `VirtualStream`; no reader looks
into it."""

ReadModel = Transformer | VirtualModel
"""A model as the reader runs it, layer by layer, under attention patterns that it gives (`member == 1`)."""


def quickest(model: Transformer) -> ReadModel:
    """The form of a model that the reader runs fastest."""
    return VirtualModel(model) if fits(model) else model
