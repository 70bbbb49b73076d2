"""Random choices: a function of the address, and uniform."""

from collections import Counter
from itertools import permutations

import pytest

from hopscope.tasks.text.draws import Draws, words_of


def test_known_choices():
    """`openssl dgst -shake256 -xoflen 24` says 7f15f1a94f0bdc17 8399d8915edb1560 b38baf56ea8fdb10."""
    for n in (2, 1000, 2**31):
        draws = Draws("hopscope", 3)
        words = (0x17DC0B4FA9F1157F, 0x6015DB5E91D89983, 0x10DB8FEA56AF8BB3)  # little-endian
        assert [draws.below(n) for _ in words] == [word * n // 2**64 for word in words]


def test_permutations_are_uniform():
    counts = Counter(Draws(f"address {i}", 3).permutation(4) for i in range(6000))
    assert set(counts) == set(permutations(range(4)))
    expected = 6000 / 24
    squares = sum((count - expected) ** 2 / expected for count in counts.values())
    assert squares < 49.7  # chi-square with 23 degrees of freedom exceeds it once in a thousand


def test_numbers_are_uniform_and_in_range():
    draws = Draws("numbers", 7000)
    counts = Counter(draws.below(7) for _ in range(7000))
    assert set(counts) == set(range(7))
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 22.5  # one in a thousand, 6 degrees


def test_as_many_words_as_counted():
    words = words_of(numbers=2, permutations=(5, 1, 3))
    assert words == 8
    draws = Draws("count", words)
    assert sorted(draws.permutation(5)) == [0, 1, 2, 3, 4]
    assert draws.permutation(1) == (0,)
    assert sorted(draws.permutation(3)) == [0, 1, 2]
    assert (draws.below(1), draws.below(2) in (0, 1)) == (0, True)
    with pytest.raises(StopIteration):
        draws.below(2)
