"""The page's training loop in the page's manner: a ``Dataset`` of Python lists, a ``DataLoader``, one model.

Written afresh from what the page states (sections 2, 3, 4, 5 and 8); it states no batch size.
"""

import argparse
import random
import sys
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from _common import (
    FFN_WIDTH,
    HEADS,
    INPUT_LENGTH,
    LEARNING_RATE,
    REPEAT_RATIO,
    SYMBOLS,
    TOKENS,
    WIDTH,
    arguments,
    measure,
    parse,
    prepare_torch,
    stop,
    train_mappings,
)

EPOCH_SAMPLES = 100_000

Sample = tuple[Tensor, Tensor, Tensor]


class RepeatsDataset(Dataset[Sample]):
    """Sequences drawn one by one with ``random``, the page's source, which data-loader workers reseed."""

    def __init__(self, mappings: Sequence[tuple[int, ...]], samples: int = EPOCH_SAMPLES) -> None:
        self.mappings = mappings
        self.samples = samples
        self.elements = list(range(1, SYMBOLS + 1))

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Sample:
        mapping = dict(zip(self.elements, random.choice(self.mappings), strict=True))
        order = list(self.elements)
        random.shuffle(order)
        if random.random() < REPEAT_RATIO:
            order[-1] = random.choice(order[:-1])
        sequence = []
        for x in order:
            sequence.append(x)
            sequence.append(mapping[x])
        inputs = torch.tensor(sequence[:-1], dtype=torch.long)
        targets = torch.tensor(sequence[1:], dtype=torch.long)
        mask = torch.zeros(len(inputs), dtype=torch.float32)
        mask[::2] = 1.0
        return inputs, targets, mask


class PageTransformer(nn.Module):
    """Token plus position embedding, one causal post-norm encoder layer, a readout at all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(INPUT_LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=FFN_WIDTH, dropout=0.0, activation="relu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=1)
        self.readout = nn.Linear(WIDTH, TOKENS)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (batch, position, token) of token ids (batch, position)."""
        length = inputs.shape[1]
        embedded = self.tokens(inputs) + self.positions(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        logits: Tensor = self.readout(self.encoder(embedded, mask=mask, is_causal=True))
        return logits


class PageLoop:
    """One step of the page's loop per call."""

    def __init__(self, batch: int, workers: int, seed: int, samples: int = EPOCH_SAMPLES) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.batch = batch
        dataset = RepeatsDataset(train_mappings(seed), samples)
        self.loader = DataLoader(dataset, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers)
        self.model = PageTransformer()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        self.criterion = nn.CrossEntropyLoss(reduction="none")
        self.batches = self._batches()
        self.latest = torch.tensor(float("nan"))

    def _batches(self) -> Iterator[Sample]:
        while True:
            yield from self.loader

    def advance(self) -> int:
        inputs, targets, masks = next(self.batches)
        self.optimizer.zero_grad()
        logits = self.model(inputs)
        elementwise = self.criterion(logits.view(-1, logits.size(-1)), targets.view(-1))
        loss = (elementwise * masks.view(-1)).sum() / masks.sum()
        loss.backward()
        self.optimizer.step()
        self.latest = loss.detach()
        return self.batch

    def loss(self) -> float:
        return self.latest.item()


def build(options: argparse.Namespace) -> PageLoop:
    return PageLoop(options.batch, options.workers, options.seed)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments("page_loop")
    parser.add_argument("--workers", type=int, default=0, help="worker processes of the data loader")
    options = parse(parser, argv, single=True)
    if options.workers < 0:
        stop(f"--workers: expected 0 or more, found {options.workers}; use for example --workers 2")
    flushed = prepare_torch(options.threads)
    return measure("page_loop", options, build, ["torch"], subnormals_flushed=flushed)


if __name__ == "__main__":
    sys.exit(main())
