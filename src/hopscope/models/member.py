"""One transformer as plain modules, read from top to bottom: the reference of the ensemble, and what is exported."""

from collections.abc import Mapping
from html import escape
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from hopscope import display
from hopscope.errors import UserError
from hopscope.models.cache import Cache, Recorder
from hopscope.models.config import TransformerConfig
from hopscope.models.intervening import (
    Interventions,
    Reference,
    checked,
    checked_batch,
    visit_of,
)
from hopscope.models.lazy_task import LazyTask, TaskSource
from hopscope.models.parameters import parameter_specs
from hopscope.models.sites import (
    PREDICTIONS,
    Visit,
    at_layer,
    has_position_code,
    readout_rows,
    unchanged,
    visit_heads,
)
from hopscope.tasks.batch import Batch


class Attention(nn.Module):
    """Multi-head self-attention with separate query, key and value maps."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        inner = config.heads * config.head_size
        self.config = config
        self.query = nn.Linear(config.width, inner)
        self.key = nn.Linear(config.width, inner)
        self.value = nn.Linear(config.width, inner)
        self.output = nn.Linear(inner, config.width)

    def split(
        self, x: Float[Tensor, "batch position inner"]
    ) -> Float[Tensor, "batch head position head_dim"]:
        """Separate the features into heads."""
        return x.unflatten(-1, (self.config.heads, self.config.head_size)).transpose(1, 2)

    def pattern(
        self, x: Float[Tensor, "batch position model"], visit: Visit = unchanged
    ) -> Float[Tensor, "batch head query key"]:
        """Attention pattern of each head."""
        query = visit_heads(visit, "attn.hook_q", self.split(self.query(x)))
        key = visit_heads(visit, "attn.hook_k", self.split(self.key(x)))
        scores = query @ key.transpose(-1, -2) / self.config.head_size**0.5
        if self.config.causal:
            future = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        return visit("attn.hook_attn_scores", scores).softmax(-1)


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.inner = nn.Linear(config.width, config.mlp_size)
        self.outer = nn.Linear(config.mlp_size, config.width)
        self.activation = functional.relu if config.activation == "relu" else functional.gelu

    def forward(
        self, x: Float[Tensor, "batch position model"], visit: Visit = unchanged
    ) -> Float[Tensor, "batch position model"]:
        """The MLP's output for every position."""
        hidden = self.activation(visit("mlp.hook_pre", self.inner(x)))
        return self.outer(visit("mlp.hook_post", hidden))


class Block(nn.Module):
    """One layer: attention, then the MLP if there is one."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.attention = Attention(config)
        self.attention_norm = _norm(config)
        if config.mlp_size:
            self.mlp = MLP(config)
            self.mlp_norm = _norm(config)

    def forward(
        self,
        x: Float[Tensor, "batch position model"],
        visit: Visit = unchanged,
    ) -> Tensor:
        """The stream after this layer."""
        pre = self.config.norm == "pre"
        x = visit("hook_resid_pre", x)
        x = x + visit("hook_attn_out", self._attended(x, visit))
        x = x if pre else self.attention_norm(x)
        if self.config.mlp_size:
            x = visit("hook_resid_mid", x)
            out = self.mlp(self.mlp_norm(x) if pre else x, visit)
            x = x + visit("hook_mlp_out", out)
            x = x if pre else self.mlp_norm(x)
        return visit("hook_resid_post", x)

    def _read(self, stream: Tensor) -> Tensor:
        """The stream as attention reads it."""
        normed: Tensor = self.attention_norm(stream) if self.config.norm == "pre" else stream
        return normed

    def values(
        self, stream: Float[Tensor, "batch position model"]
    ) -> Float[Tensor, "batch head position head_dim"]:
        """Values made of a stream."""
        return self.attention.split(self.attention.value(self._read(stream)))

    def _attended(self, x: Tensor, visit: Visit) -> Tensor:
        """The output of attention, which is added to the stream."""
        attention, normed = self.attention, self._read(x)
        pattern = attention.pattern(normed, visit)
        value = visit_heads(visit, "attn.hook_v", attention.split(attention.value(normed)))
        pattern = visit("attn.hook_pattern", pattern)
        # Head by head, so that recorded answers of exported members keep their last digits.
        heads = torch.stack([pattern[:, head] @ value[:, head] for head in range(value.shape[1])], 1)
        heads = visit_heads(visit, "attn.hook_z", heads)
        return attention.output(heads.transpose(1, 2).flatten(-2))


class Embedding(nn.Module):
    """Input and position code, kept apart."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        if config.input_kind == "tokens":
            self.token = nn.Embedding(config.input_size, config.width)
        else:
            self.vector = nn.Linear(config.input_size, config.width)
        if config.position_count:
            self.position = nn.Embedding(config.position_count, config.width)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The symbol's part and the position code's part, both `[batch, position, model]`.

        Raises:
            UserError: inputs of another shape, or token ids out of range.
        """
        self._check_shape(inputs)
        if self.config.input_kind == "tokens":
            symbol = self._looked_up(inputs)
        elif self.config.position_size:
            cut = self.config.input_size - self.config.position_size
            symbol = inputs[..., :cut] @ self.vector.weight[:, :cut].T + self.vector.bias
            return symbol, inputs[..., cut:] @ self.vector.weight[:, cut:].T
        else:
            symbol = self.vector(inputs)
        if self.config.position_count:
            codes = self.position.weight[list(self.config.position_codes[: inputs.shape[1]])]
            return symbol, codes.expand_as(symbol)
        return symbol, torch.zeros_like(symbol)

    def _check_shape(self, inputs: Tensor) -> None:
        """Refuse what has no right shape; looks at no value, so that a graph can be traced."""
        config = self.config
        features = () if config.input_kind == "tokens" else (config.input_size,)
        positions = f"1 to {config.length} positions" if config.position_count else "positions"
        expected = f"[batch, {', '.join(map(str, (positions, *features)))}]"
        if not isinstance(inputs, Tensor):
            raise UserError(f"inputs: expected a tensor {expected}, found a {type(inputs).__name__}")
        fits = inputs.ndim == 2 + len(features) and tuple(inputs.shape[2:]) == features
        if not fits or (config.position_count and inputs.shape[1] > config.length):
            raise UserError(f"inputs: expected a tensor {expected}, found shape {list(inputs.shape)}")

    def _looked_up(self, inputs: Tensor) -> Tensor:
        """Rows of the token table; ids are looked at only once a look-up has failed."""
        try:
            return self.token(inputs)
        except IndexError:
            last = self.config.input_size - 1
            raise UserError(
                f"inputs: expected token ids from 0 to {last}, found {int(inputs.min())} to {int(inputs.max())}"
            ) from None
        except RuntimeError as error:
            if inputs.dtype in (torch.int32, torch.int64):
                raise
            raise UserError(
                f"inputs: expected token ids as int64, found {str(inputs.dtype).removeprefix('torch.')}"
            ) from error


class MemberTransformer(nn.Module):
    """One member of an ensemble as a plain `torch.nn.Module`.

    A trained member knows its task: `batch` draws samples of it, `cache` and `intervene` look inside and change what
    happens there.  `hopscope.models.sites` lists the names of the sites.

    Attributes:
        config: its shape.
        member_axis: whether tensors of its sites have one: no.
        members: number of members: one.
    """

    member_axis, members = False, 1

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.readout = nn.Linear(config.width, config.output_size)
        self.with_task(None)

    @classmethod
    def empty(cls, config: TransformerConfig) -> "MemberTransformer":
        """A module without content, to load weights into; torch's global random state is left as it was."""
        with torch.random.fork_rng(devices=[]):
            return cls(config)

    @classmethod
    def with_state(cls, config: TransformerConfig, state: Mapping[str, Tensor]) -> "MemberTransformer":
        """A module with weights named and shaped as its own.  Nothing is made before it is known that they fit.

        Raises:
            ValueError: they are other weights than the configuration says.
        """
        # A configuration of few bytes can say any number of layers; each has weights.
        specs = parameter_specs(config) if config.layers < len(state) else []
        expected = {spec.name: spec.shape if _is_table(spec.name) else spec.shape[::-1] for spec in specs}
        if not state or expected != {name: tuple(tensor.shape) for name, tensor in state.items()}:
            raise ValueError("expected weights of the configuration's model, found those of another")
        module = cls.empty(config)
        module.load_state_dict(dict(state))
        return module

    @classmethod
    def from_weights(cls, config: TransformerConfig, weights: Mapping[str, Tensor]) -> "MemberTransformer":
        """A module with one member's weights, named and shaped as in the ensemble."""
        module = cls.empty(config)
        # The ensemble keeps linear maps as [in, out]; torch.nn.Linear keeps [out, in].
        state = {name: w.T if w.ndim == 2 and not _is_table(name) else w for name, w in weights.items()}
        module.load_state_dict({name: tensor.cpu() for name, tensor in state.items()})
        return module

    def forward(self, inputs: Tensor, visit: Visit = unchanged) -> Float[Tensor, "batch position output"]:
        """Predictions at every position.

        Args:
            inputs: token ids `[batch, position]` or vectors `[batch, position, feature]`.
            visit: called at every named site but `predictions`, such as `Edits`; the pass goes on with what it
                returns.
        """
        symbol, position = self.embed(inputs)
        symbol = visit("hook_embed", symbol)
        if has_position_code(self.config):
            position = visit("hook_pos_embed", position)
        x = symbol + position
        for layer, block in enumerate(self.layers):
            x = block(x, at_layer(visit, layer))
        x = self.final_norm(x)
        return self.readout(visit("ln_final.hook_normalized", x) if self.config.norm == "pre" else x)

    def with_task(
        self, task: TaskSource | LazyTask, *, row: int = 0, seed: int | None = None
    ) -> "MemberTransformer":
        """This member, which now knows its task.

        Args:
            task: on a device, or a function that finds it (or raises a `UserError`), or `None`.
            row: the member's place in batches whose member axis is not 1.
            seed: its data seed, for training and probe samples.
        """
        self._task = task if isinstance(task, LazyTask) else LazyTask(task)
        self._row, self._seed = row, seed
        return self

    @property
    def task(self) -> Any:
        """The task that it was trained on, on its device; `None` where none is known.

        Raises:
            UserError: it cannot be found, such as when a study's file has changed.
        """
        return self._task.task

    def batch(self, n: int = 64, use: str = "held-out") -> Batch:
        """Samples of its task, without a member axis: inputs `[batch, position]`, targets `[batch, readout]`.

        Args:
            n: how many (fewer where the task has fewer).
            use: `"held-out"`, `"train"` (those of the first step) or `"probe"`.

        Raises:
            UserError: the task is not known, or a use does not exist.
        """
        seeds = None if self._seed is None else [self._seed]
        drawn = self._task.batch(n, use, seeds, self.readout.weight.device)
        return drawn.changed(lambda tensor: tensor[self._row if tensor.shape[0] > 1 else 0])

    def cache(self, inputs: Tensor) -> Cache:
        """The tensors of every named site, without gradients: `cache["blocks.0.attn.hook_pattern"]` is
        `[batch, head, query, key]`.

        Args:
            inputs: token ids `[batch, position]` or vectors `[batch, position, feature]`.

        Raises:
            UserError: the model cannot read these inputs.
        """
        recorder = Recorder()
        with torch.no_grad():
            self._at_readout(checked(inputs, self.config, 1)[0], recorder)
        return recorder.kept

    def intervene(
        self, batch: Batch, interventions: Interventions, *, means: Reference = None
    ) -> Float[Tensor, "batch readout output"]:
        """Predictions at the readout positions under interventions, without gradients.

        Args:
            batch: samples, without a member axis or with one of 1; its roles and relations say which rows are meant.
            interventions: a list of interventions and of dicts from site to function, or one such dict.  Values come
                first at a site, then functions in their order, however they are listed.
            means: samples whose means a `"mean"` ablation puts in place; by default the batch itself.

        Raises:
            UserError: something does not exist, or a function returns something of another shape.
        """
        batch = checked_batch(batch, self.config, 1)
        with torch.no_grad():
            return self._at_readout(batch.inputs[0], visit_of(interventions, self, batch, means))

    def _repr_html_(self) -> str:
        config = self.config
        reads = f"{config.input_size} {'tokens' if config.input_kind == 'tokens' else 'features'}"
        facts = [
            ("layers × heads", f"{config.layers} × {config.heads}"),
            ("width", config.width),
            ("reads", f"{config.length} positions, {reads}"),
            ("answers", f"{config.output_size} numbers at {len(config.readout_positions)} positions"),
            ("weights", f"{sum(weights.numel() for weights in self.parameters()):,}"),
        ]
        modules = display.folded("modules", f"<pre>{escape(repr(self))}</pre>")
        return display.table(("a trained member", ""), facts) + modules

    def _at_readout(self, inputs: Tensor, visit: Visit) -> Tensor:
        rows = readout_rows(self.config, inputs.shape[1])
        return visit(PREDICTIONS, self(inputs, visit)[:, rows])

    def values(
        self, layer: int, stream: Float[Tensor, "batch position model"]
    ) -> Float[Tensor, "batch position head head_dim"]:
        """Values that a layer makes of a stream."""
        block = self.layers[layer]
        assert isinstance(block, Block)
        return block.values(stream).transpose(1, 2)


def _is_table(name: str) -> bool:
    return name in ("embed.token.weight", "embed.position.weight")


def _norm(config: TransformerConfig) -> nn.Module:
    return nn.Identity() if config.norm == "none" else nn.LayerNorm(config.width)
