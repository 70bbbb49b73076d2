"""Plain eager PyTorch, one model, tuned by hand: what a careful user writes without an ensemble.

Measured on two CPU cores at batch 256, the quickest of: ``nn.TransformerEncoderLayer`` (0.85 of the speed
below), attention by matrix products and softmax (0.9), ``scaled_dot_product_attention`` on the parts of one
fused projection (here); Adam with ``fused=True`` (up to 1.15 times the default).  ``--rows loss`` computes
queries, FFN and readout only where the loss looks (another 1.15); ``--rows all`` computes them at all nine
positions.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from _common import (
    FFN_WIDTH,
    HEADS,
    INPUT_LENGTH,
    LEARNING_RATE,
    REPEAT_RATIO,
    SYMBOLS,
    TOKENS,
    WIDTH,
    all_orders,
    arguments,
    measure,
    parse,
    prepare_torch,
    train_mappings,
)


class Sampler:
    """Draws whole batches by looking up tables with random indices."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.orders = torch.tensor(all_orders())
        # A column for the unused token 0, so that the y of x is entry 6 · mapping + x of the flat table.
        self.answers = functional.pad(torch.tensor(train_mappings(seed)), (1, 0)).flatten()

    def __call__(self, batch: int) -> tuple[Tensor, Tensor]:
        """Inputs (batch, 9) and the five y-targets (batch, 5), token ids."""
        mapping = self._below(len(self.answers) // TOKENS, batch)
        x = self.orders[self._below(len(self.orders), batch).squeeze(1)]
        earlier = x.gather(1, self._below(SYMBOLS - 1, batch))
        repeats = torch.rand(batch, 1, generator=self.generator) < REPEAT_RATIO
        x = torch.cat([x[:, :-1], torch.where(repeats, earlier, x[:, -1:])], dim=1)
        y = self.answers.take(mapping * TOKENS + x)
        return torch.stack([x, y], dim=2).flatten(1)[:, :-1], y

    def _below(self, limit: int, batch: int) -> Tensor:
        return torch.randint(limit, (batch, 1), generator=self.generator)


class PlainTransformer(nn.Module):
    """The page's model with hand-written attention; logits at the five loss positions."""

    causal: Tensor

    def __init__(self, rows: str) -> None:
        super().__init__()
        self.rows = rows
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.randn(INPUT_LENGTH, WIDTH))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.ffn_in = nn.Linear(WIDTH, FFN_WIDTH)
        self.ffn_out = nn.Linear(FFN_WIDTH, WIDTH)
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.norm_ffn = nn.LayerNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, TOKENS)
        self.register_buffer("causal", torch.ones(INPUT_LENGTH, INPUT_LENGTH, dtype=torch.bool).tril()[::2])

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (batch, 5, token) of token ids (batch, 9)."""
        x = self.tokens(inputs) + self.positions
        q, k, v = (self._heads(part) for part in self.qkv(x).chunk(3, dim=-1))
        if self.rows == "loss":
            mixed = functional.scaled_dot_product_attention(q[:, :, ::2], k, v, attn_mask=self.causal)
            x = x[:, ::2]
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.norm_attention(x + self.attention_out(mixed.transpose(1, 2).reshape(x.shape)))
        x = self.norm_ffn(x + self.ffn_out(functional.relu(self.ffn_in(x))))
        logits: Tensor = self.readout(x if self.rows == "loss" else x[:, ::2])
        return logits

    @staticmethod
    def _heads(part: Tensor) -> Tensor:
        return part.view(part.shape[0], INPUT_LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)


class PlainLoop:
    """One training step per call."""

    def __init__(
        self,
        batch: int,
        sample: Callable[[int], tuple[Tensor, Tensor]],
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        error: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        self.batch, self.sample, self.model = batch, sample, model
        self.optimizer, self.error = optimizer, error
        self.latest = torch.tensor(float("nan"))

    def advance(self) -> int:
        inputs, targets = self.sample(self.batch)
        loss = self.error(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.latest = loss.detach()
        return self.batch

    def loss(self) -> float:
        return self.latest.item()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over sequences and the five y-predictions, in nats."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loop(batch: int, rows: str, seed: int) -> PlainLoop:
    """Training of the page's model."""
    torch.manual_seed(seed)
    model = PlainTransformer(rows)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    return PlainLoop(batch, Sampler(seed), model, optimizer, cross_entropy)


def build(options: argparse.Namespace) -> PlainLoop:
    return loop(options.batch, options.rows, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments("plain_pytorch")
    parser.add_argument("--rows", choices=("all", "loss"), default="loss", help="positions after attention")
    options = parse(parser, argv, single=True)
    flushed = prepare_torch(options.threads)
    return measure("plain_pytorch", options, build, ["torch"], subnormals_flushed=flushed)


if __name__ == "__main__":
    sys.exit(main())
