"""The figures of the study of a small language model."""

from collections.abc import Sequence

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url, write_figure
from hopscope.studies.marks import QUIET_INK, colour, facet, given
from hopscope.studies.rows import WIDTH, Drawn, Row, short, thinned, thinning
from hopscope.studies.tiny_lm.config import FIGURE_NAMES, TinyLmConfig
from hopscope.studies.tiny_lm.evidence import Member

ACCURACY, CURVES = FIGURE_NAMES


def accuracy_rows(config: TinyLmConfig, members: Sequence[Member]) -> list[Row]:
    """Accuracy given acceptable of each member, by depth, with its Wilson interval over questions."""
    rows: list[Row] = []
    for each in members:
        for depth, tally in each.tallies.items():
            share = tally["accuracy"]
            if share["value"] is not None:
                ends = {"low": short(share["low"]), "high": short(share["high"])}
                rows.append(
                    {"model": each.name, "mixture": each.mixture, "depth": depth, "accuracy": short(share["value"]),
                     **ends, "questions": share["of"]}
                )  # fmt: skip
    return rows


def draw_accuracy(config: TinyLmConfig, members: Sequence[Member]) -> Drawn:
    """The right panel of the paper's Figure 2, of models of our own."""
    rows = accuracy_rows(config, members)
    types = {"model": "string", "mixture": "string", "depth": "number", "accuracy": "number", "low": "number",
             "high": "number", "questions": "number"}  # fmt: skip
    names = list(dict.fromkeys(each.name for each in members))
    x = alt.X("depth:O", title="steps D of the question", axis=alt.Axis(labelAngle=0))
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0.0, 1.0]), axis=alt.Axis(format="%"))
    apart = alt.XOffset("model:N", sort=names)
    by = colour("mixture", list(config.drawn))
    base = alt.Chart()
    spread = base.mark_rule(strokeWidth=1.6).encode(
        x=x, xOffset=apart, y=alt.Y("low:Q", title="accuracy"), y2="high:Q", color=by
    )
    tooltip = ["model:N", "depth:O", alt.Tooltip("accuracy:Q", format=".1%"), "questions:Q"]
    points = base.mark_point(filled=True, size=70, fillOpacity=0.9).encode(
        x=x, xOffset=apart, y=y, color=by, tooltip=tooltip
    )
    guess = (
        given([{"at": 1.0 / config.chains}])
        .mark_rule(strokeDash=[5, 4], color=QUIET_INK, strokeWidth=1.3)
        .encode(y=alt.Y("at:Q", title="accuracy"))
    )
    chart = alt.layer(guess, spread, points, data=data_url(ACCURACY, types))
    return chart.properties(width=min(WIDTH, 90 + 130 * len(config.depths)), height=240), rows


def curve_rows(config: TinyLmConfig, members: Sequence[Member]) -> list[Row]:
    """Held-out accuracy through training."""
    every = thinning([curve for each in members for curve in each.accuracy.values()])
    return [
        {"model": each.name, "depth": f"D = {depth}", "step": at, "accuracy": short(value)}
        for each in members
        for depth, curve in each.accuracy.items()
        for at, value in zip(*thinned(curve, every), strict=True)
    ]


def draw_curves(config: TinyLmConfig, members: Sequence[Member]) -> Drawn:
    """A small chart for each model, a line for each depth."""
    rows = curve_rows(config, members)
    types = {"model": "string", "depth": "string", "step": "number", "accuracy": "number"}
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y(
                "accuracy:Q",
                title="held-out accuracy",
                scale=alt.Scale(domain=[0.0, 1.0]),
                axis=alt.Axis(format="%"),
            ),
            color=colour("depth", [f"D = {depth}" for depth in config.depths]),
            tooltip=["model:N", "depth:N", "step:Q", alt.Tooltip("accuracy:Q", format=".1%")],
        )
    )
    guess = (
        given([{"at": 1.0 / config.chains}])
        .mark_rule(strokeDash=[5, 4], color=QUIET_INK, strokeWidth=1)
        .encode(y=alt.Y("at:Q", title="held-out accuracy"))
    )
    names = [each.name for each in members]
    columns = min(3, len(names))
    panel = alt.layer(guess, lines, data=data_url(CURVES, types)).properties(
        width=(WIDTH - 20 * (columns - 1)) // columns, height=150
    )
    return panel.facet(facet("model", names), columns=columns), rows


def write_figures(run: RunFolder, config: TinyLmConfig, members: Sequence[Member]) -> None:
    """Write every figure of a run.

    Raises:
        UserError: a file cannot be written.
    """
    write_figure(run, ACCURACY, *draw_accuracy(config, members))
    write_figure(run, CURVES, *draw_curves(config, members))
