"""The draws of `vectors` in plain Python, written out once more: what the references of the tasks are made from."""

import math
from collections.abc import Sequence

from hopscope import rng
from hopscope.tasks.config import VectorTaskConfig

_SYMBOLS, _SHUFFLES, _PICKS = range(3)

Address = tuple[int, str, int, int]
"""Seed, stream, step and index of one sample."""


def pooled(config: VectorTaskConfig, address: Address) -> Address:
    """Where a sample is drawn from."""
    seed, stream, step, index = address
    if config.pool is None or stream != "train":
        return address
    high, low, *_ = rng.bits(seed, stream, step, index, _PICKS).tolist()
    return seed, "pool", 0, (((high << 32) | low) * config.pool) >> 64


def symbols(config: VectorTaskConfig, address: Address, count: int) -> list[list[float]]:
    """Components of `count` symbols (Box and Muller 1958)."""
    words = _words(count * config.symbol_dim, address, _SYMBOLS)
    numbers = []
    for first, second in zip(words[::2], words[1::2], strict=True):
        radius = math.sqrt(-2.0 * math.log((first + 0.5) / 2**32))
        angle = 2.0 * math.pi * second / 2**32
        numbers += [radius * math.cos(angle), radius * math.sin(angle)]
    return [numbers[n * config.symbol_dim : (n + 1) * config.symbol_dim] for n in range(count)]


def shuffles(address: Address, groups: Sequence[int]) -> list[list[int]]:
    """The things 0 … n - 1 in random order, for each n of `groups`."""
    words = _words(sum(groups), address, _SHUFFLES)
    shuffled = []
    for size in groups:
        mine, words = words[:size], words[size:]
        shuffled.append([thing for _, thing in sorted(zip(mine, range(size), strict=True))])
    return shuffled


def code(config: VectorTaskConfig, number: int, total: int) -> list[float]:
    """Position code number `number` of `total`."""
    half = config.symbol_dim // 2
    if config.frequencies == "harmonic":
        frequencies = [2.0 * math.pi * (n + 1) / total for n in range(half)]
    else:
        frequencies = [config.frequency_base ** (-n / half) for n in range(half)]
    return [math.cos(f * number) for f in frequencies] + [math.sin(f * number) for f in frequencies]


def _words(how_many: int, address: Address, block: int) -> list[int]:
    seed, stream, step, index = address
    quads = -(-how_many // 4)
    words: list[int] = []
    for quad in range(quads):
        words += rng.bits(seed, stream, step, index * quads + quad, block).tolist()
    return words[:how_many]
