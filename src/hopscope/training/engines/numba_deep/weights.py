"""The weights of the deep engine: all that a layer norm and a bias can hand on to a matrix is done to the matrix once.

A norm's gain and shift, and the scale of the scores, become part of the matrix behind it; the biases of values,
outputs and embedding become a vector that is added to the stream where it is next normed.  A key's bias, and what a
shift adds to the keys, moves all scores of a row alike: it changes nothing, and its gradient is zero.  So there are
no passes over activations for any of them.

Letters of the shapes: m member, y layer, c input (the last is 1 always), d model, e heads times their size, f MLP,
o output.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters


class LinearMap(NamedTuple):
    """Matrices, and their gradients, which are added to."""

    matrix: Tensor
    gradient: Tensor

    def at(self, *here: int) -> "LinearMap":
        """The map of one member (and layer)."""
        return LinearMap(self.matrix[here], self.gradient[here])


class NormInput(NamedTuple):
    """The input of a norm beside the stream.

    Attributes:
        shift: `[d]`, what the stream lacks there: biases that are left out of it.
        totals: `[d]`, sums over rows of the gradient at the stream as it enters the norm, to be added to.
    """

    shift: np.ndarray
    totals: np.ndarray


class LayerWeights(NamedTuple):
    """The weights that one layer of one member reads, and the gradients that it adds to; see `DeepWeights`.

    Attributes:
        query_bias, back_query_bias: `[head, j]`.
        inner, inner_bias, back_inner_bias, outer: of the MLP, empty where there is none; the bias is `[f, 1]`.
        source, along_source: for a first layer over few inputs, see `Source`.
    """

    attention_input: NormInput
    projections: LinearMap
    query_bias: np.ndarray
    back_query_bias: np.ndarray
    output: LinearMap
    mlp_input: NormInput
    inner: LinearMap
    inner_bias: Tensor
    back_inner_bias: Tensor
    outer: LinearMap
    source: LinearMap
    along_source: Tensor


class ReadoutWeights(NamedTuple):
    """The weights that the readout of one member reads, and the gradients that it adds to; see `DeepWeights`."""

    input: NormInput
    map: LinearMap
    bias: Tensor
    back_bias: Tensor


class Views:
    """Tensors of a flat buffer by name.

    Attributes:
        whole: name → `[m, …]`.
        layers: name within a layer → `[m, y, …]`.
    """

    def __init__(self, parameters: Parameters, flat: Float[Tensor, "member size"], layers: int):
        self.whole = {name: view.detach() for name, view in parameters.views(flat).items()}
        first = "layers.0."
        names = [name.removeprefix(first) for name in self.whole if name.startswith(first)]
        self.layers = {name: _by_layer(self.whole, name, layers) for name in names}


def _by_layer(whole: Mapping[str, Tensor], name: str, layers: int) -> Float[Tensor, "m y ..."]:
    """The tensors of one name as one view: layers lie in the flat buffer at equal distances."""
    first, second = whole[f"layers.0.{name}"], whole[f"layers.{min(1, layers - 1)}.{name}"]
    apart = second.storage_offset() - first.storage_offset()
    stride = (first.stride(0), apart, *first.stride()[1:])
    return first.as_strided((first.shape[0], layers, *first.shape[1:]), stride, first.storage_offset())


class NormedLinear:
    """Linear maps of normed vectors, with the norm's gain and shift folded in.

    Attributes:
        plain, plain_bias: `[…, d, out]` and `[…, out]`, as they are without the norm's.
        map, bias: the same, of the vectors before gain and shift; the map's gradient is to be added to.
        back_bias: gradient by the bias, to be added to.
    """

    def __init__(self, views: Mapping[str, Tensor], norm: str, plain: Tensor, plain_bias: Tensor):
        """`views` has gain and shift of the norm."""
        self._gain, self._shift = f"{norm}.weight", f"{norm}.bias"
        self._views, self.plain, self.plain_bias = views, plain, plain_bias
        self.map = LinearMap(torch.zeros(plain.shape), torch.zeros(plain.shape))
        self.bias, self.back_bias = (torch.zeros(plain_bias.shape) for _ in range(2))

    def fold(self) -> None:
        """Make map and bias, and begin new gradients."""
        torch.mul(self.plain, self._views[self._gain][..., None], out=self.map.matrix)
        torch.add(_applied(self._views[self._shift], self.plain), self.plain_bias, out=self.bias)
        self.map.gradient.zero_()
        self.back_bias.zero_()

    def unfold(self, back: Mapping[str, Tensor]) -> Float[Tensor, "... d out"]:
        """Overwrite the gradients by gain and shift; returns that by `plain` (`back_bias` is that by its bias)."""
        torch.sum(self.plain * self.map.gradient, -1, out=back[self._gain])
        back[self._shift].copy_(_applied(self.back_bias, self.plain.transpose(-1, -2)))
        scaled = self.map.gradient * self._views[self._gain][..., None]
        return scaled.addcmul_(self._views[self._shift][..., None], self.back_bias[..., None, :])


class Source:
    """The embedding, its bias the weights of one more input, and the first layer's projections as maps of the inputs.

    With x = Eᵀu the stream, C the removal of the mean, and s its deviation, the normed stream is C x / s, so that
    projections P of it are (E C P)ᵀ u / s.  The norm's gradient by E is that through C P, less what goes along the
    normed stream.

    Attributes:
        matrix: E, `[m, c, d]`; back_matrix: its gradient through the stream, to be added to.
        projections: `E C P`, `[m, c, 3 · e]`, with its gradient.
        along: `[m, c, c]`, to be added to: sums of products of two scaled inputs, weighted by the mean product of
            the gradient and the normed stream.
    """

    def __init__(self, members: int, inputs: int, width: int, projected: int):
        self.matrix, self.back_matrix, self._centred = (
            torch.zeros(members, inputs + 1, width) for _ in range(3)
        )
        self.projections = LinearMap(*(torch.zeros(members, inputs + 1, projected) for _ in range(2)))
        self.along = torch.zeros(members, inputs + 1, inputs + 1)

    def fold(self, weight: Tensor, bias: Tensor, projections: Float[Tensor, "m d out"]) -> None:
        """Take over the embedding and the first layer's folded projections, and begin new gradients."""
        self.matrix[:, :-1], self.matrix[:, -1] = weight, bias
        torch.sub(self.matrix, self.matrix.mean(-1, keepdim=True), out=self._centred)
        torch.bmm(self._centred, projections, out=self.projections.matrix)
        for gradient in (self.back_matrix, self.projections.gradient, self.along):
            gradient.zero_()

    def unfold(
        self, projections: Float[Tensor, "m d out"], back_projections: Float[Tensor, "m d out"]
    ) -> Float[Tensor, "m c d"]:
        """Add to the gradient by the first layer's folded projections; returns that by `matrix`."""
        back_projections.baddbmm_(self._centred.transpose(1, 2), self.projections.gradient)
        through = torch.bmm(self.projections.gradient, projections.transpose(1, 2))
        through -= through.mean(-1, keepdim=True)
        return self.back_matrix + through - torch.bmm(self.along, self._centred)


class DeepWeights:
    """Folded weights and their gradients, of all members and layers.

    Attributes:
        inputs: how many inputs the embedding maps: features of a vector, or a token's and a position's marks.
        source: the embedding.
        few_inputs: whether the first layer shall be computed from the inputs.
        layers, readouts: views of all that a layer of a member, and its readout, read and add to.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters):
        self.config, self.parameters = config, parameters
        self._inner_size = config.heads * config.head_size
        self._scale = config.head_size**-0.5 * math.log2(math.e)
        self._plain = Views(parameters, parameters.flat, config.layers)
        self._back: Views | None = None
        self._gradient: Tensor | None = None
        lead, width = (len(parameters.flat), config.layers), config.width
        in_whole = config.layers > 1 or len(config.readout_positions) == config.length
        self.inputs = config.input_size + config.position_count
        self.few_inputs = in_whole and 2 * (self.inputs + 1) <= width
        self.source = Source(lead[0], self.inputs, width, 3 * self._inner_size)
        # Queries (to give scores to the base 2), keys and values; the first map of the MLP; the readout.
        whole, layers = self._plain.whole, self._plain.layers
        together = torch.zeros(*lead, width, 3 * self._inner_size), torch.zeros(*lead, 3 * self._inner_size)
        self._projections = NormedLinear(layers, "attention_norm", *together)
        inner = _weight_and_bias(layers, "mlp.inner") if config.mlp_size else (x[..., :0] for x in together)
        self._inner = NormedLinear(layers, "mlp_norm", *inner)
        self._readout = NormedLinear(whole, "final_norm", *_weight_and_bias(whole, "readout"))
        output = layers["attention.output.weight"]
        outer = layers["mlp.outer.weight"] if config.mlp_size else output[..., :0, :]
        self._output, self._outer = (LinearMap(plain, torch.zeros(plain.shape)) for plain in (output, outer))
        # Shift and totals of each norm's input, and what a layer and the readout see of all this.
        self._attention_input, self._mlp_input = (torch.zeros(2, *lead, width) for _ in range(2))
        self._final_input = torch.zeros(2, lead[0], width)
        self.layers = [[self._layer(member, layer) for layer in range(lead[1])] for member in range(lead[0])]
        self.readouts = [self._readout_of(member) for member in range(lead[0])]

    def _layer(self, member: int, layer: int) -> LayerWeights:
        """Views: they stay right as the weights change."""
        here, heads = (member, layer), (self.config.heads, self.config.head_size)
        projections, inner = self._projections, self._inner
        query_bias, back_query_bias = (
            bias[here][: self._inner_size].view(heads).numpy()
            for bias in (projections.bias, projections.back_bias)
        )
        return LayerWeights(
            attention_input=NormInput(*self._attention_input[:, member, layer].numpy()),
            projections=projections.map.at(*here),
            query_bias=query_bias,
            back_query_bias=back_query_bias,
            output=self._output.at(*here),
            mlp_input=NormInput(*self._mlp_input[:, member, layer].numpy()),
            inner=inner.map.at(*here),
            inner_bias=inner.bias[here][:, None],
            back_inner_bias=inner.back_bias[here],
            outer=self._outer.at(*here),
            source=self.source.projections.at(member),
            along_source=self.source.along[member],
        )

    def _readout_of(self, member: int) -> ReadoutWeights:
        readout, given = self._readout, NormInput(*self._final_input[:, member].numpy())
        return ReadoutWeights(
            given, readout.map.at(member), readout.bias[member][:, None], readout.back_bias[member]
        )

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = x.split(self._inner_size, -1)
        return query, key, value

    # From the weights.

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        for name, destination in (
            ("weight", self._projections.plain),
            ("bias", self._projections.plain_bias),
        ):
            query, key, value = self._parts(destination)
            torch.mul(self._plain.layers[f"attention.query.{name}"], self._scale, out=query)
            key.copy_(self._plain.layers[f"attention.key.{name}"])
            value.copy_(self._plain.layers[f"attention.value.{name}"])
        self._projections.fold()
        if self.config.mlp_size:
            self._inner.fold()
        self._readout.fold()
        self._fold_source()
        self._shift()
        for gradient in (self._output.gradient, self._outer.gradient):
            gradient.zero_()
        for given in (self._attention_input, self._mlp_input, self._final_input):
            given[1].zero_()

    def _fold_source(self) -> None:
        whole = self._plain.whole
        if self.config.input_kind == "vectors":
            weight, bias = _weight_and_bias(whole, "embed.vector")
        else:
            weight, bias = whole["embed.token.weight"], torch.zeros(())
        if self.config.position_count:
            weight = torch.cat((weight, whole["embed.position.weight"]), 1)
        self.source.fold(weight, bias, self._projections.map.matrix[:, 0])

    def _shift(self) -> None:
        """The sum of the biases in the stream, up to each norm; the embedding's bias is in its matrix."""
        layers, value_bias = self._plain.layers, self._parts(self._projections.bias)[2]
        added = layers["attention.output.bias"] + _applied(value_bias, self._output.matrix)
        self._mlp_input[0] = added
        if self.config.mlp_size:
            added = added + layers["mlp.outer.bias"]
        so_far = added.cumsum(1)
        self._attention_input[0, :, 1:] = so_far[:, :-1]
        self._final_input[0] = so_far[:, -1]
        self._mlp_input[0] += self._attention_input[0]

    # To their gradient.

    def unfold(self, gradient: Float[Tensor, "member size"]) -> None:
        """Write the gradient, laid out as the weights; it is the same buffer at every step."""
        if self._back is None or gradient is not self._gradient:
            self._gradient, self._back = gradient, Views(self.parameters, gradient, self.config.layers)
        whole, layers = self._back.whole, self._back.layers
        above = torch.cat((self._attention_input[1, :, 1:], self._final_input[1, :, None]), 1)
        if self.config.mlp_size:
            layers["mlp.inner.weight"].copy_(self._inner.unfold(layers))
            layers["mlp.inner.bias"].copy_(self._inner.back_bias)
            layers["mlp.outer.weight"].copy_(self._outer.gradient)
            layers["mlp.outer.bias"].copy_(above)
            above = self._mlp_input[1]
        self._unfold_source(whole)
        self._unfold_attention(layers, above)
        whole["readout.weight"].copy_(self._readout.unfold(whole))
        whole["readout.bias"].copy_(self._readout.back_bias)

    def _unfold_source(self, back: Mapping[str, Tensor]) -> None:
        embedding = self.source.unfold(*(each[:, 0] for each in self._projections.map))
        symbols, positions = self.config.input_size, self.config.position_count
        if self.config.input_kind == "vectors":
            back["embed.vector.weight"].copy_(embedding[:, :symbols])
            back["embed.vector.bias"].copy_(embedding[:, -1])
        else:
            back["embed.token.weight"].copy_(embedding[:, :symbols])
        if positions:
            back["embed.position.weight"].copy_(embedding[:, symbols : symbols + positions])

    def _unfold_attention(self, back: Mapping[str, Tensor], above: Float[Tensor, "m y d"]) -> None:
        """All of attention; `above` are sums of the gradient at the stream that leaves it."""
        back_query_bias, _, back_value_bias = self._parts(self._projections.back_bias)
        back_value_bias.copy_((self._output.matrix @ above[..., None])[..., 0])
        query, key, value = self._parts(self._projections.unfold(back))
        torch.mul(query, self._scale, out=back["attention.query.weight"])
        torch.mul(back_query_bias, self._scale, out=back["attention.query.bias"])
        back["attention.key.weight"].copy_(key)
        back["attention.key.bias"].zero_()
        back["attention.value.weight"].copy_(value)
        back["attention.value.bias"].copy_(back_value_bias)
        value_bias = self._parts(self._projections.bias)[2][..., None]
        torch.addcmul(
            self._output.gradient, value_bias, above[..., None, :], out=back["attention.output.weight"]
        )
        back["attention.output.bias"].copy_(above)


def _weight_and_bias(views: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return views[f"{name}.weight"], views[f"{name}.bias"]


def _applied(
    vectors: Float[Tensor, "... d"], matrices: Float[Tensor, "... d out"]
) -> Float[Tensor, "... out"]:
    return (vectors[..., None, :] @ matrices)[..., 0, :]
