"""One entry of the ledger, how a ledger is read from ``claims.json``, and how it is printed."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field, ValidationError, model_validator

from hopscope.claims.criteria import Criterion
from hopscope.claims.intervals import Interval
from hopscope.claims.verdicts import Judgement, Verdict
from hopscope.config import Config
from hopscope.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

Bound = float | list[float]
Threshold = str | dict[str, Bound] | dict[str, dict[str, Bound]]

_COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.REFUTED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_SIGNS = {"at_least": "≥", "at_most": "≤", "between": ""}


class Claim(Config):
    """A statement of a source, what was demanded of it, and what came out.

    Attributes:
        id: short name, unique in a ledger.
        statement: what the source says, in one sentence.
        source: where it says so.
        protocol: what was run to test it.
        threshold: in words, or as a criterion's JSON, or as an object of named criteria.
        value: the measured number (accuracies are fractions), or an object of named numbers, or None.
        interval: [low, high], or an object of those; None where there is none.
        n: number of seeds; 0 if not run.
        verdict: what the numbers say, by the rule in `hopscope.claims.verdicts`.
        trust: what a reader must trust to believe the verdict.
    """

    id: str = Field(min_length=1)
    statement: str
    source: str
    protocol: str
    threshold: Threshold
    value: float | dict[str, float | None] | None
    interval: Interval | dict[str, Interval | None] | None
    n: int = Field(ge=0)
    verdict: Verdict
    trust: str | list[str]

    @classmethod
    def judged(
        cls,
        judgement: Judgement,
        *,
        id: str,
        statement: str,
        source: str,
        protocol: str,
        threshold: Criterion | Mapping[str, Criterion] | str,
        trust: str | list[str],
    ) -> "Claim":
        """Return the claim with the numbers and the verdict of a judgement."""
        written: Threshold
        if isinstance(threshold, Criterion):
            written = threshold.as_json()
        elif isinstance(threshold, str):
            written = threshold
        else:
            written = {name: criterion.as_json() for name, criterion in threshold.items()}
        value = judgement.value
        return cls(
            id=id,
            statement=statement,
            source=source,
            protocol=protocol,
            threshold=written,
            value=dict(value) if isinstance(value, dict) else value,
            interval=judgement.interval,
            n=judgement.n,
            verdict=judgement.verdict,
            trust=trust,
        )

    @model_validator(mode="after")
    def _consistent(self) -> "Claim":
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
        return self.model_dump(mode="json")


def read_ledger(path: Path) -> list[Claim]:
    """Read every claim of a ``claims.json``.

    Raises:
        UserError: the file is missing, is no JSON, or does not hold a list of claims with different ids.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise UserError(
            f"{path}: no claims to read: expected a readable file, found {error.strerror}; "
            "run the study first, or name its run folder"
        ) from None
    except ValueError as error:
        raise UserError(f"{path}: not a ledger: expected JSON, found {error}; {_REDO}") from None
    return parse_ledger(data, str(path))


def parse_ledger(data: object, where: str = "claims.json") -> list[Claim]:
    """Check and return the claims of decoded JSON.

    Args:
        data: what ``claims.json`` holds.
        where: name of the file in errors.

    Raises:
        UserError: it is not a list of claims with different ids.
    """
    if not isinstance(data, list):
        raise UserError(f"{where}: not a ledger: expected a list of claims, found {_kind(data)}; {_REDO}")
    claims: list[Claim] = []
    for place, entry in enumerate(data):
        try:
            claim = Claim.model_validate(entry)
        except ValidationError as error:
            raise UserError(
                f"{where}: claim {_name(entry, place)} is damaged: {_reason(error)}; {_REDO}"
            ) from None
        if any(claim.id == other.id for other in claims):
            raise UserError(f"{where}: ids repeat: expected each id once, found {claim.id!r} twice; {_REDO}")
        claims.append(claim)
    return claims


def ledger_table(claims: Sequence[Claim], words: Mapping[str, str]) -> "Table":
    """Return the ledger as a table for the terminal.

    Args:
        claims: the rows.
        words: for each claim id, what its numbers say in one sentence; missing ones stay empty.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Claims", title_justify="left")
    for column in ("id", "statement", "threshold", "value [95 % interval]", "n", "verdict", "in words"):
        table.add_column(column, justify="right" if column == "n" else "left", overflow="fold")
    for claim in claims:
        cells = (
            claim.id,
            claim.statement,
            _threshold_words(claim.threshold),
            _value_words(claim),
            str(claim.n),
        )
        verdict = Text(claim.verdict.value, style=_COLOURS[claim.verdict])
        # Text, not strings: an interval's brackets would be read as markup.
        table.add_row(*(Text(cell) for cell in cells), verdict, Text(words.get(claim.id, "")))
    return table


_REDO = "delete the file and run the same command again"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}, which JSON does not have")


def _kind(data: object) -> str:
    return {dict: "an object", str: "a string", type(None): "null"}.get(type(data), "a number or truth value")


def _name(entry: object, place: int) -> str:
    name = entry.get("id") if isinstance(entry, dict) else None
    return repr(name) if isinstance(name, str) and name else f"number {place + 1}"


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = f"{first['loc'][0]}: " if first["loc"] else ""
    found = f", found {first['input']!r:.60}" if first["loc"] and first["type"] != "missing" else ""
    return f"{field}{first['msg'].removeprefix('Value error, ')}{found}".replace("\n", " ")


def _threshold_words(threshold: Threshold) -> str:
    if isinstance(threshold, str):
        return threshold
    lines = []
    for name, bound in threshold.items():
        if isinstance(bound, dict):
            lines.append(f"{name} {', '.join(_bound_words(*each) for each in bound.items())}")
        else:
            lines.append(_bound_words(name, bound))
    return "\n".join(lines)


def _bound_words(name: str, bound: Bound) -> str:
    number = " to ".join(f"{each:g}" for each in bound) if isinstance(bound, list) else f"{bound:g}"
    return f"{_SIGNS.get(name, name)} {number}".strip()


def _value_words(claim: Claim) -> str:
    if not isinstance(claim.value, dict):
        interval = None if isinstance(claim.interval, dict) else claim.interval
        return _estimate(claim.value, interval)
    intervals = claim.interval if isinstance(claim.interval, dict) else {}
    return "\n".join(f"{name} {_estimate(value, intervals.get(name))}" for name, value in claim.value.items())


def _estimate(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return "–"
    return (
        _number(value)
        if interval is None
        else f"{_number(value)} [{_number(interval[0])}, {_number(interval[1])}]"
    )


def _number(value: float) -> str:
    """Write four decimals, or more where a number would be rounded to a 0 or 1 that it is not."""
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    for decimals in range(4, 13):
        text = f"{value:.{decimals}f}"
        if float(text) == value or float(text) not in (-1.0, 0.0, 1.0):
            return text
    return repr(value)
