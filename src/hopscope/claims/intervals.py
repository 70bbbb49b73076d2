"""Confidence intervals over seeds: percentile bootstrap of a mean, exact and Wilson intervals of a share."""

import statistics
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]

_CHUNK = 1 << 20


def mean(values: Sequence[float]) -> float:
    """Return the correctly rounded mean, so that equal values have exactly their own value as mean.

    Raises:
        ValueError: there is no value.
    """
    if len(values) == 0:
        raise ValueError("a mean needs values: expected at least 1, found 0")
    return statistics.mean(float(value) for value in values)


def bootstrap_mean(
    values: Sequence[float],
    *,
    groups: Sequence[int] | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Interval | None:
    """Return the percentile bootstrap interval of the mean (Efron 1979), the same at every call.

    With few seeds it is too short: for normal values a nominal 95 % interval covers about 90 % of the time at
    10 seeds, 85 % at 5 and 50 % at 2.

    Args:
        values: one number for each seed.
        groups: for two levels, the data split that each seed belongs to: splits are resampled, then seeds
            within each drawn split (Davison and Hinkley 1997, §3.8).
        seed: key of the resampling generator.
        resamples: bootstrap samples.
        confidence: nominal coverage.

    Returns:
        (low, high), or None for fewer than two values, which say nothing about their spread.

    Raises:
        ValueError: a value is not finite, `groups` has another length, or `confidence` lies outside (0, 1).
    """
    _check_confidence(confidence)
    numbers = np.asarray(values, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"measured values must be finite: expected numbers, found {list(values)}")
    if groups is not None and len(groups) != len(values):
        raise ValueError(f"one group for each value: expected {len(values)} groups, found {len(groups)}")
    if len(numbers) < 2:
        return None
    generator = np.random.Generator(np.random.Philox(key=seed))
    if groups is None:
        means = _resampled_means(numbers, generator, resamples)
    else:
        means = _two_level_means(numbers, np.asarray(groups), generator, resamples)
    tail = (1 - confidence) / 2
    # Rounding in a sum must not push the mean of equal values past them, and past a threshold they sit on.
    low, high = np.clip(np.quantile(means, [tail, 1 - tail]), numbers.min(), numbers.max())
    return float(low), float(high)


def clopper_pearson(
    successes: int, n: int, confidence: float = 0.95, *, sided: Literal["two", "lower"] = "two"
) -> Interval:
    """Return the exact interval of a share (Clopper and Pearson 1934).

    Args:
        successes: 0 ≤ successes ≤ n.
        n: at least 1.
        confidence: guaranteed coverage.
        sided: ``two`` for the central interval; ``lower`` for a one-sided lower bound with 1 as the upper
        end.

    Raises:
        ValueError: the counts are impossible, or `confidence` lies outside (0, 1).
    """
    return _binomial(successes, n, confidence, "exact", "greater" if sided == "lower" else "two-sided")


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the score interval of a share (Wilson 1927); arguments and errors as in `clopper_pearson`."""
    return _binomial(successes, n, confidence, "wilson", "two-sided")


def _binomial(successes: int, n: int, confidence: float, method: str, alternative: str) -> Interval:
    # scipy.stats takes most of a second to import, and most commands never ask for this.
    from scipy.stats import binomtest

    _check_confidence(confidence)
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(
            f"impossible counts: expected 0 <= successes <= n and n >= 1, found {successes} of {n}"
        )
    found = binomtest(successes, n, alternative=alternative).proportion_ci(confidence, method=method)
    return float(found.low), float(found.high)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence out of range: expected 0 < confidence < 1, found {confidence}")


def _resampled_means(
    values: NDArray[np.float64], generator: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    n = len(values)
    rows = max(1, _CHUNK // n)
    means = [
        values[generator.integers(n, size=(min(rows, resamples - start), n))].mean(axis=1)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(means)


def _two_level_means(
    values: NDArray[np.float64], groups: NDArray[np.int64], generator: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    members = [values[groups == group] for group in np.unique(groups)]
    sizes = np.array([len(group) for group in members])
    table = np.zeros((len(members), sizes.max()))
    for row, group in zip(table, members, strict=True):
        row[: len(group)] = group
    rows = max(1, _CHUNK // table.size)
    means = []
    for start in range(0, resamples, rows):
        shape = (min(rows, resamples - start), len(members))
        drawn = generator.integers(len(members), size=shape)[..., None]
        chosen = (generator.random((*shape, table.shape[1])) * sizes[drawn]).astype(np.int64)
        counted = np.arange(table.shape[1]) < sizes[drawn]
        total = np.where(counted, table[drawn, chosen], 0.0).sum(axis=(1, 2))
        means.append(total / counted.sum(axis=(1, 2)))
    return np.concatenate(means)
