"""Samples of a claim: one number for each member, seed, case or question, missing ones included."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

from hopscope.claims.intervals import Interval
from hopscope.errors import UserError

UNITS = ("member", "seed", "case", "question", "pair", "run")
"""What one number can stand for."""

Pair = tuple[float, float]
Sample = float | Pair | None


class MembersOfARun(Protocol):
    """The part of an evidence table that judging needs: members and their seeds."""

    @property
    def members(self) -> Sequence[int]:
        """Run-global numbers of the members."""
        ...

    @property
    def seeds(self) -> Mapping[int, int]:
        """Each member's seed, by the member's number."""
        ...


@dataclass(frozen=True)
class Samples:
    """Numbers with what they stand for, as a claim's `value` may return them.

    Attributes:
        values: one number for each thing that was measured, or one pair of numbers for a correlation.  `None` or NaN
            is missing: it should be there and is not.  ±inf is censored: it was watched for and never happened.
        unit: what one number stands for (`UNITS`).  A series of the unit `member` is one over members, and those of one
            seed are resampled together.  `case` means that these are all cases there are: no interval.
        cluster: for each value, a name of what is resampled together; by default each value stands alone.
        error: rule `always`: how far a value may lie from the truth, for all values or for each.
        interval: 95 % interval of the mean, where the claim knows a better one than the bootstrap (Wilson, …).
        note: words that follow those of the verdict; without any value, why there is none.
        missing: what this part lacks of the protocol's scale, such as `1 of 20 epochs`; empty if nothing.
        members: the members that the values are of, where they are known; filled in.
        excluded: why the claim is not about what was measured here, such as `below the task`; empty if it is.  The part
            is shown and decides nothing, as long as another part is left.

    Raises:
        UserError: a value is no number, or lengths differ.
    """

    values: Any
    unit: str = "member"
    cluster: Sequence[Hashable] | None = None
    _: KW_ONLY
    error: float | Sequence[float] | None = None
    interval: Interval | None = None
    note: str = ""
    missing: str = ""
    members: tuple[int, ...] | None = None
    excluded: str = ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UserError(f"samples: expected a unit of {', '.join(UNITS)}, found {self.unit!r}")
        if self.members is None and self.unit == "member" and is_series(self.values):
            object.__setattr__(self, "members", tuple(self.values.index))
        object.__setattr__(self, "values", read_values(self.values))
        n = len(self.values)
        if self.cluster is not None:
            object.__setattr__(self, "cluster", tuple(self.cluster))
            _check_length("cluster", len(self.cluster), n)
        if self.error is not None:
            self._check_error(n)
        if self.interval is not None:
            low, high = self.interval
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise UserError(
                    f"samples: expected an interval (low, high) of numbers, found {self.interval!r}"
                )
            object.__setattr__(self, "interval", (float(low), float(high)))

    def _check_error(self, n: int) -> None:
        if isinstance(self.error, int | float):
            errors = (float(self.error),) * n
        else:
            assert self.error is not None
            errors = tuple(map(float, self.error))
            _check_length("error", len(errors), n)
        measured = (error for error, value in zip(errors, self.values, strict=True) if value is not None)
        if not all(error >= 0 for error in measured):
            raise UserError(f"samples: expected evaluation errors of 0 or more, found {list(errors)}")
        object.__setattr__(self, "error", errors)

    @property
    def paired(self) -> bool:
        """Whether the values are pairs of numbers."""
        return any(isinstance(value, tuple) for value in self.values)

    @property
    def censored(self) -> int:
        """The number of censored values; a pair with a censored number counts as one."""
        pairs = [
            value if isinstance(value, tuple) else (value,) for value in self.values if value is not None
        ]
        return sum(any(map(math.isinf, pair)) for pair in pairs)


def is_series(values: object) -> bool:
    """Whether a value is a pandas series or table; pandas is not imported for this."""
    return hasattr(values, "index") and hasattr(values, "to_numpy")


def read_values(values: Any) -> tuple[Sample, ...]:
    """Return the values as plain numbers, pairs of them, or `None` where one is missing.

    Raises:
        UserError: one is no number, or some are pairs and some are not.
    """
    rows = values.to_numpy() if is_series(values) else values
    if (
        isinstance(rows, str | bytes | Mapping)
        or not hasattr(rows, "__len__")
        or not hasattr(rows, "__iter__")
    ):
        raise UserError(f"expected numbers, one for each thing that was measured, found {_shown(values)}")
    found = [_sample(row) for row in rows]
    pairs = {isinstance(each, tuple) for each in found if each is not None}
    if len(pairs) > 1:
        raise UserError("expected numbers or pairs of numbers, found both")
    return tuple(found)


def _sample(row: Any) -> Sample:
    if isinstance(row, str | bytes) or getattr(row, "shape", None) == () or not hasattr(row, "__len__"):
        return _number(row)
    if len(row) != 2:
        raise UserError(f"expected a number, or a pair of them, found {_shown(row)}")
    first, second = (_number(each) for each in row)
    return None if first is None or second is None else (first, second)


def _number(value: Any) -> float | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str | bytes):
        raise UserError(f"expected a number, found {_shown(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"expected a number, found {_shown(value)}") from None
    return None if math.isnan(number) else number


def _check_length(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise UserError(f"samples: expected one {name} for each of {expected} values, found {found}")


def _shown(value: object) -> str:
    return f"{type(value).__name__} {value!r}".replace("\n", " ")[:80]
