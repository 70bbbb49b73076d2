"""What forms before what, counted over seeds: ties and events that never came are counted, not dropped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopscope.claims.crossings import Crossing, Order, order
from hopscope.claims.intervals import Interval, clopper_pearson


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
    """When the first of several events happened; never, if none of them came.

    Raises:
        ValueError: there is none.
    """
    if not crossings:
        raise ValueError("the earliest of several events: expected at least 1, found 0")
    return min(crossings, key=lambda crossing: math.inf if crossing.time is None else crossing.time)


def latest(crossings: Sequence[Crossing]) -> Crossing:
    """When all of several events had happened: the latest; never, if one of them never came.

    Raises:
        ValueError: there is none.
    """
    if not crossings:
        raise ValueError("the latest of several events: expected at least 1, found 0")
    never = [crossing for crossing in crossings if crossing.time is None]
    return never[0] if never else max(crossings, key=lambda crossing: crossing.time or 0.0)
