"""Random choices as a function of an address alone, without torch.

`hopscope.rng` needs torch, which a command that prints text should not load.  Here the bits are those of SHAKE-256
(FIPS 202) over the address as text, so the same question comes out on every machine and under every Python.
"""

import hashlib
import struct


class Draws:
    """The choices at one address, in order.

    Args:
        address: any text; equal addresses give equal choices.
        words: how many choices at most will be drawn, as `words_of` counts them.
    """

    __slots__ = ("_words",)

    def __init__(self, address: str, words: int) -> None:
        digest = hashlib.shake_256(address.encode()).digest(8 * words)
        self._words = iter(struct.unpack(f"<{words}Q", digest))

    def below(self, n: int) -> int:
        """A number from 0 to n - 1; the probability of each differs from 1/n by less than 2**-64."""
        return (next(self._words) * n) >> 64

    def permutation(self, n: int) -> tuple[int, ...]:
        """The numbers 0 … n - 1 in random order (Fisher and Yates; Knuth's algorithm P)."""
        items = list(range(n))
        for last, word in zip(range(n - 1, 0, -1), self._words, strict=False):
            place = (word * (last + 1)) >> 64
            items[last], items[place] = items[place], items[last]
        return tuple(items)


def words_of(*, numbers: int, permutations: tuple[int, ...]) -> int:
    """Number of words that it takes to draw some numbers, and permutations of the given lengths."""
    return numbers + sum(length - 1 for length in permutations)
