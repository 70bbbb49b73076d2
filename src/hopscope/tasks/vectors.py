"""What the tasks on vectors share: Gaussian symbols, position codes, shuffles, losses and what to hold them against.

Symbols are new in every sample, so nothing can be learned by heart; every draw is a function of its address alone.
"""

import math
from collections.abc import Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope import rng
from hopscope.tasks.config import VectorTaskConfig
from hopscope.tasks.draws import Address

_SYMBOLS, _SHUFFLES = range(2)
"""Blocks of the random words of one sample, each with several indices; the next one is that of `draws.pooled`."""

_LARGEST_COMPARED = 8
"""Most things that are ranked by comparing all pairs, which a compiler makes one loop of; more are sorted."""


def position_codes(config: VectorTaskConfig, count: int) -> Float[Tensor, "code symbol_dim"]:
    """Cosines and sines that tell `count` places apart (paper, section 6; "rotary" there, but concatenated).

    Args:
        config: which frequencies.
        count: number of different codes.
    """
    half = config.symbol_dim // 2
    number = torch.arange(half, dtype=torch.float64)
    if config.frequencies == "harmonic":
        frequency = 2.0 * math.pi * (number + 1.0) / count
    else:
        frequency = config.frequency_base ** (-number / half)
    angle = torch.arange(count, dtype=torch.float64)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), -1).float()


def draw_symbols(address: Address, count: int, symbol_dim: int) -> Float[Tensor, "member batch symbol dim"]:
    """Standard normal symbols, `count` for each sample; four numbers share one index of `rng.bits`."""
    numbers = rng.normal(_words(address, count * symbol_dim, _SYMBOLS)).flatten(-2)
    return numbers[..., : count * symbol_dim].unflatten(-1, (count, symbol_dim))


def draw_ranks(address: Address, groups: Sequence[int]) -> Int[Tensor, "member batch item"]:
    """A random permutation of 0 … n - 1 for each n of `groups`, one after another: the place that each thing is given.

    Every thing has a random word, and its place is the number of smaller ones (of equal ones, those before it).
    """
    words = _words(address, sum(groups), _SHUFFLES).flatten(-2)
    runs = [(size, len(list(run))) for size, run in groupby(groups)]
    parts = words[..., : sum(groups)].split([size * count for size, count in runs], -1)
    ranks = [
        _ranks(part.unflatten(-1, (count, size))).flatten(-2)
        for part, (size, count) in zip(parts, runs, strict=True)
    ]
    return torch.cat(ranks, -1)


def _words(address: Address, count: int, block: int) -> Int[Tensor, "member batch quad 4"]:
    seeds, stream, step, index = address
    quads = -(-count // 4)
    places = index[..., None] * quads + torch.arange(quads, device=index.device)
    step = step[..., None] if isinstance(step, Tensor) and step.ndim else step
    return rng.bits(seeds[..., None], stream, step, places, block)


def _ranks(words: Int[Tensor, "*lead item"]) -> Int[Tensor, "*lead item"]:
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


def nearest_candidate(
    predictions: Float[Tensor, "member batch readout output"],
    targets: Float[Tensor, "#member batch readout output"],
    symbols: int,
) -> Float[Tensor, "member symbol"]:
    """Share of predictions that are nearer to the right symbol than to that of any other chain.

    The candidates for a symbol are the N of its step, one in each chain: a guess is right 1/N of the time.

    Args:
        predictions, targets: of all N queries of a sample, `symbols` symbols one after another.
        symbols: how many there are.
    """
    predicted, right = (x.unflatten(-1, (symbols, -1)).movedim(3, 2) for x in (predictions, targets))
    # |p - c|² without |p|², which is the same for all candidates of a prediction.
    distance = right.square().sum(-1)[..., None, :] - 2.0 * predicted @ right.transpose(-1, -2)
    own = torch.arange(right.shape[-2], device=right.device)
    return (distance.argmin(-1) == own).double().mean((1, 3))
