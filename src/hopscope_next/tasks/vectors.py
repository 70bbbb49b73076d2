"""Position codes, shuffles, and symbols by their numbers: what samples of the retrieval problem are made of."""

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

_LARGEST_COMPARED = 8
"""Most things that are ranked by comparing all pairs, which a compiler makes one loop of; more are sorted."""


def position_codes(count: int, dim: int, base: float | None) -> Float[Tensor, "code symbol_dim"]:
    """Cosines and sines that tell `count` places apart (paper, section 6; "rotary" there, but concatenated).

    Args:
        count, dim: of the codes.
        base: of geometric frequencies; `None`: whole multiples of 2π / count.
    """
    number = torch.arange(dim // 2, dtype=torch.float64)
    whole = 2.0 * math.pi * (number + 1.0) / count
    frequency = whole if base is None else base ** (-number / (dim // 2))
    angle = torch.arange(count, dtype=torch.float64)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), -1).float()


def ranks(words: Int[Tensor, "*lead word"], groups: Sequence[int]) -> Int[Tensor, "*lead item"]:
    """A permutation of 0 … n - 1 for each n of `groups`, one after another: the place that each thing is given.

    Every thing has a random word, and its place is the number of smaller ones (of equal ones, those before it).
    """
    runs = [(size, len([*run])) for size, run in groupby(groups)]
    parts = words[..., : sum(groups)].split([size * count for size, count in runs], -1)
    found = (
        _ranks(part.unflatten(-1, (count, size))) for part, (size, count) in zip(parts, runs, strict=True)
    )
    return torch.cat([each.flatten(-2) for each in found], -1)


def _ranks(words: Tensor) -> Tensor:
    size = words.shape[-1]
    if size > _LARGEST_COMPARED:
        return inverse(words.argsort(dim=-1, stable=True))
    earlier = torch.ones(size, size, device=words.device).tril(-1).bool()
    mine, others = words[..., :, None], words[..., None, :]
    return ((others < mine) | ((others == mine) & earlier)).sum(-1)


def inverse(places: Int[Tensor, "*lead item"]) -> Int[Tensor, "*lead item"]:
    """The thing that stands at each place."""
    things = torch.arange(places.shape[-1], device=places.device)
    return torch.empty_like(places).scatter_(-1, places, things.expand_as(places))


def selected(
    symbols: Float[Tensor, "member batch symbol dim"], which: Int[Tensor, "member batch item"]
) -> Float[Tensor, "member batch item dim"]:
    """Symbols of each sample, by their numbers."""
    # Whole rows are copied, which `gather` would do number by number.
    members, samples, count, dim = symbols.shape
    first = count * torch.arange(members * samples, device=symbols.device).view(members, samples, 1)
    return symbols.reshape(-1, dim).index_select(0, (which + first).flatten()).view(*which.shape, dim)
