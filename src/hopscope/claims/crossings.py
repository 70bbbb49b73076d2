"""Crossings of a threshold: when a curve first crosses it, if ever, and which of two curves crosses it first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from hopscope.claims.intervals import Interval, clopper_pearson


class Order(StrEnum):
    """Which of two crossings came first."""

    BEFORE = "before"
    AFTER = "after"
    TIE = "tie"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Crossing:
    """First crossing of a threshold, or the fact that there was none.

    Attributes:
        time: linear interpolation between the two evaluations around the crossing, in the unit of the times
            given; None if the curve never crossed.
        low: last evaluation before the crossing; equal to `high` if the first evaluation was already across.
        high: first evaluation across; None if the curve never crossed.
        censored_at: last evaluation of a curve that never crossed; None for one that did.
    """

    time: float | None
    low: float | None
    high: float | None
    censored_at: float | None


@dataclass(frozen=True)
class Rise:
    """The way of a curve between two levels, as its crossings of 10 %, 50 % and 90 % of it.

    Attributes:
        start: crossing of 10 %.
        half: crossing of 50 %.
        end: crossing of 90 %.
    """

    start: Crossing
    half: Crossing
    end: Crossing

    @property
    def width(self) -> float | None:
        """Time from 10 % to 90 % by interpolation; None if 90 % was never reached."""
        if self.start.time is None or self.end.time is None:
            return None
        return self.end.time - self.start.time

    @property
    def widest(self) -> float | None:
        """Longest time from 10 % to 90 % that the evaluations allow; None if 90 % was never reached."""
        if self.start.low is None or self.end.high is None:
            return None
        return self.end.high - self.start.low

    @property
    def relative_width(self) -> float | None:
        """`width` as a fraction of the time to 50 %; None if 90 % was never reached or 50 % came at 0."""
        if self.width is None or not self.half.time:
            return None
        return self.width / self.half.time


def first_crossing(
    times: Sequence[float], values: Sequence[float], threshold: float, *, rising: bool = True
) -> Crossing:
    """Return when a curve first reaches a threshold, linear between evaluations.

    Args:
        times: times of the evaluations, strictly increasing.
        values: the curve at these times.
        threshold: the level; touching it counts as crossing.
        rising: whether the curve starts below the threshold (True) or above it (False).

    Raises:
        ValueError: there is no evaluation, lengths differ, times do not increase, or a number is not finite.
    """
    _check_curve(times, values)
    sign = 1.0 if rising else -1.0
    for place, value in enumerate(values):
        if sign * value < sign * threshold:
            continue
        if place == 0:
            return Crossing(float(times[0]), float(times[0]), float(times[0]), None)
        earlier, later = float(times[place - 1]), float(times[place])
        share = (threshold - values[place - 1]) / (value - values[place - 1])
        return Crossing(min(earlier + share * (later - earlier), later), earlier, later, None)
    return Crossing(None, None, None, float(times[-1]))


def last_crossing(
    times: Sequence[float], values: Sequence[float], threshold: float, *, rising: bool = True
) -> Crossing:
    """Return when a curve reaches a threshold for good: it does not leave it again before the last evaluation.

    Arguments and errors as of `first_crossing`.
    """
    _check_curve(times, values)
    sign = 1.0 if rising else -1.0
    outside = [place for place, value in enumerate(values) if sign * value < sign * threshold]
    start = outside[-1] if outside else 0
    return first_crossing(times[start:], values[start:], threshold, rising=rising)


def order(first: Crossing, second: Crossing) -> Order:
    """Say whether `first` came before or after `second`.

    Crossings inside one evaluation interval (or inside overlapping ones, where two curves were evaluated at
    different times) are a tie.  A censored crossing came after everything seen until it was censored;
    otherwise the order is unknown.
    """
    if first.high is None and second.high is None:
        return Order.UNKNOWN
    if second.high is None:
        return Order.BEFORE if _seen_by(first, second) else Order.UNKNOWN
    if first.high is None:
        return Order.AFTER if _seen_by(second, first) else Order.UNKNOWN
    assert first.low is not None and second.low is not None
    if (first.low, first.high) == (second.low, second.high):
        return Order.TIE
    if first.high <= second.low:
        return Order.BEFORE
    return Order.AFTER if second.high <= first.low else Order.TIE


def median(crossings: Sequence[Crossing]) -> float | None:
    """Return the time by which at least half of the curves have crossed; None if more than half are censored.

    Censored curves count as crossing later than all others, so that dropping none of them biases nothing
    while all curves were watched equally long; of an even number of curves this is the lower of the two
    middle ones.

    Raises:
        ValueError: there is no crossing.
    """
    if len(crossings) == 0:
        raise ValueError("a median needs crossings: expected at least 1, found 0")
    times = sorted(math.inf if crossing.time is None else crossing.time for crossing in crossings)
    middle = times[(len(times) - 1) // 2]
    return None if math.isinf(middle) else middle


def rise(times: Sequence[float], values: Sequence[float], *, start: float = 0.0, end: float = 1.0) -> Rise:
    """Return the first crossings of 10 %, 50 % and 90 % of the way from one level to another.

    Args:
        times: as in `first_crossing`.
        values: as in `first_crossing`.
        start: level that the curve leaves.
        end: level that it goes to; below `start` for a falling curve.

    Raises:
        ValueError: as in `first_crossing`, or `start` equals `end`.
    """
    if start == end:
        raise ValueError(f"a rise needs two levels: expected start different from end, found {start} twice")
    crossed = (
        first_crossing(times, values, start + share * (end - start), rising=end > start)
        for share in (0.1, 0.5, 0.9)
    )
    return Rise(*crossed)


@dataclass(frozen=True)
class Precedence:
    """In how many seeds one event came before another.

    Attributes:
        before, after: seeds in which it came first, and in which it came second.
        ties: seeds in which both came within one interval between evaluations.
        unknown: seeds in which neither came, or the one that came was not seen before the watch on the other ended.
    """

    before: int
    after: int
    ties: int
    unknown: int

    @property
    def known(self) -> int:
        """Seeds that say something: all but those of which the order is unknown."""
        return self.before + self.after + self.ties

    @property
    def share(self) -> float | None:
        """Share of the known seeds in which the first event came first, and not in a tie; None if none is known."""
        return self.before / self.known if self.known else None

    @property
    def interval(self) -> Interval | None:
        """Exact 95 % interval of the share (Clopper and Pearson 1934)."""
        return clopper_pearson(self.before, self.known) if self.known else None


def precedence(first: Sequence[Crossing], second: Sequence[Crossing]) -> Precedence:
    """Count in how many seeds `first` came before `second`.

    Args:
        first, second: the two events of each seed, in the same order of seeds.

    Raises:
        ValueError: different numbers of seeds.
    """
    orders = [order(one, other) for one, other in zip(first, second, strict=True)]
    return Precedence(
        before=orders.count(Order.BEFORE),
        after=orders.count(Order.AFTER),
        ties=orders.count(Order.TIE),
        unknown=orders.count(Order.UNKNOWN),
    )


def earliest(crossings: Sequence[Crossing]) -> Crossing:
    """Return the first of several crossings; a censored one if none of them happened.

    Raises:
        ValueError: there is none.
    """
    if not crossings:
        raise ValueError("the earliest of several events: expected at least 1, found 0")
    return min(crossings, key=lambda crossing: math.inf if crossing.time is None else crossing.time)


def latest(crossings: Sequence[Crossing]) -> Crossing:
    """Return the latest of several crossings; a censored one if one of them never happened.

    Raises:
        ValueError: there is none.
    """
    if not crossings:
        raise ValueError("the latest of several events: expected at least 1, found 0")
    never = [crossing for crossing in crossings if crossing.time is None]
    return never[0] if never else max(crossings, key=lambda crossing: crossing.time or 0.0)


def _seen_by(crossing: Crossing, censored: Crossing) -> bool:
    assert crossing.high is not None and censored.censored_at is not None
    return crossing.high <= censored.censored_at


def _check_curve(times: Sequence[float], values: Sequence[float]) -> None:
    if len(times) != len(values) or len(times) == 0:
        raise ValueError(
            f"a curve needs one value for each time: expected equal lengths of at least 1, "
            f"found {len(times)} times and {len(values)} values"
        )
    if not all(math.isfinite(number) for number in (*times, *values)):
        raise ValueError("a curve must be finite: expected numbers, found NaN or infinity")
    if any(later <= earlier for earlier, later in pairwise(times)):
        raise ValueError(f"times must increase: expected strictly increasing times, found {list(times)}")
