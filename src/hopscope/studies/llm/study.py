"""Do language models solve retrieval problems in words (paper, section 4)?  Nothing is trained; models are asked."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims.intervals import wilson
from hopscope.page import figures as charts
from hopscope.studies.llm.claims import claims
from hopscope.studies.llm.measures import answers, told
from hopscope.studies.llm.options import PAPER_COUNT, Options, check, short_names
from hopscope.study.study import Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

GUESS, CHANCE = "a guess", "if every other chain is followed equally often"


# What is drawn.


def of_each(kinds: bool, evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Accuracy of each model by depth of the equations; or by formulation, of each the deepest questions."""
    found = told(evidence)
    names = short_names([*dict.fromkeys(model for model, _ in found)])
    guesses = dict[str, float]()
    deepest = {(model, kind.split(" D = ")[0]): kind for model, kind in found}
    for (model, kind), numbers in found.items():
        name, _, depth = kind.partition(" D = ")
        if (kinds and deepest[model, name] == kind) or (not kinds and name == "equations"):
            place: Any = kind if kinds else int(depth)
            low, value, high = (numbers[f"accuracy{end}"] for end in ("_low", "", "_high"))
            if value == value:  # without an acceptable answer there is no accuracy
                yield {"model": names[model], "at": place, "value": value, "low": low, "high": high}
            guesses[place] = numbers["guess"]
    yield from ({"model": GUESS, "at": place, "value": value} for place, value in guesses.items())


def followed(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Wrong answers of another chain, by how many lines further down it begins; depths of equations together."""
    found = told(evidence)
    names = short_names([*dict.fromkeys(model for model, _ in found)])
    counts: dict[tuple[str, str], dict[int, float]] = {}
    for (model, kind), numbers in found.items():
        group = counts.setdefault((names[model], kind.split(" D = ")[0]), {})
        for what, count in numbers.items():
            if what.startswith("first line "):
                offset = int(what.removeprefix("first line "))
                group[offset] = group.get(offset, 0.0) + count
    for (model, kind), group in counts.items():
        total = round(sum(group.values()))
        for offset in (offset for offset in range(-3, 4) if offset and total):
            count = group.get(offset, 0.0)
            low, high = wilson(round(count), total)
            row: dict[str, Any] = {"formulation": kind, "lines": offset}
            yield {**row, "model": model, "value": count / total, "low": low, "high": high}
            yield {**row, "model": CHANCE, "value": by_chance(offset)}


def by_chance(offset: int, chains: int = 4) -> float:
    """Share of other chains that begin so many lines further down, if every one is followed equally often."""
    return (chains - abs(offset)) / (chains * (chains - 1))


def figures(options: Options) -> Iterable[charts.Figure]:
    """The paper's Figure 2, and which chains wrong answers follow."""
    look: Mapping[str, Any] = {"title": "accuracy, given an acceptable answer", "ends": (0.0, 1.0)}
    found = [
        charts.dots("accuracy", "at", by="model", rows=partial(of_each, True), name="formulations", **look)
    ]
    if "equations" in options.formulations and len(options.depths) > 1:
        found.append(
            charts.sweep("accuracy", "at", by="model", rows=partial(of_each, False), name="depths", **look)
        )
    share: Mapping[str, Any] = {"title": "share of wrong answers", "name": "followed"}
    return [*found, charts.sweep("share", "lines", by="model", panel="formulation", rows=followed, **share)]


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
