import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hopscope.claims import Criterion

FINITE = st.floats(-1e6, 1e6)


def test_json_and_words():
    accuracy = Criterion(at_least=0.999, unit="fraction")
    assert accuracy.as_json() == {"at_least": 0.999} and accuracy.words() == "≥ 99.9 %"
    rare = Criterion(at_most=0.01, unit="fraction")
    assert rare.as_json() == {"at_most": 0.01} and rare.words() == "≤ 1 %"
    partial = Criterion(between=(0.1, 0.9), unit="fraction")
    assert partial.as_json() == {"between": [0.1, 0.9]} and partial.words() == "10 % to 90 %"
    assert Criterion(between=(0.9545, 0.9605)).words() == "0.9545 to 0.9605"
    assert Criterion(between=(0.9545, 0.9605), unit="nats").words() == "0.9545 to 0.9605 nats"
    assert Criterion(at_least=0.07, unit="fraction").words() == "≥ 7 %"
    assert Criterion(at_most=-0.5).words() == "≤ −0.5"


def test_a_bound_that_keeps_nothing_but_0_out_is_said_so():
    above = Criterion(at_least=1e-9, unit="fraction")
    assert (above.words(), Criterion(at_least=1e-9).words(), Criterion(at_least=0.0).words()) == (
        "> 0 %",
        "> 0",
        "≥ 0",
    )
    assert not above.holds(0.0) and above.holds(1e-8)


def test_zero_is_a_bound():
    assert Criterion(at_most=0).as_json() == {"at_most": 0}
    assert Criterion(at_least=0).bounds == (0, math.inf)
    assert Criterion(at_most=0).holds(0) and not Criterion(at_most=0).holds(1e-300)


@pytest.mark.parametrize(
    ("criterion", "value", "shortfall"),
    [
        (Criterion(at_least=0.75), 0.75, 0),
        (Criterion(at_least=0.75), 0.5, 0.25),
        (Criterion(at_most=0.25), 0.25, 0),
        (Criterion(at_most=0.25), 1.0, 0.75),
        (Criterion(between=(0.25, 0.5)), 0.25, 0),
        (Criterion(between=(0.25, 0.5)), 0.5, 0),
        (Criterion(between=(0.25, 0.5)), 0.0, 0.25),
        (Criterion(between=(0.25, 0.5)), 1.0, 0.5),
    ],
)
def test_shortfall_is_the_distance_to_the_bounds(criterion, value, shortfall):
    assert criterion.distance(value) == shortfall
    assert criterion.holds(value) == (shortfall == 0)


@given(FINITE, FINITE, FINITE, FINITE)
def test_an_interval_meets_or_fails_exactly_if_all_its_points_do(a, b, c, d):
    (low, high), interval = sorted((a, b)), tuple(sorted((c, d)))
    points = [interval[0] + share * (interval[1] - interval[0]) for share in (0, 0.25, 0.5, 0.75)] + [
        interval[1]
    ]
    for criterion in (Criterion(at_least=a), Criterion(at_most=a), Criterion(between=(low, high))):
        if criterion.met_by(interval):
            assert all(criterion.distance(point) <= 1e-6 for point in points)
            assert not criterion.failed_by(interval)
        if criterion.failed_by(interval):
            assert not any(criterion.holds(point) for point in points)
    touching = Criterion(between=(interval[0], interval[0]))
    assert not touching.failed_by(interval)


@pytest.mark.parametrize(
    "bounds",
    [{}, {"at_least": 1, "at_most": 2}, {"at_least": 1, "between": (1, 2)}, {"between": (2, 1)}],
)
def test_a_criterion_has_exactly_one_sensible_bound(bounds):
    with pytest.raises(ValidationError, match="expected"):
        Criterion(**bounds)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_must_be_finite(value):
    with pytest.raises(ValueError, match=r"must be finite.*found"):
        Criterion(at_most=1).holds(value)
    with pytest.raises(ValidationError):
        Criterion(at_most=value)


def test_a_shown_number_never_looks_better_or_worse_than_it_is():
    criterion = Criterion(at_least=0.999, unit="fraction")
    assert criterion.show(0.98) == "98 %"
    assert criterion.show(0.99899999) == "99.899999 %"
    assert criterion.show(0.999999999) == "99.9999999 %"
    assert criterion.show(1.0) == "100 %"
    assert Criterion(at_most=0.96).show(0.9571234) == "0.9571"


@given(FINITE, FINITE)
def test_a_shown_number_stays_on_its_side_of_the_bound(bound, value):
    criterion = Criterion(at_least=bound)
    assert criterion.holds(float(criterion.show(value).replace("−", "-"))) == criterion.holds(value) or (
        criterion.distance(value) < 1e-9
    )
