import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.claims.crossings import Crossing, earliest, first_crossing, last_crossing, order

NEVER = Crossing(None, None, None, 100.0)
CURVES = st.lists(st.floats(-10, 10), min_size=1, max_size=17)


def within(low, high):
    return Crossing((low + high) / 2, float(low), float(high), None)


@given(CURVES, st.floats(-10, 10), st.booleans())
def test_a_crossing_lies_where_the_interpolated_curve_says(values, level, rising):
    times = [3.0 * place for place in range(len(values))]
    across = [value >= level if rising else value <= level for value in values]
    first, last = (each(times, values, level, rising=rising) for each in (first_crossing, last_crossing))
    for found, there in ((first, any(across)), (last, across[-1])):
        if not there:
            assert found == Crossing(None, None, None, times[-1])
            continue
        assert found.low <= found.time <= found.high and found.censored_at is None
        if found.low < found.high:
            assert np.interp(found.time, times, values) == pytest.approx(level, abs=1e-9)
    if any(across):
        assert first.high == times[across.index(True)]
    if across[-1]:
        assert all(across[times.index(last.high) :])
        assert last.low == last.high == 0 if all(across) else not across[times.index(last.low)]
    assert first_crossing(times, [-value for value in values], -level, rising=not rising) == first


def test_by_hand():
    assert first_crossing([0, 10, 30], [0.0, 0.2, 0.8], 0.5) == Crossing(20.0, 10.0, 30.0, None)
    assert first_crossing([0, 10, 20], [0.0, 0.5, 0.4], 0.5) == Crossing(
        10.0, 0.0, 10.0, None
    )  # touching counts
    assert first_crossing([5, 10], [0.7, 0.8], 0.5) == Crossing(5.0, 5.0, 5.0, None)
    falls = [0.9, 0.3, 0.7, 0.3, 0.1]
    assert last_crossing([0, 10, 20, 30, 40], falls, 0.5, rising=False).time == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (within(10, 20), within(20, 30), "before"),
        (within(10, 20), within(10, 20), "tie"),
        (within(10, 20), within(15, 25), "tie"),
        (within(5, 5), within(5, 5), "tie"),
        (within(5, 5), within(5, 10), "before"),
        (within(90, 100), NEVER, "before"),
        (within(100, 110), NEVER, "unknown"),
        (NEVER, NEVER, "unknown"),
    ],
)
def test_order(first, second, expected):
    assert order(first, second) == expected
    assert order(second, first) == {"before": "after"}.get(expected, expected)


def test_what_never_came_is_later_than_all():
    one, two = within(0, 2), within(2, 4)
    assert earliest([NEVER, two, one]) == one
    soon = Crossing(None, None, None, one.time / 2)
    assert earliest([NEVER, one, soon]) == earliest([soon, NEVER]) == soon  # it may have come before
    assert earliest([NEVER, NEVER]) == NEVER


@pytest.mark.parametrize(
    ("times", "values"),
    [([], []), ([1, 2], [1]), ([1, 1], [1, 2]), ([1, 2], [1, math.nan]), ([1, math.inf], [1, 2])],
)
@pytest.mark.parametrize("call", [first_crossing, last_crossing])
def test_what_is_no_curve_is_refused(times, values, call):
    with pytest.raises(
        ValueError, match="curve: expected one finite value for each of some increasing times, found"
    ):
        call(times, values, 0.5)
