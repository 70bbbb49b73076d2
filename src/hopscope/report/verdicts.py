"""The verdict table as the template needs it: every number already written out."""

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from hopscope.claims import JudgedClaim, wording
from hopscope.report.prose import Prose, tie
from hopscope.report.record import ClaimWords, RunRecord


@dataclass(frozen=True)
class VerdictRow:
    """One claim, written out for the table.

    Attributes:
        claim: the ledger's entry.
        verdict: in words.
        slug: the verdict as a CSS class.
        symbol: the verdict as a sign.
        leaning: where the numbers of an inconclusive claim point, in words.
        threshold: what was demanded, in words, one line per quantity.
        brief: (name, value with interval, what was asked) of one quantity, for the line (`wording.brief`).
        more: how many quantities the line leaves out.
        estimates: (name, value and interval) of every quantity.
        words: what the run can say, in plain words.
        remarks: what stands beside that: the verdict at the run's own scale, controls, a changed rule.
        readings: what each reading of an open detail gives.
        seeds: (quantity and by what, its values one by one).
        trust: what must be trusted for the verdict to hold, one item each.
    """

    claim: JudgedClaim
    verdict: str
    slug: str
    symbol: str
    leaning: str
    threshold: list[str]
    brief: tuple[str, str, str]
    more: int
    estimates: list[tuple[str, str]]
    words: Markup
    remarks: list[str]
    readings: list[tuple[str, str]]
    seeds: list[tuple[str, list[str]]]
    trust: list[str]


def verdict_rows(run: RunRecord, prose: Prose) -> list[VerdictRow]:
    """The claims of a run in the ledger's order.

    Raises:
        UserError: the words of a claim hold an unknown number key.
    """
    return [_row(claim, run.story.claims.get(claim.id, ClaimWords()), prose) for claim in run.claims]


def verdict_counts(run: RunRecord) -> list[tuple[str, str, str, int]]:
    """(verdict, CSS class, symbol, number of claims) for each verdict that occurs."""
    verdicts = Counter((claim.verdict.value, wording.verdict_words(claim)) for claim in run.claims)
    return [
        (words, _slug(name), symbol, count)
        for name, symbol in wording.SYMBOLS.items()
        for (verdict, words), count in verdicts.items()
        if verdict == name
    ]


def _row(claim: JudgedClaim, story: ClaimWords, prose: Prose) -> VerdictRow:
    estimates = wording.estimates(claim)
    return VerdictRow(
        claim=claim,
        verdict=wording.verdict_words(claim),
        slug=_slug(claim.verdict.value),
        symbol=wording.SYMBOLS[claim.verdict.value],
        leaning=wording.leaning_words(claim),
        threshold=wording.threshold_lines(claim),
        brief=wording.brief(claim),
        more=max(0, len(estimates) - 1),
        estimates=estimates,
        words=prose.html(story.words) if claim.words is None else Markup.escape(tie(wording.reason(claim))),
        remarks=wording.remarks(claim),
        readings=[(name, f"{found.verdict.value}: {found.words}") for name, found in claim.readings.items()],
        seeds=_seeds(claim, story),
        trust=[claim.trust] if isinstance(claim.trust, str) and claim.trust else list(claim.trust),
    )


def _seeds(claim: JudgedClaim, story: ClaimWords) -> list[tuple[str, list[str]]]:
    """The numbers one by one: those of the record, or, of a run of before, those of its story."""
    by = f"by {wording.counted(claim)}"
    if claim.samples is not None:
        return [(f"{name or 'value'} {by}", texts) for name, texts in wording.sample_lists(claim) if texts]
    return [
        (f"{name.replace('_', ' ')} {by}", [_told(value, wording.unit_of(claim, name)) for value in values])
        for name, values in story.per_seed.items()
    ]


def _told(value: float | str | None, unit: str) -> str:
    return value if isinstance(value, str) else wording.sample_text(value, unit)


def _slug(verdict: str) -> str:
    return verdict.replace(" ", "-")
