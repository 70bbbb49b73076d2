"""The transformer of this laboratory: many members as one tensor program.

Every weight has a leading member axis and every linear map is one batched matrix product, so that an ensemble costs
little more than its largest member would and one model is simply `member == 1`.  `member(i)` gives the same model as
a plain module (see `member`), the slow obvious reference.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models import lookup
from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Edits, Means, visible_keys
from hopscope.models.layer_editor import LayerEditor
from hopscope.models.linear import linear, norm, position_codes, product
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs

Stream = Float[Tensor, "member batch position model"]
Rows = Float[Tensor, "member batch row model"]


@dataclass(frozen=True)
class Captured:
    """What happened inside one forward pass, one tensor per layer.

    Attributes:
        patterns: attention patterns, after edits.
        heads: head outputs before the output projection, after edits.
        mlps: MLP outputs, after edits (none for a model without MLP).
        streams: residual stream that enters each layer, and the one that leaves the last.
    """

    patterns: list[Float[Tensor, "*lead head query key"]]
    heads: list[Float[Tensor, "*lead head query head_dim"]]
    mlps: list[Float[Tensor, "*lead query model"]]
    streams: list[Float[Tensor, "*lead position model"]]


class Transformer:
    """A transformer with a leading member axis.

    Attributes:
        config: its shape.
        parameters: the weights of all members; `weights` are their views by name.
    """

    def __init__(self, config: TransformerConfig, parameters: Parameters):
        self.config, self.parameters = config, parameters
        self.weights = parameters.views()
        device = parameters.flat.device
        self._readout = torch.tensor(config.readout_positions, device=device)
        self._mask = torch.zeros(config.length, config.length, device=device)
        self._mask.masked_fill_(~visible_keys(config.length, config.causal, device), -torch.inf)

    @classmethod
    def initial(
        cls, config: TransformerConfig, seeds: Int[Tensor, " member"], device: torch.device | str = "cpu"
    ) -> "Transformer":
        """Freshly initialised members, one for each seed."""
        return cls(config, Parameters.initial(config, seeds, device))

    @property
    def members(self) -> int:
        """Number of members."""
        return self.parameters.flat.shape[0]

    def member(self, index: int) -> MemberTransformer:
        """Member `index` as a plain module with its own copy of the weights."""
        weights = {name: view[index].detach() for name, view in self.weights.items()}
        return MemberTransformer.from_weights(self.config, weights)

    def select(self, indices: list[int]) -> "Transformer":
        """An ensemble of copies of some members."""
        chosen = Parameters(parameter_specs(self.config), len(indices), self.parameters.flat.device)
        chosen.flat.copy_(self.parameters.flat[indices].detach())
        return Transformer(self.config, chosen)

    def __call__(
        self, inputs: Tensor, edits: Edits | None = None, *, every_position: bool = False
    ) -> Float[Tensor, "*variant member batch readout output"]:
        """Predictions at the readout positions (or at every position).

        Args:
            inputs: token ids `[member, batch, position]` or vectors `[member, batch, position, feature]`; a member
                axis of 1 hands the same batch to every member.  Fewer positions than `config.length` are allowed
                where every position is read out.
            edits: interventions; then the result has a leading variant axis.
            every_position: predictions at all positions, not only at the readout ones.
        """
        if (
            edits is None
            and not every_position
            and inputs.shape[2] == self.config.length
            and lookup.fits(self.config)
        ):
            return self._looked_up(inputs)
        predictions, _ = self._run(inputs, edits, every_position, None)
        return predictions

    def _looked_up(self, inputs: Int[Tensor, "#member batch position"]) -> Tensor:
        """The same predictions by the faster way for one-layer token models."""
        inputs = inputs.expand(self.members, -1, -1)
        stream, attended = lookup.attended(self.config, self.weights, self._mask, self._readout, inputs)
        return self._read_out(self._after_attention(0, stream, attended)).transpose(1, 2)

    def _read_out(self, stream: Stream) -> Float[Tensor, "member batch position output"]:
        if self.config.norm == "pre":
            stream = norm(self.weights, "final_norm", stream)
        return linear(self.weights, "readout", stream)

    def capture(
        self, inputs: Tensor, edits: Edits | None = None
    ) -> tuple[Float[Tensor, "*variant member batch position output"], Captured]:
        """Predictions at every position, and what happened inside.  Arguments as for a call."""
        captured = Captured([], [], [], [])
        predictions, variants = self._run(inputs, edits, True, captured)
        if variants is not None:
            for tensors in (captured.patterns, captured.heads, captured.mlps, captured.streams):
                tensors[:] = [_unfold(tensor, variants) for tensor in tensors]
        return predictions, captured

    def means(self, inputs: Tensor) -> Means:
        """Means over a reference batch, for mean ablations."""
        with torch.no_grad():
            _, captured = self.capture(inputs)
        mlps = captured.mlps or [torch.zeros_like(captured.streams[0])] * self.config.layers
        patterns, heads, mlp_means = (
            torch.stack([tensor.mean(1) for tensor in part], 1)
            for part in (captured.patterns, captured.heads, mlps)
        )
        return Means(patterns, heads, mlp_means)

    def _run(
        self, inputs: Tensor, edits: Edits | None, every: bool, captured: Captured | None
    ) -> tuple[Tensor, int | None]:
        if inputs.shape[0] != self.members:
            inputs = inputs.expand(self.members, *inputs.shape[1:])
        symbol, position = self._embed(inputs)
        stream = symbol if position is None else symbol + position
        if edits is not None:
            position = None if position is None else _fold(position.expand_as(symbol), edits.variants)
            symbol, stream = _fold(symbol, edits.variants), _fold(stream, edits.variants)
        for layer in range(self.config.layers):
            rows = self._readout if not every and layer == self.config.layers - 1 else None
            editor = None if edits is None else LayerEditor(edits, layer, symbol, position, rows)
            if captured is not None:
                captured.streams.append(stream)
            stream = self._block(layer, stream, rows, editor, captured)
        if captured is not None:
            captured.streams.append(stream)
        predictions = self._read_out(stream)
        if edits is None:
            return predictions, None
        return _unfold(predictions, edits.variants), edits.variants

    def _embed(self, inputs: Tensor) -> tuple[Stream, Tensor | None]:
        """The symbol's part of the stream, and the position code's (`[member, 1 or batch, position, model]`)."""
        config, weights = self.config, self.weights
        if config.input_kind == "tokens":
            table = weights["embed.token.weight"]
            first = torch.arange(self.members, device=table.device)[:, None, None] * config.input_size
            symbol = functional.embedding(inputs + first, table.reshape(-1, config.width))
        elif config.position_size:
            cut = config.input_size - config.position_size
            weight = weights["embed.vector.weight"]
            code = product(inputs[..., cut:], weight[:, cut:])
            return product(inputs[..., :cut], weight[:, :cut]) + weights["embed.vector.bias"][
                :, None, None
            ], code
        else:
            symbol = linear(self.weights, "embed.vector", inputs)
        if config.position_count:
            return symbol, position_codes(config, weights)[:, None, : inputs.shape[2]]
        return symbol, None

    def _block(
        self,
        layer: int,
        stream: Stream,
        rows: Tensor | None,
        editor: LayerEditor | None,
        captured: Captured | None,
    ) -> Rows:
        attended = self._attention(layer, stream, rows, editor, captured)
        return self._after_attention(
            layer, stream if rows is None else stream[:, :, rows], attended, editor, captured
        )

    def _after_attention(
        self,
        layer: int,
        stream: Stream,
        attended: Stream,
        editor: LayerEditor | None = None,
        captured: Captured | None = None,
    ) -> Stream:
        place, name = self.config.norm, f"layers.{layer}"
        stream = stream + attended
        if place == "post":
            stream = norm(self.weights, f"{name}.attention_norm", stream)
        if not self.config.mlp_size:
            return stream
        inside = norm(self.weights, f"{name}.mlp_norm", stream) if place == "pre" else stream
        activation = functional.relu if self.config.activation == "relu" else functional.gelu
        out = linear(
            self.weights, f"{name}.mlp.outer", activation(linear(self.weights, f"{name}.mlp.inner", inside))
        )
        if editor is not None:
            out = editor.mlp(out)
        if captured is not None:
            captured.mlps.append(out)
        stream = stream + out
        return norm(self.weights, f"{name}.mlp_norm", stream) if place == "post" else stream

    def _attention(
        self,
        layer: int,
        stream: Stream,
        rows: Tensor | None,
        editor: LayerEditor | None,
        captured: Captured | None,
    ) -> Rows:
        name = f"layers.{layer}.attention"

        def normed(x: Stream) -> Stream:
            return norm(self.weights, f"layers.{layer}.attention_norm", x) if self.config.norm == "pre" else x

        keys = normed(stream)
        query = self._heads(f"{name}.query", keys if rows is None else keys[:, :, rows])
        key, value = self._heads(f"{name}.key", keys), self._heads(f"{name}.value", keys)
        if editor is not None:
            value = editor.values(value, lambda x: self._heads(f"{name}.value", normed(x)), stream)
        mask = self._mask[: stream.shape[2], : stream.shape[2]]
        scores = query @ key.transpose(-1, -2) * self.config.head_size**-0.5 + (
            mask if rows is None else mask[rows]
        )
        pattern = scores.softmax(-1)
        if editor is not None:
            pattern = editor.pattern(pattern)
        out = pattern @ value
        if editor is not None:
            out = editor.heads(out)
        if captured is not None:
            captured.patterns.append(pattern)
            captured.heads.append(out)
        return linear(self.weights, f"{name}.output", out.transpose(2, 3).flatten(-2))

    def _heads(self, name: str, x: Stream) -> Float[Tensor, "member batch head position head_dim"]:
        return (
            linear(self.weights, name, x)
            .unflatten(-1, (self.config.heads, self.config.head_size))
            .transpose(2, 3)
        )


def _fold(x: Float[Tensor, "member batch *rest"], variants: int) -> Float[Tensor, "member rows *rest"]:
    """Variants become rows of one batch: `[member, variant · batch, …]`."""
    return x[:, None].expand(-1, variants, *x.shape[1:]).flatten(1, 2)


def _unfold(
    x: Float[Tensor, "member rows *rest"], variants: int
) -> Float[Tensor, "variant member batch *rest"]:
    return x.unflatten(1, (variants, -1)).transpose(0, 1)
