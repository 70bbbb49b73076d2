import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from hopscope.claims import intervals
from hopscope.claims.intervals import (
    bootstrap_correlation,
    bootstrap_mean,
    clopper_pearson,
    correlation,
    crossed_interval,
    excess_interval,
    share_interval,
    wilson,
)


def test_the_same_values_give_the_same_interval():
    values = [0.2, 0.3, 0.5, 0.7, 1.1]
    assert bootstrap_mean(values) == bootstrap_mean(values)


def test_the_interval_is_that_of_the_binomial_for_zeros_and_ones():
    # Of 20 seeds drawn, 3 to 11 are ones: both quantiles lie well within their step of the binomial distribution.
    assert (binom.ppf(0.025, 20, 0.35), binom.ppf(0.975, 20, 0.35)) == (3, 11)
    assert bootstrap_mean([0.0] * 13 + [1.0] * 7) == pytest.approx((3 / 20, 11 / 20))
    assert bootstrap_mean([0.0, 1.0]) == (0.0, 1.0)


def test_one_value_has_no_interval_and_equal_values_have_their_own():
    assert bootstrap_mean([]) is None
    assert bootstrap_mean([0.7]) is None
    for n in (2, 3, 10, 11):
        assert bootstrap_mean([0.1] * n) == (0.1, 0.1)
        assert intervals.mean([0.1] * n) == 0.1


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=13))
def test_the_interval_is_ordered_and_inside_the_values(values):
    low, high = bootstrap_mean(values, resamples=200)
    assert min(values) <= low <= high <= max(values)


def test_more_resamples_than_one_chunk_holds():
    values = [float(value) for value in range(1000)]
    low, high = bootstrap_mean(values, resamples=3000)
    error = 1.96 * np.std(values) / np.sqrt(1000)
    assert (low, high) == pytest.approx((499.5 - error, 499.5 + error), abs=2)


def test_coverage_at_ten_seeds_is_ninety_percent():
    generator = np.random.Generator(np.random.Philox(key=7))
    covered = 0
    for _ in range(1000):
        low, high = bootstrap_mean(list(generator.normal(size=10)), resamples=400)
        covered += low <= 0 <= high
    # 0.90 in theory; 1000 trials have a standard error of 0.0095.
    assert 0.87 <= covered / 1000 <= 0.93


@pytest.mark.parametrize(("n", "coverage"), [(2, 0.5), (5, 0.84)])
def test_coverage_with_few_seeds_is_as_poor_as_documented(n, coverage):
    generator = np.random.Generator(np.random.Philox(key=n))
    found = [bootstrap_mean(list(generator.normal(size=n)), resamples=300) for _ in range(600)]
    assert np.mean([low <= 0 <= high for low, high in found]) == pytest.approx(coverage, abs=0.06)


def test_clusters_of_one_value_each_are_the_plain_bootstrap():
    values = [0.2, 0.3, 0.5, 0.7, 1.1]
    assert bootstrap_mean(values, clusters="abcde") == bootstrap_mean(values)
    assert bootstrap_mean(values, clusters=[7] * 5) is None


UNEQUAL = [0, 0, 0] * 13 + [1] * 13
"""13 clusters of three zeros, and 13 of a single one; with k of the latter drawn of 26, the mean is k / (78 - 2k)."""


def drawn_whole():
    assert (binom.ppf(0.025, 26, 0.5), binom.ppf(0.975, 26, 0.5)) == (8, 18)
    return pytest.approx((8 / 62, 18 / 42))


def test_clusters_are_drawn_whole():
    names = [f"c{n // 3}" for n in range(39)] + [f"d{n}" for n in range(13)]
    assert bootstrap_mean(UNEQUAL, clusters=names) == drawn_whole()
    generator = np.random.Generator(np.random.Philox(key=3))
    clusters = [cluster for cluster in range(13) for _ in range(5)]
    values = [cluster + 0.01 * generator.normal() for cluster in clusters]
    means = [np.mean(values[5 * cluster : 5 * cluster + 5]) for cluster in range(13)]
    assert bootstrap_mean(values, clusters=clusters) == pytest.approx(bootstrap_mean(means), abs=1e-9)


def test_a_correlation_without_spread_is_none():
    assert correlation([(1, 2)]) is None
    assert correlation([(1, 2), (1, 3)]) is None
    assert correlation([(1, 2), (2, 3), (3, 4)]) == pytest.approx(1)
    assert correlation([(0.1, -0.2), (0.2, -0.4)]) == pytest.approx(-1)


def test_the_bootstrap_of_a_correlation_is_that_of_resampled_pairs():
    generator = np.random.Generator(np.random.Philox(key=5))
    x = generator.normal(size=23)
    pairs = [*zip(x, 0.7 * x + generator.normal(size=23), strict=True)]
    low, high = bootstrap_correlation(pairs)
    drawn = generator.integers(23, size=(4000, 23))
    expected = np.quantile([np.corrcoef(np.array(pairs)[rows].T)[0, 1] for rows in drawn], [0.025, 0.975])
    assert (low, high) == pytest.approx(expected, abs=0.02)
    assert low < correlation(pairs) < high
    assert correlation(pairs) == pytest.approx(np.corrcoef(np.array(pairs).T)[0, 1])
    twice = bootstrap_correlation([*pairs, *pairs], clusters=[*range(23)] * 2)
    assert twice == pytest.approx((low, high), abs=1e-9)
    far = [(1e6 + first, 1e-6 * second) for first, second in pairs]
    assert bootstrap_correlation(far) == pytest.approx((low, high), abs=1e-3)


def test_a_resample_without_spread_counts_as_no_correlation():
    assert bootstrap_correlation([(0, 0), (1, 1)]) == (0, 1)
    assert bootstrap_correlation([(0, 0), (1, 1)], clusters=[0, 0]) is None
    assert bootstrap_correlation([(0.1, 0.3)] * 5) == (0, 0)


def test_clopper_pearson_known_values():
    assert clopper_pearson(10, 10, sided="lower") == pytest.approx((0.05**0.1, 1))
    assert clopper_pearson(10, 10) == pytest.approx((0.025**0.1, 1))
    assert clopper_pearson(0, 10) == pytest.approx((0, 1 - 0.025**0.1))
    # Agresti and Coull 1998 and R's binom.test(7, 20).
    assert clopper_pearson(7, 20) == pytest.approx((0.1539092, 0.5921885), abs=1e-6)


@pytest.mark.parametrize("sided", ["two", "lower"])
@given(n=st.integers(1, 9001), share=st.floats(0, 1))
def test_clopper_pearson_is_that_of_the_exact_test(sided, n, share):
    successes = round(share * n)
    test = binomtest(successes, n, alternative="greater" if sided == "lower" else "two-sided")
    expected = test.proportion_ci(0.95, method="exact")
    found = clopper_pearson(successes, n, sided=sided)
    assert found == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)


def test_wilson_known_values():
    z = 1.959963984540054
    centre, half = (0.35 + z**2 / 40) / (1 + z**2 / 20), z / (1 + z**2 / 20)
    half *= np.sqrt(0.35 * 0.65 / 20 + z**2 / 1600)
    assert wilson(7, 20) == pytest.approx((centre - half, centre + half))
    assert wilson(500, 500)[0] > 0.9


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(successes, n):
    with pytest.raises(ValueError, match=f"found {successes} of {n}"):
        clopper_pearson(successes, n)
    with pytest.raises(ValueError, match=f"found {successes} of {n}"):
        wilson(successes, n)


def test_impossible_values_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        bootstrap_mean([0.0, float("nan")])
    with pytest.raises(ValueError, match="expected 3 clusters, found 2"):
        bootstrap_mean([1, 2, 3], clusters=[0, 1])
    with pytest.raises(ValueError, match="at least 1, found 0"):
        intervals.mean([])


def test_an_excess_of_distances_is_resampled_by_members():
    apart = np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.5], [0.5, 0.5, 0.0]])
    low, high = excess_interval(apart, [0.25, 0.25, 0.25])
    # Two members that are drawn, in whatever numbers, have one distance between them; three have all.
    assert (low, high) == pytest.approx((0.25, 0.75))
    assert excess_interval(np.zeros((3, 3)), [0.5, 0.5, 0.5]) == pytest.approx((-0.5, -0.5))


def test_crossed_intervals_are_those_of_the_slow_way():
    """Rows and columns drawn one by one, and every drawn cell counted."""
    generator = np.random.Generator(np.random.Philox(key=5))
    table = generator.normal(size=(7, 5)) + 3 * generator.normal(size=(1, 5))
    rows, columns = (list(map(int, each.ravel())) for each in np.indices(table.shape))
    low, high = crossed_interval(table.ravel(), rows, columns)
    means = [
        table[np.ix_(generator.integers(7, size=7), generator.integers(5, size=5))].mean()
        for _ in range(10_000)
    ]
    assert (low, high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.12)
    of_cells = bootstrap_mean(table.ravel())
    assert high - low > 2 * (of_cells[1] - of_cells[0])


def test_crossed_intervals_need_two_of_each():
    assert crossed_interval([1.0, 2.0, 3.0], "abc", "xxx") is None
    assert crossed_interval([1.0, 2.0], "aa", "xy") is None
    assert crossed_interval([0.4] * 6, "aabbcc", "xyxyxy") == (0.4, 0.4)


def test_a_share_of_seeds_has_its_exact_interval():
    assert share_interval([1.0] * 8) == pytest.approx((0.6306, 1.0), abs=1e-4)
    assert share_interval([1.0] * 5 + [0.0] * 3) == pytest.approx(clopper_pearson(5, 8), abs=1e-12)
    # Values of one seed that agree are one case; where they do not, the interval is as wide as for so many seeds.
    clusters = [seed for seed in range(8) for _ in range(3)]
    assert share_interval([1.0] * 24, clusters=clusters) == pytest.approx(share_interval([1.0] * 8))
    mixed = share_interval([1.0, 1.0, 0.0] * 8, clusters=clusters)
    assert mixed[0] < clopper_pearson(16, 24)[0] and mixed[1] > clopper_pearson(16, 24)[1]
    assert share_interval([1.0]) is None
