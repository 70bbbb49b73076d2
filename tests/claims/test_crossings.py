import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.claims.crossings import (
    Crossing,
    Order,
    Precedence,
    earliest,
    first_crossing,
    last_crossing,
    latest,
    median,
    order,
    precedence,
    rise,
)

NEVER = Crossing(None, None, None, 100.0)


def crossed(time, low, high):
    return Crossing(float(time), float(low), float(high), None)


def test_a_rising_curve_crosses_between_its_evaluations():
    assert first_crossing([0, 10, 30], [0.0, 0.2, 0.8], 0.5) == crossed(20, 10, 30)


def test_a_falling_curve_crosses_between_its_evaluations():
    assert first_crossing([0, 10, 30], [1.0, 0.9, 0.1], 0.3, rising=False) == crossed(25, 10, 30)


def test_touching_the_threshold_is_crossing_it():
    assert first_crossing([0, 10, 20], [0.0, 0.5, 0.4], 0.5) == crossed(10, 0, 10)


def test_only_the_first_crossing_counts():
    assert first_crossing([0, 2, 4, 6, 8], [0, 1, 0, 0, 1], 0.5) == crossed(1, 0, 2)


def test_a_curve_that_never_crosses_is_censored_at_its_last_evaluation():
    assert first_crossing([0, 10, 30], [0.0, 0.2, 0.4], 0.5) == Crossing(None, None, None, 30)
    assert first_crossing([7], [0.7], 0.5, rising=False) == Crossing(None, None, None, 7)


def test_a_curve_that_starts_across_crossed_by_its_first_evaluation():
    assert first_crossing([5, 10], [0.7, 0.8], 0.5) == crossed(5, 5, 5)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=17), st.floats(-10, 10), st.booleans())
def test_the_crossing_lies_where_the_interpolated_curve_says(values, threshold, rising):
    times = [3.0 * place for place in range(len(values))]
    found = first_crossing(times, values, threshold, rising=rising)
    sign = 1 if rising else -1
    across = [sign * value >= sign * threshold for value in values]
    if not any(across):
        assert found == Crossing(None, None, None, times[-1])
        return
    assert found.low <= found.time <= found.high == times[across.index(True)]
    if found.low < found.high:
        assert np.interp(found.time, times, values) == pytest.approx(threshold, abs=1e-9)
    mirrored = first_crossing(times, [-value for value in values], -threshold, rising=not rising)
    assert mirrored == found


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (crossed(12, 10, 20), crossed(25, 20, 30), Order.BEFORE),
        (crossed(12, 10, 20), crossed(19, 10, 20), Order.TIE),
        (crossed(12, 10, 20), crossed(16, 15, 25), Order.TIE),
        (crossed(5, 5, 5), crossed(5, 5, 5), Order.TIE),
        (crossed(5, 5, 5), crossed(6, 5, 10), Order.BEFORE),
        (crossed(95, 90, 100), NEVER, Order.BEFORE),
        (crossed(105, 100, 110), NEVER, Order.UNKNOWN),
        (NEVER, NEVER, Order.UNKNOWN),
    ],
)
def test_order(first, second, expected):
    opposite = {Order.BEFORE: Order.AFTER}.get(expected, expected)
    assert order(first, second) is expected
    assert order(second, first) is opposite


def test_median_counts_censored_curves_as_late():
    one, two, three = crossed(1, 0, 2), crossed(2, 0, 2), crossed(3, 2, 4)
    assert median([three, one, two]) == 2
    assert median([NEVER, one, three]) == 3
    assert median([NEVER, NEVER, one]) is None
    assert median([NEVER, one, NEVER, two]) == 2
    assert median([NEVER]) is None
    with pytest.raises(ValueError, match="at least 1, found 0"):
        median([])


def test_rise_of_a_straight_line():
    times, values = list(range(0, 101, 10)), [place / 10 for place in range(11)]
    found = rise(times, values)
    assert (found.start.time, found.half.time, found.end.time) == pytest.approx((10, 50, 90))
    assert found.width == pytest.approx(80)
    assert found.relative_width == pytest.approx(1.6)
    falling = rise(times, values[::-1], start=1.0, end=0.0)
    assert falling.width == pytest.approx(80)
    doubled = rise(times, [2 * value for value in values], end=2.0)
    assert doubled.width == pytest.approx(80)


def test_a_sudden_rise_is_no_narrower_than_its_evaluations_can_tell():
    found = rise([0, 40, 50, 60], [0.0, 0.0, 1.0, 1.0])
    assert found.width == pytest.approx(8)
    assert found.widest == 10
    assert found.relative_width == pytest.approx(8 / 45)


def test_an_unfinished_rise_has_no_width():
    found = rise([0, 10, 20], [0.0, 0.4, 0.8])
    assert found.half.time == pytest.approx(12.5)
    assert (found.width, found.widest, found.relative_width) == (None, None, None)
    assert rise([0, 10], [1.0, 1.0]).relative_width is None


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([], [], "found 0 times and 0 values"),
        ([1, 2], [1], "found 2 times and 1 values"),
        ([1, 1], [1, 2], r"strictly increasing times, found \[1, 1\]"),
        ([1, 2], [1, math.nan], "must be finite"),
    ],
)
def test_curves_that_are_none_are_refused(times, values, message):
    with pytest.raises(ValueError, match=message):
        first_crossing(times, values, 0.5)


def test_a_rise_between_equal_levels_is_refused():
    with pytest.raises(ValueError, match=r"found 0.5 twice"):
        rise([0, 1], [0, 1], start=0.5, end=0.5)


def test_a_threshold_is_reached_for_good_after_the_last_time_outside():
    times, falls = [0, 10, 20, 30, 40], [0.9, 0.3, 0.7, 0.3, 0.1]
    assert last_crossing(times, falls, 0.5, rising=False).time == pytest.approx(25.0)
    assert first_crossing(times, falls, 0.5, rising=False).time == pytest.approx(20 / 3)
    assert last_crossing(times, [0.9, 0.3, 0.2, 0.1, 0.6], 0.5, rising=False).time is None
    assert last_crossing(times, [0.4, 0.3, 0.2, 0.1, 0.1], 0.5, rising=False).time == 0.0


def within(low, high):
    return Crossing((low + high) / 2, float(low), float(high), None)


def test_orders_are_counted_with_ties_and_what_never_came():
    first = [within(0, 10), within(20, 30), within(40, 50), within(0, 10), NEVER, NEVER]
    second = [within(10, 20), within(0, 10), within(40, 50), NEVER, within(0, 10), NEVER]
    # before, after, a tie, before one that never came, after one that did, nothing known
    found = precedence(first, second)
    assert found == Precedence(before=2, after=2, ties=1, unknown=1)
    assert found.known == 5
    assert found.share == 2 / 5


def test_a_tie_is_known_but_is_no_before():
    found = precedence([within(0, 10)] * 3, [within(0, 10)] * 3)
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
    assert latest([within(0, 10), within(30, 40), within(20, 30)]) == within(30, 40)


def test_all_never_come_if_one_never_does():
    assert latest([within(0, 10), NEVER]) == NEVER


def test_the_latest_of_none_is_refused():
    with pytest.raises(ValueError, match="expected at least 1"):
        latest([])


def test_the_earliest_of_several_is_the_first_to_come():
    assert earliest([NEVER, within(30, 40), within(20, 30)]) == within(20, 30)
    assert earliest([NEVER, NEVER]) == NEVER
    with pytest.raises(ValueError, match="expected at least 1"):
        earliest([])
