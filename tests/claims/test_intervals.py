"""Intervals against the textbook, scipy and plain resampling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hopscope.claims.intervals import (
    crossed_interval,
    estimate,
    excess_interval,
    rank_correlation,
    ratio_interval,
    share_interval,
    variance_shares,
    wilson,
)

COUNTS = st.integers(1, 97).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def noise(*shape, key=3):
    return np.random.Generator(np.random.Philox(key=key)).normal(size=shape)


@given(COUNTS)
def test_exact_and_wilson_intervals_are_those_of_scipy(counts):
    test = stats.binomtest(*counts)
    assert share_interval(*counts) == pytest.approx(tuple(test.proportion_ci(method="exact")), abs=1e-9)
    assert wilson(*counts) == pytest.approx(tuple(test.proportion_ci(method="wilson")), abs=1e-9)


def test_known_shares():
    assert share_interval(8, 8) == pytest.approx((0.6306, 1.0), abs=1e-4)  # 8 of 8 is [63, 100]
    assert share_interval(7, 20) == pytest.approx((0.1539092, 0.5921885), abs=1e-6)  # R's binom.test(7, 20)
    assert share_interval(10, 10, tail=0.05)[0] == pytest.approx(0.05**0.1)
    assert share_interval(5, 10) < share_interval(5.5, 10) < share_interval(6, 10)


def test_the_bootstrap_of_zeros_and_ones_is_binomial():
    assert (stats.binom.ppf(0.025, 20, 0.35), stats.binom.ppf(0.975, 20, 0.35)) == (3, 11)
    assert estimate([0.0] * 13 + [1.0] * 7) == (0.35, pytest.approx((3 / 20, 11 / 20)))


@settings(max_examples=20)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=13))
def test_an_interval_lies_within_the_values(values):
    mean, (low, high) = estimate(values)
    assert min(values) <= low <= high <= max(values) and mean == pytest.approx(np.mean(values), abs=1e-9)
    assert estimate(values) == estimate(values)
    assert estimate(values, clusters=[*range(len(values))]) == estimate(values)


def test_equal_values_have_their_own_interval_and_one_has_none():
    for n in (2, 3, 10, 11):
        assert estimate([0.1] * n) == (0.1, (0.1, 0.1))
    assert estimate([0.7]) == (0.7, None) and estimate([0.7, 0.9], clusters="aa") == (0.8, None)


def test_clusters_are_drawn_whole():
    """13 clusters of three zeros, and 13 of a single one: with k of the latter of 26, the mean is k / (78 − 2k)."""
    names = [f"c{n // 3}" for n in range(39)] + [f"d{n}" for n in range(13)]
    assert (stats.binom.ppf(0.025, 26, 0.5), stats.binom.ppf(0.975, 26, 0.5)) == (8, 18)
    assert estimate([0, 0, 0] * 13 + [1] * 13, names)[1] == pytest.approx((8 / 62, 18 / 42))


def test_more_values_than_one_chunk_holds():
    (low, high), error = estimate(range(1009))[1], 1.96 * np.std(range(1009)) / np.sqrt(1009)
    assert (low, high) == pytest.approx((504 - error, 504 + error), abs=2)


def test_coverage_at_ten_seeds_is_as_poor_as_documented():
    found = [estimate(each)[1] for each in noise(300, 10)]
    assert np.mean([low <= 0 <= high for low, high in found]) == pytest.approx(0.9, abs=0.05)


def test_a_correlation_is_that_of_resampled_pairs():
    x = noise(23)
    pairs = np.stack([x, 0.7 * x + noise(23, key=5)], 1)
    value, interval = estimate(pairs)
    assert value == pytest.approx(np.corrcoef(pairs.T)[0, 1])
    drawn = np.random.default_rng(0).integers(23, size=(4000, 23))
    expected = np.quantile([np.corrcoef(pairs[rows].T)[0, 1] for rows in drawn], [0.025, 0.975])
    assert interval == pytest.approx(expected, abs=0.02)
    assert estimate(pairs * [1e-6, 1e6] + [1e3, 0]) == pytest.approx(
        (value, pytest.approx(interval, abs=1e-3)), abs=1e-6
    )
    twice = estimate([*pairs, *pairs], clusters=[*range(23)] * 2)[1]
    assert twice == pytest.approx(interval, abs=1e-9)


def test_resampled_ranks_are_their_own():
    pairs = np.stack([np.exp(3 * noise(17)), np.round(noise(17) + noise(17, key=5))], 1)
    value, interval = rank_correlation(pairs, range(17))
    assert value == pytest.approx(stats.spearmanr(*pairs.T).statistic)
    drawn = np.random.default_rng(0).integers(17, size=(1000, 17))
    expected = np.quantile([stats.spearmanr(*pairs[rows].T).statistic for rows in drawn], [0.025, 0.975])
    assert interval == pytest.approx(expected, abs=0.04)
    assert rank_correlation([*pairs, *pairs], [*range(17)] * 2) == (
        pytest.approx(value),
        pytest.approx(interval),
    )
    assert (
        rank_correlation([(1, 2), (1, 3)], [0, 1]) == (None, (0, 0))
        and rank_correlation([(1, 2)], [0])[1] is None
    )


def test_a_number_that_never_varies_correlates_with_nothing():
    assert estimate([(0.1, 0.3)] * 5) == (None, (0, 0))
    assert estimate([(1, 2), (1, 3)])[0] is None and estimate([(1, 2)]) == (None, None)
    assert estimate([(0, 0), (1, 1)]) == (1, (0, 1))


def test_crossed_factors_are_both_resampled():
    rows, columns = np.divmod(np.arange(77), 11)
    both = noise(7)[rows] + noise(11, key=5)[columns]
    low, high = crossed_interval(both, rows.tolist(), columns.tolist())
    one, other = (estimate(both, names.tolist())[1] for names in (rows, columns))
    assert high - low > max(one[1] - one[0], other[1] - other[0])
    assert low < both.mean() < high
    assert crossed_interval(both, rows.tolist(), [0] * 77) is None


def test_members_differ_more_from_each_other_than_from_themselves():
    places = np.arange(13.0)
    between = np.abs(places[:, None] - places)
    low, high = excess_interval(between, [0.5] * 13)
    assert low < between.sum() / (13 * 12) - 0.5 < high and low > 0
    assert excess_interval(np.ones((7, 7)), [1.0] * 7) == (0, 0)


@settings(max_examples=30)
@given(
    st.integers(2, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(-50, 50), min_size=n, max_size=n), min_size=2, max_size=5)
    )
)
def test_shares_of_variance_are_those_of_the_textbook(table):
    values = np.array(table, float)
    found, total = variance_shares(table, shuffles=11), ((values - values.mean()) ** 2).sum()
    if total == 0.0:
        assert found is None
        return
    for name, axis in (("rows", 1), ("columns", 0)):
        expected = values.shape[axis] * ((values.mean(axis) - values.mean()) ** 2).sum() / total
        assert found[name][0] == pytest.approx(expected, abs=1e-9)
    assert found["rows"][0] + found["columns"][0] <= 1 + 1e-9


def test_chance_gives_factors_their_degrees_of_freedom():
    found = variance_shares(noise(4, 3))
    assert (found["rows"][1], found["columns"][1]) == pytest.approx((3 / 11, 2 / 11), abs=0.02)
    by_rows = variance_shares([[1.0] * 3, [5.0] * 3, [9.0] * 3])
    assert by_rows["rows"][0] == pytest.approx(1) and by_rows["columns"][2] == 1.0
    assert by_rows["rows"][2] == pytest.approx(6 / 1680, abs=2.5e-3)  # of 9! / (3!)³ tables 6 have equal rows


def test_a_ratio_has_both_sums_resampled():
    above, below = abs(noise(2, 23)) ** 3
    drawn = np.random.Generator(np.random.Philox(key=9)).integers(23, size=(20_000, 23))
    expected = np.quantile(above[drawn].sum(1) / below[drawn].sum(1), [0.025, 0.975])
    assert ratio_interval(above, below) == pytest.approx(tuple(expected), rel=0.05)
    assert ratio_interval(3 * below, below) == pytest.approx(
        (3.0, 3.0)
    )  # one seed counts for most, and changes nothing
    assert ratio_interval([1.0, 2.0], [0.0, 4.0])[1] > 1e6  # a resample may have nothing below
    assert ratio_interval([1.0], [2.0]) is None
