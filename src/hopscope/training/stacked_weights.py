"""The weights of the stacked way: all that a layer norm and a bias can hand on to a matrix is done to the matrix once.

A norm's gain and shift, and the scale of the scores, become part of the matrix behind it; the biases of values,
outputs and embedding become a vector that is added to the stream where it is next normed.  A key's bias, and what a
shift adds to the keys, moves all scores of a row alike: it changes nothing, and its gradient is zero.  So there are
no passes over activations for any of them.

Letters of the shapes: m member, y layer, c input (the last is 1 always), d model, e heads times their size, f MLP,
o output.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.models.config import TransformerConfig
from hopscope.models.parameters import Parameters
from hopscope.training.stacked_fold import NormedLinear, Source, Views


@dataclass(frozen=True)
class LayerWeights:
    """What one layer of one member reads and adds to; see `StackedWeights`.

    Attributes:
        projections, projections_t, output, output_t, inner, inner_t, outer, outer_t: matrices and their transposes.
        query_bias, back_query_bias: `[head, j]`.
        inner_bias: `[f, 1]`.
        source, source_t, back_source, along_source: for a first layer over few inputs, see `Source`.
    """

    projections: Tensor
    projections_t: Tensor
    back_projections: Tensor
    query_bias: np.ndarray
    back_query_bias: np.ndarray
    output: Tensor
    output_t: Tensor
    back_output: Tensor
    attention_shift: np.ndarray
    attention_totals: np.ndarray
    inner: Tensor
    inner_t: Tensor
    inner_bias: Tensor
    back_inner: Tensor
    back_inner_bias: Tensor
    outer: Tensor
    outer_t: Tensor
    back_outer: Tensor
    mlp_shift: np.ndarray
    mlp_totals: np.ndarray
    source: Tensor
    source_t: Tensor
    back_source: Tensor
    along_source: Tensor


@dataclass(frozen=True)
class ReadoutWeights:
    """What the readout of one member reads and adds to; see `StackedWeights`."""

    matrix: Tensor
    matrix_t: Tensor
    bias: Tensor
    back_matrix: Tensor
    back_bias: Tensor
    shift: np.ndarray
    totals: np.ndarray


class StackedWeights:
    """Folded weights and their gradients, of all members and layers.

    Attributes:
        inputs: how many inputs the embedding maps: features of a vector, or a token's and a position's marks.
        source: the embedding.
        few_inputs: whether the first layer shall be computed from the inputs.
        projections: `[m, y, d, 3 · e]`: queries (to give scores to the base 2), keys, values.
        inner: `[m, y, d, f]`, first map of the MLP.
        readout: `[m, d, o]`.
        output, outer: `[m, y, e, d]`, `[m, y, f, d]`: views of the weights.
        back_output, back_outer: gradients, to be added to.
        attention_shift, mlp_shift, final_shift: `[m, y, d]`, `[m, y, d]`, `[m, d]`: what the stream lacks there.
        attention_totals, mlp_totals, final_totals: sums over rows of the gradient at the stream as it enters those
            norms, to be added to.
        layers, readouts: views of all this, by member and layer, and by member.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters):
        self.config, self.parameters = config, parameters
        self.inner_size = config.heads * config.head_size
        self._scale = config.head_size**-0.5 * math.log2(math.e)
        self._plain = Views(parameters, parameters.flat, config.layers)
        self._back: Views | None = None
        self._gradient: Tensor | None = None
        members, layers, width = len(parameters.flat), config.layers, config.width
        lead = (members, layers)
        in_whole = config.layers > 1 or len(config.readout_positions) == config.length
        self.inputs = config.input_size + config.position_count
        self.few_inputs = in_whole and 2 * (self.inputs + 1) <= width
        self.source = Source(members, self.inputs, width, 3 * self.inner_size)
        self.projections = NormedLinear(lead, width, 3 * self.inner_size)
        self.inner = NormedLinear(lead, width, config.mlp_size)
        self.readout = NormedLinear((members,), width, config.output_size)
        self.output = self._plain.layers["attention.output.weight"]
        self.back_output = torch.zeros(*lead, self.inner_size, width)
        self.back_outer = torch.zeros(*lead, config.mlp_size, width)
        self.outer = self._plain.layers["mlp.outer.weight"] if config.mlp_size else self.back_outer
        self.attention_shift, self.mlp_shift, self.attention_totals, self.mlp_totals = (
            torch.zeros(*lead, width) for _ in range(4)
        )
        self.final_shift, self.final_totals = (torch.zeros(members, width) for _ in range(2))
        self.layers = [[self._layer(member, layer) for layer in range(layers)] for member in range(members)]
        self.readouts = [self._readout(member) for member in range(members)]

    def _layer(self, member: int, layer: int) -> LayerWeights:
        """Views: they stay right as the weights change."""
        here, heads = (member, layer), (self.config.heads, self.config.head_size)
        query_bias, back_query_bias = (
            bias[here][: self.inner_size].view(heads).numpy()
            for bias in (self.projections.bias, self.projections.back_bias)
        )
        projections, output, inner, outer = (
            matrix[here] for matrix in (self.projections.matrix, self.output, self.inner.matrix, self.outer)
        )
        source = self.source.projections[member]
        return LayerWeights(
            projections, projections.t(), self.projections.back_matrix[here], query_bias, back_query_bias,
            output, output.t(), self.back_output[here],
            self.attention_shift[here].numpy(), self.attention_totals[here].numpy(),
            inner, inner.t(), self.inner.bias[here][:, None], self.inner.back_matrix[here], self.inner.back_bias[here],
            outer, outer.t(), self.back_outer[here],
            self.mlp_shift[here].numpy(), self.mlp_totals[here].numpy(),
            source, source.t(), self.source.back_projections[member], self.source.along[member],
        )  # fmt: skip

    def _readout(self, member: int) -> ReadoutWeights:
        all_of = self.readout
        return ReadoutWeights(
            all_of.matrix[member], all_of.matrix[member].t(), all_of.bias[member][:, None],
            all_of.back_matrix[member], all_of.back_bias[member],
            self.final_shift[member].numpy(), self.final_totals[member].numpy(),
        )  # fmt: skip

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = x.split(self.inner_size, -1)
        return query, key, value

    # From the weights.

    def fold(self) -> None:
        """Take over the weights as they are now, and begin new gradients."""
        whole, layers = self._plain.whole, self._plain.layers
        for name, destination in (("weight", self.projections.plain), ("bias", self.projections.plain_bias)):
            query, key, value = self._parts(destination)
            torch.mul(layers[f"attention.query.{name}"], self._scale, out=query)
            key.copy_(layers[f"attention.key.{name}"])
            value.copy_(layers[f"attention.value.{name}"])
        self.projections.fold(*self._norm_of(layers, "attention_norm"))
        if self.config.mlp_size:
            self.inner.plain, self.inner.plain_bias = layers["mlp.inner.weight"], layers["mlp.inner.bias"]
            self.inner.fold(*self._norm_of(layers, "mlp_norm"))
        self.readout.plain, self.readout.plain_bias = whole["readout.weight"], whole["readout.bias"]
        self.readout.fold(*self._norm_of(whole, "final_norm"))
        first = self.projections.matrix[:, 0]
        self._fold_source(whole, first)
        self._shift()
        for gradient in (self.back_output, self.back_outer):
            gradient.zero_()
        for totals in (self.attention_totals, self.mlp_totals, self.final_totals):
            totals.zero_()

    def _fold_source(self, whole: Mapping[str, Tensor], first: Tensor) -> None:
        if self.config.input_kind == "vectors":
            weight, bias = whole["embed.vector.weight"], whole["embed.vector.bias"]
        else:
            weight, bias = whole["embed.token.weight"], torch.zeros(())
        if self.config.position_count:
            weight = torch.cat((weight, whole["embed.position.weight"]), 1)
        self.source.fold(weight, bias, first)

    def _norm_of(self, views: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
        return views[f"{name}.weight"], views[f"{name}.bias"]

    def _shift(self) -> None:
        """What biases add to the stream, up to each norm; the embedding's is in its matrix."""
        layers, value_bias = self._plain.layers, self._parts(self.projections.bias)[2]
        by_values = (value_bias[..., None, :] @ self.output)[..., 0, :]
        torch.add(layers["attention.output.bias"], by_values, out=self.mlp_shift)
        added = self.mlp_shift
        if self.config.mlp_size:
            added = added + layers["mlp.outer.bias"]
        so_far = added.cumsum(1)
        self.attention_shift[:, 1:] = so_far[:, :-1]
        self.final_shift.copy_(so_far[:, -1])
        self.mlp_shift.add_(self.attention_shift)

    # To their gradient.

    def unfold(self, gradient: Float[Tensor, "member size"]) -> None:
        """Write the gradient, laid out as the weights; it is the same buffer at every step."""
        if self._back is None or gradient is not self._gradient:
            self._gradient, self._back = gradient, Views(self.parameters, gradient, self.config.layers)
        back, plain = self._back, self._plain
        above = torch.cat((self.attention_totals[:, 1:], self.final_totals[:, None]), 1)
        if self.config.mlp_size:
            back.layers["mlp.inner.weight"].copy_(
                self._unfolded(self.inner, plain.layers, back.layers, "mlp_norm")
            )
            back.layers["mlp.inner.bias"].copy_(self.inner.back_bias)
            back.layers["mlp.outer.weight"].copy_(self.back_outer)
            back.layers["mlp.outer.bias"].copy_(above)
            above = self.mlp_totals
        embedding = self.source.unfold(self.projections.matrix[:, 0], self.projections.back_matrix[:, 0])
        self._unfold_source(back.whole, embedding)
        self._unfold_attention(plain, back, above)
        back.whole["readout.weight"].copy_(
            self._unfolded(self.readout, plain.whole, back.whole, "final_norm")
        )
        back.whole["readout.bias"].copy_(self.readout.back_bias)

    def _unfold_source(self, back: Mapping[str, Tensor], embedding: Float[Tensor, "m c d"]) -> None:
        symbols, positions = self.config.input_size, self.config.position_count
        if self.config.input_kind == "vectors":
            back["embed.vector.weight"].copy_(embedding[:, :symbols])
            back["embed.vector.bias"].copy_(embedding[:, -1])
        else:
            back["embed.token.weight"].copy_(embedding[:, :symbols])
        if positions:
            back["embed.position.weight"].copy_(embedding[:, symbols : symbols + positions])

    def _unfolded(
        self, linear: NormedLinear, plain: Mapping[str, Tensor], back: Mapping[str, Tensor], norm: str
    ) -> Tensor:
        return linear.unfold(*self._norm_of(plain, norm), *self._norm_of(back, norm))

    def _unfold_attention(self, plain: Views, back: Views, above: Float[Tensor, "m y d"]) -> None:
        """All of attention; `above` are sums of the gradient at the stream that leaves it."""
        back_query_bias, _, back_value_bias = self._parts(self.projections.back_bias)
        back_value_bias.copy_((self.output @ above[..., None])[..., 0])
        unfolded = self._unfolded(self.projections, plain.layers, back.layers, "attention_norm")
        query, key, value = self._parts(unfolded)
        gradient = back.layers
        torch.mul(query, self._scale, out=gradient["attention.query.weight"])
        torch.mul(back_query_bias, self._scale, out=gradient["attention.query.bias"])
        gradient["attention.key.weight"].copy_(key)
        gradient["attention.key.bias"].zero_()
        gradient["attention.value.weight"].copy_(value)
        gradient["attention.value.bias"].copy_(back_value_bias)
        value_bias = self._parts(self.projections.bias)[2]
        torch.addcmul(
            self.back_output,
            value_bias[..., None],
            above[..., None, :],
            out=gradient["attention.output.weight"],
        )
        gradient["attention.output.bias"].copy_(above)
