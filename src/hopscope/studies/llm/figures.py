"""The paper's Figure 2, and which chains wrong answers follow."""

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from hopscope.figures import Figure, dots, sweep
from hopscope.figures.series import SHARE, Axis, Given, Mark, Series
from hopscope.language.questions.answers import Share, Tally, by_chance, share
from hopscope.studies.llm.config import LanguageModelConfig, short_names
from hopscope.studies.llm.measurements import cells

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

BY_FORMULATION, BY_DEPTH, FOLLOWED = "accuracy_by_formulation", "equations_by_depth", "chains_followed"
GUESS, CHANCE = "a guess", "if every other chain is followed equally often"


def figures(config: LanguageModelConfig) -> tuple[Figure, ...]:
    """The figures of a run; without a model there is nothing to draw."""
    if not config.model:
        return ()
    accuracy = Axis("accuracy, given an acceptable answer", SHARE, "%")
    by_formulation = dots(BY_FORMULATION, partial(_by_formulation, config), accuracy).answers("fig-2-left")
    by_depth = sweep(BY_DEPTH, partial(_by_depth, config), accuracy, marks=partial(_guess, config),
                     across=Axis("D, number of equations to go through")).answers("fig-2-right")  # fmt: skip
    followed = sweep(FOLLOWED, partial(_followed, config), Axis("share of wrong answers", format="%"),
                     across=Axis("lines further down"), columns=3, height=150)  # fmt: skip
    several = "equations" in config.formulations and len(config.depths) > 1
    return (by_formulation, *((by_depth,) if several else ()), followed)


def _by_formulation(config: LanguageModelConfig, evidence: "Evidence") -> list[Series]:
    """The deepest questions of each formulation: the left panel of Figure 2."""
    names, found = short_names(config.model), cells(evidence, config)
    deepest = {(cell.model, cell.formulation): cell for cell in found}.values()
    guesses = {f"{_words(cell)}, D = {cell.depth}": cell.guess for cell in deepest}
    return [
        *(Series(name=names[cell.model], y=f"{_words(cell)}, D = {cell.depth}", given=_ends(cell.accuracy))
          for cell in deepest),
        *(Series(name=GUESS, y=row, given=Given(guess)) for row, guess in guesses.items()),
    ]  # fmt: skip


def _by_depth(config: LanguageModelConfig, evidence: "Evidence") -> list[Series]:
    names = short_names(config.model)
    return [
        Series(name=names[cell.model], x=str(cell.depth), given=_ends(cell.accuracy))
        for cell in _equations(config, evidence)
    ]


def _guess(config: LanguageModelConfig, evidence: "Evidence") -> list[Mark]:
    # Of every depth alike: the names that a question could have as its answer are as many as its chains.
    return [Mark(cell.guess, GUESS) for cell in _equations(config, evidence)[:1]]


def _followed(config: LanguageModelConfig, evidence: "Evidence") -> list[Series]:
    """For each model and formulation, depths together: wrong answers of another chain, by where its line stands."""
    names, series = short_names(config.model), []
    chances: dict[tuple[str, str], float] = {}
    found = groupby(cells(evidence, config), key=lambda cell: (cell.model, cell.formulation))
    for (model, _), group in found:
        depths = list(group)
        total, chains, panel = sum(cell.lost_chain for cell in depths), depths[0].chains, _words(depths[0])
        for offset in (offset for offset in range(1 - chains, chains) if offset):
            x = f"{offset:+d}".replace("-", "−")
            there = share(sum(cell.from_first_line.get(str(offset), 0) for cell in depths), total)
            series.append(Series(name=names[model], x=x, panel=panel, given=_ends(there)))
            chances[x, panel] = by_chance(offset, chains)
    return series + [
        Series(name=CHANCE, x=x, panel=panel, given=Given(value)) for (x, panel), value in chances.items()
    ]


def _equations(config: LanguageModelConfig, evidence: "Evidence") -> list[Tally]:
    return [cell for cell in cells(evidence, config) if cell.formulation == "equations"]


def _ends(of: Share) -> Given:
    return Given(of.value, of.low, of.high)


def _words(cell: Tally) -> str:
    return cell.formulation.replace("_", " ")
