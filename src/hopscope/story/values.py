"""Values that a page's template works with: texts that know their numbers, and plain facts for conditions."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from hopscope.claims.intervals import mean

if TYPE_CHECKING:
    from hopscope.claims import JudgedClaim

_SPECIAL = re.compile(r"([*_`\[\]<>])")

_POINTS = {
    "agrees": ("agrees", "agree"),
    "disagrees": ("disagrees", "disagree"),
    "mixed": ("is mixed", "are mixed"),
}
"""Where an undecided claim points, and how it is said of one and of several."""


@dataclass(frozen=True)
class Said:
    """A number as a sentence says it; a condition may compare it, or ask for its parts.

    Attributes:
        text: what is printed.
        mean: the number; NaN if there is none, so that no comparison holds.
        low, high: ends of its 95 % interval; NaN if there is none.
        n: members that it is over.
    """

    text: str
    mean: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: float) -> bool:
        return self.mean < other

    def __le__(self, other: float) -> bool:
        return self.mean <= other

    def __gt__(self, other: float) -> bool:
        return self.mean > other

    def __ge__(self, other: float) -> bool:
        return self.mean >= other


class Numbers(tuple[float, ...]):
    """Values of the members that have one, for conditions.

    Attributes:
        missing: members that have none.
    """

    missing: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """The numbers among some values, those that are missing counted."""
        every = list(values)
        numbers = cls(value for value in every if not math.isnan(value))
        numbers.missing = len(every) - len(numbers)
        return numbers

    @property
    def n(self) -> int:
        """How many numbers there are."""
        return len(self)

    @property
    def mean(self) -> float:
        """The mean of the numbers; NaN if there are none, so that no comparison holds."""
        return mean(self) if all(map(math.isfinite, self)) and self else math.nan

    @property
    def lowest(self) -> float:
        """The lowest; NaN if there are none."""
        return min(self, default=math.nan)

    @property
    def highest(self) -> float:
        """The highest; NaN if there are none."""
        return max(self, default=math.nan)


@dataclass(frozen=True)
class Learned:
    """The number of members that ended below a bound.

    Attributes:
        count: those that did.
        of: those that were asked for.
        known: whether there is a bound: a task without floors has none unless the template names one.
        text: `5 of 6`, with the number's origin.
    """

    count: int
    of: int
    known: bool
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def all(self) -> bool:
        """Whether every member ended below the bound."""
        return self.known and 0 < self.of == self.count

    @property
    def none(self) -> bool:
        """Whether no member ended below the bound."""
        return self.known and self.count == 0


@dataclass(frozen=True)
class RowFacts:
    """A row of the evidence.

    Attributes:
        text: its number, as it is printed.
        value: its number.
        member: whose it is.
        layer, head: where in the model; `None` for the whole.
        part: of what; empty for the whole.
        step: training steps.
    """

    text: str
    value: float
    member: int
    layer: int | None = None
    head: int | None = None
    part: str = ""
    step: int = 0

    def __str__(self) -> str:
        return self.text

    @property
    def place(self) -> str:
        """The head as `layer.head`, both counted from 0."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class MemberFacts:
    """A member: its number in the run, its seed, its configuration, and what the study calls it, if it has a name."""

    member: int
    seed: int
    configuration: str
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.configuration}, seed {self.seed}"


@dataclass(frozen=True)
class ConfigurationFacts:
    """A configuration.

    Attributes:
        label: what it is called.
        members, seeds: of its members.
        values: of the fields in which configurations differ.
        diverged: those of its members that diverged.
    """

    label: str
    members: tuple[int, ...]
    seeds: tuple[int, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    diverged: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class ClaimFacts:
    """A judged claim.

    Attributes:
        id, statement, source, words: texts.
        verdict: `reproduced`, `refuted`, `inconclusive` or `not run`.
        leaning: `agrees`, `disagrees` or `mixed` where the verdict is inconclusive, else `None`.
        here: the verdict at the scale of the run, `None` if the claim was not run.
        n, value, interval: what it was judged by.
        registration: what is to be said if the rule was changed after the run began, else empty.
    """

    id: str
    statement: str
    source: str
    words: str
    verdict: str
    leaning: str | None
    here: str | None
    n: int
    value: Any
    interval: Any
    registration: str

    @classmethod
    def of(cls, claim: "JudgedClaim") -> Self:
        """Return the facts about a claim that a template may use."""
        return cls(
            id=claim.id,
            statement=_as_text(claim.statement),
            source=claim.source,
            words=_as_text(claim.words or ""),
            verdict=str(claim.verdict.value),
            leaning=claim.leaning,
            here=None if claim.here is None else str(claim.here.verdict.value),
            n=claim.n,
            value=claim.value,
            interval=claim.interval,
            registration=_as_text(claim.registration.words),
        )


def _as_text(words: str) -> str:
    """Words that Markdown reads as they stand."""
    return _SPECIAL.sub(r"\\\1", words)


_ONE = {
    "reproduced": "This run reproduces its one claim.",
    "refuted": "This run refutes its one claim.",
    "inconclusive": "This run leaves its one claim inconclusive{}.",
    "not run": "This run does not judge its one claim.",
}


def claims_sentence(claims: Iterable[ClaimFacts]) -> str:
    """One sentence: how many claims came out how, and where those that are undecided point."""
    every = list(claims)
    of = Counter(claim.verdict for claim in every)
    points = Counter(claim.leaning for claim in every if claim.verdict == "inconclusive")
    so_far = _and(
        f"{points[each]} {words[points[each] > 1]}" for each, words in _POINTS.items() if points[each]
    )
    parts = [
        f"reproduces {of['reproduced']}" * (of["reproduced"] > 0),
        f"refutes {of['refuted']}" * (of["refuted"] > 0),
        f"leaves {of['inconclusive']} inconclusive{f' ({so_far} so far)' * bool(so_far)}"
        * (of["inconclusive"] > 0),
        f"does not judge {of['not run']}" * (of["not run"] > 0),
    ]
    if not every:
        return "The study makes no claims."
    if len(every) == 1:
        return _ONE[every[0].verdict].format(f" ({so_far.removeprefix('1 ')} so far)" if so_far else "")
    return f"Of {len(every)} claims, this run {_and(filter(None, parts))}."


def _and(parts: Iterable[str]) -> str:
    """The parts as a list in words; empty where there are none."""
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last
