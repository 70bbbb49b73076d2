"""What forms when: the parts of recall and what they bring about, seed by seed."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import colour, facet, shape, within
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import Figure, taken_apart
from hopscope.studies.rows import Drawn, Row, short

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

SHOWN_SEEDS = 10
"""Seeds that have a panel."""

MATCH, HISTORY = "match (attention to the earlier copy)", "history (order of the y; share of its final level)"
CURVES = ("elimination", "recall", MATCH, HISTORY)
FALL = "steepest fall of the loss"
PARTS = ("recall", "match", "history", FALL)
HIGHEST = 1.2
"""Top of the axis: history, relative to its last level, may be higher before, and is not drawn then."""


def formation_rows(found: "Evidence") -> list[Row]:
    """Curves by seed and samples: match of the head that is best at the end, history over its own last level (the mean
    of three checkpoints), recall and elimination.
    """
    from hopscope.probes.onsets import FINAL_EVALUATIONS

    samples = found.shared("formation", "checkpoints.samples")
    names = ("match", "history", "recall", "elimination", "best_head")
    rows: list[Row] = []
    for seed, *curves in zip(found.seeds, *(found.each("formation", name) for name in names), strict=True):
        if any(curve is None or None in curve for curve in curves):
            continue
        match, history, recall, elimination, best = curves
        last = fmean(history[-FINAL_EVALUATIONS:])
        values = {
            MATCH: [by_head[best[-1]] for by_head in match],
            HISTORY: [value / last for value in history] if last > 0 else [],
            "recall": recall,
            "elimination": elimination,
        }
        rows += [
            {"seed": f"seed {seed}", "curve": name, "samples": int(at), "value": short(value)}
            for name, curve in values.items()
            for at, value in zip(samples, curve, strict=False)
        ]
    return _first_seeds(rows)


def _first_seeds(rows: Iterable[Row]) -> list[Row]:
    kept = list(rows)
    seeds = list(dict.fromkeys(row["seed"] for row in kept))[:SHOWN_SEEDS]
    return [row for row in kept if row["seed"] in seeds]


def _draw_formation(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"seed": "string", "curve": "string", "samples": "number", "value": "number"}
    rows = formation_rows(shown[0])
    lines = (
        alt.Chart()
        .transform_calculate(shown=within("value", 0, HIGHEST))
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("samples:Q", title="training samples", axis=alt.Axis(format="~s", tickCount=4),
                    scale=alt.Scale(zero=True, nice=False)),
            y=alt.Y("shown:Q", title="share", scale=alt.Scale(domain=[0, HIGHEST]),
                    axis=alt.Axis(values=[0, 0.5, 1], format="~g")),
            color=colour("curve", CURVES, columns=2, symbolType="stroke"),
            tooltip=["seed:N", "curve:N", "samples:Q", alt.Tooltip("value:Q", format=".3~g")],
        )
        .properties(width=175, height=110)
    )  # fmt: skip
    chart = alt.layer(lines, data=data_url("formation", types))
    return chart.facet(facet("seed", list(dict.fromkeys(row["seed"] for row in rows))), columns=3), rows


def order_rows(found: "Evidence", values: int) -> list[Row]:
    """When each part was half-way, by seed, and the interval in which the checkpoints leave it; what never formed has
    no row.  The training loss has its evaluations for a clock, the others the checkpoints.
    """
    from hopscope.studies.permutation.evidence import transitions

    rows: list[Row] = []
    whole = zip(found.seeds, found.each("formation", "order"), transitions(found, values), strict=True)
    for seed, order, transition in whole:
        crossings = {} if order is None else {name: order["parts"][name]["half"] for name in PARTS[:-1]}
        crossings[FALL] = None if transition is None else transition["steepest_fall"]
        rows += [_order_row(seed, part, crossed) for part, crossed in crossings.items() if _happened(crossed)]
    return rows


def _happened(crossed: Mapping[str, Any] | None) -> bool:
    return crossed is not None and crossed["time"] is not None


def _order_row(seed: int, part: str, crossed: Mapping[str, Any]) -> Row:
    times = {name: round(crossed[name]) for name in ("time", "low", "high")}
    return {"seed": f"seed {seed}", "part": part, **times}


def _draw_order(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"seed": "string", "part": "string", "time": "number", "low": "number", "high": "number"}
    found = shown[0]
    title = "training samples seen"
    seeds = [f"seed {seed}" for seed in found.seeds]
    y = alt.Y("seed:N", sort=seeds, scale=alt.Scale(domain=seeds, paddingInner=0.2), title=None)
    offset = alt.YOffset("part:N", sort=["match", "history", "recall", FALL])

    def x(column: str) -> alt.X:
        return alt.X(f"{column}:Q", title=title, axis=alt.Axis(format="~s"), scale=alt.Scale(zero=False))

    chart = alt.Chart()
    # The colours of the curves: elimination has the first one, and no row here.
    order = ["elimination", *PARTS]
    color = colour("part", order, values=list(PARTS))
    detail: dict[str, Any] = {"y": y, "yOffset": offset}
    spans = chart.mark_rule(strokeWidth=2.2, strokeOpacity=0.5).encode(
        **detail, x=x("low"), x2="high:Q", color=color
    )
    points = chart.mark_point(filled=True, size=46, fillOpacity=1).encode(
        **detail,
        x=x("time"),
        color=color,
        shape=shape("part", order, values=list(PARTS)),
        tooltip=["seed:N", "part:N", "time:Q", "low:Q", "high:Q"],
    )
    layers = alt.layer(spans, points, data=data_url("formation_order", types))
    return layers.properties(width=560, height=34 * len(seeds)), order_rows(found, _values(config, found))


def _values(config: PermutationStudyConfig, found: "Evidence") -> int:
    return config.task(found.configuration).values


def _largest(config: PermutationStudyConfig) -> list[Configuration]:
    return taken_apart(config)[:1]


FORMATION = Figure("formation", _largest, _draw_formation)
FORMATION_ORDER = Figure("formation_order", _largest, _draw_order)
