import pytest

from hopscope.claims.crossings import Crossing
from hopscope.claims.precedence import Precedence, earliest, latest, precedence

NEVER = Crossing(None, None, None, 100.0)


def crossed(low, high):
    return Crossing((low + high) / 2, float(low), float(high), None)


def test_orders_are_counted_with_ties_and_what_never_came():
    first = [crossed(0, 10), crossed(20, 30), crossed(40, 50), crossed(0, 10), NEVER, NEVER]
    second = [crossed(10, 20), crossed(0, 10), crossed(40, 50), NEVER, crossed(0, 10), NEVER]
    # before, after, a tie, before one that never came, after one that did, nothing known
    found = precedence(first, second)
    assert found == Precedence(before=2, after=2, ties=1, unknown=1)
    assert found.known == 5
    assert found.share == 2 / 5


def test_a_tie_is_known_but_is_no_before():
    found = precedence([crossed(0, 10)] * 3, [crossed(0, 10)] * 3)
    assert (found.share, found.known) == (0.0, 3)


def test_the_interval_is_that_of_a_share_of_the_known():
    found = Precedence(before=5, after=0, ties=0, unknown=7)
    low, high = found.interval
    assert high == 1.0
    assert low == pytest.approx(0.025 ** (1 / 5))  # Clopper and Pearson: p^5 = 0.025


def test_nothing_known_has_neither_share_nor_interval():
    found = precedence([NEVER], [NEVER])
    assert (found.known, found.share, found.interval) == (0, None, None)


def test_different_numbers_of_seeds_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        precedence([NEVER], [])


def test_the_latest_of_several_is_when_all_had_come():
    assert latest([crossed(0, 10), crossed(30, 40), crossed(20, 30)]) == crossed(30, 40)


def test_all_never_come_if_one_never_does():
    assert latest([crossed(0, 10), NEVER]) == NEVER


def test_the_latest_of_none_is_refused():
    with pytest.raises(ValueError, match="expected at least 1"):
        latest([])


def test_the_earliest_of_several_is_the_first_to_come():
    assert earliest([NEVER, crossed(30, 40), crossed(20, 30)]) == crossed(20, 30)
    assert earliest([NEVER, NEVER]) == NEVER
    with pytest.raises(ValueError, match="expected at least 1"):
        earliest([])
