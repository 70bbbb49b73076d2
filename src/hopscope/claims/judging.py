"""From a claim and the evidence of a run to an entry of the ledger: the only way to a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hopscope.claims.claim import Claim
from hopscope.claims.completions import Completed, by_name, deciding, of_run, over_completions
from hopscope.claims.controls import controls_of, with_controls
from hopscope.claims.judged import (
    Control,
    Found,
    JsonSample,
    JudgedClaim,
    Registration,
    criterion_json,
    samples_json,
)
from hopscope.claims.measuring import Measured, measured, readings_of, words_of
from hopscope.claims.parts import Leaning, Part, Scale, judge_part
from hopscope.claims.registration import state_of
from hopscope.claims.samples import MembersOfARun
from hopscope.claims.verdicts import (
    UNTRIED,
    Judgement,
    Verdict,
    agreed_readings,
    combine_parts,
    combine_readings,
)


def judge(
    claim: Claim, evidence: MembersOfARun, registration: Mapping[str, Any] | None = None
) -> JudgedClaim:
    """Judge a claim by its rule on the evidence of a run.

    Args:
        claim: the claim.
        evidence: the run's evidence table, which the claim's functions are called with.
        registration: what the run's ``registration.json`` holds (`hopscope.claims.registration`); None if it has none.

    Returns:
        The claim with its verdict, ready for ``claims.json``.

    Raises:
        UserError: a function of the claim fails, or returns something else than numbers for the members or parts.
    """
    readings = {
        name: measured(claim, f"reading {name!r}" if name else "value", function, evidence)
        for name, function in readings_of(claim, evidence).items()
    }
    missing = words_of(claim, "at_scale", evidence)
    controls = controls_of(claim, evidence)
    judged = _judged(claim, readings, controls, evidence, Scale(claim.source_n, claim.seeds_needed, missing))
    here = _judged(claim, readings, controls, evidence, Scale(1, claim.seeds_needed, here=True))
    return _entry(claim, readings, judged, here.judgement, controls, evidence, state_of(claim, registration))


@dataclass(frozen=True)
class _Judged:
    """A judgement with everything around it.

    Attributes:
        judgement: of all readings together.
        leaning: where the numbers point.
        shown: the reading whose numbers the judgement has.
        counts: part → what n counts, in the reading that is shown.
        readings: each reading's own judgement; empty if there is only one way to read the claim.
    """

    judgement: Judgement
    leaning: Leaning | None
    shown: str
    counts: dict[str, str]
    readings: dict[str, Judgement]


def _judged(
    claim: Claim,
    readings: dict[str, Measured],
    controls: dict[str, Control],
    evidence: MembersOfARun,
    scale: Scale,
) -> _Judged:
    parts = {name: _parts(claim, found, evidence, scale) for name, found in readings.items()}
    judgements = {name: _combined(claim, found, scale) for name, found in parts.items()}
    leanings = {name: _leaning(claim, found) for name, found in parts.items()}
    plain, named = [*judgements] == [""], by_name(judgements)
    judgement = judgements[""] if plain else _over_readings(claim, judgements, parts, scale)
    judgement, undone = with_controls(judgement, controls, claim)
    run = None if claim.kind is None or named or scale.here else Completed.of(evidence)
    if run is not None and claim.kind is not None:
        judgement = of_run(judgement, claim.kind, run)
    if not scale.here and (others := words_of(claim, "untried", evidence)):
        judgement = _with_untried(judgement, others)
    tried = [leaning for leaning in leanings.values() if leaning is not None]
    leaning = tried[0] if len(set(tried)) == 1 else "mixed" if tried else None
    ran = [name for name, each in judgements.items() if each.verdict is not Verdict.NOT_RUN]
    shown = deciding(judgements, claim.kind) if named and claim.kind else (ran or [*judgements])[0]
    counts = {name: part.counts for name, part in parts[shown].items()}
    return _Judged(judgement, "mixed" if undone else leaning, shown, counts, {} if plain else judgements)


def _over_readings(
    claim: Claim, judgements: dict[str, Judgement], parts: dict[str, dict[str, Part]], scale: Scale
) -> Judgement:
    """The judgement of all readings together; readings that are completions count by the kind of the claim."""
    if claim.kind is None or not by_name(judgements):
        return agreed_readings(judgements) if claim.readings_agree else combine_readings(judgements)
    silent = [name for name, found in parts.items() if all(part.excluded for part in found.values())]
    aside = silent if claim.kind == "general" else []
    return over_completions(judgements, claim.kind, aside=aside, here=scale.here)


def _with_untried(judgement: Judgement, others: str) -> Judgement:
    """The judgement with readings that were not tried: as long as there are some, nothing is refuted."""
    if judgement.verdict is Verdict.REFUTED:
        words = f"{judgement.words}{UNTRIED}{others}"
    elif UNTRIED in judgement.words:
        words = f"{judgement.words}, {others}"
    else:
        return judgement
    return judgement.model_copy(update={"verdict": Verdict.INCONCLUSIVE, "words": words})


def _parts(claim: Claim, found: Measured, evidence: MembersOfARun, scale: Scale) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for name, criterion in claim.criteria.items():
        # What the run lacks is said once: with the first part that ran.
        said = any(part.judgement.verdict is not Verdict.NOT_RUN for part in parts.values())
        parts[name] = judge_part(
            found[name], criterion, claim.rules[name], scale, seeds=evidence.seeds,
            structural=bool(claim.structural), say_missing=not said,
        )  # fmt: skip
    return parts


def _combined(claim: Claim, parts: dict[str, Part], scale: Scale) -> Judgement:
    judgements = {name: part.judgement for name, part in parts.items()}
    if [*judgements] == [""]:
        return judgements[""]
    left = [name for name in judgements if not parts[name].excluded] or [*judgements]
    aside = [name for name in judgements if name not in left]
    judgement = combine_parts(
        {name: judgements[name] for name in (*left, *aside)}, need=claim.need, aside=aside
    )
    if claim.summary is None or judgement.verdict is Verdict.NOT_RUN:
        return judgement
    words = words_of(claim, "summary", judgements)
    unsaid = [f"{name}: {judgements[name].words}" for name in aside if judgements[name].words not in words]
    words = " · ".join([words, *unsaid])
    if scale.missing and not scale.here:
        words = f"below the protocol's scale: {scale.missing}; {words}"
    return judgement.model_copy(update={"words": words})


def _leaning(claim: Claim, parts: dict[str, Part]) -> Leaning | None:
    """Return the direction of all parts: their common one, or `agrees` if one agreeing part is enough."""
    leanings = {part.leaning for part in parts.values() if part.leaning is not None}
    if not leanings:
        return None
    if claim.need == "any" and "agrees" in leanings:
        return "agrees"
    return leanings.pop() if len(leanings) == 1 else "mixed"


def _entry(
    claim: Claim,
    readings: dict[str, Measured],
    judged: _Judged,
    here: Judgement,
    controls: dict[str, Control],
    evidence: MembersOfARun,
    registration: Registration,
) -> JudgedClaim:
    judgement, run = judged.judgement, None if claim.kind is None else Completed.of(evidence)
    return JudgedClaim.judged(
        judgement,
        id=claim.id,
        statement=claim.statement,
        source=claim.source,
        protocol=claim.protocol,
        threshold=claim.must,
        trust=claim.trust,
        n_counts=_counts(judged.counts),
        samples=_samples(readings[judged.shown]),
        leaning=judged.leaning if judgement.verdict is Verdict.INCONCLUSIVE else None,
        here=None if here.verdict is Verdict.NOT_RUN else Found.of(here),
        structural=claim.structural,
        rule=claim.rule if isinstance(claim.rule, str) else dict(claim.rule),
        need=claim.need,
        completion=None if run is None else run.words,
        readings={name: Found.of(each) for name, each in judged.readings.items()},
        controls=controls,
        must_not=None if claim.must_not is None else criterion_json(claim.must_not),
        registration=registration,
    )


def _counts(counts: dict[str, str]) -> str | dict[str, str]:
    return next(iter(counts.values())) if len({*counts.values()}) == 1 else counts


def _samples(found: Measured) -> list[JsonSample] | dict[str, list[JsonSample]]:
    named = {name: samples_json(samples.values) for name, samples in found.items()}
    return named[""] if [*named] == [""] else named
