"""From evidence to judgement, claim by claim: which number of which configuration meets which criterion."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopscope.claims import Criterion, Judgement, combine_parts, judge_always, judge_mean, not_run
from hopscope.probes.onsets import transition
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.evidence import Evidence
from hopscope.theory.posteriors import elimination_floor

Evidences = Mapping[str, Evidence]
Judge = Callable[[Evidences, PermutationStudyConfig], Judgement]

PLAIN, RECALLING = "d16/1 plain", "d32/2 repeats"
"""The two configurations that the presentation shows results of."""

FOUR_VALUES, FIVE_VALUES = "d32/2 plain V=4", "d32/2 plain"


def _fraction(**bound: float | tuple[float, float]) -> Criterion:
    return Criterion.model_validate({**bound, "unit": "fraction"})


P1 = _fraction(at_least=0.999)
P2 = {"recall": _fraction(at_most=0.01), "mass_unused": _fraction(at_least=0.99)}
P3 = {
    "elimination": _fraction(at_least=0.999),
    "recall": _fraction(at_least=0.999),
    "mass_recalled": _fraction(at_least=0.99),
}
P4_TOLERANCE = 0.003
P5 = Criterion(at_most=0.25)
P6 = {
    f"{measure} {name}": criterion
    for name in (PLAIN, RECALLING)
    for measure, criterion in (
        ("mae", Criterion(at_most=0.025)),
        ("mass_on_used", _fraction(at_most=0.005)),
    )
}
P7 = {"tilt_correlation": Criterion(at_most=0.0), "train_minus_held_out": Criterion(at_most=0.0)}
P8 = {
    "d16/1 repeats": _fraction(at_most=0.05),
    "d32/1 repeats": _fraction(between=(0.1, 0.9)),
    "d32/2 repeats": _fraction(at_least=0.99),
}
P9 = {
    "recall_lost_with_recall_head": _fraction(at_least=0.5),
    "elimination_lost_with_recall_head": _fraction(at_most=0.1),
    "elimination_lost_with_elimination_head": _fraction(at_least=0.5),
    "recall_lost_with_elimination_head": _fraction(at_most=0.1),
}
P10A = {"recall_lost": _fraction(at_least=0.5), "elimination_lost": _fraction(at_most=0.15)}
P10B = Criterion(at_least=1e-6)
P11 = {"V = 4": Criterion(at_least=0.5), "V = 5": Criterion(at_most=0.1)}


def p4_thresholds(config: PermutationStudyConfig) -> dict[str, Criterion]:
    """Around the floor of elimination."""
    floor = elimination_floor(config.values)
    within = Criterion(between=(floor - P4_TOLERANCE, floor + P4_TOLERANCE), unit="nats")
    return {PLAIN: within, RECALLING: within}


def _always(found: Evidence | None, values: Sequence[float], criterion: Criterion) -> Judgement:
    """Every seed must meet the criterion; diverged seeds stop the claim from being decided."""
    return _judged(found, values, lambda missing: judge_always(
        values, criterion, source_n=1, at_scale=not missing, missing=missing))  # fmt: skip


def _mean(
    found: Evidence | None, values: Sequence[float], criterion: Criterion, departures: list[str] | None = None
) -> Judgement:
    """The interval of the mean must meet the criterion; `departures` take the place of the configuration's own."""
    return _judged(found, values, lambda missing: judge_mean(
        values, criterion, at_scale=not missing, missing=missing), departures)  # fmt: skip


def _judged(
    found: Evidence | None,
    values: Sequence[float],
    rule: Callable[[str], Judgement],
    departures: list[str] | None = None,
) -> Judgement:
    if found is None:
        return not_run("not trained in this run")
    if not values:
        return not_run("every seed diverged" if found.frozen else "not measured")
    reasons = list(found.departures if departures is None else departures)
    reasons += [f"{len(found.frozen)} diverged seeds left out"] if found.frozen else []
    reasons += [] if found.exhaustive else ["measured on a part of the held-out sequences"]
    return rule(", ".join(reasons))


def _probe(found: Evidence | None, name: str, analysis: str = "probes") -> list[Any]:
    return found.known(analysis, name) if found is not None and found.has(analysis) else []


def p1(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Elimination is perfect in every seed."""
    found = evidence.get(PLAIN)
    return _always(found, _probe(found, "elimination"), P1)


def _all_always(found: Evidence | None, criteria: Mapping[str, Criterion]) -> Judgement:
    parts = {name: _always(found, _probe(found, name), criterion) for name, criterion in criteria.items()}
    return combine_parts(parts)


def p2(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """The plain model never recalls."""
    return _all_always(evidence.get(PLAIN), P2)


def p3(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """The model with two heads and repeats has both skills in every seed."""
    return _all_always(evidence.get(RECALLING), P3)


def p4(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Training loss settles at the floor of elimination."""
    floor = elimination_floor(config.values)
    parts = {}
    for name, criterion in p4_thresholds(config).items():
        found = evidence.get(name)
        losses = found.healthy_losses() if found is not None else []
        judgement = _mean(found, losses, criterion)
        if losses:
            distance = sum(losses) / len(losses) - floor
            side = "below" if distance < 0 else "above"
            words = f"{judgement.words}; {abs(distance):.4f} nats {side} the floor"
            judgement = judgement.model_copy(update={"words": words})
        parts[name] = judgement
    return combine_parts(parts)


def transitions(found: Evidence, values: int) -> list[dict[str, Any] | None]:
    """How sudden recall was, seed by seed (see `probes.onsets.transition`); `None` without a curve."""
    results: list[dict[str, Any] | None] = []
    pairs = zip(found.curves["held_out/recall"], found.curves["train/loss"], strict=True)
    for member, ((samples, recall), (loss_samples, losses)) in zip(found.members, pairs, strict=True):
        by_time = dict(zip(loss_samples, losses, strict=True))
        if member in found.frozen or not samples:
            results.append(None)
            continue
        results.append(
            transition(samples, recall, [by_time.get(time) for time in samples], chance=1 / (values - 1))
        )
    return results


def p5(levels: str) -> Judge:
    """Recall appears suddenly; `levels` says between which levels the rise is taken."""

    def judge(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
        found = evidence.get(RECALLING)
        rises = (
            [] if found is None else [each for each in transitions(found, config.values) if each is not None]
        )
        widths = [rise[levels]["relative_width"] for rise in rises]
        known = [width for width in widths if width is not None]
        never = len(widths) - len(known)
        if never and not known:
            return not_run("no seed learned recall")
        departures = (
            None if found is None or not never else [*found.departures, f"{never} seeds never learned recall"]
        )
        return _mean(found, known, P5, departures)

    return judge


def p6(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Probabilities are those of the posterior: the worst step of each seed."""
    parts = {}
    for name in (PLAIN, RECALLING):
        found = evidence.get(name)
        errors = [max(by_step) for by_step in _probe(found, "mae_uniform_held_out", "posteriors")]
        used = [max(by_step[1:4]) for by_step in _probe(found, "used_mass_mean", "posteriors")]
        parts[f"mae {name}"] = _mean(found, errors, P6[f"mae {name}"])
        parts[f"mass_on_used {name}"] = _mean(found, used, P6[f"mass_on_used {name}"])
    return combine_parts(parts)


def p7(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Sub-chance accuracy is only uncertainty: refuted if both signs of memorised counts are there."""
    found = evidence.get(PLAIN)
    parts = {
        name: _mean(found, _probe(found, name, "posteriors"), criterion) for name, criterion in P7.items()
    }
    return combine_parts(parts, need="any")


def p8(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Which model recalls."""
    parts = {}
    for name, criterion in P8.items():
        found = evidence.get(name)
        rule = _mean if criterion.between is not None else _always
        parts[name] = rule(found, _probe(found, "recall"), criterion)
    return combine_parts(parts)


def p9(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """One head for each skill, in every seed."""
    found = evidence.get(RECALLING)
    parts = {
        name: _always(found, _probe(found, f"assignment.{name}", "roles"), criterion)
        for name, criterion in P9.items()
    }
    return combine_parts(parts)


def p10a(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Recall needs the FFN, elimination does not."""
    found = evidence.get(RECALLING)
    parts = {}
    for name, criterion in P10A.items():
        skill = name.removesuffix("_lost")
        clean = _probe(found, f"clean.{skill}", "battery")
        ablated = _probe(found, f"mlp_ablation.mean.{skill}", "battery")
        lost = [before - after for before, after in zip(clean, ablated, strict=True)]
        parts[name] = _mean(found, lost, criterion)
    return combine_parts(parts)


REPLACEMENTS = ("uniform", "identity", "random")


def earlier_rows_change(found: Evidence, rows: str = "last_row_change") -> list[float]:
    """Largest change of a logit, over replacements and kinds of sequences, for each seed."""
    changes = [
        found.known("battery", f"earlier_rows.{rows}.{replacement}.{kind}")
        for replacement in REPLACEMENTS
        for kind in ("repeats", "plain")
    ]
    return [max(of_seed) for of_seed in zip(*changes, strict=True)]


def p10b(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Whether the patterns of the earlier rows matter at all."""
    found = evidence.get(RECALLING)
    return _always(
        found, earlier_rows_change(found) if found is not None and found.has("battery") else [], P10B
    )


def p11(evidence: Evidences, config: PermutationStudyConfig) -> Judgement:
    """Four values can be memorised, five cannot."""
    parts = {}
    for label, name in (("V = 4", FOUR_VALUES), ("V = 5", FIVE_VALUES)):
        found = evidence.get(name)
        # The number of values is what this claim is about, so it is no departure from its protocol.
        departures = None if found is None else config.departures(found.configuration.of_values(None))
        parts[label] = _mean(found, _probe(found, "memorised_share", "posteriors"), P11[label], departures)
    return combine_parts(parts)
