"""The transformer of this laboratory: many members as one tensor program.

Every weight has a leading member axis and every linear map is one batched matrix product, so that an ensemble costs
little more than its largest member would and one model is simply `member == 1`.  `member(i)` gives the same model as
a plain module (see `member`), the slow obvious reference.

A transformer computes in float32, or `at("bfloat16")` with the factors of its matrix products rounded; everything
between the products (residual stream, norms, softmax, losses) and the weights themselves are float32 always.  This is
written out rather than left to `torch.autocast`, whose state belongs to a thread and whose list of rounded operations
to a version of torch.
"""

import itertools

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.models import lookup
from hopscope.models.block import AttentionKind, Block, Stream
from hopscope.models.cache import Cache, Captured, Recorder
from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Edits, Means, visible_keys
from hopscope.models.intervening import Interventions, Reference, checked, checked_batch, lowered, parted
from hopscope.models.layer_editor import LayerEditor
from hopscope.models.linear import Precision, linear, norm, position_codes, product
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.sites import PREDICTIONS, Visit, at_layer, readout_rows
from hopscope.tasks.batch import Batch


class Transformer:
    """A transformer with a leading member axis.

    Attributes:
        config: its shape.
        parameters: the weights of all members; `weights` are their views by name.
        precision: of the matrix products.
        attention: how attention is done where patterns are neither asked for nor edited.
        blocks: the layers.
        rows: readout positions, as the last layer computes them.
    """

    def __init__(
        self,
        config: TransformerConfig,
        parameters: Parameters,
        precision: Precision = "float32",
        attention: AttentionKind | None = None,
    ):
        """By default attention is done in the way that was measured to be faster: on a CPU in float32, explicitly."""
        self.config, self.parameters, self.precision = config, parameters, precision
        self.weights = parameters.views()
        device = parameters.flat.device
        explicit = device.type == "cpu" and precision == "float32"
        self.attention: AttentionKind = attention or ("explicit" if explicit else "fused")
        self._dtype: torch.dtype = getattr(torch, precision)
        self._readout = torch.tensor(config.readout_positions, device=device)
        spaced = _as_slice(config.readout_positions)
        self.rows: slice | Tensor = self._readout if spaced is None else spaced
        self._mask = torch.zeros(config.length, config.length, device=device)
        self._mask.masked_fill_(~visible_keys(config.length, config.causal, device), -torch.inf)
        self.blocks = [
            Block(config, self._of_layer(layer), self._mask, self._dtype, self.attention)
            for layer in range(config.layers)
        ]

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
        return Transformer(self.config, chosen, self.precision, self.attention)

    def cut(self, length: int, readout: tuple[int, ...]) -> "Transformer":
        """Copies of the same members for shorter inputs, and with other readout positions.

        Raises:
            ValueError: more positions than the model has, or a readout position that is cut off.
        """
        if length > self.config.length:
            raise ValueError(f"length: expected at most {self.config.length}, found {length}")
        shape = self.config.model_dump() | {"length": length, "readout": readout}
        config = TransformerConfig.model_validate(shape)
        found = Parameters(parameter_specs(config), self.members, self.parameters.flat.device)
        weights = {name: view.detach() for name, view in self.weights.items()}
        if config.position_count:
            name = "embed.position.weight"
            weights[name] = weights[name][:, : config.position_count]
        found.load(weights)
        return Transformer(config, found, self.precision, self.attention)

    def at(self, precision: Precision) -> "Transformer":
        """The same members, sharing their weights, with products of another precision."""
        return self if precision == self.precision else Transformer(self.config, self.parameters, precision)

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
            and self.precision == "float32"
            and lookup.fits(self.config)
        ):
            return self._looked_up(inputs)
        predictions, _ = self._run(inputs, edits, every_position, None)
        return predictions

    def _looked_up(self, inputs: Int[Tensor, "#member batch position"]) -> Tensor:
        """The same predictions by the faster way for one-layer token models."""
        inputs = inputs.expand(self.members, -1, -1)
        stream, attended = lookup.attended(self.config, self.weights, self._mask, self._readout, inputs)
        return self.read_out(self.blocks[0].after_attention(stream, attended)).transpose(1, 2)

    def embedded(self, inputs: Tensor) -> Stream:
        """The stream before the first layer; inputs as for a call."""
        symbol, position = self._embed(inputs, apart=False)
        return symbol if position is None else symbol + position

    def read_out(
        self, stream: Stream, visit: Visit | None = None
    ) -> Float[Tensor, "member batch position output"]:
        """Predictions from the stream after the last layer."""
        if self.config.norm == "pre":
            stream = norm(self.weights, "final_norm", stream)
            if visit is not None:
                stream = visit("ln_final.hook_normalized", stream)
        return self._linear("readout", stream)

    def _of_layer(self, layer: int) -> dict[str, Tensor]:
        prefix = f"layers.{layer}."
        return {
            name.removeprefix(prefix): weight
            for name, weight in self.weights.items()
            if name.startswith(prefix)
        }

    def capture(
        self, inputs: Tensor, edits: Edits | None = None
    ) -> tuple[Float[Tensor, "*variant member batch position output"], Captured]:
        """Predictions at every position, and what happened inside.  Arguments as for a call."""
        recorder = Captured.recorder()
        predictions, variants = self._run(inputs, edits, True, recorder)
        kept = recorder.kept
        if variants is not None:
            kept = {name: _unfold(tensor, variants) for name, tensor in kept.items()}
        return predictions, Captured.of(kept, self.config.layers)

    def cache(self, inputs: Tensor) -> Cache:
        """The tensors of every named site (see `sites`), each with a leading member axis, without gradients.

        Args:
            inputs: as for a call; without a member axis they are given to every member.

        Raises:
            UserError: the model cannot read these inputs.
        """
        recorder = Recorder()
        with torch.no_grad():
            self._visited(checked(inputs, self.config, self.members), None, recorder)
        return Cache(recorder.kept)

    def intervene(
        self, batch: Batch, interventions: Interventions, *, means: Reference = None
    ) -> Float[Tensor, "member batch readout output"]:
        """Predictions under interventions, without gradients.

        Args:
            batch: samples, with or without a member axis; its roles and relations say which rows are meant.
            interventions: a list of interventions and of dicts from site to function, or one such dict.  Values come
                first at a site, then functions in their order, however they are listed.
            means: samples whose means a `"mean"` ablation puts in place; by default the batch itself.

        Raises:
            UserError: something does not exist, or a function returns something of another shape.
        """
        values, functions = parted(interventions, self.config)
        batch = checked_batch(batch, self.config, self.members)
        with torch.no_grad():
            edits = lowered(values, self.config, batch, self.members, self.means, means)
            return self._visited(batch.inputs, edits, functions)

    def _visited(self, inputs: Tensor, edits: Edits | None, visit: Visit | None) -> Tensor:
        """Predictions at the readout positions of a pass that visits every site; of one variant at most."""
        predictions, variants = self._run(inputs, edits, True, visit, apart=True)
        rows = readout_rows(self.config, inputs.shape[2])
        predictions = (predictions if variants is None else predictions[0])[:, :, rows]
        return predictions if visit is None else visit(PREDICTIONS, predictions)

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
        self,
        inputs: Tensor,
        edits: Edits | None,
        every: bool,
        visit: Visit | None,
        apart: bool = False,
    ) -> tuple[Tensor, int | None]:
        """Predictions and the number of variants; `apart`: the position code is told apart and visited too."""
        symbol, position = self._embed(inputs, apart=apart or edits is not None)
        if visit is not None and apart:
            symbol = visit("hook_embed", symbol)
            if position is not None:
                # A copy, because a code of all samples is a view of the weights.
                position = visit("hook_pos_embed", position.expand_as(symbol).clone())
        stream = symbol if position is None else symbol + position
        if edits is not None:
            position = None if position is None else _fold(position.expand_as(symbol), edits.variants)
            symbol, stream = _fold(symbol, edits.variants), _fold(stream, edits.variants)
        for layer, block in enumerate(self.blocks):
            last = not every and layer == self.config.layers - 1
            editor = None
            if edits is not None:
                editor = LayerEditor(edits, layer, symbol, position, self._readout if last else None)
            inside = None if visit is None else at_layer(visit, layer)
            stream = block(stream, self.rows if last else None, editor, inside)
        predictions = self.read_out(stream, visit)
        if edits is None:
            return predictions, None
        return _unfold(predictions, edits.variants), edits.variants

    def _embed(self, inputs: Tensor, apart: bool) -> tuple[Stream, Tensor | None]:
        """The symbol's part of the stream, and the position code's (`[member, 1 or batch, position, model]`).

        A code that is part of the input vector comes with the symbol where the two need not be told apart.
        """
        config, weights = self.config, self.weights
        if inputs.shape[0] != self.members:
            inputs = inputs.expand(self.members, *inputs.shape[1:])
        if config.input_kind == "tokens":
            table = weights["embed.token.weight"]
            first = torch.arange(self.members, device=table.device)[:, None, None] * config.input_size
            symbol = functional.embedding(inputs + first, table.reshape(-1, config.width))
        elif config.position_size and apart:
            cut = config.input_size - config.position_size
            weight = weights["embed.vector.weight"]
            code = product(inputs[..., cut:], weight[:, cut:], self._dtype)
            symbol = product(inputs[..., :cut], weight[:, :cut], self._dtype)
            return symbol + weights["embed.vector.bias"][:, None, None], code
        else:
            symbol = self._linear("embed.vector", inputs)
        if config.position_count:
            return symbol, position_codes(config, weights)[:, None, : inputs.shape[2]]
        return symbol, None

    def _linear(
        self, name: str, x: Float[Tensor, "member batch position a"]
    ) -> Float[Tensor, "member batch position b"]:
        return linear(self.weights, name, x, self._dtype)


def _as_slice(positions: tuple[int, ...]) -> slice | None:
    """Positions as a slice, where they are evenly spaced: its gradient is a copy, that of an index a sum."""
    steps = {after - before for before, after in itertools.pairwise(positions)}
    if len(steps) > 1:
        return None
    return slice(positions[0], positions[-1] + 1, *steps)


def _fold(x: Float[Tensor, "member batch *rest"], variants: int) -> Float[Tensor, "member rows *rest"]:
    """Variants become rows of one batch: `[member, variant · batch, …]`."""
    return x[:, None].expand(-1, variants, *x.shape[1:]).flatten(1, 2)


def _unfold(
    x: Float[Tensor, "member rows *rest"], variants: int
) -> Float[Tensor, "variant member batch *rest"]:
    return x.unflatten(1, (variants, -1)).transpose(0, 1)
