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
from hopscope.models.cache import Cache, Recorder
from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Means
from hopscope.models.intervening import Interventions, Reference, checked, checked_batch, visit_of
from hopscope.models.linear import Precision, linear, norm, position_codes, product
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.resolving import visible_keys
from hopscope.models.sites import PREDICTIONS, Visit, at_layer, in_turn, readout_rows, unchanged
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
        member_axis: whether tensors of its sites have one: yes.
    """

    member_axis = True

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
        """Number of members of the ensemble."""
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
        """These members with products of another precision; weights are shared."""
        return self if precision == self.precision else Transformer(self.config, self.parameters, precision)

    def __call__(
        self, inputs: Tensor, visit: Visit | None = None, *, every_position: bool = False
    ) -> Float[Tensor, "member batch readout output"]:
        """Predictions at the readout positions (or at every position).

        Args:
            inputs: token ids `[member, batch, position]` or vectors `[member, batch, position, feature]`; a member
                axis of 1 hands the same batch to every member.  Fewer positions than `config.length` are allowed
                where every position is read out.
            visit: called at every named site but `predictions`, such as `Edits`; the pass goes on with what it
                returns.  The last layer's sites have those rows alone that are read out.
            every_position: predictions at all positions, not only at the readout ones.
        """
        if (
            visit is None
            and not every_position
            and inputs.shape[2] == self.config.length
            and self.precision == "float32"
            and lookup.fits(self.config)
        ):
            return self._looked_up(inputs)
        return self._passed(inputs, visit, every_position, apart=visit is not None)

    def _passed(self, inputs: Tensor, visit: Visit | None, every_position: bool, apart: bool) -> Tensor:
        """Predictions; `apart`: the position code is told apart and visited too, which rounds differently."""
        symbol, position = self._embed(inputs, apart)
        if visit is not None and apart:
            symbol = visit("hook_embed", symbol)
            if position is not None:
                # A copy, because a code of all samples is a view of the weights.
                position = visit("hook_pos_embed", position.expand_as(symbol).clone())
        stream = symbol if position is None else symbol + position
        for layer, block in enumerate(self.blocks):
            last = not every_position and layer == self.config.layers - 1
            inside = unchanged if visit is None else at_layer(visit, layer)
            stream = block(stream, self.rows if last else None, inside)
        return self.read_out(stream, visit)

    def _looked_up(self, inputs: Int[Tensor, "#member batch position"]) -> Tensor:
        """The predictions of a one-layer token model, by the faster way."""
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

    def values(self, layer: int, stream: Stream) -> Float[Tensor, "member batch position head head_dim"]:
        """Values that a layer makes of a stream."""
        return self.blocks[layer].values(stream).transpose(2, 3)

    def capture(
        self, inputs: Tensor, visit: Visit | None = None
    ) -> tuple[Float[Tensor, "member batch position output"], Cache]:
        """Predictions at every position, and the sites that probes read, after what the visit changes."""
        recorder = Recorder(
            "attn.hook_pattern", "attn.hook_z", "hook_mlp_out", "hook_resid_pre", "hook_resid_post"
        )
        predictions = self._passed(inputs, in_turn(visit, recorder), True, apart=visit is not None)
        return predictions, recorder.kept

    def cache(self, inputs: Tensor) -> Cache:
        """The tensors of every named site (see `sites`), each with a leading member axis, without gradients.

        Args:
            inputs: as for a call; without a member axis they are given to every member.

        Raises:
            UserError: the model cannot read these inputs.
        """
        recorder = Recorder()
        with torch.no_grad():
            self._at_readout(checked(inputs, self.config, self.members), recorder)
        return recorder.kept

    def intervene(
        self, batch: Batch, interventions: Interventions, *, means: Reference = None
    ) -> Float[Tensor, "member batch readout output"]:
        """Predictions of all members under interventions; see `MemberTransformer.intervene`.

        A batch without a member axis, or with one of 1, is given to every member.
        """
        batch = checked_batch(batch, self.config, self.members)
        with torch.no_grad():
            return self._at_readout(batch.inputs, visit_of(interventions, self, batch, means))

    def _at_readout(self, inputs: Tensor, visit: Visit) -> Tensor:
        """Predictions at the readout positions, of a pass that visits every site at every position."""
        rows = readout_rows(self.config, inputs.shape[2])
        return visit(PREDICTIONS, self(inputs, visit, every_position=True)[:, :, rows])

    def means(self, inputs: Tensor) -> Means:
        """Means over a reference batch, for mean ablations."""
        return Means.of(self, inputs)

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
