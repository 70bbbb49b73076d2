"""One transformer as plain modules, read from top to bottom: the reference of the ensemble, and what is exported."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.reference_edits import Edited


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
        """Separate the heads."""
        return x.unflatten(-1, (self.config.heads, self.config.head_size)).transpose(1, 2)

    def pattern(self, x: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch head query key"]:
        """Attention pattern of each head."""
        scores = self.split(self.query(x)) @ self.split(self.key(x)).transpose(-1, -2)
        scores = scores / self.config.head_size**0.5
        if self.config.causal:
            future = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        return scores.softmax(-1)


class MLP(nn.Module):
    """Two linear maps with a nonlinearity between them."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.inner = nn.Linear(config.width, config.mlp_size)
        self.outer = nn.Linear(config.mlp_size, config.width)
        self.activation = functional.relu if config.activation == "relu" else functional.gelu

    def forward(self, x: Float[Tensor, "batch position model"]) -> Float[Tensor, "batch position model"]:
        """The MLP's output for every position."""
        return self.outer(self.activation(self.inner(x)))


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

    def forward(self, x: Float[Tensor, "batch position model"], edited: Edited) -> Tensor:
        """The stream after this layer."""
        pre = self.config.norm == "pre"
        read = self.attention_norm if pre else nn.Identity()
        pattern = edited.pattern(self.attention.pattern(read(x)))
        # Only the heads of a value swap read the edited stream; all others read x itself.
        values = [
            self.attention.split(self.attention.value(read(edited.stream(x, head))))
            for head in range(self.config.heads)
        ]
        heads = torch.stack(
            [pattern[:, head] @ values[head][:, head] for head in range(self.config.heads)], 1
        )
        heads = edited.heads(heads)
        x = x + self.attention.output(heads.transpose(1, 2).flatten(-2))
        x = x if pre else self.attention_norm(x)
        if not self.config.mlp_size:
            return x
        x = x + edited.mlp(self.mlp(self.mlp_norm(x) if pre else x))
        return x if pre else self.mlp_norm(x)


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
        """The symbol's part and the position code's part, both `[batch, position, model]`."""
        if self.config.input_kind == "tokens":
            symbol = self.token(inputs)
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


class MemberTransformer(nn.Module):
    """One member of an ensemble as a plain `torch.nn.Module`.

    Attributes:
        config: its shape.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = _norm(config) if config.norm == "pre" else nn.Identity()
        self.readout = nn.Linear(config.width, config.output_size)

    @classmethod
    def empty(cls, config: TransformerConfig) -> "MemberTransformer":
        """A module without content, to load weights into; torch's global random state is left as it was."""
        with torch.random.fork_rng(devices=[]):
            return cls(config)

    @classmethod
    def from_weights(cls, config: TransformerConfig, weights: Mapping[str, Tensor]) -> "MemberTransformer":
        """A module with one member's weights, named and shaped as in the ensemble."""
        module = cls.empty(config)
        # The ensemble keeps linear maps as [in, out]; torch.nn.Linear keeps [out, in].
        state = {name: w.T if w.ndim == 2 and not _is_table(name) else w for name, w in weights.items()}
        module.load_state_dict({name: tensor.cpu() for name, tensor in state.items()})
        return module

    def forward(self, inputs: Tensor, edited: Edited | None = None) -> Float[Tensor, "batch position output"]:
        """Predictions at every position.

        Args:
            inputs: token ids `[batch, position]` or vectors `[batch, position, feature]`.
            edited: interventions for this batch; none by default.
        """
        edited = edited if edited is not None else Edited([])
        symbol, position = self.embed(inputs)
        x = symbol + position
        edited.start(symbol, position)
        for layer, block in enumerate(self.layers):
            edited.layer = layer
            x = block(x, edited)
        return self.readout(self.final_norm(x))


def _is_table(name: str) -> bool:
    return name in ("embed.token.weight", "embed.position.weight")


def _norm(config: TransformerConfig) -> nn.Module:
    return nn.Identity() if config.norm == "none" else nn.LayerNorm(config.width)
