"""Claim R10 of the paper as a value; it reads the evidence table alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hopscope.claims import Claim, Judgement, Samples, at_least
from hopscope.claims.intervals import wilson
from hopscope.studies.llm.config import PAPER_COUNT, PAPER_DEPTHS, Kind, LanguageModelConfig, short_names
from hopscope.studies.llm.measurements import ANSWERS, TALLY, part_of
from hopscope.words import counted

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

THRESHOLD = at_least(0.9, "fraction")

LEAST_OF_ONE_STEP = 0.9
"""Share of D = 1 equations that a model must answer acceptably, and rightly, to be asked for more."""

BELOW = "below the task"
NOTHING = "not run: nothing that the claim is about was asked"
NO_ANSWER = "no acceptable answer to any question"
UNANSWERED = "without an acceptable answer"


class Asked(NamedTuple):
    """One part of the claim: a model, and a kind of question."""

    model: str
    kind: Kind


def claims(config: LanguageModelConfig) -> tuple[Claim, ...]:
    """The ledger of the study: every model must solve every kind of question that the claim is about."""
    parts = parts_of(config)
    return (
        Claim(
            id="R10",
            statement="Large language models solve all five formulations, almost perfectly for D up to 5.",
            source="paper §4",
            protocol="accuracy given acceptable, for each model, formulation and depth of equations, on "
            f"{PAPER_COUNT} questions each; 95 % Wilson interval of every model and kind of question; of models that "
            "answer at least 90 % of equations of D = 1 acceptably at once, and 90 % of those rightly",
            value=partial(by_part, parts) if parts else nothing,
            must=dict.fromkeys(parts, THRESHOLD) if parts else THRESHOLD,
            rule="mean",
            at_scale=lacks,
            trust="the server that answers under a model's name, and that the answer is matched as the page says",
            controls={"a blind guess": partial(guesses, parts)} if parts else None,
            must_not=THRESHOLD,
            summary=partial(summary, parts) if parts else None,
        ),
    )


def parts_of(config: LanguageModelConfig) -> dict[str, Asked]:
    """Name of each part of the claim → what it is about; the model is named where there are several."""
    names = short_names(config.model)
    return {
        kind.words if len(names) == 1 else f"{names[model]}, {kind.words}": Asked(model, kind)
        for model in config.model
        for kind in config.kinds()
        if kind.formulation != "equations" or kind.depth in PAPER_DEPTHS
    }


def lacks(evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return ", ".join(LanguageModelConfig.model_validate(dict(evidence.config)).protocol_deviations())


def nothing(evidence: "Evidence") -> Samples:
    """No samples, where no question was asked."""
    return Samples([], unit="question", note=NOTHING)


def by_part(parts: Mapping[str, Asked], evidence: "Evidence") -> dict[str, Samples]:
    """What was answered, by part of the claim; of a model that is below the task, that it is excluded, and why."""
    below = {model: below_the_task(evidence, model) for model in {asked.model for asked in parts.values()}}
    return {
        part: replace(answers(evidence, part_of(asked.model, *asked.kind)), excluded=below[asked.model])
        for part, asked in parts.items()
    }


def below_the_task(evidence: "Evidence", model: str) -> str:
    """Why a model cannot be asked for a chain: it fails equations of D = 1.  Empty if it does not, or was not asked."""
    part = part_of(model, "equations", 1)
    found = {
        metric: evidence.rows(metric, measure=TALLY, part=part)["value"] if metric in evidence else ()
        for metric in ("accuracy", "acceptance")
    }
    if not len(found["acceptance"]):
        return ""
    # Of no acceptable answer there is no accuracy.
    accuracy, accepted = (float([*values, math.nan][0]) for values in found.values())
    if accuracy >= LEAST_OF_ONE_STEP and accepted >= LEAST_OF_ONE_STEP:
        return ""
    right = "none" if math.isnan(accuracy) else f"{100 * accuracy:.0f} %"
    return f"{BELOW}: of equations with D = 1, {100 * accepted:.0f} % acceptable at once, {right} of the answers right"


def guesses(parts: Mapping[str, Asked], evidence: "Evidence") -> dict[str, Samples]:
    """What a blind guess among the acceptable answers reaches, by part of the claim."""
    found = {}
    for name, asked in parts.items():
        part = part_of(asked.model, *asked.kind)
        known = evidence.rows("guess", measure=TALLY, part=part)["value"] if "guess" in evidence else ()
        found[name] = Samples([*known], unit="case", note="" if len(known) else NOTHING)
    return found


def answers(evidence: "Evidence", part: str) -> Samples:
    """Whether each question of one model and kind was answered rightly; null without an acceptable answer.

    The paper samples until an answer is acceptable; under a cap some questions have none.  They are left out of the
    accuracy, so a verdict must not change when all of them are counted as wrong, or as right.
    """
    found = evidence.rows("correct", measure=ANSWERS, part=part)["value"]
    values = [None if value != value else float(value) for value in found]
    known = [value for value in values if value is not None]
    if not known:
        return Samples(values, unit="question", note=NO_ANSWER if values else NOTHING)
    right, unanswered = round(sum(known)), len(values) - len(known)
    given = wilson(right, len(known))
    widest = (wilson(right, len(values))[0], wilson(right + unanswered, len(values))[1])
    same = (THRESHOLD.met_by(given), THRESHOLD.failed_by(given)) == (
        THRESHOLD.met_by(widest),
        THRESHOLD.failed_by(widest),
    )
    missing = "" if same else f"{counted(unanswered, 'question')} {UNANSWERED}"
    return Samples(values, unit="question", interval=given, missing=missing)


def summary(parts: Mapping[str, Asked], judgements: Mapping[str, Judgement]) -> str:
    """What was seen, model by model."""
    said = []
    for model in dict.fromkeys(asked.model for asked in parts.values()):
        of = {asked.kind: judgements[part] for part, asked in parts.items() if asked.model == model}
        seen = {kind: found.interval for kind, found in of.items() if isinstance(found.interval, tuple)}
        above = [kind for kind, interval in seen.items() if THRESHOLD.met_by(interval)]
        below = [kind for kind, interval in seen.items() if THRESHOLD.failed_by(interval)]
        if any(BELOW in found.words for found in of.values()):
            said.append(f"{model}: {next(iter(of.values())).words}")
            continue
        words = f"{model}: {len(above)} of {counted(len(of), 'kind')} of questions wholly above 90 %"
        words += f", {len(below)} wholly below ({_in_words(below)})" if below else ""
        hanging = [kind for kind, found in of.items() if UNANSWERED in found.words]
        words += f", {len(hanging)} open for questions {UNANSWERED} ({_in_words(hanging)})" if hanging else ""
        words += f", {len(of) - len(seen)} without any acceptable answer" if len(seen) < len(of) else ""
        said.append(words)
    return " · ".join(said)


def _in_words(kinds: Sequence[Kind]) -> str:
    """Several kinds of question, the depths of equations together."""
    depths = [str(kind.depth) for kind in kinds if kind.formulation == "equations"]
    others = [kind.words for kind in kinds if kind.formulation != "equations"]
    return "; ".join(([f"equations D = {', '.join(depths)}"] if depths else []) + others)
