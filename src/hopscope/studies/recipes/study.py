"""What does it take for stacked heads to form?  Details of start and schedule switched off, on, and all ways."""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import has, steps_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.chains.recipe import QUICK, QUICK_TRAINING, chains_of, check_names
from hopscope.studies.recipes.claims import CLAIMS
from hopscope.studies.recipes.grid import ALL_ON, OFF, SHAPES, STEPS, Recipe, Start, starts, without
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

PARTS = ("without", "alone", "factorial", "starts")


class Options(Config):
    """What is trained beside the models that have every detail.

    Attributes:
        parts: "without": each detail off, alone; "alone": each on, alone, and none; "factorial": all ways; "starts":
            starts of four sizes with every other detail on, in models of three depths with one head or eight.
        decisive_seeds: seeds of "without" and "alone", and of the models with every detail, if more than of the others.
    """

    parts: tuple[str, ...] = ("without",)
    decisive_seeds: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _are_parts(self) -> Self:
        check_names("parts", self.parts, PARTS)
        return self


def recipes(parts: Iterable[str]) -> dict[tuple[str, ...], bool]:
    """Details that are on → whether the recipe is one of those that decide; in the order in which a page shows them."""
    found: dict[tuple[str, ...], bool] = {ALL_ON: True}
    if "without" in parts:
        found |= {without(name): True for name in OFF}
    if "alone" in parts:
        found |= {(name,): True for name in OFF} | {(): True}
    if "factorial" in parts:
        every = (on for count in range(len(OFF), -1, -1) for on in combinations(OFF, count))
        found = dict.fromkeys(every, False) | found
    return found


def configurations(options: Options, study: Study) -> Iterator[Configuration]:
    """All that is trained, by label."""
    most = max(study.seeds, options.decisive_seeds)
    for shape in SHAPES:
        for on, decides in recipes(options.parts).items():
            each = Recipe(shape, on)
            yield Configuration(label=each.label, overrides=each.overrides, seeds=most if decides else None)
    for start in starts() if "starts" in options.parts else ():
        yield Configuration(label=start.label, overrides=start.overrides)


# What is drawn: how many steps each recipe learned at each shape, and when.


def rows(trained: Iterable[Recipe | Start], evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Of each configuration that the run has: mean number of learned steps, and the median time of the last one."""
    import pandas as pd

    for each in trained:
        if not has(evidence, each.label):
            continue
        steps = pd.Series(steps_learned(evidence, each.label, STEPS)).dropna()
        mean, ends = float(steps.mean()), list[float]()
        if mean > STEPS - 1 and "learned_at" in evidence:
            times = evidence.last("learned_at", configuration=each.label, part=f"step_{STEPS}")
            ends = [time for time in times.dropna() if math.isfinite(time)]
        note = f"{mean:.2g} of {STEPS}" + (f" by {statistics.median(ends):.0f}" if ends else "")
        told = {"value": mean, "note": note} if len(steps) else {"value": None, "note": "diverged"}
        yield {"recipe": each.words, "shape": each.shape, **told}


def figures(options: Options) -> list[charts.Figure]:
    """A row for each recipe, a column for each shape; and the same of starts and models, where they were trained."""
    every = [Recipe(shape, on) for shape in SHAPES for on in recipes(options.parts)]
    cells: dict[str, Sequence[Recipe | Start]] = {"recipes": every}
    cells |= {"starts": starts()} if "starts" in options.parts else {}
    look: Any = {"title": "steps learned", "ends": (0.0, float(STEPS))}
    return [
        charts.cells("steps", "shape", "recipe", name=name, rows=partial(rows, trained), **look)
        for name, trained in cells.items()
    ]


study = Study(
    name="recipes",
    question="what does it take for stacked heads to form: which details of start and schedule, at which depth?",
    task=chains_of(STEPS),
    model=QUICK,
    training=QUICK_TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=3,
    measures=(learned_at,),
    claims=CLAIMS,
    figures=figures,
    presets={
        "smoke": {"seeds": 1, "training.steps": 20, "model.width": 32},
        "laptop": {},
        "workstation": {"seeds": 4, "parts": PARTS, "decisive_seeds": 8},
    },
    costs={
        "smoke": "under half a minute on two cores",
        "laptop": "under 20 min on two cores: 36 models",
        "workstation": "three to five hours on two cores: 448 models",
    },
    page="page.md.j2",
    held_out=256,
)
