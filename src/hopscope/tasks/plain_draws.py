"""The draws of one sample in plain Python: numbers and nested lists, from the same random words as `Draws`."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from hopscope import rng
from hopscope.tasks.draws import LARGEST_UNRANKED, STREAMS, name_key, use_of
from hopscope.tasks.task import Use

Nested = Any
"""A number, or lists of lists of numbers."""


class PlainDraws:
    """Random numbers for one sample; the calls are those of `Draws`, and what they return has no leading axes.

    Attributes:
        seed: data seed of the member.
        stream, use: as in `Draws`.
        step: training step.
        index: number of the sample within its step, or of the example.
    """

    def __init__(self, seed: int, stream: str, step: int, index: int, *, examples: int | None = None):
        self.seed, self.stream, self.step, self.index = seed, STREAMS.get(stream, stream), step, index
        self._address = (self.stream, step)
        if examples is not None and self.stream == "train":
            high, low, *_ = rng.bits(seed, "train", step, index, 2).tolist()
            self.index, self._address = (((high << 32) | low) * examples) >> 64, ("pool", 0)

    @property
    def address(self) -> tuple[int, str, int, int]:
        """Seed, stream, step and index that the raw words of `bits` come from."""
        return self.seed, *self._address, self.index

    @property
    def use(self) -> Use:
        """The use of the sample."""
        return use_of(self.stream)

    def bits(self, block: int = 0) -> list[int]:
        """Four raw words of the generator, as integers."""
        return list(rng.bits(self.seed, *self._address, self.index, block).tolist())

    def integers(self, name: str, high: Nested, shape: tuple[int, ...] = ()) -> Nested:
        """Integers from 0 to high - 1; high is a number, or nested lists of the same shape."""
        words = self._words(name, 2 * math.prod(shape))
        limits = iter(_flat(high, shape))
        pairs = zip(words[::2], words[1::2], strict=True)
        return _nested((((first << 32 | second) * next(limits)) >> 64 for first, second in pairs), shape)

    def uniform(self, name: str, shape: tuple[int, ...] = ()) -> Nested:
        """Uniform numbers in [0, 1), as nested lists."""
        return _nested(((word >> 8) / 2**24 for word in self._words(name, math.prod(shape))), shape)

    def normal(self, name: str, shape: tuple[int, ...] = ()) -> Nested:
        """Standard normal numbers (Box and Muller 1958)."""
        count = math.prod(shape)
        words = self._words(name, count + count % 2)
        numbers: list[float] = []
        for first, second in zip(words[::2], words[1::2], strict=True):
            radius = math.sqrt(-2.0 * math.log((first + 0.5) / 2**32))
            angle = 2.0 * math.pi * second / 2**32
            numbers += [radius * math.cos(angle), radius * math.sin(angle)]
        return _nested(iter(numbers), shape)

    def permutation(self, name: str, n: int) -> list[int]:
        """The things 0 … n - 1 in random order."""
        if n > LARGEST_UNRANKED:
            words = self._words(name, n)
            return sorted(range(n), key=lambda thing: words[thing])
        high, low = self._words(name, 2)
        rank = ((high << 32 | low) * math.factorial(n)) >> 64
        left, order = list(range(n)), []
        for remaining in range(n - 1, -1, -1):
            place, rank = divmod(rank, math.factorial(remaining))
            order.append(left.pop(place))
        return order

    def constant(self, value: Nested, shape: tuple[int, ...] = ()) -> Nested:
        """One value at every place of the shape."""
        return _nested(iter(_flat(value, shape)), shape)

    def _words(self, name: str, count: int) -> list[int]:
        words: list[int] = []
        for block in range(-(-count // 4)):
            words += rng.bits(self.seed ^ name_key(name), *self._address, self.index, block).tolist()
        return words[:count]


def _flat(values: Nested, shape: tuple[int, ...]) -> list[Any]:
    """Nested lists as one list, broadcast to the shape as tensors are: their axes are the last ones."""
    missing = len(shape) - _depth(values)
    if missing:
        return _flat(values, shape[missing:]) * math.prod(shape[:missing])
    if not shape:
        return [values]
    rows = values if len(values) == shape[0] else list(values) * shape[0]
    return [number for row in rows for number in _flat(row, shape[1:])]


def _depth(values: Nested) -> int:
    """Number of axes of nested lists."""
    return 1 + _depth(values[0]) if isinstance(values, Sequence) else 0


def _nested(numbers: Iterator[Any], shape: tuple[int, ...]) -> Nested:
    """Numbers, in order, as nested lists."""
    if not shape:
        return next(numbers)
    return [_nested(numbers, shape[1:]) for _ in range(shape[0])]
