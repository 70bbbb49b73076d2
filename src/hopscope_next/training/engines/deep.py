"""Gradients of deep pre-norm models on a CPU, several times as fast as by autograd.

Between the large matrix products, which torch does best, everything is a loop over vectors of samples that stays in
registers, compiled by numba, with the derivatives written out.  What norms and biases do is folded into the matrices
once a step: gain and shift of a norm, and the scale of the scores, become part of the matrix behind it; biases of
values and outputs become a vector that is added to the stream where it is next normed.  A key's bias moves all scores
of a row alike: it changes nothing.  So there are no passes over activations for any of them.

Letters of the shapes, beside those of `attention`: m member, y layer, c input (the last is 1 always), d model, e heads
times their size.
"""

import math
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hopscope_next.models.config import TransformerConfig

from .attention import Attention, Columns
from .chunks import Folded, fill, in_chunks
from .lanes import LANES, Array, compiled, inverse_root, load, spread, store, sum_of_lanes

_EPSILON, _ZERO, _ONE = np.float32(1e-5), np.float32(0.0), np.float32(1.0)
_gelu, _gelu_back = torch.ops.aten.gelu.out, torch.ops.aten.gelu_backward.grad_input
_relu, _relu_back = torch.ops.aten.relu.out, torch.ops.aten.threshold_backward.grad_input


def applied(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Row vectors `[…, d]` times matrices `[…, d, out]`."""
    return (vectors[..., None, :] @ matrices)[..., 0, :]


def made(config: TransformerConfig, leaf: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that the pass reads, by differentiable operations on the weights.

    `source` `[m, c, d]` is the embedding, whose bias is the weight of one more input.  Over few inputs the first
    layer's projections are not made from the stream.  With x = Eᵀu the stream, C the removal of the mean and s its
    deviation, the normed stream is C x / s, so that projections P of it are (E C P)ᵀ u / s, and s depends on `gram`,
    E C Eᵀ.
    """
    if config.input_kind == "vectors":
        rows = [leaf["embed.vector.weight"], leaf["embed.vector.bias"][:, None]]
    else:
        rows = [leaf["embed.token.weight"], torch.zeros_like(leaf["embed.token.weight"][:, :1])]
    rows[1:1] = [leaf["embed.position.weight"]] if config.position_count else []
    source, scale = torch.cat(rows, 1), config.head_size**-0.5 * math.log2(math.e)  # scores are to the base 2
    query, key, value = (leaf[f"attention.{name}.weight"] for name in ("query", "key", "value"))
    plain, output = torch.cat((scale * query, key, value), -1), leaf["attention.output.weight"]
    query_bias, _, value_bias = applied(leaf["attention_norm.bias"], plain).split(query.shape[-1], -1)
    value_bias = value_bias + leaf["attention.value.bias"]
    added = middle = applied(value_bias, output) + leaf["attention.output.bias"]
    found = {
        "source": source,
        "projections": leaf["attention_norm.weight"][..., None] * plain,
        "query_bias": query_bias + scale * leaf["attention.query.bias"],
        "output": output,
        "readout": leaf["final_norm.weight"][..., None] * leaf["readout.weight"],
        "readout_bias": applied(leaf["final_norm.bias"], leaf["readout.weight"]) + leaf["readout.bias"],
    }
    if config.mlp_size:
        weight = leaf["mlp.inner.weight"]
        found["inner"] = leaf["mlp_norm.weight"][..., None] * weight
        found["inner_bias"] = applied(leaf["mlp_norm.bias"], weight) + leaf["mlp.inner.bias"]
        found["outer"], added = leaf["mlp.outer.weight"], added + leaf["mlp.outer.bias"]
    # What the stream lacks at each norm; the last is that of the readout.
    found["shift"] = torch.cat((torch.zeros_like(added[:, :1]), added.cumsum(1)), 1)
    if config.mlp_size:
        found["mlp_shift"] = found["shift"][:, :-1] + middle
    in_whole = config.layers > 1 or len(config.readout_positions) == config.length
    if in_whole and 2 * source.shape[1] <= config.width:
        centred = source - source.mean(-1, keepdim=True)
        found |= {"first": centred @ found["projections"][:, 0], "gram": centred @ centred.transpose(1, 2)}
    return found


def _of_member(tensors: Mapping[str, Tensor], heads: int, member: int) -> list[Any]:
    # What each layer reads, and what the readout reads; or the gradients that they add to.
    own, found = {name: tensor[member] for name, tensor in tensors.items()}, []
    whole = {"source", "first", "gram", "readout", "readout_bias"} & own.keys()
    for layer in range(len(own["shift"])):
        here: dict[str, Any] = {name: each[layer] for name, each in own.items() if layer < len(each)}
        here |= {name: own[name] for name in whole}
        if "query_bias" in here:
            here["query_bias"] = here["query_bias"].view(heads, -1)
        here |= {name: here[name].numpy() for name in {"shift", "mlp_shift", "query_bias"} & here.keys()}
        found.append(SimpleNamespace(**here))
    return found


class _Room:
    """Gradients on the way down, in which all layers with the same rows take turns: `back` is that at the stream."""

    def __init__(self, config: TransformerConfig, tiles: int, rows: int):
        inner = config.heads * config.head_size
        sizes = (config.width, config.width, inner, 3 * inner, config.mlp_size)
        columns = [Columns.of(size, tiles, rows) for size in sizes]
        self.back, self.normed, self.mixed, self.projected, self.hidden = columns
        self.scores = np.zeros((rows, config.length, LANES), dtype=np.float32)


class _Norm:
    """A layer norm without gain and shift, which are in the matrix behind it; `scale` is one over the deviation."""

    def __init__(self, config: TransformerConfig, tiles: int, rows: int):
        self.normed, self.scale = Columns.of(config.width, tiles, rows), Columns.of(1, tiles, rows)

    def forward(self, stream: Columns, shift: np.ndarray) -> Tensor:
        _standardise(stream.array, shift, self.normed.array, self.scale.array[0])
        return self.normed.matrix

    def backward(self, back_normed: Columns, back: Columns, back_shift: np.ndarray) -> None:
        _standardise_back(back_normed.array, self.normed.array, self.scale.array[0], back.array, back_shift)


class _Layer:
    """A layer and what it keeps of a chunk; at `places`, if there are some: keys and values everywhere, all else there.

    `room` is where the gradient at the stream that leaves it is expected, `below` where that at the stream which enters
    it is left.
    """

    def __init__(
        self, config: TransformerConfig, tiles: int, room: _Room, below: _Room, places: Tensor | None = None
    ):
        inner, length = config.heads * config.head_size, config.length
        rows = length if places is None else len(places)
        self._room, self._below, self._places, self._inner = room, below, places, inner
        self._norm, self._mixed = _Norm(config, tiles, length), Columns.of(inner, tiles, rows)
        self._mlp = _Mlp(config, tiles, room, rows) if config.mlp_size else None
        self._projected, self._back_projected = Columns.of(3 * inner, tiles, length), below.projected
        self._query, self._pairs = self._projected.parts(inner, 2 * inner)
        self._back_query, self._back_pairs = self._back_projected.parts(inner, 2 * inner)
        if places is not None:
            self._query = Columns.of(inner, tiles, rows)
            self._back_query, _ = room.projected.parts(inner, 2 * inner)
            self._stream, self._asked = (Columns.of(config.width, tiles, rows) for _ in range(2))
        up = [self._query, *self._pairs.parts(inner, inner), self._mixed]
        down = [self._back_query, *self._back_pairs.parts(inner, inner), room.mixed]
        where = None if places is None else places.numpy()
        self._attention = Attention(config, up, down, room.scores, where)

    def forward(self, weights: Any, stream: Columns) -> Columns:
        """Add to the stream, in place; returns what is left of it."""
        stream = self._project(weights, stream)
        self._attention.forward(weights.query_bias)
        stream.matrix.addmm_(weights.output.t(), self._mixed.matrix)
        if self._mlp is not None:
            self._mlp.forward(weights, stream)
        return stream

    def _project(self, weights: Any, stream: Columns) -> Columns:
        normed, inner = self._norm.forward(stream, weights.shift), self._inner
        if self._places is None:
            torch.mm(weights.projections.t(), normed, out=self._projected.matrix)
            return stream
        torch.index_select(self._norm.normed.apart, 2, self._places, out=self._asked.apart)
        torch.index_select(stream.apart, 2, self._places, out=self._stream.apart)
        torch.mm(weights.projections[:, :inner].t(), self._asked.matrix, out=self._query.matrix)
        torch.mm(weights.projections[:, inner:].t(), normed, out=self._pairs.matrix)
        return self._stream

    def backward(self, weights: Any, slopes: Any) -> None:
        """From the gradient at the stream that leaves the layer to that at the one that enters it."""
        room = self._room
        if self._mlp is not None:
            self._mlp.backward(weights, slopes)
        torch.mm(weights.output, room.back.matrix, out=room.mixed.matrix)
        slopes.output.addmm_(self._mixed.matrix, room.back.rows)
        self._attention.backward(slopes.query_bias)
        self._project_back(weights, slopes)

    def _project_back(self, weights: Any, slopes: Any) -> None:
        room, below, normed, inner = self._room, self._below, self._norm.normed.matrix, self._inner
        if self._places is None:
            slopes.projections.addmm_(normed, self._back_projected.rows)
            torch.mm(weights.projections, self._back_projected.matrix, out=below.normed.matrix)
        else:
            slopes.projections[:, :inner].addmm_(self._asked.matrix, self._back_query.rows)
            slopes.projections[:, inner:].addmm_(normed, self._back_pairs.rows)
            torch.mm(weights.projections[:, :inner], self._back_query.matrix, out=room.normed.matrix)
            torch.mm(weights.projections[:, inner:], self._back_pairs.matrix, out=below.normed.matrix)
            # Other rows have a gradient as keys and values alone.
            below.normed.apart.index_add_(2, self._places, room.normed.apart)
            below.back.apart.zero_().index_copy_(2, self._places, room.back.apart)
        self._norm.backward(below.normed, below.back, slopes.shift)


class _FirstLayer(_Layer):
    """A first layer over few inputs: nothing here is as large as the stream, whose gradient it leaves as it is."""

    def __init__(self, config: TransformerConfig, tiles: int, room: _Room, inputs: Columns):
        super().__init__(config, tiles, room, room)
        self._inputs, self._share = inputs, 1.0 / config.width
        self._scaled, self._weighted = (Columns(torch.zeros_like(inputs.apart)) for _ in range(2))

    def _project(self, weights: Any, stream: Columns) -> Columns:
        self._norm.forward(stream, weights.shift)
        torch.mul(self._inputs.apart, self._norm.scale.apart, out=self._scaled.apart)
        torch.mm(weights.first.t(), self._scaled.matrix, out=self._projected.matrix)
        return stream

    def _project_back(self, weights: Any, slopes: Any) -> None:
        scaled, weighted = self._scaled.matrix, self._weighted.matrix
        slopes.first.addmm_(scaled, self._back_projected.rows)
        torch.mm(weights.first, self._back_projected.matrix, out=weighted)
        torch.mul(scaled, weighted.mul_(scaled).sum(0).mul_(self._share), out=weighted)
        slopes.gram.addmm_(weighted, self._scaled.rows, alpha=-0.5)


class _Mlp:
    """The MLP of a layer, which adds to the stream."""

    def __init__(self, config: TransformerConfig, tiles: int, room: _Room, rows: int):
        self._room, self._relu, self._norm = room, config.activation == "relu", _Norm(config, tiles, rows)
        self._before, self._after = (Columns.of(config.mlp_size, tiles, rows).matrix for _ in range(2))

    def forward(self, weights: Any, stream: Columns) -> None:
        normed = self._norm.forward(stream, weights.mlp_shift)
        torch.addmm(weights.inner_bias[:, None], weights.inner.t(), normed, out=self._before)
        (_relu if self._relu else _gelu)(self._before, out=self._after)
        stream.matrix.addmm_(weights.outer.t(), self._after)

    def backward(self, weights: Any, slopes: Any) -> None:
        room, hidden = self._room, self._room.hidden.matrix
        torch.mm(weights.outer, room.back.matrix, out=hidden)
        slopes.outer.addmm_(self._after, room.back.rows)
        if self._relu:
            _relu_back(hidden, self._after, 0, grad_input=hidden)
        else:
            _gelu_back(hidden, self._before, grad_input=hidden)
        slopes.inner.addmm_(self._norm.normed.matrix, room.hidden.rows)
        slopes.inner_bias.add_(hidden.sum(1))
        torch.mm(weights.inner, hidden, out=room.normed.matrix)
        self._norm.backward(room.normed, room.back, slopes.mlp_shift)


class _Pass:
    """All layers, for one chunk of samples after another."""

    def __init__(self, config: TransformerConfig, folded: Folded, tiles: int):
        source, length, rows = folded.made["source"], config.length, len(config.readout_positions)
        self._config, self._norm = config, _Norm(config, tiles, rows)
        self._inputs, self._stream = (Columns.of(size, tiles, length) for size in source.shape[1:])
        self._inputs.apart[-1] = 1.0
        # Learned codes of positions are columns of the embedding: which one a position has never changes.
        for position, code in enumerate(config.position_codes if config.position_count else ()):
            self._inputs.apart[config.input_size + code, :, position] = 1.0
        self._room = self._top = _Room(config, tiles, length)
        self._layers = [_Layer(config, tiles, self._room, self._room) for _ in range(config.layers)]
        if rows < length:
            self._top, places = _Room(config, tiles, rows), torch.tensor(config.readout_positions)
            self._layers[-1] = _Layer(config, tiles, self._top, self._room, places)
        if "first" in folded.made:
            self._layers[0] = _FirstLayer(config, tiles, self._room, self._inputs)
        self._predictions, self._slope = (Columns.of(config.output_size, tiles, rows) for _ in range(2))
        both, members = (folded.made, folded.slopes), range(len(source))
        self._weights, self._slopes = ([_of_member(each, config.heads, m) for m in members] for each in both)

    def begin(self) -> None:
        """Nothing is left to do."""

    end = begin

    def forward(self, member: int, inputs: Tensor) -> Tensor:
        *weights, last = self._weights[member]
        if self._config.input_kind == "tokens":
            inputs = functional.one_hot(inputs, self._config.input_size).float()
        fill(self._inputs.apart[: self._config.input_size], inputs)
        torch.mm(last.source.t(), self._inputs.matrix, out=self._stream.matrix)
        stream = self._stream
        for layer, own in zip(self._layers, weights, strict=True):
            stream = layer.forward(own, stream)
        normed = self._norm.forward(stream, last.shift)
        torch.addmm(last.readout_bias[:, None], last.readout.t(), normed, out=self._predictions.matrix)
        return self._predictions.apart

    def backward(self, member: int, slope: Tensor) -> None:
        fill(self._slope.apart, slope)
        (*weights, last), (*slopes, back), top = self._weights[member], self._slopes[member], self._top
        back.readout.addmm_(self._norm.normed.matrix, self._slope.rows)
        back.readout_bias.add_(self._slope.matrix.sum(1))
        torch.mm(last.readout, self._slope.matrix, out=top.normed.matrix)
        top.back.apart.zero_()
        self._norm.backward(top.normed, top.back, back.shift)
        for number in reversed(range(len(weights))):
            self._layers[number].backward(weights[number], slopes[number])
        back.source.addmm_(self._inputs.matrix, self._room.back.rows)


gradient = partial(in_chunks, made, _Pass)
"""The engine."""


@compiled
def _standardise(stream: Array, shift: Array, normed: Array, scale: Array) -> None:
    # stream [d, i, p, l], to which shift [d] is added first; normed and scale [i, p, l] (one over the standard
    # deviation) are overwritten.
    width, tiles, positions = stream.shape[:3]
    share = spread(_ONE / np.float32(width))
    for i in range(tiles):
        for p in range(positions):
            mean, square = spread(_ZERO), spread(_ZERO)
            for d in range(width):
                x = load(stream, (d, i, p)) + spread(shift[d])
                store(normed, (d, i, p), x)
                mean = mean + x
            mean = mean * share
            for d in range(width):
                x = load(normed, (d, i, p)) - mean
                square = square + x * x
            inverse = inverse_root(square * share + spread(_EPSILON))
            for d in range(width):
                store(normed, (d, i, p), (load(normed, (d, i, p)) - mean) * inverse)
            store(scale, (i, p), inverse)


@compiled
def _standardise_back(
    back_normed: Array, normed: Array, scale: Array, back: Array, back_shift: Array
) -> None:
    # Added to `back`, the gradient at the stream, and to back_shift [d].
    width, tiles, positions = normed.shape[:3]
    share = spread(_ONE / np.float32(width))
    sums = np.zeros((width, LANES), dtype=np.float32)
    for i in range(tiles):
        for p in range(positions):
            mean, along = spread(_ZERO), spread(_ZERO)
            for d in range(width):
                slope = load(back_normed, (d, i, p))
                mean = mean + slope
                along = along + slope * load(normed, (d, i, p))
            inverse = load(scale, (i, p))
            mean, along = mean * share * inverse, along * share * inverse
            for d in range(width):
                slope = load(back_normed, (d, i, p)) * inverse - mean - load(normed, (d, i, p)) * along
                store(back, (d, i, p), load(back, (d, i, p)) + slope)
                store(sums, (d,), load(sums, (d,)) + slope)
    for d in range(width):
        back_shift[d] += sum_of_lanes(load(sums, (d,)))
