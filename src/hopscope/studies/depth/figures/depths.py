"""Both panels of the paper's Figure 4: final losses by number of layers, with the exact theory drawn in."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures.common import Figure
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, colour, given, seeds_and_means
from hopscope.studies.rows import SUMMARY, WIDTH, Drawn, Row, short, summary_rows
from hopscope.studies.theory import exact_by_step, exact_of
from hopscope.studies.words import symbol, symbols
from hopscope.theory.information_flow import theorem_bound

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults

CLOSE = 0.12
"""How far apart two lines of one place stand, in layers."""


def loss_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """Final losses by formulation and depth; rows of kind `theory` say what x_D takes."""
    rows: list[Row] = []
    for each in config.base():
        found = results[each]
        task = f"{each.asked}, D = {each.steps}"
        rows += summary_rows(found.seeds, found.loss, layers=each.layers, task=task)
    return rows + _theory_rows(config)


def _theory_rows(config: DepthStudyConfig) -> list[Row]:
    """What the information-flow model says of x_D, for each formulation."""
    rows: list[Row] = []
    for asked, steps, layers in (
        ("IC", config.steps, config.layers),
        ("non-IC", config.steps_last, config.layers_last),
    ):
        if layers:
            task = f"{asked}, D = {steps}"
            rows.append({"kind": "bound", "task": task, "layers": short(theorem_bound(steps)), "value": 0.0})
            rows.append({"kind": "exact", "task": task, "layers": exact_of(config, steps), "value": 0.0})
    return rows


def _layers(config: DepthStudyConfig, column: str = "layers") -> alt.X:
    deepest = max((*config.layers, *config.layers_last))
    return alt.X(
        f"{column}:Q",
        title="layers",
        scale=alt.Scale(domain=[0.5, deepest + 0.5], nice=False),
        axis=alt.Axis(values=list(range(1, deepest + 1)), format="d", grid=False),
    )


def _loss(title: str) -> alt.Y:
    return alt.Y(title=title, scale=alt.Scale(domain=[0.0, 1.05], nice=False))


def _levels(*levels: tuple[float, str]) -> list[alt.Chart]:
    """Horizontal lines at losses that mean something, with their names."""
    of = given([{"at": at, "label": label} for at, label in levels])
    rule = of.mark_rule(strokeDash=[5, 4], color=QUIET_INK).encode(y="at:Q")
    label = of.mark_text(align="right", baseline="bottom", dx=-3, dy=-2, color=QUIET_INK, fontSize=11).encode(
        y="at:Q", x=alt.value("width"), text="label:N"
    )
    return [rule, label]


def _draw_loss(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    rows = loss_rows(config, results)
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    types = {**SUMMARY, "task": "string", "layers": "number"}
    plateau = config.task(config.grid()[0]).plateau
    x, y = _layers(config), _loss("final held-out loss (MSE)")
    by = colour("task", tasks)
    theory = (
        alt.Chart().transform_filter("datum.kind == 'exact'").mark_rule(strokeWidth=1.5, strokeDash=[2, 3])
    )
    flag = (
        alt.Chart()
        .transform_filter("datum.kind == 'exact'")
        .mark_point(shape="triangle-up", filled=True, size=90, yOffset=-5)
    )
    tip = [alt.Tooltip("task:N"), alt.Tooltip("layers:Q", title="exact minimum of layers")]
    chart = alt.layer(
        *_levels((plateau, f"plateau 1 − 1/N = {plateau:g}"), (1.0, "predicting zero: 1")),
        theory.encode(x=x, color=by, tooltip=tip),
        flag.encode(x=x, y=alt.value(300), color=by, tooltip=tip),
        *seeds_and_means(x, y, by),
        data=data_url("loss_by_depth", types),
    )
    return chart.properties(width=WIDTH, height=300), rows


def partial_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """Final partial losses of the IC models by step and depth; rows of kind `exact` say what each step takes."""
    rows: list[Row] = []
    for each in (each for each in config.base() if each.asked == "IC"):
        found = results[each]
        for step in found.asked:
            rows += summary_rows(found.seeds, found.partial[step], layers=each.layers, symbol=symbol(step))
    for step, layers in exact_by_step(config, config.steps).items():
        rows.append({"kind": "exact", "symbol": symbol(step), "layers": layers, "value": 0.0})
    return rows


def _draw_partial(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    rows = partial_rows(config, results)
    names = symbols(range(1, config.steps + 1))
    plateau = config.task(config.deepest()).plateau
    x, y = _layers(config), _loss("final partial loss (MSE)")
    by = colour("symbol", names)
    # Steps that take equally many layers would hide each other.
    apart = f"datum.layers + (indexof({names}, datum.symbol) - {(len(names) - 1) / 2}) * {CLOSE}"
    exact = alt.Chart().transform_filter("datum.kind == 'exact'").transform_calculate(apart=apart)
    place = _layers(config, "apart")
    tip = [alt.Tooltip("symbol:N"), alt.Tooltip("layers:Q", title="exact minimum of layers")]
    chart = alt.layer(
        *_levels((plateau, f"plateau 1 − 1/N = {plateau:g}"), (0.5, "counts as learned: 0.5")),
        exact.mark_rule(strokeWidth=1.5, strokeDash=[2, 3]).encode(x=place, color=by, tooltip=tip),
        exact.mark_point(shape="triangle-up", filled=True, size=90, yOffset=-5).encode(
            x=place, y=alt.value(300), color=by, tooltip=tip
        ),
        *seeds_and_means(x, y, by),
        data=data_url("partial_by_depth", {**SUMMARY, "symbol": "string", "layers": "number"}),
    )
    return chart.properties(width=WIDTH, height=300), rows


LOSS_BY_DEPTH = Figure("loss_by_depth", lambda config: True, _draw_loss)
PARTIAL_BY_DEPTH = Figure("partial_by_depth", lambda config: bool(config.layers), _draw_partial)
