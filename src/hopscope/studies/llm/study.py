"""Do language models solve retrieval problems in words (paper, section 4)?  Nothing is trained; models are asked.

Claim R10 of the paper: large language models solve all five formulations.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.intervals import wilson
from hopscope.claims.verdict import counted
from hopscope.errors import UserError
from hopscope.language import FORMULATIONS, Questions, kinds
from hopscope.language.questions import Formulation, Protocol, Wording
from hopscope.page import figures as charts
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration, Study
from hopscope.tasks.task import expect

if TYPE_CHECKING:
    from hopscope.runs import Evidence

PAPER_COUNT, PAPER_DEPTHS = 500, (1, 2, 3, 4, 5)
"""Questions of each kind in the paper (section 4), and depths of equations that its claim is about."""

_NAMES = [name.replace("_", " ") for name in FORMULATIONS if name != "equations"]
KINDS = (*(f"equations D = {depth}" for depth in PAPER_DEPTHS), *_NAMES)
"""The kinds of questions that the claim is about."""

THRESHOLD = at_least(0.9, "fraction")
"""Also of D = 1 equations, which a model must answer acceptably, and rightly, to count."""

NOTHING = "not run: nothing that the claim is about was asked"
TOO_LONG = "not run: questions are longer than the model's context"


class Options(Wording, Protocol):
    """Which models are asked what.

    Attributes:
        model: models, each as Inspect names it: openai/gpt-4o, openai-api/NAME/MODEL for any server that speaks
            OpenAI's protocol, or one of this machine: hf/FOLDER, hf/FILE.gguf, hf/NAME. Several may be given.
        formulations: which of the five formulations to ask.
        depths: retrieval steps of the equations.
    """

    model: tuple[str, ...] = ()
    formulations: tuple[Formulation, ...] = Field(FORMULATIONS, min_length=1)
    depths: tuple[Annotated[int, Field(ge=1)], ...] = PAPER_DEPTHS

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        expect(len({*self.model}) == len(self.model), "model", "each once", " ".join(self.model))
        asked = self.depths != () or "equations" not in self.formulations
        ascending = asked and [*self.depths] == sorted({*self.depths})
        expect(ascending, "depths", "ascending numbers of steps", [*self.depths])
        for model in self.model:
            advice = f"{model!r}; name its provider"
            expect("/" in model.strip("/"), "model", "PROVIDER/MODEL, such as openai/gpt-4o", advice)
            wanted, found = "models of this machine (hf/…)", f"{model!r}, whose server decides; leave it out"
            fits = model.startswith("hf/") or self.precision == "float32"
            expect(fits, "precision", wanted, found)
        return self

    def kinds(self) -> list[Questions]:
        """The questions of every kind, in the paper's order."""
        how = {name: getattr(self, name) for name in Wording.model_fields}
        asked = [name for name in FORMULATIONS if name in self.formulations]
        return [kind for name in asked for kind in kinds((name,), self.depths * (name == "equations"), **how)]

    def departures(self) -> str:
        """How this departs from the paper's protocol, in words; nothing is at scale."""
        wanted, own = [[each.kind for each in one.kinds()] for one in (Options(), self)]
        absent = len({*wanted} - {*own})
        words = {
            f"{self.count} of {PAPER_COUNT} questions of each kind": self.count < PAPER_COUNT,
            f"{absent} of {len(wanted)} kinds of questions not asked": absent > 0,
            "a choice among the acceptable answers instead of an answer": self.measure == "choice",
            f"{self.few_shot} solved examples": self.few_shot > 0,
            f"{self.filler} filler tokens": self.filler > 0,
            f"each problem told {self.repeats} times": self.repeats > 1,
        }
        return ", ".join(each for each, departs in words.items() if departs)


def check(options: Options) -> list[Configuration]:
    """Nothing is trained; a `UserError`: there is no model, no Inspect, or there are not so many questions."""
    if not options.model:
        advice = "name it as Inspect does, such as --model openai/gpt-4o or --model hf/FOLDER"
        raise UserError(f"model: expected at least one to ask, found none; {advice}")
    import hopscope.language.evaluate  # noqa: F401

    for kind in options.kinds():
        kind.drawn()  # refuses more than there are
    return []


@measure(when="run")
def answers(context: Context) -> Iterator[dict[str, Any]]:
    """What every model answers; see `hopscope.language.answers.rows`."""
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask

    options, folder = context.options, context.run.path / "logs"
    how = {name: getattr(options, name) for name in Protocol.model_fields}
    how["device"] = None if context.device == "auto" else context.device
    return rows(ask(options.model, options.kinds(), folder, budget=context.budget, say=context.say, **how))


# What is claimed.


def claims(options: Options) -> Iterator[Claim]:
    """The claim of the study: every model must solve every kind of question that it is about."""
    parts = dict[str, str]()  # name of each part of the claim → part of its rows
    for model in options.model:
        for kind in (each.kind for each in options.kinds() if each.kind in KINDS):
            rows = f"{model.replace('//', '/')}, {kind}"  # of an absolute folder with one slash
            parts[rows if len(options.model) > 1 else kind] = rows
    yield Claim(
        id="R10",
        statement="Large language models solve all five formulations, almost perfectly for D up to 5.",
        source="paper §4",
        protocol="accuracy given acceptable, for each model, formulation and depth of equations, on "
        f"{PAPER_COUNT} questions each; 95 % Wilson interval of every model and kind of question; of models that "
        "answer at least 90 % of equations of D = 1 acceptably at once, and 90 % of those rightly",
        value=partial(by_part, parts or {"": ""}),
        must=dict.fromkeys(parts, THRESHOLD) or THRESHOLD,
        rule="mean",
        at_scale=lambda evidence: options.departures(),
        trust="the server that answers under a model's name, and that the answer is matched as the page says",
        controls={"a blind guess": partial(guesses, parts or {"": ""})},
        summary=by_verdict,
    )


def by_part(parts: Mapping[str, str], evidence: "Evidence") -> dict[str, Samples]:
    """What was answered, by part of the claim; of a model that is below the task, that it is excluded, and why."""
    return {
        name: replace(of_part(evidence, part), excluded=below_the_task(evidence, part.rpartition(", ")[0]))
        for name, part in parts.items()
    }


def below_the_task(evidence: "Evidence", model: str) -> str:
    """Why a model does not count: it fails equations of D = 1.  Empty if it does not, or was not asked."""
    accuracy, accepted = (
        [*numbers(evidence, name, f"{model}, equations D = 1"), math.nan][0]
        for name in ("accuracy", "acceptance")
    )
    if math.isnan(accepted) or THRESHOLD.holds(accuracy, accepted):
        return ""
    # Of no acceptable answer there is no accuracy.
    right = "none" if math.isnan(accuracy) else THRESHOLD.show(accuracy)
    found = f"{THRESHOLD.show(accepted)} acceptable at once, {right} of the answers right"
    return f"below the task: of equations with D = 1, {found}"


def numbers(evidence: "Evidence", metric: str, part: str) -> list[float]:
    """The values of a metric for one model and kind; none where it was not asked."""
    return [*map(float, evidence.rows(metric, part=part)["value"])] if metric in evidence else []


def guesses(parts: Mapping[str, str], evidence: "Evidence") -> dict[str, Samples]:
    """What a blind guess among the acceptable answers reaches, by part of the claim."""
    found = {name: numbers(evidence, "guess", part) for name, part in parts.items()}
    return {name: Samples(known, unit="case", note="" if known else NOTHING) for name, known in found.items()}


def of_part(evidence: "Evidence", part: str) -> Samples:
    """Whether each question of one model and kind was answered rightly; null without an acceptable answer.

    The paper samples until an answer is acceptable; under a cap some questions have none.  They are left out of the
    accuracy, so a verdict must not change when all of them are counted as wrong, or as right.
    """
    if numbers(evidence, "too_long", part):
        return Samples([], unit="question", note=TOO_LONG)
    values = numbers(evidence, "correct", part)
    known = [value for value in values if not math.isnan(value)]
    if not known:
        note = "no acceptable answer to any question" if values else NOTHING
        return Samples(values, unit="question", note=note)
    right, unanswered = round(sum(known)), len(values) - len(known)
    given = wilson(right, len(known))
    widest = (wilson(right, len(values))[0], wilson(right + unanswered, len(values))[1])
    same = [*map(THRESHOLD.holds, given)] == [*map(THRESHOLD.holds, widest)]
    missing = "" if same else f"{counted(unanswered, 'question')} without an acceptable answer"
    return Samples(values, unit="question", interval=given, missing=missing)


def by_verdict(judgements: Mapping[str, Any]) -> str:
    """Which parts of a claim hold, fail and are open, in a sentence."""
    words = {"reproduced": "hold", "refuted": "fail"}
    said = {part: words.get(each.verdict, "are open") for part, each in judgements.items()}
    counts = Counter(said.values())
    told = [f"{counts[word]} of {len(said)} {word}" for word in ("hold", "fail", "are open") if counts[word]]
    failing = ", ".join(part for part, word in said.items() if word == "fail")
    return ", ".join(told) + (f" (failing: {failing})" if failing else "")


# What is drawn.


def of_each(kinds: bool, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Accuracy of each model by depth of the equations; or by formulation, of each the deepest questions."""
    name = "formulation" if kinds else "equations"
    found, guesses = dict[tuple[str, str], Any](), dict[Any, float]()
    for part in evidence.rows("questions")["part"] if "questions" in evidence else ():
        model, _, kind = part.rpartition(", ")
        form, _, depth = kind.partition(" D = ")
        if kinds or form == "equations":
            found[model, form if kinds else depth] = part, kind if kinds else int(depth)
    for (model, _), (part, place) in found.items():
        low, value, high = (numbers(evidence, f"accuracy{end}", part)[0] for end in ("_low", "", "_high"))
        if not math.isnan(value):  # without an acceptable answer there is no accuracy
            yield {"model": model, name: place, "value": value, "low": low, "high": high}
        guesses[place] = numbers(evidence, "guess", part)[0]
    yield from ({"model": "a guess", name: place, "value": value} for place, value in guesses.items())


def figures(options: Options) -> Iterable[charts.Figure]:
    """The paper's Figure 2."""
    look: Any = {"title": "accuracy, given an acceptable answer", "ends": (0.0, 1.0), "by": "model"}
    yield charts.dots("accuracy", "formulation", rows=partial(of_each, True), name="formulations", **look)
    if "equations" in options.formulations and len(options.depths) > 1:
        yield charts.sweep("accuracy", "equations", rows=partial(of_each, False), name="depths", **look)


study = Study(
    name="llm",
    question="language models answer retrieval problems in words: how often, and how they fail",
    options=Options(),
    configurations=check,
    measures=(answers,),
    claims=claims,
    figures=figures,
    presets={"smoke": {"count": 8}, "laptop": {}, "paper": {"count": PAPER_COUNT}},
    costs={
        "smoke": "72 questions to each model named with --model",
        "laptop": "900 questions to each model, of 5 to 41 short lines",
        "paper": "4,500 questions to each model, as in the paper",
    },
    page="page.md.j2",
)
