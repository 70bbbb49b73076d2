"""Missing numbers: a verdict on a mean or an effect stands only if it still does with them counted the other way.

The rule, for a part that its measured numbers alone would reproduce:

1. at least 75 % of the numbers are there;
2. *always*: every missing number counts as a violation, so nothing may be missing;
3. *mean*: every missing number is set to one that speaks against the claim, and the part must still be reproduced.
   Against "at least" speaks the smaller of the smallest measured number and the mean reflected at the bound (as far on
   the wrong side as the mean is on the right one); against "at most" the larger of the largest and the reflected mean;
   a reflected fraction stays between 0 and 1.  Against "between" both are tried, and the part must hold under both.
   Of a share of seeds (every number 0 or 1) a missing one counts as 0 against "at least", as 1 against "at most";
4. *effect*: the same, but 0 is a bound too, and the effect must keep its side of it; a reflected difference of
   fractions stays between -1 and 1;
5. *effect*, pairs: every missing pair is set to a corner of what was measured: against a correlation of "at least" to
   (largest, smallest) or (smallest, largest), against "at most" to (smallest, smallest) or (largest, largest), against
   "between" to all four; it must hold under each, on the same side of 0;
6. an interval that the claim brings along is moved by as much as the mean moves; that of a share of cases or questions
   (every number 0 or 1) is Wilson's, with every missing one counted as a failure.

A part that its measured numbers would refute is refuted by the same rule the other way round, with every missing number
set to one that speaks for the claim.  *Always* is refuted by one violation, whatever is missing; and 75 % are not
needed where every missing one of a share counts as a success.
"""

import math
from collections.abc import Hashable, Sequence
from typing import cast

from hopscope.claims.claim import Rule
from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval, correlation, mean, wilson
from hopscope.claims.samples import Pair, Samples
from hopscope.claims.verdicts import Verdict, are_shares, interval_verdict, judge_bootstrap

LEAST_SHARE = 0.75
"""Share of the numbers that must be there."""

LEAST_WORDS = f"{100 * LEAST_SHARE:.0f} % are needed"


def holds_with_missing(
    samples: Samples,
    criterion: Criterion,
    rule: Rule,
    clusters: Sequence[Hashable] | None,
    interval: Interval | None,
) -> bool:
    """Whether a part is reproduced with every missing number counted against it (rule `mean` or `effect`).

    Args:
        samples: with the missing ones.
        criterion: what the part demands.
        rule: `mean` or `effect`.
        clusters: for each value, missing ones included, what it is resampled with.
        interval: that of the measured values.
    """
    if samples.censored:
        return False  # a number that is not known cannot be weighed against one that never came
    if samples.paired:
        corners = _corners(samples, criterion)
        side = correlation([value for value in samples.values if value is not None]) or 0.0
        return all(
            _reproduced(_filled(samples, corner), criterion, rule, clusters, side) for corner in corners
        )
    if samples.interval is not None and interval is not None:
        return all(
            interval_verdict(sum(moved) / 2, moved, criterion, rule == "effect")[0] is Verdict.REPRODUCED
            for moved in _moved(samples, criterion, rule, interval)
        )
    numbers = _numbers(samples)
    yes_or_no = rule == "mean" and are_shares(numbers, criterion)
    return all(
        _reproduced(_filled(samples, number), criterion, rule, clusters, mean(numbers))
        for number in (_against_share(criterion) if yes_or_no else against(numbers, criterion, rule))
    )


def fails_with_missing(
    samples: Samples,
    criterion: Criterion,
    rule: Rule,
    clusters: Sequence[Hashable] | None,
    interval: Interval | None,
) -> bool:
    """Whether a part is refuted with every missing number counted for it; arguments as of `holds_with_missing`."""
    if samples.censored:
        return False
    if samples.paired:
        found = correlation([value for value in samples.values if value is not None]) or 0.0
        rising, falling = _rising_and_falling(samples)
        corners = rising if found < criterion.bounds[0] else falling
        return all(_refuted(_filled(samples, corner), criterion, rule, clusters) for corner in corners)
    numbers = _numbers(samples)
    number = in_favour(numbers, criterion, rule)
    if samples.interval is None or interval is None:
        if rule == "mean" and are_shares(numbers, criterion):
            number = float(mean(numbers) < criterion.bounds[0])
        return _refuted(_filled(samples, number), criterion, rule, clusters)
    if is_share(samples, criterion):
        below = interval[1] < criterion.bounds[0]
        missing = len(samples.values) - len(numbers) if below else 0
        return criterion.failed_by(wilson(int(sum(numbers)) + missing, len(samples.values)))
    by = mean(cast(list[float], _filled(samples, number))) - mean(numbers)
    return criterion.failed_by((interval[0] + by, interval[1] + by))


def in_favour(values: Sequence[float], criterion: Criterion, rule: Rule) -> float:
    """Return a number as far inside a criterion's bound as the mean is outside, or the best one measured."""
    middle = mean(values)
    low, high = criterion.bounds
    if middle < low:
        return max(*values, _reflected(middle, low, criterion, rule))
    return min(*values, _reflected(middle, high, criterion, rule))


def is_share(samples: Samples, criterion: Criterion) -> bool:
    """Whether the mean of the samples is a share of cases or questions, whose interval is Wilson's."""
    whole = {*_numbers(samples)} <= {0.0, 1.0} and samples.unit in ("case", "question")
    return whole and criterion.unit == "fraction" and samples.interval is not None


def against(values: Sequence[float], criterion: Criterion, rule: Rule) -> list[float]:
    """Numbers that speak against a criterion: one for each of its bounds; an effect also has one at 0."""
    middle = mean(values)
    low, high = criterion.bounds
    if rule == "effect":
        low, high = (max(low, 0.0), high) if middle > 0 else (low, min(high, 0.0))
    found = [min(*values, _reflected(middle, low, criterion, rule))] if math.isfinite(low) else []
    if not math.isfinite(high):
        return found
    return [*found, max(*values, _reflected(middle, high, criterion, rule))]


def _against_share(criterion: Criterion) -> list[float]:
    """The answers of a seed, 0 or 1, that speak against a criterion of their share."""
    low, high = criterion.bounds
    return [0.0] * math.isfinite(low) + [1.0] * math.isfinite(high)


def _reflected(middle: float, bound: float, criterion: Criterion, rule: Rule) -> float:
    number = 2 * bound - middle
    if criterion.unit != "fraction":
        return number
    return min(max(number, -1.0 if rule == "effect" else 0.0), 1.0)


def _numbers(samples: Samples) -> list[float]:
    return [cast(float, value) for value in samples.values if value is not None]


def _filled(samples: Samples, number: float | Pair) -> list[float | Pair]:
    return [number if value is None else value for value in samples.values]


def _reproduced(
    values: list[float | Pair],
    criterion: Criterion,
    rule: Rule,
    clusters: Sequence[Hashable] | None,
    side: float,
) -> bool:
    # That there are enough seeds was settled with the measured ones.
    found = judge_bootstrap(
        cast(list[Pair], values), criterion, effect=rule == "effect", least=2, clusters=clusters
    )
    if found.verdict is not Verdict.REPRODUCED or not isinstance(found.value, float):
        return False
    return rule == "mean" or found.value * side > 0


def _refuted(
    values: list[float | Pair], criterion: Criterion, rule: Rule, clusters: Sequence[Hashable] | None
) -> bool:
    found = judge_bootstrap(
        cast(list[Pair], values), criterion, effect=rule == "effect", least=2, clusters=clusters
    )
    return found.verdict is Verdict.REFUTED


def _moved(samples: Samples, criterion: Criterion, rule: Rule, interval: Interval) -> list[Interval]:
    values, total = _numbers(samples), len(samples.values)
    if is_share(samples, criterion):
        successes, missing = int(sum(values)), total - len(values)
        low, high = wilson(successes, total), wilson(successes + missing, total)
        if criterion.between is not None:
            return [low, high]
        return [low] if criterion.at_least is not None else [high]
    moved = []
    for number in against(values, criterion, rule):
        by = mean(cast(list[float], _filled(samples, number))) - mean(values)
        moved.append((interval[0] + by, interval[1] + by))
    return moved


def _corners(samples: Samples, criterion: Criterion) -> list[Pair]:
    rising, falling = _rising_and_falling(samples)
    if criterion.between is not None:
        return falling + rising
    return falling if criterion.at_least is not None else rising


def _rising_and_falling(samples: Samples) -> tuple[list[Pair], list[Pair]]:
    """Corners of what was measured that make a correlation larger, and those that make it smaller."""
    pairs = [cast(Pair, value) for value in samples.values if value is not None]
    (least_x, least_y), (most_x, most_y) = (tuple(map(side, zip(*pairs, strict=True))) for side in (min, max))
    return [(least_x, least_y), (most_x, most_y)], [(most_x, least_y), (least_x, most_y)]
