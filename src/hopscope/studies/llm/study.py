"""Do language models solve retrieval problems in words (paper, section 4)?  Nothing is trained; models are asked."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.intervals import wilson
from hopscope.language.questions import Protocol
from hopscope.page import figures as charts
from hopscope.studies.llm.claims import claims
from hopscope.studies.llm.options import PAPER_COUNT, Options, check, short_names
from hopscope.study.measure import Context, measure
from hopscope.study.study import Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

GUESS, CHANCE = "a guess", "if every other chain is followed equally often"


@measure(when="run")
def answers(context: Context) -> Iterator[dict[str, Any]]:
    """What every model answers; see `hopscope.language.answers.rows`."""
    from hopscope.language.answers import rows
    from hopscope.language.evaluate import ask

    options, folder = context.options, context.run.path / "logs"
    how = {name: getattr(options, name) for name in Protocol.model_fields}
    return rows(ask(options.model, options.kinds(), folder, budget=context.budget, say=context.say, **how))


def told(evidence: "Evidence") -> dict[tuple[str, str], dict[str, float]]:
    """Model, by its short name, and kind of question → metric → its number, of everything that was asked and said."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    frame = evidence.rows()
    for metric, part, value in zip(frame["metric"], frame["part"], frame["value"], strict=True):
        name, _, what = part.partition(": ")
        model, _, kind = name.rpartition(", ")
        if metric != "correct":
            found.setdefault((model, kind), {})[what if metric == "count" else metric] = float(value)
    short = short_names([*dict.fromkeys(model for model, _ in found)])
    asked = (each for each in found.items() if "questions" in each[1])
    return {(short[model], kind): numbers for (model, kind), numbers in asked}


def of_each(kinds: bool, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Accuracy of each model by depth of the equations; or by formulation, of each the deepest questions."""
    found, guesses = told(evidence), dict[str, float]()
    deepest = {(model, kind.split(" D = ")[0]): kind for model, kind in found}
    for (model, kind), numbers in found.items():
        name, _, depth = kind.partition(" D = ")
        if (kinds and deepest[model, name] == kind) or (not kinds and name == "equations"):
            place: Any = kind if kinds else int(depth)
            low, value, high = (numbers[f"accuracy{end}"] for end in ("_low", "", "_high"))
            if value == value:  # without an acceptable answer there is no accuracy
                yield {"model": model, "at": place, "value": value, "low": low, "high": high}
            guesses[place] = numbers["guess"]
    yield from ({"model": GUESS, "at": place, "value": value} for place, value in guesses.items())


def followed(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Wrong answers of another chain, by how many lines further down it begins; depths of equations together."""
    counts = defaultdict[tuple[str, str], Counter[int]](Counter)
    for (model, kind), numbers in told(evidence).items():
        lines = {what: count for what, count in numbers.items() if what.startswith("first line ")}
        for what, count in lines.items():
            counts[model, kind.split(" D = ")[0]][int(what.removeprefix("first line "))] += round(count)
    for (model, kind), group in counts.items():
        total = group.total()
        for offset in (-3, -2, -1, 1, 2, 3):
            count = group[offset]
            low, high = wilson(count, total)
            row: dict[str, Any] = {"formulation": kind, "lines": offset}
            yield {**row, "model": model, "value": count / total, "low": low, "high": high}
            yield {**row, "model": CHANCE, "value": (4 - abs(offset)) / (4 * 3)}  # of four chains


def figures(options: Options) -> Iterable[charts.Figure]:
    """The paper's Figure 2, and which chains wrong answers follow."""
    look: Any = {"title": "accuracy, given an acceptable answer", "ends": (0.0, 1.0), "by": "model"}
    share: Any = {"title": "share of wrong answers", "name": "followed"}
    found = [
        charts.dots("accuracy", "at", rows=partial(of_each, True), name="formulations", **look),
        charts.sweep("accuracy", "at", rows=partial(of_each, False), name="depths", **look),
        charts.sweep("share", "lines", by="model", panel="formulation", rows=followed, **share),
    ]
    several = "equations" in options.formulations and len(options.depths) > 1
    return found if several else [found[0], found[2]]


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
        "laptop": "900 questions to each model, of 20 to 55 short lines at most",
        "paper": "4,500 questions to each model, as in the paper",
    },
    page="page.md.j2",
)
