"""Gradients of deep attention-only models with a wide stream and narrow heads, which never make that stream.

A stream without MLPs is a sum, x = Aᵀz, where z has the inputs, a 1, and what each head below has mixed, and the rows
of A are the embedding and the heads' output matrices.  Whatever reads the stream through a matrix R reads z through A R
("virtual weights": Elhage et al. 2021).  The squared length of the centred stream, which its norm needs, grows by what
a layer adds: |x + Wᵀm|² = |x|² + 2 m·(W x) + mᵀ(W Wᵀ)m, so that W is one more thing that is read.  While z is shorter
than the stream, products with it cost less: the paper's model of 24 layers and width 512 has 16 numbers a head.

Letters of the shapes, beside those of `attention`: m member, y layer, z rows of A, d model, e heads times their size
(the last of e + 1 is the bias, whose factor is 1 always), s what a layer reads: queries, keys, values, and what its own
heads write to, with the bias (3e + e + 1).
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopscope_next.models.config import TransformerConfig

from .attention import Attention, Columns
from .chunks import Folded, fill, in_chunks
from .deep import applied
from .lanes import LANES, Array, compiled, inverse_root, larger, load, spread, store

_EPSILON = np.float32(1e-5)


def made(config: TransformerConfig, leaf: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the pass is made of, by differentiable operations on the weights.

    `rows` `[m, z, d]` are those of A, `total` `[m, y + 1, d]` what biases add to the stream up to each layer and to the
    readout; `reads` `[m, y, d, s]` and `last` are what is read of the stream, without the mean that a norm takes out of
    it; `gram` `[m, y, e + 1, e + 1]` has the products of the centred rows that a layer adds, `first_gram` those of the
    embedding.
    """
    scale = config.head_size**-0.5 * math.log2(math.e)  # scores are to the base 2
    gain, shift = leaf["attention_norm.weight"][..., None], leaf["attention_norm.bias"]
    output = leaf["attention.output.weight"]
    query, key, value = (leaf[f"attention.{name}.weight"] for name in ("query", "key", "value"))
    value_bias = applied(shift, value) + leaf["attention.value.bias"]
    added = applied(value_bias, output) + leaf["attention.output.bias"]
    writes = torch.cat((output, added[..., None, :]), 2)
    reads = torch.cat((scale * gain * query, gain * key, gain * value, writes.transpose(2, 3)), 3)
    reads = reads - reads.mean(2, keepdim=True)
    last = leaf["final_norm.weight"][..., None] * leaf["readout.weight"]
    embedding = torch.cat((leaf["embed.vector.weight"], leaf["embed.vector.bias"][:, None]), 1)
    plain = embedding - embedding.mean(2, keepdim=True)
    return {
        "rows": torch.cat((embedding, output.flatten(1, 2)), 1),
        "total": torch.cat((torch.zeros_like(added[:, :1]), added.cumsum(1)), 1),
        "reads": reads,
        "last": last - last.mean(1, keepdim=True),
        "query_bias": scale * (applied(shift, query) + leaf["attention.query.bias"]),
        "gram": writes @ reads[..., 3 * query.shape[-1] :],
        "first_gram": plain @ plain.transpose(1, 2),
        "readout_bias": applied(leaf["final_norm.bias"], leaf["readout.weight"]) + leaf["readout.bias"],
    }


class _Layer(NamedTuple):
    """What lies below a layer, what it reads (of this `along`, the stream along what it writes), and what it mixes."""

    below: Columns
    read: Columns
    along: Columns
    mixed: Columns
    back_mixed: Columns
    attention: Attention


class _Pass:
    """All layers, for one chunk of samples after another.  `known` is z, a square the variance of the stream."""

    def __init__(self, config: TransformerConfig, folded: Folded, tiles: int):
        self._made, self._slopes, self._heads = folded.made, folded.slopes, config.heads
        self._inner = inner = config.heads * config.head_size
        self._share, self._one, length = 1.0 / config.width, config.input_size, config.length
        (members, rows, _), sizes = self._made["rows"].shape, (inner, inner, inner, inner + 1)
        self._known, self._back_known = (Columns.of(rows, tiles, length) for _ in range(2))
        each = (self._one + 1, *(inner,) * config.layers)
        (self._inputs, *mixed), (_, *back_mixed) = self._known.parts(*each), self._back_known.parts(*each)
        self._inputs.apart[-1] = 1.0
        self._back_read = Columns.of(sum(sizes), tiles, length)
        *back_up, self._back_along = self._back_read.parts(*sizes)
        scores = np.zeros((length, length, LANES), dtype=np.float32)
        self._layers = []
        for number, (own, back) in enumerate(zip(mixed, back_mixed, strict=True)):
            first, read = self._one + 1 + inner * number, Columns.of(sum(sizes), tiles, length)
            (below, _), (*up, along) = self._known.parts(first, rows - first), read.parts(*sizes)
            attention = Attention(config, [*up, own], [*back_up, back], scores)
            self._layers.append(_Layer(below, read, along, own, back, attention))
        # The virtual weights of each member: of each layer, and of the readout.
        shapes = [(len(layer.below.matrix), sum(sizes)) for layer in self._layers] + [
            (rows, config.output_size)
        ]
        self._virtual = [[torch.zeros(shape) for shape in shapes] for _ in range(members)]
        self._back_virtual = [[torch.zeros(shape) for shape in shapes] for _ in range(members)]
        self._inverses = torch.zeros(config.layers + 1, tiles, length, LANES)
        self._back_square = torch.zeros(tiles, length, LANES)
        self._positions = torch.tensor(config.readout_positions)
        self._asked, self._back_asked = (Columns.of(rows, tiles, len(self._positions)) for _ in range(2))
        out = (config.output_size, tiles, len(self._positions))
        self._read_out, self._slope = (Columns.of(*out) for _ in range(2))

    def begin(self) -> None:
        for member, layer, rows in self._products():
            torch.mm(rows, self._read(self._made, member, layer), out=self._virtual[member][layer])

    def end(self) -> None:
        for member, layer, rows in self._products():
            back = self._back_virtual[member][layer]
            through = back @ self._read(self._made, member, layer).t()
            self._slopes["rows"][member, : len(rows)].add_(through)
            self._slopes["total"][member, layer].copy_(through[self._one])
            torch.mm(rows.t(), back, out=self._read(self._slopes, member, layer))
            back.zero_()

    def _products(self) -> Iterator[tuple[int, int, Tensor]]:
        # The rows of A under each layer and the readout of each member; what biases add stands in that of the 1.
        for member, virtual in enumerate(self._virtual):
            rows = self._made["rows"][member]
            embedded = rows[self._one].clone()
            for layer, each in enumerate(virtual):
                torch.add(embedded, self._made["total"][member, layer], out=rows[self._one])
                yield member, layer, rows[: len(each)]
            rows[self._one] = embedded

    def _read(self, tensors: Mapping[str, Tensor], member: int, layer: int) -> Tensor:
        return tensors["reads"][member, layer] if layer < len(self._layers) else tensors["last"][member]

    def _bias(self, tensors: Mapping[str, Tensor], member: int, layer: int) -> np.ndarray:
        return tensors["query_bias"][member, layer].view(self._heads, -1).numpy()

    def forward(self, member: int, inputs: Tensor) -> Tensor:
        fill(self._inputs.apart[:-1], inputs)
        made, known, out = self._made, self._inputs.matrix, self._read_out
        first = ((made["first_gram"][member] @ known) * known).sum(0).mul_(self._share)
        square = first.view_as(self._back_square).numpy()
        for number, layer in enumerate(self._layers):
            torch.mm(self._virtual[member][number].t(), layer.below.matrix, out=layer.read.matrix)
            _scale(layer.read.array[: 3 * self._inner], square, self._inverses[number].numpy())
            layer.attention.forward(self._bias(made, member, number))
            gram = made["gram"][member, number].numpy()
            _grow(layer.along.array, layer.mixed.array, gram, self._share, square)
        _scale(self._known.array[:0], square, self._inverses[-1].numpy())
        torch.index_select(self._known.apart, 2, self._positions, out=self._asked.apart)
        torch.mm(self._virtual[member][-1].t(), self._asked.matrix, out=out.matrix)
        out.apart.mul_(self._inverses[-1].index_select(1, self._positions))
        out.matrix.add_(made["readout_bias"][member][:, None])
        return out.apart

    def backward(self, member: int, slope: Tensor) -> None:
        fill(self._slope.apart, slope)
        self._readout_back(member)
        for number in reversed(range(len(self._layers))):
            self._layer_back(member, number, self._layers[number])
        weighted = self._inputs.matrix * self._back_square.flatten()
        self._slopes["first_gram"][member].addmm_(weighted, self._inputs.rows, alpha=self._share)

    def _readout_back(self, member: int) -> None:
        # To the gradients at what was mixed and at the last square.
        inverse, slope, out = self._inverses[-1].index_select(1, self._positions), self._slope, self._read_out
        self._slopes["readout_bias"][member].add_(slope.matrix.sum(1))
        out.matrix.sub_(self._made["readout_bias"][member][:, None])
        along = (slope.apart * out.apart).sum(0)
        self._back_square.zero_().index_copy_(1, self._positions, -0.5 * along * inverse.square())
        slope.apart.mul_(inverse)
        self._back_virtual[member][-1].addmm_(self._asked.matrix, slope.rows)
        torch.mm(self._virtual[member][-1], slope.matrix, out=self._back_asked.matrix)
        self._back_known.apart.zero_().index_copy_(2, self._positions, self._back_asked.apart)

    def _layer_back(self, member: int, number: int, layer: _Layer) -> None:
        # From the gradients at what the layer mixed and at the square after it to those below it.
        slope = self._back_square.flatten() * (2.0 * self._share)
        back, below = self._back_along, layer.below.matrix
        layer.back_mixed.matrix.addcmul_(layer.along.matrix[:-1], slope)
        torch.mul(layer.mixed.matrix, slope, out=back.matrix[:-1])
        back.matrix[-1] = slope
        back_gram = self._slopes["gram"][member, number]
        back_gram[:, :-1].addmm_(back.matrix, layer.mixed.rows, alpha=0.5)
        back_gram[:, -1].add_(back.matrix.sum(1), alpha=0.5)
        layer.attention.backward(self._bias(self._slopes, member, number))
        bias, inverse = self._made["query_bias"][member, number].numpy(), self._inverses[number].numpy()
        read, back_read = (columns.array[: 3 * self._inner] for columns in (layer.read, self._back_read))
        _scale_back(read, bias, inverse, back_read, self._back_square.numpy())
        self._back_virtual[member][number].addmm_(below, self._back_read.rows)
        mixed = slice(self._one + 1, len(below))
        self._back_known.matrix[mixed].addmm_(self._virtual[member][number][mixed], self._back_read.matrix)


gradient = partial(in_chunks, made, _Pass)
"""The engine."""


@compiled
def _scale(read: Array, square: Array, inverse: Array) -> None:
    # One over the deviation, [i, p, l], by which what is read [f, i, p, l] is multiplied in place.
    features, tiles, positions = read.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            # A sum of products may round below zero.
            variance = larger(spread(np.float32(0.0)), load(square, (i, p)))
            factor = inverse_root(variance + spread(_EPSILON))
            store(inverse, (i, p), factor)
            for f in range(features):
                store(read, (f, i, p), load(read, (f, i, p)) * factor)


@compiled
def _grow(along: Array, mixed: Array, gram: Array, share: float, square: Array) -> None:
    # Adds to the square [i, p, l] what a layer adds, and to `along` [e + 1, i, p, l] the products of that with what it
    # writes: then this is half the derivative of the square by what was mixed, [e, i, p, l].
    features, tiles, positions = mixed.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            total = spread(np.float32(0.0))
            for a in range(features + 1):
                before, added = load(along, (a, i, p)), spread(gram[a, features])
                for b in range(features):
                    added = added + spread(gram[a, b]) * load(mixed, (b, i, p))
                grown = before + before + added
                total = total + (grown * load(mixed, (a, i, p)) if a < features else grown)
                store(along, (a, i, p), before + added)
            store(square, (i, p), load(square, (i, p)) + total * spread(np.float32(share)))


@compiled
def _scale_back(read: Array, bias: Array, inverse: Array, back: Array, back_square: Array) -> None:
    # Through the division by the deviation: `read` [f, i, p, l] is scaled, and its first features have a bias; `back`
    # becomes the gradient before that, and `back_square` [i, p, l] is added to.
    features, tiles, positions = read.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            along, deviation = spread(np.float32(0.0)), load(inverse, (i, p))
            for f in range(features):
                slope = load(back, (f, i, p))
                shift = spread(bias[f] if f < len(bias) else np.float32(0.0))
                along = along + slope * (load(read, (f, i, p)) - shift)
                store(back, (f, i, p), slope * deviation)
            lost = along * deviation * deviation * spread(np.float32(0.5))
            store(back_square, (i, p), load(back_square, (i, p)) - lost)
