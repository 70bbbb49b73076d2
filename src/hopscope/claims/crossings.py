"""When a curve first crosses a level, if ever, and which of two events came first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Order = Literal["before", "after", "tie", "unknown"]


@dataclass(frozen=True)
class Crossing:
    """When a curve crossed a level, or the fact that it did not.

    Attributes:
        time: linear interpolation between the two evaluations around the crossing, in the unit of the times given;
            None if the curve never crossed.
        low: last evaluation before the crossing; equal to `high` if the first evaluation was already across.
        high: first evaluation across; None if the curve never crossed.
        censored_at: last evaluation of a curve that never crossed; None for one that did.
    """

    time: float | None
    low: float | None
    high: float | None
    censored_at: float | None


def first_crossing(
    times: Sequence[float], values: Sequence[float], level: float, *, rising: bool = True
) -> Crossing:
    """Return when a curve first reaches a level, linear between evaluations; touching it counts.

    It starts below the level, or, unless it is `rising`, above it.  `ValueError`: there is no evaluation, lengths
    differ, times do not increase strictly, or a number is not finite.
    """
    increasing = len(times) > 0 and all(earlier < later for earlier, later in pairwise(times))
    if not increasing or len(times) != len(values) or not all(map(math.isfinite, (level, *times, *values))):
        found = f"found times {list(times)} and values {list(values)}; leave out what was not measured"
        raise ValueError(f"curve: expected one finite value for each of some increasing times, {found}")
    sign = 1.0 if rising else -1.0
    place = next((at for at, value in enumerate(values) if sign * value >= sign * level), None)
    if place is None:
        return Crossing(None, None, None, float(times[-1]))
    later = float(times[place])
    if place == 0:
        return Crossing(later, later, later, None)
    earlier, before, after = float(times[place - 1]), values[place - 1], values[place]
    time = earlier + (level - before) / (after - before) * (later - earlier)
    return Crossing(min(time, later), earlier, later, None)


def last_crossing(
    times: Sequence[float], values: Sequence[float], level: float, *, rising: bool = True
) -> Crossing:
    """Return when a curve reaches a level for good, until the last evaluation; see `first_crossing`."""
    first_crossing(times, values, level)  # refuses what is no curve
    sign = 1.0 if rising else -1.0
    start = max((at for at, value in enumerate(values) if sign * value < sign * level), default=0)
    return first_crossing(times[start:], values[start:], level, rising=rising)


def order(first: Crossing, second: Crossing) -> Order:
    """Say whether `first` came before or after `second`.

    Crossings inside one evaluation interval, or inside overlapping ones, are a tie.  A censored crossing came after
    everything seen until it was censored; otherwise the order is unknown.
    """
    if first.high is None or first.low is None:
        seen = second.high is not None and first.censored_at is not None and second.high <= first.censored_at
        return "after" if seen else "unknown"
    if second.high is None or second.low is None:
        return "before" if order(second, first) == "after" else "unknown"
    if (first.low, first.high) == (second.low, second.high):
        return "tie"
    if first.high <= second.low:
        return "before"
    return "after" if second.high <= first.low else "tie"


def earliest(crossings: Sequence[Crossing]) -> Crossing:
    """Return the first of several crossings; a censored one where none of them happened, or it may have come before."""
    return min(crossings, key=lambda each: (each.time or each.censored_at or 0.0, each.time is None))
