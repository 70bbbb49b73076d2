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

import itertools
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopscope.models.config import TransformerConfig

from . import deep
from .attention import Attention
from .columns import EPSILON, Columns, Linear
from .deep import Folded, in_chunks
from .lanes import LANES, Array, compiled, inverse_root, larger, load, spread, store


def make(config: TransformerConfig, leaf: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the pass is made of, by differentiable operations on the weights.

    `reads.0` … `[m, z, s]` are the virtual weights A R of each layer and of the readout, without the mean of the
    stream, which a norm takes out.  `gram` `[m, y, e + 1, e + 1]` has the products of the centred rows that a layer
    adds, `first_gram` those of the embedding.
    """
    own = deep.make(config, leaf)
    source, output, total, last = (own[name] for name in ("source", "output", "shift", "readout"))
    writes = torch.cat((output, total.diff(dim=1)[..., None, :]), 2)
    reads = torch.cat((own["projections"], writes.transpose(2, 3)), 3)
    reads, source_rows = reads - reads.mean(2, keepdim=True), source - source.mean(2, keepdim=True)
    found = {
        "query_bias": own["query_bias"],
        "gram": writes @ reads[..., own["projections"].shape[-1] :],
        "first_gram": source_rows @ source_rows.transpose(1, 2),
        "readout_bias": own["readout_bias"],
    }
    rows, one = torch.cat((source, output.flatten(1, 2)), 1), torch.tensor([config.input_size])
    for layer, each in enumerate([*reads.unbind(1), last - last.mean(1, keepdim=True)]):
        below = rows[:, : source.shape[1] + layer * output.shape[2]]
        # What biases have added up to here is read with the 1.
        found[f"reads.{layer}"] = (below @ each).index_add(1, one, total[:, layer, None] @ each)
    return found


class _Layer(NamedTuple):
    """What lies below a layer, what it reads (of this `along`, the stream along what it writes), and what it mixes."""

    below: Columns
    back_below: Columns
    read: Columns
    along: Columns
    mixed: Columns
    back_mixed: Columns
    attention: Attention


class _Pass:
    """All layers, for one chunk of samples after another.  `known` is z, a square the variance of the stream."""

    def __init__(self, config: TransformerConfig, folded: Folded, tiles: int, linear: Linear):
        self._made, self._slopes = folded.made, folded.slopes
        names = [f"reads.{layer}" for layer in range(config.layers + 1)]
        pairs = [(self._made[name], self._slopes[name]) for name in names]
        # Of each member, in each layer and the readout: virtual weights, and room for the gradient at them.
        members = range(len(self._made["gram"]))
        self._reads = [[(made[member], slope[member]) for made, slope in pairs] for member in members]
        self._linear, self._exact = linear, Linear("float32")
        self._inner, self._share, length = config.heads * config.head_size, 1.0 / config.width, config.length
        self._one, sizes = config.input_size, (self._inner, self._inner, self._inner, self._inner + 1)
        # Rows of A under each layer, and under the readout.
        under = [self._one + 1 + self._inner * layer for layer in range(config.layers + 1)]
        self._known, self._back_known = (Columns.of(under[-1], tiles, length) for _ in range(2))
        self._samples, one, _ = self._known.parts(self._one, 1, under[-1] - under[0])
        one.tensor.fill_(1.0)
        self._back_read = Columns.of(sum(sizes), tiles, length)
        *back_up, self._back_along = self._back_read.parts(*sizes)
        self._layers, scores = [], np.zeros((length, length, LANES), dtype=np.float32)
        for start, end in itertools.pairwise(under):
            parts = start, self._inner, under[-1] - end
            below, mixed, _ = self._known.parts(*parts)
            back_below, back_mixed, _ = self._back_known.parts(*parts)
            *up, along = (read := Columns.of(sum(sizes), tiles, length)).parts(*sizes)
            attention = Attention(config, [*up, mixed], [*back_up, back_mixed], scores)
            self._layers.append(_Layer(below, back_below, read, along, mixed, back_mixed, attention))
        self._inverses = torch.zeros(config.layers + 1, tiles, length, LANES)
        self._back_square = torch.zeros(tiles, length, LANES)
        self._places = torch.tensor(config.readout_positions)
        of_readout = (under[-1], under[-1], config.output_size, config.output_size)
        columns = (Columns.of(size, tiles, len(self._places)) for size in of_readout)
        self._asked, self._back_asked, self._read_out, self._slope = columns

    def forward(self, member: int, inputs: Tensor) -> Columns:
        self._samples.fill(inputs)
        made, out, known = self._made, self._read_out, self._known.matrix[: self._one + 1]
        first = ((made["first_gram"][member] @ known) * known).sum(0).mul_(self._share)
        square = first.view_as(self._back_square).numpy()
        for number, layer in enumerate(self._layers):
            self._linear.forward(self._reads[member][number][0], layer.below, layer.read)
            _scale(layer.read.array[: 3 * self._inner], square, self._inverses[number].numpy())
            layer.attention.forward(made["query_bias"][member, number])
            gram = made["gram"][member, number].numpy()
            _grow(layer.along.array, layer.mixed.array, gram, self._share, square)
        _scale(self._known.array[:0], square, self._inverses[-1].numpy())
        torch.index_select(self._known.tensor, 2, self._places, out=self._asked.tensor)
        self._exact.forward(self._reads[member][-1][0], self._asked, out)
        out.tensor.mul_(self._inverses[-1].index_select(1, self._places))
        out.matrix.add_(made["readout_bias"][member][:, None])
        return out

    def backward(self, member: int, slope: Tensor) -> None:
        self._slope.fill(slope)
        self._readout_back(member)
        for number in reversed(range(len(self._layers))):
            self._layer_back(member, number, self._layers[number])
        known = self._known.matrix[: self._one + 1]
        weighted = known * self._back_square.flatten()
        self._slopes["first_gram"][member].addmm_(weighted, known.t(), alpha=self._share)

    def _readout_back(self, member: int) -> None:
        # To the gradients at what was mixed and at the last square.
        inverse, slope, out = self._inverses[-1].index_select(1, self._places), self._slope, self._read_out
        self._slopes["readout_bias"][member].add_(slope.matrix.sum(1))
        out.matrix.sub_(self._made["readout_bias"][member][:, None])
        along = (slope.tensor * out.tensor).sum(0)
        self._back_square.zero_().index_copy_(1, self._places, -0.5 * along * inverse.square())
        slope.tensor.mul_(inverse)
        weights, slopes = self._reads[member][-1]
        self._exact.backward(weights, slopes, self._asked, slope, self._back_asked)
        self._back_known.tensor.zero_().index_copy_(2, self._places, self._back_asked.tensor)

    def _layer_back(self, member: int, number: int, layer: _Layer) -> None:
        # From the gradients at what the layer mixed and at the square after it to those below it.
        slope, back = self._back_square.flatten() * (2.0 * self._share), self._back_along
        layer.back_mixed.matrix.addcmul_(layer.along.matrix[:-1], slope)
        torch.mul(layer.mixed.matrix, slope, out=back.matrix[:-1])
        back.matrix[-1] = slope
        back_gram = self._slopes["gram"][member, number]
        back_gram[:, :-1].addmm_(back.matrix, layer.mixed.matrix.t(), alpha=0.5)
        back_gram[:, -1].add_(back.matrix.sum(1), alpha=0.5)
        layer.attention.backward(self._slopes["query_bias"][member, number])
        bias, inverse = self._made["query_bias"][member, number].flatten(), self._inverses[number].numpy()
        read, back_read = (columns.array[: 3 * self._inner] for columns in (layer.read, self._back_read))
        _scale_back(read, bias.numpy(), inverse, back_read, self._back_square.numpy())
        weights, slopes = self._reads[member][number]
        self._linear.backward(weights, slopes, layer.below, self._back_read, layer.back_below, add=True)


gradient = partial(in_chunks, make, _Pass)
"""The engine."""


@compiled
def _scale(read: Array, square: Array, inverse: Array) -> None:
    # One over the deviation, [i, p, l], by which what is read [f, i, p, l] is multiplied in place.
    features, tiles, positions = read.shape[:3]
    for i in range(tiles):
        for p in range(positions):
            # A sum of products may round below zero.
            variance = larger(spread(np.float32(0.0)), load(square, (i, p)))
            factor = inverse_root(variance + spread(EPSILON))
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
