"""Plain eager PyTorch, one model, tuned by hand: what a careful user writes without an ensemble.

Modules as in the paper's field: one linear map for queries, keys and values, attention, layer norms, AdamW with
`fused=True`.  Settings that are tried: attention by `scaled_dot_product_attention` or by matrix products and softmax,
and all positions or, in the last layer, only the queries' (`--rows loss`).
"""

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from _common import measure, prepare_torch
from _depth import (
    BETAS,
    CHAINS,
    DEVIATION,
    EPSILON,
    INPUT_SIZE,
    LEARNING_RATE,
    SYMBOL_DIM,
    WEIGHT_DECAY,
    Shape,
    depth_arguments,
    depth_parse,
    position_codes,
    shape_of,
)
from plain_pytorch import PlainLoop


class Sampler:
    """Draws whole batches."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.steps = shape.steps
        self.generator = torch.Generator().manual_seed(seed)
        self.codes = torch.tensor(position_codes(shape))

    def __call__(self, batch: int) -> tuple[Tensor, Tensor]:
        """Inputs (batch, position, feature) and targets (batch, query, number)."""
        symbols = torch.randn(batch, self.steps + 1, CHAINS, SYMBOL_DIM, generator=self.generator)
        # Row k orders the pairs of step k, row 0 the queries.
        orders = torch.rand(batch, self.steps + 1, CHAINS, generator=self.generator).argsort(-1)
        blocks = []
        for step in range(self.steps, 0, -1):
            shuffle = orders[:, step, :, None].expand(-1, -1, SYMBOL_DIM)
            pair = [symbols[:, level].gather(1, shuffle) for level in (step - 1, step)]
            blocks.append(torch.stack(pair, 2).flatten(1, 2))
        shuffle = orders[:, 0, :, None].expand(-1, -1, SYMBOL_DIM)
        queries, *targets = (symbols[:, level].gather(1, shuffle) for level in range(self.steps + 1))
        held = torch.cat([*blocks, queries], 1)
        inputs = torch.cat([held, self.codes.expand(batch, -1, -1)], -1)
        return inputs, torch.cat(targets, -1)


class Block(nn.Module):
    """Attention, and an MLP where there is one, each behind a layer norm."""

    causal: Tensor

    def __init__(self, shape: Shape, attention: str) -> None:
        super().__init__()
        width, square = shape.width, (shape.positions, shape.positions)
        self.shape, self.attention = shape, attention
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * shape.inner)
        self.attention_out = nn.Linear(shape.inner, width)
        if shape.mlp_size:
            self.norm_mlp = nn.LayerNorm(width)
            self.mlp_in = nn.Linear(width, shape.mlp_size)
            self.mlp_out = nn.Linear(shape.mlp_size, width)
        mask = torch.zeros(square).masked_fill(torch.ones(square, dtype=torch.bool).triu(1), -torch.inf)
        self.register_buffer("causal", mask, persistent=False)

    def forward(self, x: Tensor, rows: int) -> Tensor:
        """The stream (batch, rows, width) at the last `rows` positions, of that at all positions."""
        q, k, v = (self._heads(part) for part in self.qkv(self.norm_attention(x)).chunk(3, dim=-1))
        x, q, causal = x[:, -rows:], q[:, :, -rows:], self.causal[-rows:]
        if self.attention == "softmax":
            scores = torch.baddbmm(
                causal.expand(len(x) * self.shape.heads, -1, -1),
                q.flatten(0, 1),
                k.flatten(0, 1).transpose(1, 2),
                alpha=self.shape.head_size**-0.5,
            )
            mixed = torch.bmm(scores.softmax(-1), v.flatten(0, 1)).unflatten(0, (len(x), self.shape.heads))
        elif rows == self.shape.positions:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=causal)
        x = x + self.attention_out(mixed.transpose(1, 2).flatten(2))
        if self.shape.mlp_size:
            x = x + self.mlp_out(functional.gelu(self.mlp_in(self.norm_mlp(x))))
        return x

    def _heads(self, part: Tensor) -> Tensor:
        return part.unflatten(-1, (self.shape.heads, self.shape.head_size)).transpose(1, 2)


class PlainTransformer(nn.Module):
    """The paper's model; predictions at the queries."""

    def __init__(self, shape: Shape, rows: str = "loss", attention: str = "sdpa") -> None:
        super().__init__()
        self.shape, self.rows = shape, rows
        self.embed = nn.Linear(INPUT_SIZE, shape.width)
        self.blocks = nn.ModuleList(Block(shape, attention) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.readout = nn.Linear(shape.width, shape.output_size)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("attention_out.weight", "mlp_out.weight"))
                nn.init.normal_(parameter, std=shape.residual_deviation if residual else DEVIATION)
            elif "norm" not in name:
                nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        """Predictions (batch, query, number) of inputs (batch, position, feature)."""
        x = self.embed(inputs)
        for number, block in enumerate(self.blocks):
            last = self.rows == "loss" and number == self.shape.layers - 1
            x = block(x, CHAINS if last else self.shape.positions)
        predictions: Tensor = self.readout(self.norm(x[:, -CHAINS:]))
        return predictions


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """Weight decay on matrices only."""
    weights = list(model.parameters())
    groups = [
        {"params": [each for each in weights if each.ndim == 2], "weight_decay": WEIGHT_DECAY},
        {"params": [each for each in weights if each.ndim != 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, fused=True)


def loop(shape: Shape, batch: int, seed: int, rows: str, attention: str) -> PlainLoop:
    """Training of one of the paper's models."""
    torch.manual_seed(seed)
    model = PlainTransformer(shape, rows, attention)
    return PlainLoop(batch, Sampler(shape, seed), model, optimizer_of(model), functional.mse_loss)


def build(options: argparse.Namespace) -> PlainLoop:
    return loop(shape_of(options), options.batch, options.seed, options.rows, options.attention)


def main(argv: Sequence[str] | None = None) -> int:
    parser = depth_arguments("plain_pytorch_depth")
    parser.add_argument("--rows", choices=("all", "loss"), default="loss", help="positions of the last layer")
    parser.add_argument("--attention", choices=("sdpa", "softmax"), default="sdpa")
    options = depth_parse(parser, argv, single=True)
    flushed = prepare_torch(options.threads)
    return measure("plain_pytorch_depth", options, build, ["torch"], subnormals_flushed=flushed)


if __name__ == "__main__":
    sys.exit(main())
