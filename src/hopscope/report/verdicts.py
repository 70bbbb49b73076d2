"""The verdict table as the template needs it: every number already written out."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from hopscope.claims import Claim
from hopscope.report.numbers import format_estimate, format_number
from hopscope.report.prose import Prose
from hopscope.report.record import ClaimWords, RunRecord

SYMBOLS = {"reproduced": "✓", "refuted": "✕", "inconclusive": "?", "not run": "–"}
"""A symbol per verdict, so that none is told by colour alone; in the order in which they are counted."""

MOST_ESTIMATES = 6
"""Values of a claim that the table shows at once; where there are more, those behind these are folded."""

_BOUND_SIGNS = {"at_least": "≥ ", "at_most": "≤ ", "between": ""}
_SHARES = {"accuracy", "recall", "elimination", "mass", "share", "fraction", "rate", "probability"}
_NO_SHARES = {"loss", "kl", "mse", "mae", "nats", "bits", "entropy", "correlation"}


@dataclass(frozen=True)
class Estimate:
    """One value of a claim, its name empty where it is the only one."""

    name: str
    text: str


@dataclass(frozen=True)
class SeedValues:
    """One quantity seed by seed, written out."""

    name: str
    texts: list[str]


@dataclass(frozen=True)
class VerdictRow:
    """One claim, written out for the table.

    Attributes:
        claim: the ledger's entry.
        slug: the verdict as a CSS class.
        symbol: the verdict as a sign.
        threshold: what was demanded, in words, one line per quantity.
        estimates: value and interval per quantity.
        folded: the same for those quantities that are too many to show at once.
        words: what the run can say, in plain words.
        seeds: per-seed values by quantity.
        trust: what must be trusted for the verdict to hold, one item each.
    """

    claim: Claim
    slug: str
    symbol: str
    threshold: list[str]
    estimates: list[Estimate]
    folded: list[Estimate]
    words: Markup
    seeds: list[SeedValues]
    trust: list[str]


def verdict_rows(run: RunRecord, prose: Prose) -> list[VerdictRow]:
    """The claims of a run in the ledger's order.

    Raises:
        UserError: the words of a claim hold an unknown number key.
    """
    return [_row(claim, run.story.claims.get(claim.id, ClaimWords()), prose) for claim in run.claims]


def verdict_counts(run: RunRecord) -> list[tuple[str, str, str, int]]:
    """(verdict, CSS class, symbol, number of claims) for each verdict that occurs."""
    verdicts = [claim.verdict.value for claim in run.claims]
    return [
        (name, _slug(name), symbol, verdicts.count(name))
        for name, symbol in SYMBOLS.items()
        if name in verdicts
    ]


def _row(claim: Claim, words: ClaimWords, prose: Prose) -> VerdictRow:
    estimates = _estimates(claim)
    return VerdictRow(
        claim=claim,
        slug=_slug(claim.verdict.value),
        symbol=SYMBOLS[claim.verdict.value],
        threshold=threshold_words(claim),
        estimates=estimates[:MOST_ESTIMATES],
        folded=estimates[MOST_ESTIMATES:],
        words=prose.html(words.words),
        seeds=[_seeds(claim, name, values) for name, values in words.per_seed.items()],
        trust=[claim.trust] if isinstance(claim.trust, str) and claim.trust else list(claim.trust),
    )


def is_share(claim: Claim, name: str, numbers: Iterable[float | None]) -> bool:
    """Whether a claim's numbers are shares of a whole, which read best in percent.

    A name such as ``recall accuracy`` or ``loss`` says so; failing that, the threshold does by being in
    percent or points.  Numbers beyond ±1 are never shares.

    Args:
        claim: the claim.
        name: what the numbers are called, empty where the claim has one number only.
        numbers: the numbers themselves.
    """
    if any(number is not None and abs(number) > 1 for number in numbers):
        return False
    spoken = set(re.findall(r"[a-z]+", name.lower().replace("_", " ")))
    if spoken & _NO_SHARES:
        return False
    words = claim.threshold if isinstance(claim.threshold, str) else ""
    return bool(spoken & _SHARES) or "%" in words or "points" in words


def threshold_words(claim: Claim) -> list[str]:
    """The threshold for reading, one line per quantity: ``recall ≥ 99 %``."""
    if isinstance(claim.threshold, str):
        return [claim.threshold]
    lines = []
    for name, bound in claim.threshold.items():
        if isinstance(bound, dict):
            bounds = ", ".join(_bound_words(claim, name, *each) for each in bound.items())
            lines.append(f"{_title(name)} {bounds}")
        else:
            lines.append(_bound_words(claim, "", name, bound))
    return lines


def _bound_words(claim: Claim, name: str, kind: str, bound: float | list[float]) -> str:
    ends = bound if isinstance(bound, list) else [bound]
    share = is_share(claim, name, ends)
    sign = _BOUND_SIGNS.get(kind, f"{_title(kind)} ")
    return sign + " to ".join(format_number(end, share=share) for end in ends)


def _estimates(claim: Claim) -> list[Estimate]:
    values = claim.value if isinstance(claim.value, dict) else {"": claim.value}
    estimates = []
    for name, value in values.items():
        interval = claim.interval.get(name) if isinstance(claim.interval, dict) else claim.interval
        share = is_share(claim, name, [value])
        estimates.append(Estimate(_title(name), format_estimate(value, interval, share=share)))
    return estimates


def _seeds(claim: Claim, name: str, values: list[float | str | None]) -> SeedValues:
    share = is_share(claim, name, [value for value in values if not isinstance(value, str)])
    texts = [
        "–" if value is None else value if isinstance(value, str) else format_number(value, share=share)
        for value in values
    ]
    return SeedValues(_title(name), texts)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _slug(verdict: str) -> str:
    return verdict.replace(" ", "-")
