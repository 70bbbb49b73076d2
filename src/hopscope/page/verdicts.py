"""A verdict written out for the page: first what this run shows, then what that says of the source."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from hopscope.claims.claim import Criterion
from hopscope.claims.verdict import Judgement, Verdict, of_part, pointing

SIGNS = {"good": "✓", "bad": "✕", "open": "?", "none": "–"}
"""A sign for each state, so that none is told by colour alone."""

_STATES = {"agrees": "good", "disagrees": "bad", "mixed": "open", None: "none"}
_TALLY = {"good": "holds here", "bad": "fails here", "open": "open here", "none": "not run"}
_SHOWN = ("bad", "open", "none", "good")  # states: the part of a claim with the first that there is, is shown
_LONGEST = 36  # letters of a chip


class Row(NamedTuple):
    """A claim, written out.

    Attributes:
        state: `good` (it holds here), `bad` (it fails here), `open` or `none` (not measured): a colour; of the run.
        here: the same in words; `numbers`: what that rests on; `source`: what it says of the source.
        brief, asked: value with its interval, and what was asked of it; of several parts the first that misses it.
        facts: what stands under it, unfolded: (name, lines).
    """

    verdict: "Verdict"
    state: str
    here: str
    numbers: str
    source: str
    brief: str
    asked: str
    facts: list[tuple[str, list[str]]]


def state_of(judgement: Judgement | None) -> str:
    """The state of a judgement, or of none."""
    return _STATES[pointing(judgement)] if judgement and judgement.verdict != "not run" else "none"


def row_of(verdict: Verdict) -> Row:
    """A claim, written out."""
    here, _, numbers = verdict.here_words.partition(": ")
    if len(here) > _LONGEST:
        here, numbers = here[: len("holds here")], here[len("holds here ") :]
    shown = min(verdict.parts, key=lambda part: _SHOWN.index(state_of(verdict.parts[part])), default="")
    found, asked = verdict.measured(shown)
    trust = [verdict.trust] if isinstance(verdict.trust, str) else verdict.trust
    values = verdict.values if isinstance(verdict.values, dict) else {"": verdict.values}
    own = verdict.registration
    fixed = own.words or "its rule, before training" * (own.state == "registered")
    facts = [
        ("What this says of the source", [f"{verdict.source_words}: {verdict.words}".strip(": "), verdict.source]),
        ("What was measured", [verdict.protocol, *(f"{part}: {each.words}" for part, each in verdict.parts.items())]),
        ("Readings", [f"{name}: {each.verdict}: {each.words}" for name, each in verdict.readings.items()]),
        ("Controls", [f"{name}: {each.words}" for name, each in verdict.controls.items()]),
        ("Every number", [f"{part} {_listed(each, verdict, part)}".strip() for part, each in values.items() if each]),
        ("What must you trust?", trust),
        ("What was fixed before", [fixed, f"completion {verdict.completion}" * bool(verdict.completion)]),
    ]  # fmt: skip
    facts = [(name, told) for name, lines in facts if (told := [*filter(None, lines)])]
    brief = f"{shown} {found}".strip()
    return Row(verdict, state_of(verdict.here), here, numbers, verdict.source_words, brief, asked, facts)


def tally(verdicts: Iterable[Verdict]) -> list[tuple[str, int, str]]:
    """State, number of claims in it, and its words, for each state that occurs."""
    counts = Counter(state_of(each.here) for each in verdicts)
    return [(each, counts[each], words) for each, words in _TALLY.items() if counts[each]]


def _listed(values: Iterable[Any], verdict: Verdict, part: str) -> str:
    criterion = Criterion.of_json(of_part(verdict.threshold, part))
    pairs = [each if isinstance(each, list) else [each] for each in values]
    return "  ".join(
        criterion.show(*(float(one) for one in each if one is not None)) or "–" for each in pairs
    )
