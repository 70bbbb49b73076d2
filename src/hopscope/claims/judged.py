"""One entry of a ledger: a claim with its verdict and everything that it rests on, as ``claims.json`` holds it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval
from hopscope.claims.verdicts import Judgement, Need, Verdict
from hopscope.config import Config

if TYPE_CHECKING:
    from hopscope.claims.claim import Must

Bound = float | Annotated[list[float], Field(min_length=1)]
Threshold = str | dict[str, Bound] | dict[str, dict[str, Bound]]
Infinite = Literal["inf", "-inf"]
JsonSample = float | Infinite | None | tuple[float | Infinite, float | Infinite]
JsonValue = float | dict[str, float | None] | None
Intervals = Interval | dict[str, Interval | None] | None


class Found(Config):
    """A verdict with its numbers: of one reading, or at the scale of the run.

    Attributes:
        verdict, value, interval, n, words: as in `JudgedClaim`.
    """

    verdict: Verdict
    value: JsonValue = None
    interval: Intervals = None
    n: int = Field(0, ge=0)
    words: str = ""

    @classmethod
    def of(cls, judged: "Judgement | JudgedClaim") -> "Found":
        """Return the verdict, numbers and words of a judgement or of a judged claim."""
        return cls(
            verdict=judged.verdict,
            value=judged.value,
            interval=judged.interval,
            n=judged.n,
            words=judged.words or "",
        )


class Control(Config):
    """A measurement of a control, where no effect should show.

    Attributes:
        value, interval, n: mean, its 95 % interval, and how many numbers; objects of them where the claim has parts.
        n_counts: what one number stands for.
        words: the numbers in a sentence.
        samples: the numbers one by one.
        shows: whether the interval wholly meets `must_not`; None if nothing was measured, or nothing is ruled out.
    """

    value: JsonValue = None
    interval: Intervals = None
    n: int = Field(0, ge=0)
    n_counts: str | dict[str, str] = "member"
    words: str = ""
    samples: list[JsonSample] | dict[str, list[JsonSample]] = Field(default_factory=list)
    shows: bool | None = None


class Registration(Config):
    """Whether a claim's rule is the one that was written down before training.

    Attributes:
        state: `none` (the run has no registration), `registered` (the rule is the registered one), `changed` (it was
            changed after the run began) or `added` (the claim was added after the run began).
        hash: of the rule that the claim was judged by.
        registered: of the rule that was registered.
        words: for reading; empty where the rule is the registered one, or there is no registration.
        under_registered: verdict under the registered rule, where the rule was changed and it had been judged before.
    """

    state: Literal["none", "registered", "changed", "added"] = "none"
    hash: str | None = None
    registered: str | None = None
    words: str = ""
    under_registered: Found | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are known; a run without registration has only the state."""
        found = self.model_dump(mode="json")
        return {key: value for key, value in found.items() if value not in (None, "")}


class JudgedClaim(Config):
    """A statement of a source, what was demanded of it, and what came out.

    Ledgers from before a key existed lack it; then it has the default.

    Attributes:
        id: short name, unique in a ledger.
        statement: what the source says, in one sentence.
        source: where it says so.
        protocol: what was run to test it.
        threshold: in words, or as a criterion's JSON, or as an object of named criteria.
        value: the measured number (accuracies are fractions), or an object of named numbers, or None.
        interval: [low, high], or an object of those; None where there is none.
        n: number of measured values; of several parts the smallest; 0 if not run.
        verdict: what the numbers say, by the rule in `hopscope.claims.verdicts`.
        trust: what a reader must trust to believe the verdict.
        unit: of value and threshold, or an object of units; None in ledgers of before.
        n_counts: what n counts (`seed`, `member`, `case`, …), or an object of that.
        words: the verdict's reason in plain words; None in ledgers of before, where the story has them.
        samples: every measured value: null is missing, "inf" and "-inf" never happened; a list, or an object of lists.
        leaning: where the numbers point if the verdict is inconclusive.
        here: the same judged at the scale of the run, whatever it lacks of the protocol's; None if not run.
        structural: whether the claim follows from the architecture or a theorem, or the words for that.
        rule, need: as in `Claim`.
        completion: of the recipe that the run was trained by, where the claim depends on that.
        readings: what each reading of an open detail gives.
        controls: what was measured where nothing should show.
        must_not: what the controls must not show: a criterion with its unit, or an object of them.
        registration: whether the rule is the one that was registered before training.
    """

    id: str = Field(min_length=1)
    statement: str
    source: str
    protocol: str
    threshold: Threshold
    value: JsonValue
    interval: Intervals
    n: int = Field(ge=0)
    verdict: Verdict
    trust: str | list[str]
    unit: str | dict[str, str] | None = None
    n_counts: str | dict[str, str] | None = None
    words: str | None = None
    samples: list[JsonSample] | dict[str, list[JsonSample]] | None = None
    leaning: Literal["agrees", "disagrees", "mixed"] | None = None
    here: Found | None = None
    structural: bool | str = False
    rule: str | dict[str, str] | None = None
    need: Need | None = None
    completion: str | None = None
    readings: dict[str, Found] = Field(default_factory=dict)
    controls: dict[str, Control] = Field(default_factory=dict)
    must_not: dict[str, Any] | None = None
    registration: Registration = Field(default_factory=Registration)

    @classmethod
    def judged(
        cls, judgement: Judgement, *, threshold: Criterion | Mapping[str, Criterion] | str, **fields: Any
    ) -> "JudgedClaim":
        """Return an entry with the numbers, the words and the verdict of a judgement.

        Args:
            judgement: verdict and numbers.
            threshold: one criterion, several named ones, or words.
            fields: the other fields of the entry.
        """
        found: dict[str, Any] = {
            "value": judgement.value,
            "interval": judgement.interval,
            "n": judgement.n,
            "verdict": judgement.verdict,
            "words": judgement.words,
            "samples": {} if isinstance(judgement.value, dict) else [],
            "threshold": threshold if isinstance(threshold, str) else threshold_json(threshold),
            "unit": None if isinstance(threshold, str) else unit_json(threshold),
        }
        return cls(**{**found, **fields})

    @model_validator(mode="after")
    def _consistent(self) -> "JudgedClaim":
        if self.verdict is Verdict.NOT_RUN and (self.value, self.interval, self.n) != (None, None, 0):
            raise ValueError(
                "a claim that was not run has no numbers: expected value null, interval null, n 0"
            )
        if self.verdict is not Verdict.NOT_RUN and self.n == 0:
            raise ValueError(f"a verdict needs seeds: expected n >= 1 for {self.verdict.value!r}, found 0")
        intervals = self.interval if isinstance(self.interval, dict) else {"": self.interval}
        names = set(self.value) if isinstance(self.value, dict) else {""}
        if self.interval is not None and not set(intervals) <= names:
            raise ValueError("intervals belong to values: expected the same shape and names in both")
        for interval in intervals.values():
            if interval is not None and interval[0] > interval[1]:
                raise ValueError(f"an interval is [low, high]: expected low <= high, found {list(interval)}")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the claim as ``claims.json`` holds it, keys in the ledger's order."""
        registration = self.registration.to_json()
        return {**self.model_dump(mode="json"), "registration": registration}


def threshold_json(must: "Must") -> Threshold:
    """Return a criterion, or several, as ``claims.json`` holds them: without units."""
    return _each(must, Criterion.as_json)


def unit_json(must: "Must") -> str | dict[str, str]:
    """Return the unit of a criterion, or those of several."""
    return _each(must, lambda criterion: criterion.unit)


def criterion_json(must: "Must") -> dict[str, Any]:
    """Return a criterion, or several, with their units."""
    return _each(must, lambda criterion: {**criterion.as_json(), "unit": criterion.unit})


def _each(must: "Must", function: Callable[[Criterion], Any]) -> Any:
    if isinstance(must, Criterion):
        return function(must)
    return {name: function(criterion) for name, criterion in must.items()}


def samples_json(values: Sequence[float | tuple[float, float] | None]) -> list[JsonSample]:
    """Samples as JSON has them: null is missing, an infinite one is a word."""
    return [
        (_number_json(value[0]), _number_json(value[1]))
        if isinstance(value, tuple)
        else None
        if value is None
        else _number_json(value)
        for value in values
    ]


def _number_json(value: float) -> float | Infinite:
    if not math.isinf(value):
        return value
    return "inf" if value > 0 else "-inf"
