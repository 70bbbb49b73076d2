"""Claim R10 of the paper: large language models solve all five formulations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.intervals import wilson
from hopscope.claims.verdict import counted
from hopscope.language import FORMULATIONS
from hopscope.studies.llm.options import PAPER_COUNT, PAPER_DEPTHS, Options

if TYPE_CHECKING:
    from hopscope.runs import Evidence

THRESHOLD = at_least(0.9, "fraction")

LEAST_OF_ONE_STEP = 0.9
"""Share of D = 1 equations that a model must answer acceptably, and rightly, to be asked for more."""

BELOW = "below the task"
NOTHING = "not run: nothing that the claim is about was asked"
TOO_LONG = "not run: questions are longer than the model's context"
NO_ANSWER = "no acceptable answer to any question"
UNANSWERED = "without an acceptable answer"

_NAMES = [name.replace("_", " ") for name in FORMULATIONS if name != "equations"]
KINDS = (*(f"equations D = {depth}" for depth in PAPER_DEPTHS), *_NAMES)
"""The kinds of questions that the claim is about."""


class Asked(NamedTuple):
    """One part of the claim: a model, and a kind of question."""

    model: str
    kind: str

    @property
    def part(self) -> str:
        """What its rows of the evidence are called."""
        return f"{self.model}, {self.kind}"


def claims(options: Options) -> list[Claim]:
    """The claim of the study: every model must solve every kind of question that it is about."""
    parts = parts_of(options)
    more: dict[str, Any] = {"controls": {"a blind guess": partial(guesses, parts)}} if parts else {}
    more |= {"summary": partial(summary, parts)} if parts else {}
    return [
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
            at_scale=partial(lacks, ", ".join(options.departures())),
            trust="the server that answers under a model's name, and that the answer is matched as the page says",
            must_not=THRESHOLD,
            **more,
        )
    ]


def parts_of(options: Options) -> dict[str, Asked]:
    """Name of each part of the claim → what it is about; the model is named where there are several."""
    several, kinds = len(options.model) > 1, [each.kind for each in options.kinds() if each.kind in KINDS]
    every = [Asked(model, kind) for model in options.model for kind in kinds]
    return {f"{options.names[each.model]}, {each.kind}" if several else each.kind: each for each in every}


def lacks(departures: str, evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return departures


def nothing(evidence: "Evidence") -> Samples:
    """No samples, where no question was asked."""
    return Samples([], unit="question", note=NOTHING)


def by_part(parts: Mapping[str, Asked], evidence: "Evidence") -> dict[str, Samples]:
    """What was answered, by part of the claim; of a model that is below the task, that it is excluded, and why."""
    below = {model: below_the_task(evidence, model) for model in {asked.model for asked in parts.values()}}
    return {
        name: replace(answers(evidence, asked.part), excluded=below[asked.model])
        for name, asked in parts.items()
    }


def below_the_task(evidence: "Evidence", model: str) -> str:
    """Why a model cannot be asked for a chain: it fails equations of D = 1.  Empty if it does not, or was not asked."""
    part = Asked(model, "equations D = 1").part
    accuracy, accepted = (
        [*numbers(evidence, name, part), math.nan][0] for name in ("accuracy", "acceptance")
    )
    if math.isnan(accepted) or min(accuracy, accepted) >= LEAST_OF_ONE_STEP:
        return ""
    # Of no acceptable answer there is no accuracy.
    right = "none" if math.isnan(accuracy) else f"{100 * accuracy:.0f} %"
    return f"{BELOW}: of equations with D = 1, {100 * accepted:.0f} % acceptable at once, {right} of the answers right"


def numbers(evidence: "Evidence", metric: str, part: str) -> list[float]:
    """The values of a metric for one model and kind; none where it was not asked."""
    return [*map(float, evidence.rows(metric, part=part)["value"])] if metric in evidence else []


def guesses(parts: Mapping[str, Asked], evidence: "Evidence") -> dict[str, Samples]:
    """What a blind guess among the acceptable answers reaches, by part of the claim."""
    found = {name: numbers(evidence, "guess", asked.part) for name, asked in parts.items()}
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
        return Samples(values, unit="question", note=NO_ANSWER if values else NOTHING)
    right, unanswered = round(sum(known)), len(values) - len(known)
    given = wilson(right, len(known))
    widest = (wilson(right, len(values))[0], wilson(right + unanswered, len(values))[1])
    same = met(given) == met(widest)
    missing = "" if same else f"{counted(unanswered, 'question')} {UNANSWERED}"
    return Samples(values, unit="question", interval=given, missing=missing)


def met(interval: tuple[float, float]) -> bool | None:
    """Whether an interval lies wholly above the threshold; `None`: neither above nor below."""
    held = [THRESHOLD.holds(end) for end in interval]
    return held[0] if held[0] == held[1] else None


def summary(parts: Mapping[str, Asked], judgements: Mapping[str, Any]) -> str:
    """What was seen, model by model."""
    said = []
    for model in dict.fromkeys(asked.model for asked in parts.values()):
        of = {asked.kind: judgements[name] for name, asked in parts.items() if asked.model == model}
        seen = {kind: met(found.interval) for kind, found in of.items() if isinstance(found.interval, tuple)}
        above, below = ([kind for kind, each in seen.items() if each is holds] for holds in (True, False))
        if any(BELOW in found.words for found in of.values()):
            said.append(f"{model}: {next(iter(of.values())).words}")
            continue
        words = f"{model}: {len(above)} of {counted(len(of), 'kind')} of questions wholly above 90 %"
        words += f", {len(below)} wholly below ({_in_words(below)})" if below else ""
        hanging = [kind for kind, found in of.items() if UNANSWERED in found.words]
        words += f", {len(hanging)} open for questions {UNANSWERED} ({_in_words(hanging)})" if hanging else ""
        long = [kind for kind, found in of.items() if TOO_LONG in found.words]
        words += f", {len(long)} longer than its context ({_in_words(long)})" if long else ""
        silent = len(of) - len(seen) - len(long)
        words += f", {silent} without any acceptable answer" if silent else ""
        said.append(words)
    return " · ".join(said)


def _in_words(kinds: Sequence[str]) -> str:
    # Several kinds of question, the depths of equations together.
    depths = [kind.removeprefix("equations D = ") for kind in kinds if kind.startswith("equations")]
    others = [kind for kind in kinds if not kind.startswith("equations")]
    return "; ".join(([f"equations D = {', '.join(depths)}"] if depths else []) + others)
