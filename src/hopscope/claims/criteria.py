"""Thresholds as values: what a claim demands of one number, in JSON and in words."""

import math
from typing import Any

from pydantic import Field, ValidationError, model_validator

from hopscope.config import Config, validation_line
from hopscope.errors import UserError

Unit = str
"""`fraction` (printed in percent), `number` (as it is), or any word behind the number, such as `nats` or `steps`."""

_AS_GOOD_AS_ZERO = 1e-6
"""Bounds below this are shown as 0."""


class Criterion(Config):
    """A bound on one number, given by exactly one of `at_least`, `at_most`, `between`; bounds are included.

    Attributes:
        at_least: smallest value that meets the criterion.
        at_most: largest value that meets it.
        between: smallest and largest value that meet it.
        unit: how numbers are written: a `fraction` in percent, a `number` as it is, any other word behind the number.
    """

    at_least: float | None = None
    at_most: float | None = None
    between: tuple[float, float] | None = None
    unit: Unit = Field("number", min_length=1)

    @model_validator(mode="after")
    def _one_bound(self) -> "Criterion":
        given = [name for name in ("at_least", "at_most", "between") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a criterion has one bound: expected one of at_least, at_most, between, found {given}"
            )
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"between is empty: expected low <= high, found {list(self.between)}")
        return self

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value that meet the criterion; infinite on an open side."""
        if self.between is not None:
            return self.between
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return low, high

    def as_json(self) -> dict[str, float | list[float]]:
        """Return ``{"at_least": 0.999}``, ``{"at_most": 0.01}`` or ``{"between": [0.1, 0.9]}``."""
        if self.between is not None:
            return {"between": list(self.between)}
        if self.at_least is not None:
            return {"at_least": self.at_least}
        return {"at_most": self.bounds[1]}

    def words(self) -> str:
        """Return the criterion for reading, such as ``≥ 99.9 %``, ``10 % to 90 %`` or ``≤ 0.7``."""
        if self.between is not None:
            low, high = (self._number(bound) for bound in self.between)
            suffix = "" if self.unit in ("fraction", "number") else f" {self.unit}"
            return f"{low.removesuffix(suffix)} to {high}"
        if self.at_least is not None:
            # A bound as small as this is there to keep 0 out.
            above = 0.0 < self.at_least < _AS_GOOD_AS_ZERO
            return f"> {self._number(0.0)}" if above else f"≥ {self._number(self.at_least)}"
        return f"≤ {self._number(self.bounds[1])}"

    def holds(self, value: float) -> bool:
        """Whether a finite value meets the criterion.

        Raises:
            ValueError: the value is NaN or infinite.
        """
        if not math.isfinite(value):
            raise ValueError(f"a measured value must be finite: expected a number, found {value}")
        return self.distance(value) == 0.0

    def distance(self, value: float) -> float:
        """Return how far a value lies outside the bounds; one that never happened is infinite, and so may this be."""
        low, high = self.bounds
        if low <= value <= high:
            return 0.0
        return max(low - value, value - high)

    def met_by(self, interval: tuple[float, float]) -> bool:
        """Whether the whole interval [low, high] meets the criterion."""
        return self.holds(interval[0]) and self.holds(interval[1])

    def failed_by(self, interval: tuple[float, float]) -> bool:
        """Whether no point of the interval [low, high] meets the criterion."""
        low, high = self.bounds
        return interval[1] < low or interval[0] > high

    def show(self, value: float) -> str:
        """Write a measured number in the criterion's unit, with enough digits that rounding misleads nobody.

        The number as printed stands on the same side of the bounds as the number itself, and a fraction that
        is not exactly 0 or 1 is never printed as 0 % or 100 %.
        """
        for digits in range(4, 17):
            rounded = float(f"{value:.{digits}g}")
            perfect = self.unit == "fraction" and rounded in (0.0, 1.0) and rounded != value
            if self.holds(rounded) == self.holds(value) and not perfect:
                return self._number(rounded)
        return self._number(value)

    def _number(self, value: float) -> str:
        if self.unit == "fraction":
            return f"{_trim(100 * value)} %"
        return _trim(value) if self.unit == "number" else f"{_trim(value)} {self.unit}"


def _trim(value: float) -> str:
    """Fifteen digits hide the dust of binary arithmetic, such as 100 · 0.07 = 7.000000000000001."""
    return f"{value:.15g}".replace("-", "−")


def at_least(bound: float, unit: Unit = "number") -> Criterion:
    """Return the criterion "at least `bound`"; see `Criterion` for units."""
    return _criterion(at_least=bound, unit=unit)


def at_most(bound: float, unit: Unit = "number") -> Criterion:
    """Return the criterion "at most `bound`"; see `Criterion` for units."""
    return _criterion(at_most=bound, unit=unit)


def between(low: float, high: float, unit: Unit = "number") -> Criterion:
    """Return the criterion "from `low` to `high`", bounds included; see `Criterion` for units."""
    return _criterion(between=(low, high), unit=unit)


def _criterion(**fields: Any) -> Criterion:
    try:
        return Criterion(**fields)
    except ValidationError as error:
        raise UserError(f"criterion: {validation_line(error)}") from None
