"""Claim R10 of the paper: large language models solve all five formulations."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.intervals import wilson
from hopscope.claims.verdict import counted
from hopscope.language import FORMULATIONS
from hopscope.studies.llm.options import PAPER_COUNT, PAPER_DEPTHS, Options

if TYPE_CHECKING:
    from hopscope.runs import Evidence

THRESHOLD = at_least(0.9, "fraction")
"""Also of D = 1 equations, which a model must answer acceptably, and rightly, to be asked for more."""

NOTHING = "not run: nothing that the claim is about was asked"
TOO_LONG = "not run: questions are longer than the model's context"

_NAMES = [name.replace("_", " ") for name in FORMULATIONS if name != "equations"]
KINDS = (*(f"equations D = {depth}" for depth in PAPER_DEPTHS), *_NAMES)
"""The kinds of questions that the claim is about."""


def claims(options: Options) -> list[Claim]:
    """The claim of the study: every model must solve every kind of question that it is about."""
    parts = parts_of(options)
    return [
        Claim(
            id="R10",
            statement="Large language models solve all five formulations, almost perfectly for D up to 5.",
            source="paper §4",
            protocol="accuracy given acceptable, for each model, formulation and depth of equations, on "
            f"{PAPER_COUNT} questions each; 95 % Wilson interval of every model and kind of question; of models that "
            "answer at least 90 % of equations of D = 1 acceptably at once, and 90 % of those rightly",
            value=partial(by_part, parts or {"": ""}),
            must=dict.fromkeys(parts, THRESHOLD) or THRESHOLD,
            rule="mean",
            at_scale=lambda evidence: ", ".join(options.departures()),
            trust="the server that answers under a model's name, and that the answer is matched as the page says",
            controls={"a blind guess": partial(guesses, parts or {"": ""})},
            must_not=THRESHOLD,
            summary=by_verdict,
        )
    ]


def parts_of(options: Options) -> dict[str, str]:
    """Name of each part of the claim → part of its rows; the model is named where there are several."""
    several, kinds = len(options.model) > 1, [each.kind for each in options.kinds() if each.kind in KINDS]
    names = options.names.items()
    return {
        f"{short}, {kind}" if several else kind: f"{name}, {kind}" for name, short in names for kind in kinds
    }


def by_part(parts: Mapping[str, str], evidence: "Evidence") -> dict[str, Samples]:
    """What was answered, by part of the claim; of a model that is below the task, that it is excluded, and why."""
    found = {name: answers(evidence, part) for name, part in parts.items()}
    below = {name: below_the_task(evidence, part.rpartition(", ")[0]) for name, part in parts.items()}
    return {name: replace(each, excluded=below[name]) for name, each in found.items()}


def below_the_task(evidence: "Evidence", model: str) -> str:
    """Why a model cannot be asked for a chain: it fails equations of D = 1.  Empty if it does not, or was not asked."""
    accuracy, accepted = (
        [*numbers(evidence, name, f"{model}, equations D = 1"), math.nan][0]
        for name in ("accuracy", "acceptance")
    )
    if math.isnan(accepted) or THRESHOLD.holds(accuracy, accepted):
        return ""
    # Of no acceptable answer there is no accuracy.
    right = "none" if math.isnan(accuracy) else f"{100 * accuracy:.0f} %"
    found = f"{100 * accepted:.0f} % acceptable at once, {right} of the answers right"
    return f"below the task: of equations with D = 1, {found}"


def numbers(evidence: "Evidence", metric: str, part: str) -> list[float]:
    """The values of a metric for one model and kind; none where it was not asked."""
    return [*map(float, evidence.rows(metric, part=part)["value"])] if metric in evidence else []


def guesses(parts: Mapping[str, str], evidence: "Evidence") -> dict[str, Samples]:
    """What a blind guess among the acceptable answers reaches, by part of the claim."""
    found = {name: numbers(evidence, "guess", part) for name, part in parts.items()}
    return {name: Samples(known, unit="case", note="" if known else NOTHING) for name, known in found.items()}


def answers(evidence: "Evidence", part: str) -> Samples:
    """Whether each question of one model and kind was answered rightly; null without an acceptable answer.

    The paper samples until an answer is acceptable; under a cap some questions have none.  They are left out of the
    accuracy, so a verdict must not change when all of them are counted as wrong, or as right.
    """
    if numbers(evidence, "too_long", part):
        return Samples([], unit="question", note=TOO_LONG)
    values = numbers(evidence, "correct", part)
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Samples(
            values, unit="question", note="no acceptable answer to any question" if values else NOTHING
        )
    right, unanswered = round(sum(known)), len(values) - len(known)
    given = wilson(right, len(known))
    widest = (wilson(right, len(values))[0], wilson(right + unanswered, len(values))[1])
    same = [*map(THRESHOLD.holds, given)] == [*map(THRESHOLD.holds, widest)]
    missing = "" if same else f"{counted(unanswered, 'question')} without an acceptable answer"
    return Samples(values, unit="question", interval=given, missing=missing)


def by_verdict(judgements: Mapping[str, Any]) -> str:
    """Which parts of a claim hold, fail and are open, in a sentence."""
    kinds = {"hold": ("reproduced",), "fail": ("refuted",), "are open": ("inconclusive", "not run")}
    named = {
        words: [part for part, each in judgements.items() if each.verdict in of]
        for words, of in kinds.items()
    }
    told = [f"{len(parts)} of {len(judgements)} {words}" for words, parts in named.items() if parts]
    return ", ".join(told) + (f" (failing: {', '.join(named['fail'])})" if named["fail"] else "")
