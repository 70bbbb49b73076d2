"""Plain PyTorch, tuned by hand: a loop over seeds of one `nn.Module`, with torch's own layers and optimiser.

What was tried and is quickest stands here: queries, keys and values as one product, only the rows that are read out in
the last layer, AdamW with `fused=True`.  Of attention two forms take part, because neither is always the quicker one.
Weights begin as ours do and samples are the same, so that losses can be compared.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.training.engines.autograd import batches

from ._shapes import STEPS, Shape

Attention = Literal["sdpa", "softmax"]


class Block(nn.Module):
    """Attention, and an MLP where there is one, with norms before or after."""

    def __init__(self, config: TransformerConfig, attention: Attention):
        super().__init__()
        inner, width = config.heads * config.head_size, config.width
        self.config, self.attention = config, attention
        self.qkv, self.output = nn.Linear(width, 3 * inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)
        if config.mlp_size:
            self.inner, self.outer = nn.Linear(width, config.mlp_size), nn.Linear(config.mlp_size, width)
            self.mlp_norm = nn.LayerNorm(width)
            self.activation = functional.relu if config.activation == "relu" else functional.gelu
        mask = torch.zeros(config.length, config.length)
        hidden = torch.ones_like(mask, dtype=torch.bool).triu(1) if config.causal else mask.bool()
        self.register_buffer("mask", mask.masked_fill(hidden, -torch.inf), persistent=False)
        self.mask: Tensor

    def forward(self, x: Tensor, rows: slice) -> Tensor:
        """The stream at some rows, `[batch, row, width]`, from that at all positions."""
        before = self.config.norm == "pre"
        q, k, v = (self._heads(part) for part in self.qkv(self.norm(x) if before else x).chunk(3, -1))
        q, mask = q[:, :, rows], self.mask[rows]
        if self.attention == "sdpa":
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            scores = q @ k.transpose(-1, -2) * self.config.head_size**-0.5
            mixed = (scores + mask).softmax(-1) @ v
        x = x[:, rows] + self.output(mixed.transpose(1, 2).flatten(2))
        x = x if before else self.norm(x)
        if self.config.mlp_size:
            hidden = self.inner(self.mlp_norm(x) if before else x)
            x = x + self.outer(self.activation(hidden))
            x = x if before else self.mlp_norm(x)
        return x

    def _heads(self, part: Tensor) -> Tensor:
        return part.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)


class PlainTransformer(nn.Module):
    """A transformer with norms before or after each part; predictions at the positions that are asked."""

    def __init__(self, config: TransformerConfig, attention: Attention):
        super().__init__()
        tokens = config.input_kind == "tokens"
        self.embed: nn.Module = (nn.Embedding if tokens else nn.Linear)(config.input_size, config.width)
        self.position = nn.Parameter(torch.zeros(config.position_count, config.width))
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.readout = nn.Linear(config.width, config.output_size)
        first, *others = config.readout_positions
        self.rows = slice(first, config.readout_positions[-1] + 1, others[0] - first if others else 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Predictions `[batch, readout, output]`."""
        x = self.embed(inputs)
        x = x + self.position if len(self.position) else x
        for number, block in enumerate(self.blocks, 1):
            x = block(x, self.rows if number == len(self.blocks) else slice(None))
        return self.readout(self.norm(x))

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights of one of our models, whose matrices are `[in, out]`."""
        for mine, theirs in self._places().items():
            found = [weights[name] for name in theirs]
            joined = torch.cat(found, -1) if len(found) > 1 else found[0]
            table = mine == "position" or "token" in theirs[0]
            self.get_parameter(mine).copy_(joined.T if joined.ndim == 2 and not table else joined)

    def _places(self) -> dict[str, list[str]]:
        tokens = isinstance(self.embed, nn.Embedding)
        places = {"embed.weight": ["embed.token.weight"]} if tokens else {}
        pairs = [] if tokens else [("embed", ["embed.vector"])]
        for number, block in enumerate(self.blocks):
            own: dict[str, tuple[str, ...]] = {"qkv": ("attention.query", "attention.key", "attention.value")}
            own |= {"output": ("attention.output",), "norm": ("attention_norm",)}
            if hasattr(block, "inner"):
                own |= {"inner": ("mlp.inner",), "outer": ("mlp.outer",), "mlp_norm": ("mlp_norm",)}
            pairs += [(f"blocks.{number}.{mine}", [f"layers.{number}.{each}" for each in theirs])
                      for mine, theirs in own.items()]  # fmt: skip
        if isinstance(self.norm, nn.LayerNorm):
            pairs.append(("norm", ["final_norm"]))
        pairs.append(("readout", ["readout"]))
        for mine, theirs in pairs:
            for kind in ("weight", "bias"):
                places[f"{mine}.{kind}"] = [f"{each}.{kind}" for each in theirs]
        return places | ({"position": ["embed.position.weight"]} if len(self.position) else {})


class Plain:
    """A loop over seeds, one model after another."""

    def __init__(
        self, shape: Shape, seeds: Sequence[int], attention: Attention = "sdpa", device: str = "cpu"
    ):
        training, self._step = shape.training(), 0
        self.models, self._optimisers, self._batches = [], [], []
        for seed in seeds:
            with torch.device(device):
                model = PlainTransformer(shape.config, attention)
            model.load(Transformer.initial(shape.config, seed, device).weights())
            matrices = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)}
            groups = [
                {"params": [each for each in model.parameters() if (id(each) in matrices) == decays],
                 "weight_decay": training.weight_decay * decays} for decays in (True, False)
            ]  # fmt: skip
            optimiser = torch.optim.AdamW(
                groups, lr=training.learning_rate, betas=training.betas, eps=training.epsilon, fused=True
            )
            self.models.append(model)
            self._optimisers.append(optimiser)
            self._batches.append(batches(shape.task, training, torch.tensor([seed], device=device)))

    def advance(self) -> np.ndarray:
        steps = range(self._step, self._step + STEPS)
        self._step += STEPS
        every = zip(self.models, self._optimisers, self._batches, strict=True)
        losses = [torch.stack([_step(*each, step) for step in steps]) for each in every]
        return torch.stack(losses, 1).cpu().numpy()

    def predictions(self, inputs: Tensor) -> Tensor:
        """Of every model, `[member, batch, readout, output]`; a member axis of 1 of the inputs is for all."""
        with torch.no_grad():
            return torch.stack([model(inputs[0]) for model in self.models])


def _step(model: nn.Module, optimiser: torch.optim.Optimizer, batch_of, step: int) -> Tensor:  # type: ignore[no-untyped-def]
    batch = batch_of(step)
    predictions, targets = model(batch.inputs[0]), batch.targets[0]
    if targets.is_floating_point():
        loss = functional.mse_loss(predictions, targets)
    else:
        loss = functional.cross_entropy(predictions.flatten(0, 1), targets.flatten())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach()
