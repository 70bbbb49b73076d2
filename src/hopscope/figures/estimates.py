"""Means over seeds, and how numbers are written: with an interval, with what they are over, and in percent."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.claims.intervals import Interval, bootstrap_mean, mean
from hopscope.claims.numbers import format_estimate, format_number

if TYPE_CHECKING:
    import pandas as pd

_FRACTIONS = {
    "accuracy", "attention", "fraction", "mass", "precision", "probability", "rate", "recall", "share",
}  # fmt: skip
"""Words in the names of metrics that are fractions."""

_LARGE = 10_000
"""From here on a mean over seeds is written without decimals."""


@dataclass(frozen=True)
class Estimate:
    """A mean over members.

    Attributes:
        mean: `None` if no member has a value.
        interval: 95 % bootstrap interval over seeds; `None` for fewer than two seeds.
        measured: members with a value.
        members: members that were asked for.
        seeds: different seeds among them.
        diverged: members without a value because their training diverged.
        never: members for which it was watched for and never happened (an infinite value).
    """

    mean: float | None
    interval: Interval | None
    measured: int
    members: int
    seeds: int
    diverged: int
    never: int = 0

    @property
    def count(self) -> str:
        """What the mean is over, such as `4 seeds` or `3 of 4 seeds, 1 diverged`."""
        noun = "seed" if self.seeds == self.members else "member"
        all_of = f"{self.members} {noun}{'s' * (self.members != 1)}"
        shared = f" of {self.seeds} seed{'s' * (self.seeds != 1)}" if noun == "member" else ""
        if self.measured == self.members:
            return all_of + shared
        missing = self.members - self.measured - self.diverged - self.never
        counts = {"diverged": self.diverged, "never": self.never, "not measured": missing}
        why = [f"{count} {word}" for word, count in counts.items() if count]
        return f"{self.measured} of {', '.join([all_of + shared, *why])}"

    @property
    def reason(self) -> str:
        """Why there is no mean."""
        if not self.members:
            return "no value (the run has no such member)"
        if self.diverged == self.members:
            return (
                "no value (every member diverged)" if self.members > 1 else "no value (the member diverged)"
            )
        if self.never == self.members:
            return "no value (it never happened)"
        mixed = self.diverged or self.never
        return "no value (in any of the members)" if mixed else "no value (not measured)"


def estimated(values: "pd.Series", table: "pd.DataFrame", gone: Iterable[int]) -> Estimate:
    """Return the mean of one value for each member.

    Args:
        values: index member; NaN where there is none, infinite where it never happened.
        table: as `members_of` gives it.
        gone: members that diverged.
    """
    known = {int(member): float(value) for member, value in values.items() if math.isfinite(value)}
    seeds = {int(member): int(table.loc[member, "seed"]) for member in values.index}
    return Estimate(
        mean=mean(list(known.values())) if known else None,
        interval=_interval(known, seeds),
        measured=len(known),
        members=len(values),
        seeds=len(set(seeds.values())),
        never=sum(math.isinf(value) for value in values),
        diverged=len([member for member in gone if member in seeds and member not in known]),
    )


def unit_of(metric: str, values: Iterable[float]) -> str:
    """The unit of a metric: `fraction` (in percent) if its name says so and its values allow it, else `number`."""
    spoken = set(re.findall(r"[a-z]+", metric.lower().replace("_", " ")))
    possible = all(0.0 <= value <= 1.0 for value in values if math.isfinite(value))
    return "fraction" if _FRACTIONS & spoken and possible else "number"


def interval_words(value: float, interval: Interval, unit: str) -> tuple[str, str, str]:
    """A mean and the ends of its interval; only the mean has the unit, and large numbers have no decimals."""
    if abs(value) >= _LARGE and unit != "fraction":
        low, high = (format_number(end, decimals=0) for end in interval)
        return format_number(value, unit, decimals=0), low, high
    middle, ends = format_estimate(value, interval, unit).removesuffix("]").split(" [")
    low, high = ends.split(", ")
    return middle, low, high


def _interval(known: Mapping[int, float], seeds: Mapping[int, int]) -> Interval | None:
    # A seed that occurs in several configurations draws the same data in all of them: it is resampled as one.
    return bootstrap_mean(list(known.values()), clusters=[seeds[member] for member in known])
