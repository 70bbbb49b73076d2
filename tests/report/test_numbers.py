import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.claims.numbers import format_estimate, format_number
from hopscope.report.prose import tie

shares = st.floats(min_value=0, max_value=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9575, "0.9575"),
        (0.957512, "0.9575"),
        (-0.5, "−0.5"),
        (3.1e-6, "3.1e−06"),
        (7, "7"),
        (5100.0, "5,100"),
        (12_000, "12,000"),
        (-12_000.4, "−12,000"),
    ],
)
def test_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.999, "99.9 %"),
        (0.9996, "99.96 %"),
        (0.00004, "0.004 %"),
        (0.137, "13.7 %"),
    ],
)
def test_shares(value, text):
    assert format_number(value, "fraction") == text


@given(shares)
def test_shares_are_never_rounded_to_all_or_nothing(share):
    text = format_number(share, "fraction")
    if 1e-8 < share < 1 - 1e-8:
        assert text not in ("0 %", "100 %")
        assert float(text.removesuffix(" %")) not in (0, 100)


@given(shares)
def test_shares_keep_their_value(share):
    assert abs(float(format_number(share, "fraction").removesuffix(" %")) / 100 - share) <= 0.0005 + 1e-12


@pytest.mark.parametrize(
    ("value", "interval", "unit", "text"),
    [
        (0.95712, (0.95664, 0.95753), "number", "0.9571 [0.9566, 0.9575]"),
        (0.95712, (0.9, 1.1), "number", "0.96 [0.90, 1.10]"),
        (0.0, (0.0, 0.0), "number", "0 [0, 0]"),
        (-3.25, (-5.5, -1.0), "number", "−3.25 [−5.50, −1.00]"),
        (0.9998, (0.997, 1.0), "number", "0.9998 [0.997, 1.000]"),
        (0.9991, (0.9982, 1.0), "fraction", "99.91 % [99.82, 100]"),
        (0.9991, (0.93, 1.0), "fraction", "99.9 % [93, 100]"),
        (None, None, "number", "–"),
        (0.5, None, "fraction", "50 %"),
        (0.95712, (0.95664, 0.95753), "nats", "0.9571 nats [0.9566, 0.9575]"),
        (12_000, None, "steps", "12,000 steps"),
    ],
)
def test_estimates(value, interval, unit, text):
    assert format_estimate(value, interval, unit) == text


def test_what_never_happened_says_so():
    assert format_number(float("inf"), "steps") == format_number(float("-inf")) == "never"


@given(st.floats(-7, 7), st.floats(1e-5, 3), st.floats(1e-5, 3))
def test_estimates_show_an_interval_that_is_open(value, below, above):
    text = format_estimate(value, (value - below, value + above))
    middle, low, high = (float(part.replace("−", "-")) for part in re.findall(r"[−\d.]+", text))
    assert low < high
    assert low <= middle <= high


def test_signs_and_units_are_tied_to_their_numbers():
    assert tie("both ≥ 99.9 % of 7") == "both ≥\u00a099.9\u00a0% of 7"
    assert tie("a − b > c") == "a − b > c"
    assert tie("equations D = 2, width ≥ 3") == "equations D\u00a0=\u00a02, width ≥\u00a03"
