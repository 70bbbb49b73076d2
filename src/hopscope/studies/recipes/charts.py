"""The grids of the study of recipes: how many steps each recipe learned at each shape, and when."""

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hopscope.studies.recipes.claims import has, steps_learned
from hopscope.studies.recipes.grid import SHAPES, STEPS, Options, Recipe, recipes, starts
from hopscope.words import counted

if TYPE_CHECKING:
    from hopscope.figures import Figure
    from hopscope.runs.evidence import Evidence


def cell(evidence: "Evidence", label: str) -> dict[str, Any]:
    """Of one configuration: mean number of steps that were learned, and the median training step of the last one."""
    known = [steps for steps in steps_learned(evidence, label).values() if not math.isnan(steps)]
    if not known:
        return {"steps": None, "words": "diverged"}
    mean = sum(known) / len(known)
    ends: list[float] = []
    if mean > STEPS - 1 and "learned_at" in evidence:
        times = evidence.last("learned_at", configuration=label, part=f"step_{STEPS}")
        ends = [float(time) for time in times.dropna() if math.isfinite(time)]
    when = f" by {statistics.median(ends):.0f}" if ends else ""
    return {"steps": mean, "words": f"{mean:.2g} of {STEPS}{when}"}


def recipes_chart(evidence: "Evidence", options: Options) -> tuple[Any, list[dict[str, Any]]]:
    """A row for each recipe, a column for each shape."""
    rows = [
        {"recipe": recipe.words, "shape": shape, **cell(evidence, recipe.label)}
        for shape in SHAPES
        for recipe in (Recipe(shape, on) for on in recipes(options.parts))
        if has(evidence, recipe.label)
    ]
    order = list(dict.fromkeys(Recipe(next(iter(SHAPES)), on).words for on in recipes(options.parts)))
    return _grid("recipes", rows, ("shape", list(SHAPES)), ("recipe", order)), rows


def starts_chart(evidence: "Evidence", options: Options) -> tuple[Any, list[dict[str, Any]]]:
    """A row for each size of the weights, a column for each depth with one head or eight."""
    found = [each for each in starts(options.parts) if has(evidence, each.label)]
    rows = [
        {
            "start": f"γ {each.gamma:g}",
            "model": f"{counted(each.layers, 'layer')} of {counted(each.heads, 'head')}",
            **cell(evidence, each.label),
        }
        for each in found
    ]
    columns, order = ([*dict.fromkeys(row[name] for row in rows)] for name in ("model", "start"))
    return _grid("starts", rows, ("model", columns), ("start", order)), rows


def _grid(
    name: str, rows: Iterable[Mapping[str, Any]], across: tuple[str, list[str]], down: tuple[str, list[str]]
) -> Any:
    """Cells coloured by the number of steps learned, with words in them."""
    import altair as alt

    from hopscope.figures.marks import table

    (column, columns), (row, order) = across, down
    data = table(name, f"{column} {row} words", "steps")
    base = alt.Chart(data).encode(
        x=alt.X(
            f"{column}:N", title=None, sort=columns, axis=alt.Axis(orient="top", labelAngle=0, labelLimit=140)
        ),
        y=alt.Y(f"{row}:N", title=None, sort=order, axis=alt.Axis(labelLimit=260)),
    )
    colour = alt.Color(
        "steps:Q", title="steps learned", scale=alt.Scale(domain=[0, STEPS], scheme="blues"), legend=None
    )
    dark = alt.condition(f"datum.steps > {STEPS / 2}", alt.value("white"), alt.value("#333333"))
    squares = base.mark_rect(stroke="white", strokeWidth=2).encode(color=colour)
    words = base.mark_text(fontSize=11).encode(text="words:N", color=dark)
    return alt.layer(squares, words, data=data).properties(
        width=max(130 * len(columns), 130), height=alt.Step(26)
    )


def figures(options: Options) -> "tuple[Figure, ...]":
    """The grid of recipes, and that of starts where they were trained."""
    import hopscope as hs

    found = [hs.figures.chart("recipes", lambda evidence: recipes_chart(evidence, options))]
    if "starts" in options.parts:
        found.append(hs.figures.chart("starts", lambda evidence: starts_chart(evidence, options)))
    return tuple(found)
