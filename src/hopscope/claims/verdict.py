"""What came out of a claim, and the ledger of all claims of a run: `claims.json`, printed, and read back."""

import json
import re
from collections import Counter
from html import escape
from textwrap import fill, shorten
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from hopscope.claims.claim import Criterion, Interval
from hopscope.config import Config, validation_line
from hopscope.errors import UserError, printable

Outcome = Literal["reproduced", "refuted", "inconclusive", "not run"]
Leaning = Literal["agrees", "disagrees", "mixed"]

_DECIDED: dict[str, Leaning] = {"reproduced": "agrees", "refuted": "disagrees"}
_HERE: dict[Leaning, str] = {"agrees": "holds here", "disagrees": "fails here", "mixed": "open here"}


def true_by(structural: bool | str) -> str:
    """What stands in place of *reproduced*, such as `true by the theorem`; nothing where a claim is not structural."""
    return structural if isinstance(structural, str) else "true by construction" if structural else ""


class Judgement(Config):
    """A verdict with its numbers: of a part, a reading, a control, or a whole claim.

    Attributes:
        verdict: of a control, `reproduced` means that it shows what it must not.
        value, interval: mean or correlation with its 95 % interval, or part → those.
        n, n_counts: how many numbers there are, and what one is; of several parts the fewest.
        words: what was found, and what it lacks: `in 4 of 4 seeds; 10 seeds are needed`.
        leaning: where the numbers of an inconclusive verdict point.
        lacks: what an inconclusive verdict lacks.
    """

    verdict: Outcome
    value: float | dict[str, float] | None = None
    interval: Interval | dict[str, Interval | None] | None = None
    n: int = 0
    n_counts: str | dict[str, str] = "member"
    words: str = ""
    leaning: Leaning | None = None
    lacks: tuple[str, ...] = ()


class Registration(Config):
    """Whether a claim's rule is the one that was written down before training (`registered`), by their hashes.

    If it was `changed` after the run began, `under_registered` is what the registered rule gave, where it was judged.
    """

    state: Literal["none", "registered", "changed", "added"] = "none"
    hash: str | None = None
    registered: str | None = None
    under_registered: Judgement | None = None
    words: str = ""


class Verdict(Judgement):
    """A claim with what came out, whole, as `claims.json` holds it; `judge` makes it.

    Attributes:
        threshold, unit, must_not: criteria and units, or part → those.
        parts, readings, controls: name → judgement; empty where there is one part, and no readings or controls.
        values: every number: null is missing, "inf" never came; or part → those.
        here: the same judged at the scale of the run, whatever it lacks of the source's; None if not run.
        kind, completion: of the claim, and of the recipe that the run was trained by, where the claim depends on it.
        alone: the verdict under that completion, whatever others say; `joined` takes it.
    """

    id: str
    statement: str
    source: str
    protocol: str
    threshold: dict[str, Any]
    unit: str | dict[str, str]
    rule: str | dict[str, str]
    need: str
    structural: bool | str
    trust: str | list[str]
    parts: dict[str, Judgement]
    values: list[Any] | dict[str, list[Any]]
    here: Judgement | None
    readings: dict[str, Judgement]
    controls: dict[str, Judgement]
    must_not: dict[str, Any] | None
    kind: Literal["existence", "general"] | None = None
    completion: str | None
    alone: Judgement | None = None
    registration: Registration

    def to_json(self) -> dict[str, Any]:
        """The entry of `claims.json`, the claim's own words first."""
        return dict.fromkeys(("id", "statement", "source", "protocol")) | self.model_dump(mode="json")

    @property
    def here_words(self) -> str:
        """What this run shows at its own scale: `holds here in 4 of 4 seeds`."""
        if self.here is None:
            return "not run"
        way, words = pointing(self.here), re.split(r"; | \(", self.here.words)[0]
        words = words.removeprefix("holds ") if way == "agrees" else words
        words += f", {self.here.lacks[0]}" if way == "mixed" and self.here.lacks else ""
        between = " " if words.startswith("in ") else ": "
        return shorten(f"{_HERE[way]}{between}{words}", 120, placeholder=" …")

    @property
    def source_words(self) -> str:
        """What that says of the source: `inconclusive, 10 seeds are needed`."""
        if self.verdict == "reproduced" and (why := true_by(self.structural)):
            return why
        return shorten(", ".join([self.verdict, *self.lacks[:1]]), 120, placeholder=" …")

    def measured(self, part: str) -> tuple[str, str]:
        """The value of a part (`""` where there is one) with its interval, and what was asked of it."""
        own, must = self.parts.get(part, self), Criterion.of_json(of_part(self.threshold, part))
        found = must.show(own.value) if isinstance(own.value, float) else "–"
        found += f" [{must.show(*own.interval)}]" if isinstance(own.interval, tuple) else ""
        every = f", every {of_part(self.n_counts, part)}" * (of_part(self.rule, part) == "always")
        return found, f"{must}{every}"

    @property
    def reasons(self) -> list[str]:
        """What was asked, why the verdict is what it is, and what stands beside it, line by line."""
        parts = [""] if isinstance(self.unit, str) else self.threshold
        rows = [f"{part or 'value'}: {', asked '.join(self.measured(part))}" for part in parts]
        named = {"here": self.here or self, "the source": self, **self.readings}
        rows += [f"{name}: {each.verdict}: {each.words}" for name, each in named.items()]
        return rows + [f"control {name}: {each.words}" for name, each in self.controls.items()]


def pointing(judgement: Judgement) -> Leaning:
    """Where the numbers point, whatever the verdict is."""
    return _DECIDED.get(judgement.verdict, judgement.leaning or "mixed")


def of_part(value: Any, part: str) -> Any:
    """What all parts share, or a part's own."""
    return value[part] if isinstance(value, dict) and part in value else value


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 seed` or `3 seeds`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Ledger(list[Verdict]):
    """The verdicts of a run; prints as a short ledger."""

    def __getitem__(self, place: Any) -> Any:
        """The verdict of a claim's id, or at a place."""
        if not isinstance(place, str):
            return super().__getitem__(place)
        by_id = {each.id: each for each in self}
        if place not in by_id:
            raise UserError(f"claim: expected one of {', '.join(by_id) or 'none'}, found {place!r}")
        return by_id[place]

    def to_json(self) -> str:
        """The text of `claims.json`: a list with an entry for every claim."""
        entries = [each.to_json() for each in self]
        return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "claims.json") -> "Ledger":
        """Read the text of a `claims.json`; a `UserError` names it as `where`: it is not a list of claims."""
        try:
            return cls(TypeAdapter(list[Verdict]).validate_json(text))
        except ValidationError as error:
            found = f"found another content ({validation_line(error)})"
            again = "it is damaged, or another version made it; delete it and run the same command again"
            raise UserError(f"{where}: expected a list of claims, {found}: {again}") from None

    def text(self, *, long: bool = False, width: int = 100) -> str:
        """Of each claim what this run shows, what that says of the source, and the statement; `long`: and why."""
        named = dict.fromkeys(each.completion for each in self if each.completion)
        lines = [f"completion {', '.join(named)}"] if named else []
        for each in self:
            lines.append(f"{each.id:<5} {each.here_words}; the source: {each.source_words}")
            rows = (each.statement, *(each.reasons if long else ()), each.registration.words)
            lines += [f"      {row}" for row in rows if row]
        lines += ["", self.closing_line]
        return "\n".join(fill(printable(line), width, subsequent_indent=" " * 6) for line in lines)

    @property
    def closing_line(self) -> str:
        """How many claims came out how: `here: holds 3, fails 1; the source: reproduced 1, inconclusive 3`."""
        here = Counter(each.here_words.partition(" ")[0] if each.here else "not run" for each in self)
        of_source = Counter(
            (each.verdict == "reproduced" and true_by(each.structural)) or each.verdict for each in self
        )
        told = [", ".join(f"{word} {n}" for word, n in counts.items()) for counts in (here, of_source)]
        return f"here: {told[0]}; the source: {told[1]}" if self else "no claims"

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        rows = [("claim", "this run", "the source", "statement", "why")]
        for e in self:
            why = "; ".join(filter(None, [*e.reasons, e.registration.words]))
            rows.append((e.id, e.here_words, e.source_words, e.statement, why))
        cells = ["".join(f"<td>{escape(printable(text))}</td>" for text in row) for row in rows]
        return f"<table><tr>{'</tr><tr>'.join(cells)}</tr></table><p>{escape(self.closing_line)}</p>"
