"""A claim: what a source says, what is demanded of the numbers, and how these come from the evidence."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Literal, Self, get_args

from pydantic import Field, InstanceOf, model_validator

from hopscope.config import Config
from hopscope.errors import UserError

Interval = tuple[float, float]
Rule = Literal["always", "mean", "share", "effect"]
Function = Callable[[Any], Any]
COMPLETIONS = ("gpt2-base", "gpt2-schedule", "torch-base", "torch-schedule")
"""Registered ways to complete a recipe that its source does not give whole (docs/protocols.md, Revision 3)."""
Unit = Literal["member", "seed", "case", "question", "pair", "run"]


@dataclass(frozen=True)
class Criterion:
    """Bounds on one number, included, and infinite on an open side; see `at_least`, `at_most` and `between`.

    The unit says how numbers are written: a `fraction` in percent, a `number` as it is, any other word behind them.
    """

    low: float
    high: float
    unit: str = "number"

    def __post_init__(self) -> None:
        bounds = (self.low, self.high)
        fits = all(isinstance(bound, int | float) for bound in bounds) and isinstance(self.unit, str)
        if not fits or not self.low <= self.high or not any(map(math.isfinite, bounds)):
            raise UserError(f"criterion: expected a finite bound, low <= high, and a unit, found {self!r}")

    def holds(self, *values: float) -> bool:
        """Whether all values lie within the bounds."""
        return all(self.low <= value <= self.high for value in values)

    def to_json(self) -> dict[str, Any]:
        """`at_least` or `at_most`, or both, and the unit."""
        bounds = {"at_least": self.low, "at_most": self.high}
        return {**{name: bound for name, bound in bounds.items() if math.isfinite(bound)}, "unit": self.unit}

    @classmethod
    def of_json(cls, bounds: Mapping[str, Any]) -> Self:
        """The criterion that `to_json` wrote."""
        return cls(bounds.get("at_least", -math.inf), bounds.get("at_most", math.inf), bounds["unit"])

    def show(self, *values: float) -> str:
        """Write numbers so that rounding takes none across a bound, or to 0 % or 100 %."""
        texts, fraction = [], self.unit == "fraction"
        for value in values:
            for digits in range(4, 17):
                rounded = float(f"{value:.{digits}g}")
                perfect = fraction and rounded in (0.0, 1.0) and rounded != value
                if self.holds(rounded) == self.holds(value) and not perfect:
                    break
            # Fifteen digits hide the dust of binary arithmetic, such as 100 · 0.07 = 7.000000000000001.
            text = f"{100 * rounded if fraction else rounded:,.15g}".replace("-", "−")
            unit = {"fraction": " %", "number": ""}.get(self.unit, f" {self.unit}")
            texts.append("never" if math.isinf(value) else text + unit)
        return ", ".join(texts)

    def __str__(self) -> str:
        low, high = self.show(self.low), self.show(self.high)
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{low} to {high}"
        return f"≥ {low}" if math.isfinite(self.low) else f"≤ {high}"


def at_least(bound: float, unit: str = "number") -> Criterion:
    """The criterion "at least `bound`"; see `Criterion` for units."""
    return Criterion(bound, math.inf, unit)


def at_most(bound: float, unit: str = "number") -> Criterion:
    """The criterion "at most `bound`"; see `Criterion` for units."""
    return Criterion(-math.inf, bound, unit)


def between(low: float, high: float, unit: str = "number") -> Criterion:
    """The criterion "from `low` to `high`"; see `Criterion` for units."""
    return Criterion(low, high, unit)


def as_large_as(least: Mapping[str, float]) -> Function:
    """An `at_scale`, for claims of a study at one size: of which numbers of `model` and `training` a run has less."""
    return partial(_less, dict(least))


def _less(least: Mapping[str, float], evidence: Any) -> str:
    words = list[str]()
    for name, bound in least.items():
        section, field = name.split(".")
        if (own := evidence.config["identity"][section][field]) < bound:
            words.append(f"{field.replace('_', ' ')} {own:,g}, not {bound:,g}")
    return ", ".join(words)


@dataclass(frozen=True, eq=False)
class Samples:
    """Numbers with what they stand for, as a claim's `value` may return them; `UserError`: they do not fit each other.

    Attributes:
        values: a number for each thing that was measured, or a pair of numbers for a correlation; kept as an array.
            `None` and NaN are missing: they should be there.  ±inf is censored: it was watched for and never came.
        unit: what one number stands for; `case` means that these are all cases there are (`always`: no interval).
        cluster: for each value, a name of what is resampled together; those of one seed always are.
        error: rule `always`: how far a value may lie from the truth, for all values or for each.
        interval: 95 % interval of the mean, where the claim knows a better one than the bootstrap (Wilson, …).
        ranks: of pairs, whether it is their ranks that are correlated (Spearman).
        note: words that follow those of the verdict; without any value, why there is none.
        missing: what this part lacks of the protocol's scale, such as `1 of 20 epochs`.
        members: the members that the values are of; filled in for a series.
        excluded: why the claim is not about this part, which then decides nothing as long as another part is left.
    """

    values: Any
    unit: Unit = "member"
    cluster: Sequence[Hashable] | None = None
    _: KW_ONLY
    error: float | Sequence[float] = 0.0
    interval: Interval | None = None
    ranks: bool = False
    note: str = ""
    missing: str = ""
    members: Sequence[int] | None = None
    excluded: str = ""

    def __post_init__(self) -> None:
        if self.members is None and self.unit == "member" and is_series(self.values):
            object.__setattr__(self, "members", self.values.index.tolist())
        object.__setattr__(self, "values", _numbers(self.values))
        for name in ("cluster", "interval", "members"):
            if hasattr(found := getattr(self, name), "tolist"):
                object.__setattr__(self, name, tuple(found.tolist()))
        for name in ("cluster", "error", "members"):
            n, found = len(self.values), getattr(self, name)
            if hasattr(found, "__len__") and len(found) != n:
                one = name.removesuffix("s")
                raise UserError(f"samples: expected one {one} for each of {n} values, found {len(found)}")
        errors: Any = self.error if hasattr(self.error, "__len__") else [self.error] * len(self.values)
        for error, value in zip(errors, self.values.tolist(), strict=True):
            if not error >= 0.0 and value == value:  # of a missing number it may be missing, too
                raise UserError(f"samples: expected errors from 0 up, found {error}")
        low, high = self.interval or (0.0, 0.0)
        if self.unit not in get_args(Unit) or not -math.inf < low <= high < math.inf:
            expected = f"a unit of {', '.join(get_args(Unit))}, and an interval (low, high)"
            raise UserError(f"samples: expected {expected}, found {self.unit!r} and {self.interval}")


def is_series(values: object) -> bool:
    """Whether a value is a pandas series or table; pandas is not imported for this."""
    return hasattr(values, "index") and hasattr(values, "to_numpy")


def _numbers(values: Any) -> Any:
    import numpy as np  # a list of studies does not wait for it

    try:
        rows = [*(values.to_numpy(na_value=math.nan) if is_series(values) else values)]
        other: Any = (str, bytes, Mapping, complex, np.complexfloating)
        if any(isinstance(each, other) for each in (values, *rows)):
            raise TypeError
        nothing = (math.nan, math.nan) if any(np.ndim(row) for row in rows if row is not None) else math.nan
        found = np.array([nothing if row is None else row for row in rows], np.float64)
        if found.ndim > 2 or (found.ndim == 2 and found.shape[1] != 2):
            raise ValueError
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of a tensor that wants gradients
        raise UserError(f"expected numbers, or pairs of numbers, found {shown(values)}") from None
    return found


def shown(value: object) -> str:
    """Type and value in one short line, for errors."""
    words = value if isinstance(value, str) else f"{type(value).__name__} {value!r}"
    return words.replace("\n", " ")[:80]


def _one_of(must: Any) -> Any:
    """A criterion, or the one that all parts have; `None` where they differ."""
    criteria = [*must.values()] if isinstance(must, dict) else [must]
    return criteria[0] if criteria and criteria.count(criteria[0]) == len(criteria) else None


class Claim(Config):
    """A statement of a source, and the rule by which numbers decide it; `judge` applies it to a run (docs/claims.md).

    Attributes:
        id, statement, source, protocol: a short name; what the source says; where; what is measured to test it.
        value: function of the evidence that gives a series over members, a number for each member, `Samples`, or a
            mapping from the parts of `must` to these.
        must, need: a criterion, or part → criterion; of parts all must hold, or any, or they must agree.
        rule: `always` (every value), `mean` (95 % interval of the mean), `share` (exact interval of the share of ones
            among values of 0 and 1), `effect` (of a difference or of the correlation of pairs, which must also exclude
            0); or part → rule.
        source_n, seeds_needed: models of the source, and seeds that a verdict needs; `always` needs as many as both.
        at_scale, untried: functions of the evidence that say what the run lacks of the protocol (it then decides
            nothing), and by which readings no model was trained (nothing is then refuted), or give `""`.
        readings: ways to read what the source leaves open, the default first: name → value function, or a function of
            the evidence that gives that.  With `readings_agree` all must give one verdict.
        kind: `existence` is said of a source's own models, `general` of all, under every completion of a recipe.
        controls, must_not: name → value function of what should show nothing, and the criterion it must not meet: by
            default that of all parts, if they have one; with `None` it is only shown.
        structural: whether the claim follows from the architecture or a theorem, or the words for that.
        trust: what a reader must trust to believe the verdict.
        summary: function of the parts' judgements, by name, whose sentence stands in place of all their words.
    """

    id: str = Field(min_length=1)
    statement: str
    source: str
    protocol: str
    value: Function | None = None
    must: InstanceOf[Criterion] | dict[str, InstanceOf[Criterion]]
    need: Literal["all", "any", "agreement"] = "all"
    rule: Rule | dict[str, Rule] = "always"
    source_n: int = Field(1, ge=1, strict=True)
    seeds_needed: int = Field(10, ge=2, strict=True)
    at_scale: Function | None = None
    readings: Function | dict[str, Function] | None = None
    readings_agree: bool = False
    untried: Function | None = None
    kind: Literal["existence", "general"] | None = None
    controls: dict[str, Function] = {}
    must_not: InstanceOf[Criterion] | dict[str, InstanceOf[Criterion]] | None = Field(
        default_factory=lambda given: _one_of(given.get("must")) if given.get("controls") else None
    )
    structural: bool | str = False
    trust: str | list[str] = ""
    summary: Function | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not (self.value or self.readings) or not self.parts or {*self.parts} != {*self.by_part(self.rule)}:
            wanted = "a criterion, a function and a rule for each part of `must`"
            raise ValueError(f"must, value, rule: expected {wanted}")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts; a claim without parts has one, whose name is empty."""
        return ("",) if isinstance(self.must, Criterion) else tuple(self.must)

    def by_part(self, field: Any) -> dict[str, Any]:
        """Part → what a field says of it; what is said of no part is said of all."""
        return dict(field) if isinstance(field, Mapping) else dict.fromkeys(self.parts, field)
