"""How the deepest models learn: partial losses through training, and when each fell under 0.5."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures.common import Figure
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, broken_labels, colour, facet, given, shape
from hopscope.studies.rows import WIDTH, Drawn, Row, short, thinned, thinning
from hopscope.studies.words import symbol, symbols

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults

NEVER = "not within training"
SEEN = "crossed"


def curve_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """Partial held-out losses of the deepest IC models, by seed."""
    found = results[config.deepest()]
    every = thinning([curve for step in found.asked for curve in found.curves[step]])
    return [
        {"seed": f"seed {seed}", "symbol": symbol(step), "step": at, "loss": short(loss)}
        for step in found.asked
        for seed, curve in zip(found.seeds, found.curves[step], strict=True)
        for at, loss in zip(*thinned(curve, every), strict=True)
    ]


def _draw_curves(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    rows = curve_rows(config, results)
    found = results[config.deepest()]
    plateau = config.task(config.deepest()).plateau
    y = alt.Y("loss:Q", title="held-out partial loss", scale=alt.Scale(domain=[0.0, 1.05], nice=False))
    levels = given([{"at": 0.5}, {"at": plateau}]).mark_rule(
        strokeDash=[4, 4], color=QUIET_INK, strokeWidth=1
    )
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(format="~s", tickCount=3)),
            y=y,
            color=colour("symbol", symbols(found.asked)),
            tooltip=["seed:N", "symbol:N", "step:Q", "loss:Q"],
        )
    )
    types = {"seed": "string", "symbol": "string", "step": "number", "loss": "number"}
    chart = alt.layer(levels.encode(y="at:Q"), lines, data=data_url("partial_curves", types))
    columns = min(3, len(found.seeds))
    panel = chart.properties(width=(WIDTH - 20 * (columns - 1)) // columns, height=140)
    return panel.facet(facet("seed", [f"seed {seed}" for seed in found.seeds]), columns=columns), rows


def crossing_rows(config: DepthStudyConfig, results: "AllResults") -> list[Row]:
    """For each IC run and step: when its partial loss crossed 0.5, or that it did not."""
    rows: list[Row] = []
    for each in (each for each in config.base() if each.asked == "IC"):
        found = results[each]
        for step in found.asked:
            for seed, crossing in zip(found.seeds, found.crossings[step], strict=True):
                if crossing is None:
                    continue
                seen = crossing.time is not None
                rows.append(
                    {
                        "run": f"{each.layers} layers, seed {seed}"
                        if each.layers > 1
                        else f"1 layer, seed {seed}",
                        "symbol": symbol(step),
                        "seen": SEEN if seen else NEVER,
                        "step": short(
                            crossing.time if crossing.time is not None else crossing.censored_at or 0.0
                        ),
                        "low": crossing.low,
                        "high": crossing.high,
                    }
                )
    return rows


def _draw_crossings(config: DepthStudyConfig, results: "AllResults") -> Drawn:
    rows = crossing_rows(config, results)
    names = symbols(range(1, config.steps + 1))
    runs = list(dict.fromkeys(row["run"] for row in rows))
    title = "training step at which the partial loss fell under 0.5"
    x = alt.X("step:Q", title=title, axis=alt.Axis(format="~s"))
    y = alt.Y("run:N", title=None, sort=runs, axis=broken_labels())
    by = colour("symbol", names)
    base = alt.Chart()
    between = (
        base.transform_filter("isValid(datum.high)")
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, color=by)
    )
    points = base.mark_point(size=55, filled=True, fillOpacity=0.9, strokeWidth=1.5).encode(
        x=x,
        y=y,
        # What never crossed stands at the end of training, and those of one run beside each other.
        yOffset=alt.YOffset("symbol:N", sort=names),
        color=by,
        shape=shape("seen", [SEEN, NEVER]),
        tooltip=["run:N", "symbol:N", "seen:N", "step:Q", "low:Q", "high:Q"],
    )
    types = {
        "run": "string",
        "symbol": "string",
        "seen": "string",
        "step": "number",
        "low": "number",
        "high": "number",
    }
    chart = alt.layer(
        between.encode(yOffset=alt.YOffset("symbol:N", sort=names)), points, data=data_url("crossings", types)
    )
    return chart.properties(width=WIDTH - 60, height=alt.Step(6 + 4 * len(names))), rows


CURVES = Figure("partial_curves", lambda config: bool(config.layers), _draw_curves)
CROSSINGS = Figure("crossings", lambda config: bool(config.layers), _draw_crossings)
