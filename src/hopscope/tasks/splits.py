"""Which mappings are training and which are held out: a seeded bijection of 0 … V! - 1, cut once.

Small sets of mappings are shuffled in full.  Large ones (12! is 479 million) are never listed: a generalised Feistel
network over a factorisation V! = A·B permutes them in constant memory, so that the two parts have exact sizes,
drawing needs no rejection, and membership is one inverse evaluation.
"""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from hopscope import rng
from hopscope.tasks.config import training_mappings

ENUMERATED_VALUES = 8
"""Up to this V all V! mappings (40,320 at 8) are kept in a table."""

_ROUNDS = 8


class MappingSplit:
    """The split of all V! mappings into training ones and held-out ones.

    Attributes:
        total: V!.
        training: number of training mappings; the others are held out.
    """

    def __init__(
        self,
        values: int,
        held_out_share: float,
        split_seed: int,
        device: torch.device | str = "cpu",
        listed_values: int = ENUMERATED_VALUES,
    ):
        self.values, self.split_seed = values, split_seed
        self.total = math.factorial(values)
        self.training = training_mappings(values, held_out_share)
        self._highs = next(a for a in range(math.isqrt(self.total), 0, -1) if self.total % a == 0)
        self._lows = self.total // self._highs
        self._ranks = None
        self._mappings = None
        if values <= listed_values:
            self._ranks = _shuffled(self.total, split_seed).to(device)
            self._mappings = rng.permutation_from_index(self._ranks, values) + 1

    def count(self, split: str) -> int:
        """Number of mappings of `"train"` or `"held_out"`."""
        return self.training if split == "train" else self.total - self.training

    def mapping(self, index: Int[Tensor, "..."], split: str) -> Int[Tensor, "... value"]:
        """Mapping number `index` of a split as the images of 1…V (1…V each)."""
        shifted = index if split == "train" else index + self.training
        if self._mappings is not None:
            return self._mappings[shifted]
        return rng.permutation_from_index(self._forward(shifted), self.values) + 1

    def is_training(self, mapping: Int[Tensor, "... value"]) -> Tensor:
        """Whether each mapping (images of 1…V) belongs to training."""
        rank = rng.index_from_permutation(mapping - 1)
        if self._ranks is not None:
            return torch.isin(rank, self._ranks[: self.training])
        return self._inverse(rank) < self.training

    def _round(self, half: Tensor, number: int) -> Tensor:
        return rng.bits(self.split_seed, "split", number, half)[..., 0]

    def _forward(self, index: Tensor) -> Tensor:
        high, low = index // self._lows, index % self._lows
        for number in range(0, _ROUNDS, 2):
            high = (high + self._round(low, number)) % self._highs
            low = (low + self._round(high, number + 1)) % self._lows
        return high * self._lows + low

    def _inverse(self, rank: Tensor) -> Tensor:
        high, low = rank // self._lows, rank % self._lows
        for number in range(_ROUNDS - 2, -1, -2):
            low = (low - self._round(high, number + 1)) % self._lows
            high = (high - self._round(low, number)) % self._highs
        return high * self._lows + low


def _shuffled(total: int, seed: int) -> Int[Tensor, " total"]:
    """0 … total - 1 in the order of 63-bit random keys; ties, should there be any, keep their order."""
    words = rng.bits(seed, "split", 0, torch.arange(total))
    return torch.argsort((words[:, 0] << 31) | (words[:, 1] >> 1), stable=True)
