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
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks import Task, default_gradient
from hopscope.training.config import Training

from .attention import Attention
from .autograd import Step, batches
from .columns import Columns, Linear, Norm
from .lanes import LANES

_gelu, _gelu_back = torch.ops.aten.gelu.out, torch.ops.aten.gelu_backward.grad_input
_relu, _relu_back = torch.ops.aten.relu.out, torch.ops.aten.threshold_backward.grad_input

_COLUMNS = 1800
"""Columns of a chunk, at most: enough that a call costs little, few enough that its activations stay in cache."""


def by_layer(weights: Mapping[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Weights by name; those of one name in all layers as one `[member, layer, …]`."""
    found = {name: weight for name, weight in weights.items() if not name.startswith("layers.")}
    own = [name.removeprefix("layers.0.") for name in weights if name.startswith("layers.0.")]
    return found | {
        name: torch.stack([weights[f"layers.{y}.{name}"] for y in range(layers)], 1) for name in own
    }


class Folded:
    """What is made of the weights once a step, and the way from the gradients at it to those at the weights.

    `made` are tensors by name, which stay where they are; `slopes` are the gradients at these, to be added to.
    """

    def __init__(self, model: Transformer, buffer: Tensor, make: Callable[..., dict[str, Tensor]]):
        """`make` makes them of the weights (`by_layer`), by differentiable operations."""
        self._make, self._layers = make, model.config.layers
        self._leaves, self._back = model.weights(), model.views(buffer)
        with torch.no_grad():
            shapes = {name: each.shape for name, each in self._now().items()}
        self.made, self.slopes = ({name: torch.zeros(shapes[name]) for name in shapes} for _ in range(2))
        for leaf in self._leaves.values():
            leaf.requires_grad_()

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        with torch.enable_grad():
            self._graph = list(self._now().values())
        torch._foreach_copy_(list(self.made.values()), [each.detach() for each in self._graph])
        torch._foreach_zero_(list(self.slopes.values()))

    def _now(self) -> dict[str, Tensor]:
        return self._make(by_layer(self._leaves, self._layers))

    def unfold(self) -> None:
        """Write the gradient into the buffer."""
        leaves, slopes = list(self._leaves.values()), list(self.slopes.values())
        # A key's bias moves all scores of a row alike: it is not used, and has no gradient.
        found = torch.autograd.grad(self._graph, leaves, slopes, materialize_grads=True)
        torch._foreach_copy_(list(self._back.values()), found)


def in_chunks(
    make: Any, pass_of: Any, model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor
) -> Step:
    """An engine that passes a few samples of a member through all layers, up and down, after others.

    So what a chunk leaves on its way up is still in cache on its way down.  `make(config, weights)` is what is folded;
    `pass_of(config, folded, tiles, linear)` is a pass for so many tiles of samples: `forward(member, inputs)` gives
    predictions, `backward(member, slope)` takes the gradient at these, `[sample, row, output]`, to that at what is
    folded.
    """
    config, size = model.config, training.batch_size
    needed = -(-size // LANES)
    tiles = -(-needed // -(-needed // max(1, _COLUMNS // (LANES * config.length))))
    folded, batch_of = Folded(model, buffer, partial(make, config)), batches(task, training, seeds)
    chunk = pass_of(config, folded, tiles, Linear(training.precision))
    shape = (len(seeds), size, len(config.readout_positions), config.output_size)

    @torch.no_grad()
    def of_step(step: int) -> dict[str, Tensor]:
        batch, predictions = batch_of(step), torch.empty(shape)
        plain = batch.plain()
        folded.fold()
        for member in range(len(seeds)):
            own = plain.member(member)
            for first in range(0, size, tiles * LANES):
                samples = slice(first, min(first + tiles * LANES, size))
                count = samples.stop - first
                found = chunk.forward(member, batch.inputs[member, samples]).samples(count)
                predictions[member, samples] = found
                # The loss is a mean over the batch, of which these samples are a part.
                slope = default_gradient(found[None], own.take(samples))[0] * (count / size)
                chunk.backward(member, slope)
        folded.unfold()
        return dict(task.parts(predictions, batch))

    return of_step


def _applied(vectors: Tensor, matrices: Tensor) -> Tensor:
    """Row vectors `[…, d]` times matrices `[…, d, out]`."""
    return (vectors[..., None, :] @ matrices)[..., 0, :]


def make(config: TransformerConfig, leaf: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All that the pass reads, by differentiable operations on the weights.

    `source` `[m, c, d]` is the embedding, whose bias is the weight of one more input; `shift` `[m, y + 1, d]` is what
    the stream lacks at each layer's norm and at that of the readout, `mlp_shift` `[m, y, d]` at those of the MLPs.
    """
    if config.input_kind == "vectors":
        rows = [leaf["embed.vector.weight"], leaf["embed.vector.bias"][:, None]]
    else:
        rows = [leaf["embed.token.weight"], torch.zeros_like(leaf["embed.token.weight"][:, :1])]
    rows[1:1] = [leaf["embed.position.weight"]] if config.position_count else []
    source, scale = torch.cat(rows, 1), config.head_size**-0.5 * math.log2(math.e)  # scores are to the base 2
    query, key, value = (leaf[f"attention.{name}.weight"] for name in ("query", "key", "value"))
    plain, output = torch.cat((scale * query, key, value), -1), leaf["attention.output.weight"]
    query_bias, _, value_bias = _applied(leaf["attention_norm.bias"], plain).split(query.shape[-1], -1)
    value_bias = value_bias + leaf["attention.value.bias"]
    added = middle = _applied(value_bias, output) + leaf["attention.output.bias"]
    found = {
        "source": source,
        "projections": leaf["attention_norm.weight"][..., None] * plain,
        "query_bias": (query_bias + scale * leaf["attention.query.bias"]).unflatten(-1, (config.heads, -1)),
        "output": output,
        "readout": leaf["final_norm.weight"][..., None] * leaf["readout.weight"],
        "readout_bias": _applied(leaf["final_norm.bias"], leaf["readout.weight"]) + leaf["readout.bias"],
    }
    if config.mlp_size:
        weight = leaf["mlp.inner.weight"]
        found["inner"] = leaf["mlp_norm.weight"][..., None] * weight
        found["inner_bias"] = _applied(leaf["mlp_norm.bias"], weight) + leaf["mlp.inner.bias"]
        found["outer"], added = leaf["mlp.outer.weight"], added + leaf["mlp.outer.bias"]
    found["shift"] = torch.cat((torch.zeros_like(added[:, :1]), added.cumsum(1)), 1)
    if config.mlp_size:
        found["mlp_shift"] = found["shift"][:, :-1] + middle
    return found


def _of_member(tensors: Mapping[str, Tensor], member: int) -> list[Any]:
    # Of each layer, and of what lies around the layers; weights, or the gradients that they add to.
    own = {name: tensor[member] for name, tensor in tensors.items()}
    ends = {name: own.pop(name) for name in ("source", "readout", "readout_bias")}
    ends["shift"] = own["shift"][-1]
    layers = [{name: each[layer] for name, each in own.items()} for layer in range(len(own["output"]))]
    return [SimpleNamespace(**each) for each in (*layers, ends)]


class _Rows:
    """What all layers that compute the same rows share: sizes, products, and room for gradients on their way down.

    `back` is that at the stream, `scores` that at one head's.
    """

    def __init__(self, config: TransformerConfig, tiles: int, linear: Linear, count: int):
        self.config, self.tiles, self.linear, self.count = config, tiles, linear, count
        inner = config.heads * config.head_size
        sizes = (config.width, config.width, inner, 3 * inner, config.mlp_size)
        self.back, self.normed, self.mixed, self.projected, self.hidden = map(self.columns, sizes)
        self.scores = np.zeros((count, config.length, LANES), dtype=np.float32)

    def columns(self, features: int) -> Columns:
        return Columns.of(features, self.tiles, self.count)

    def norm(self) -> Norm:
        return Norm(self.config.width, self.tiles, self.count)


class _Layer:
    """A layer and what it keeps of a chunk; at `places`, if there are some: keys and values everywhere, all else there.

    `above` has the gradient at the stream that leaves it, `below` gets that at the stream which enters it.
    """

    def __init__(self, below: _Rows, above: _Rows, places: Tensor | None = None):
        config, self._inner = below.config, below.config.heads * below.config.head_size
        self._below, self._above, self._places, self._linear = below, above, places, below.linear
        self._norm, self._mixed = below.norm(), above.columns(self._inner)
        self._mlp = _Mlp(above) if config.mlp_size else None
        self._projected, sizes = below.columns(3 * self._inner), (self._inner, 2 * self._inner)
        self._query, self._pairs = self._projected.parts(*sizes)
        self._back_query, self._back_pairs = below.projected.parts(*sizes)
        if places is not None:
            self._query, (self._back_query, _) = above.columns(self._inner), above.projected.parts(*sizes)
            self._stream, self._asked = (above.columns(config.width) for _ in range(2))
        up = [self._query, *self._pairs.parts(self._inner, self._inner), self._mixed]
        down = [self._back_query, *self._back_pairs.parts(self._inner, self._inner), above.mixed]
        self._attention = Attention(config, up, down, above.scores, places)

    def forward(self, weights: Any, stream: Columns) -> Columns:
        """Add to the stream, in place; returns what is left of it."""
        self._norm.forward(stream, weights.shift)
        if self._places is None:
            self._linear.forward(weights.projections, self._norm.normed, self._projected)
        else:
            torch.index_select(self._norm.normed.tensor, 2, self._places, out=self._asked.tensor)
            torch.index_select(stream.tensor, 2, self._places, out=self._stream.tensor)
            stream, (query, pairs) = self._stream, self._split(weights.projections)
            self._linear.forward(query, self._asked, self._query)
            self._linear.forward(pairs, self._norm.normed, self._pairs)
        self._attention.forward(weights.query_bias)
        self._linear.forward(weights.output, self._mixed, stream, add=True)
        if self._mlp is not None:
            self._mlp.forward(weights, stream)
        return stream

    def backward(self, weights: Any, slopes: Any) -> None:
        """From the gradient at the stream that leaves the layer to that at the one that enters it."""
        below, above, linear, normed = self._below, self._above, self._linear, self._norm.normed
        if self._mlp is not None:
            self._mlp.backward(weights, slopes)
        linear.backward(weights.output, slopes.output, self._mixed, above.back, above.mixed)
        self._attention.backward(slopes.query_bias)
        if self._places is None:
            linear.backward(weights.projections, slopes.projections, normed, below.projected, below.normed)
        else:
            (query, pairs), (slope, slope_pairs) = map(self._split, (weights.projections, slopes.projections))
            linear.backward(query, slope, self._asked, self._back_query, above.normed)
            linear.backward(pairs, slope_pairs, normed, self._back_pairs, below.normed)
            # Other rows have a gradient as keys and values alone.
            below.normed.tensor.index_add_(2, self._places, above.normed.tensor)
            below.back.tensor.zero_().index_copy_(2, self._places, above.back.tensor)
        self._norm.backward(below.normed, below.back, slopes.shift)

    def _split(self, projections: Tensor) -> tuple[Tensor, ...]:
        return projections.split((self._inner, 2 * self._inner), 1)


class _Mlp:
    def __init__(self, rows: _Rows):
        self._rows, self._relu, self._norm = rows, rows.config.activation == "relu", rows.norm()
        self._before, self._after = (rows.columns(rows.config.mlp_size) for _ in range(2))

    def forward(self, weights: Any, stream: Columns) -> None:
        self._norm.forward(stream, weights.mlp_shift)
        self._rows.linear.forward(weights.inner, self._norm.normed, self._before)
        self._before.matrix.add_(weights.inner_bias[:, None])
        (_relu if self._relu else _gelu)(self._before.matrix, out=self._after.matrix)
        self._rows.linear.forward(weights.outer, self._after, stream, add=True)

    def backward(self, weights: Any, slopes: Any) -> None:
        rows, hidden = self._rows, self._rows.hidden.matrix
        rows.linear.backward(weights.outer, slopes.outer, self._after, rows.back, rows.hidden)
        if self._relu:
            _relu_back(hidden, self._after.matrix, 0, grad_input=hidden)
        else:
            _gelu_back(hidden, self._before.matrix, grad_input=hidden)
        slopes.inner_bias.add_(hidden.sum(1))
        rows.linear.backward(weights.inner, slopes.inner, self._norm.normed, rows.hidden, rows.normed)
        self._norm.backward(rows.normed, rows.back, slopes.mlp_shift)


class _Pass:
    def __init__(self, config: TransformerConfig, folded: Folded, tiles: int, linear: Linear):
        self._config, self._exact = config, Linear("float32")
        self._rows = self._top = rows = _Rows(config, tiles, linear, config.length)
        self._layers = [_Layer(rows, rows) for _ in range(config.layers)]
        if len(config.readout_positions) < config.length:
            places = torch.tensor(config.readout_positions)
            self._top = _Rows(config, tiles, linear, len(places))
            self._layers[-1] = _Layer(rows, self._top, places)
        source = folded.made["source"]
        self._inputs, self._stream = map(rows.columns, source.shape[1:])
        self._inputs.tensor[-1] = 1.0
        # Learned codes of positions are columns of the embedding: which one a position has never changes.
        for position, code in enumerate(config.position_codes if config.position_count else ()):
            self._inputs.tensor[config.input_size + code, :, position] = 1.0
        self._samples = Columns(self._inputs.tensor[: config.input_size])
        self._norm, self._predictions = self._top.norm(), self._top.columns(config.output_size)
        self._slope = self._top.columns(config.output_size)
        both, members = (folded.made, folded.slopes), range(len(source))
        self._weights, self._slopes = ([_of_member(each, m) for m in members] for each in both)

    def forward(self, member: int, inputs: Tensor) -> Columns:
        *weights, ends = self._weights[member]
        if self._config.input_kind == "tokens":
            inputs = functional.one_hot(inputs, self._config.input_size).float()
        self._samples.fill(inputs)
        self._exact.forward(ends.source, self._inputs, self._stream)
        stream = self._stream
        for layer, own in zip(self._layers, weights, strict=True):
            stream = layer.forward(own, stream)
        self._norm.forward(stream, ends.shift)
        self._exact.forward(ends.readout, self._norm.normed, self._predictions)
        self._predictions.matrix.add_(ends.readout_bias[:, None])
        return self._predictions

    def backward(self, member: int, slope: Tensor) -> None:
        self._slope.fill(slope)
        (*weights, ends), (*slopes, back), top = self._weights[member], self._slopes[member], self._top
        back.readout_bias.add_(self._slope.matrix.sum(1))
        self._exact.backward(ends.readout, back.readout, self._norm.normed, self._slope, top.normed)
        top.back.tensor.zero_()
        self._norm.backward(top.normed, top.back, back.shift)
        for number in reversed(range(len(weights))):
            self._layers[number].backward(weights[number], slopes[number])
        self._exact.product(self._inputs.matrix, self._rows.back.matrix.t(), back.source, add=True)


gradient = partial(in_chunks, make, _Pass)
"""The engine."""
