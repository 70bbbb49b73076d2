"""The paper's Figure 2, and which chains wrong answers follow, as Vega-Lite specifications with their data as CSV."""

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url, write_figure
from hopscope.studies.llm.cells import Cell, by_chance
from hopscope.studies.llm.config import LanguageModelConfig
from hopscope.studies.llm.words import NAMES, short_names
from hopscope.studies.marks import INK, QUIET_INK, colour, facet, legend
from hopscope.studies.rows import WIDTH, Drawn, Row, short

BY_FORMULATION, BY_DEPTH, FOLLOWED = "accuracy_by_formulation", "equations_by_depth", "chains_followed"

_SHARE = {"value": "number", "low": "number", "high": "number", "guess": "number"}
_HEIGHT = 300


def figure_names(config: LanguageModelConfig) -> tuple[str, ...]:
    """Names of the figures of a run; without a model there is nothing to draw."""
    if not config.model:
        return ()
    by_depth = ("equations" in config.formulations) and len(config.depths) > 1
    return (BY_FORMULATION, *((BY_DEPTH,) if by_depth else ()), FOLLOWED)


def write_figures(run: RunFolder, config: LanguageModelConfig, cells: Sequence[Cell]) -> None:
    """Write every figure of a run.

    Raises:
        UserError: a file cannot be written.
    """
    for name in figure_names(config):
        write_figure(run, name, *_DRAW[name](config, cells))


def headline(cells: Sequence[Cell]) -> list[Cell]:
    """One cell for each model and formulation, the deepest: the left panel of Figure 2."""
    deepest: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        known = deepest.get((cell.model, cell.formulation))
        if known is None or cell.depth > known.depth:
            deepest[cell.model, cell.formulation] = cell
    return list(deepest.values())


def accuracy_rows(config: LanguageModelConfig, cells: Sequence[Cell]) -> list[Row]:
    """A row for each cell: accuracy given acceptable with its interval, and what guessing gives."""
    names = short_names(config.model)
    return [
        {
            "model": names[cell.model],
            "formulation": _title(cell),
            "depth": cell.depth,
            **{
                end: None if value is None else short(value)
                for end, value in (
                    ("value", cell.accuracy.value),
                    ("low", cell.accuracy.low),
                    ("high", cell.accuracy.high),
                )
            },
            "guess": short(cell.guess),
            "answered": cell.accuracy.of,
        }
        for cell in cells
    ]


def _title(cell: Cell) -> str:
    return f"{NAMES[cell.formulation]}|D = {cell.depth}"


def _place(config: LanguageModelConfig, x: alt.X) -> dict[str, Any]:
    """Models side by side at one place, each in its colour."""
    models = list(short_names(config.model).values())
    return {
        "x": x,
        "color": colour("model", models),
        "xOffset": alt.XOffset("model:N", scale=alt.Scale(domain=models)),
    }


def _accuracy_axis(field: str) -> alt.Y:
    return alt.Y(
        f"{field}:Q",
        title="accuracy, given an acceptable answer",
        scale=alt.Scale(domain=[0.0, 1.0], nice=False),
        axis=alt.Axis(format="%"),
    )


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("model:N"),
        alt.Tooltip("depth:Q", title="D"),
        *(alt.Tooltip(f"{name}:Q", format=".2%") for name in ("value", "low", "high", "guess")),
        alt.Tooltip("answered:Q", title="questions with an acceptable answer"),
    ]


def _guess_label() -> dict[str, Any]:
    return {
        "strokeDash": alt.StrokeDash(
            "label:N", scale=alt.Scale(range=[[5, 4]]), legend=legend(symbolType="stroke")
        )
    }


def _draw_by_formulation(config: LanguageModelConfig, cells: Sequence[Cell]) -> Drawn:
    rows = accuracy_rows(config, headline(cells))
    titles = list(dict.fromkeys(row["formulation"] for row in rows))
    x = alt.X(
        "formulation:N",
        title=None,
        sort=titles,
        axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, '|')", labelLimit=0),
        scale=alt.Scale(paddingInner=0.25),
    )
    place = _place(config, x)
    bars = alt.Chart().mark_bar(opacity=0.75).encode(**place, y=_accuracy_axis("value"), tooltip=_tooltip())
    spread = (
        alt.Chart()
        .transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.6, color=INK)
        .encode(
            x=x,
            xOffset=place["xOffset"],
            y=_accuracy_axis("low"),
            y2="high:Q",
            tooltip=_tooltip(),
        )
    )
    ends = {
        "x": alt.X("formulation:N", sort=titles, bandPosition=0),
        "x2": alt.X2("formulation:N", bandPosition=1),
    }
    guess = (
        alt.Chart()
        .transform_calculate(label="'guessing'")
        .mark_rule(strokeWidth=1.6, color=QUIET_INK)
        .encode(**ends, y=_accuracy_axis("guess"), **_guess_label(), tooltip=_tooltip())
    )
    types = {"model": "string", "formulation": "string", "depth": "number", **_SHARE, "answered": "number"}
    chart = alt.layer(bars, spread, guess, data=data_url(BY_FORMULATION, types))
    return chart.properties(width=WIDTH, height=_HEIGHT), rows


def _draw_by_depth(config: LanguageModelConfig, cells: Sequence[Cell]) -> Drawn:
    rows = accuracy_rows(config, [cell for cell in cells if cell.formulation == "equations"])
    # Models stand closely side by side, so that a line is seen to belong to its depths.
    close = alt.Scale(paddingInner=0.75, paddingOuter=0.4)
    x = alt.X(
        "depth:O", title="D, number of equations to go through", axis=alt.Axis(labelAngle=0), scale=close
    )
    place = _place(config, x)
    asked = alt.Chart().transform_filter("isValid(datum.value)")
    spread = asked.mark_rule(strokeWidth=1.6).encode(
        **place, y=_accuracy_axis("low"), y2="high:Q", tooltip=_tooltip()
    )
    points = asked.mark_line(point={"size": 45}, strokeWidth=2).encode(
        **place, y=_accuracy_axis("value"), tooltip=_tooltip()
    )
    guess = (
        alt.Chart()
        .transform_calculate(label="'guessing'")
        .mark_line(strokeWidth=1.4, color=QUIET_INK)
        .encode(x=x, y=_accuracy_axis("guess"), **_guess_label())
    )
    types = {"model": "string", "formulation": "string", "depth": "number", **_SHARE, "answered": "number"}
    chart = alt.layer(guess, spread, points, data=data_url(BY_DEPTH, types))
    return chart.properties(width=WIDTH, height=_HEIGHT), rows


def followed_rows(config: LanguageModelConfig, cells: Sequence[Cell]) -> list[Row]:
    """For each model and formulation (depths together): wrong answers of another chain, by where its line stands."""
    names = short_names(config.model)
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.formulation), []).append(cell)
    rows: list[Row] = []
    for (model, _), group in groups.items():
        total = sum(cell.lost_chain for cell in group)
        chains = group[0].chains
        for offset in (offset for offset in range(1 - chains, chains) if offset):
            count = sum(cell.from_first_line.get(str(offset), 0) for cell in group)
            rows.append(
                {
                    "model": names[model],
                    "formulation": NAMES[group[0].formulation],
                    "offset": offset,
                    "share": short(count / total) if total else None,  # no bar, but a panel can be drawn
                    "count": count,
                    "of": total,
                    "chance": short(by_chance(offset, chains)),
                }
            )
    return rows


def _draw_followed(config: LanguageModelConfig, cells: Sequence[Cell]) -> Drawn:
    rows = followed_rows(config, cells)
    shown = [name for name in NAMES.values() if any(row["formulation"] == name for row in rows)]
    x = alt.X(
        "offset:O",
        title="lines further down",
        axis=alt.Axis(labelAngle=0, labelExpr="replace(datum.label, '-', '−')"),
    )
    place = _place(config, x)
    share = alt.Y("share:Q", title="share of wrong answers", axis=alt.Axis(format="%"))
    tooltip = [alt.Tooltip(name) for name in ("model:N", "offset:O", "count:Q", "of:Q")]
    bars = alt.Chart().mark_bar(opacity=0.75).encode(**place, y=share, tooltip=tooltip)
    ends = {"x": alt.X("offset:O", bandPosition=0), "x2": alt.X2("offset:O", bandPosition=1)}
    chance = (
        alt.Chart()
        .transform_calculate(label="'every other chain equally often'")
        .mark_rule(strokeWidth=1.6, color=QUIET_INK)
        .encode(**ends, y=alt.Y("chance:Q"), **_guess_label())
    )
    types = {
        "model": "string", "formulation": "string", "offset": "number", "share": "number", "count": "number",
        "of": "number", "chance": "number",
    }  # fmt: skip
    chart = (
        alt.layer(bars, chance)
        .properties(width=160, height=150)
        .facet(facet=facet("formulation", shown), columns=3, data=data_url(FOLLOWED, types))
    )
    return chart, rows


_DRAW: dict[str, Callable[[LanguageModelConfig, Sequence[Cell]], Drawn]] = {
    BY_FORMULATION: _draw_by_formulation,
    BY_DEPTH: _draw_by_depth,
    FOLLOWED: _draw_followed,
}
