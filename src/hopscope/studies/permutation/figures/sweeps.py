"""Recall, elimination and memorisation along one axis at a time: number of values, capacity, share of repeats."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, colour, legend, on, seeds_and_means
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import SKILLS, Figure
from hopscope.studies.permutation.figures.common import swept as configurations_with
from hopscope.studies.rows import SUMMARY, Drawn, Row, summary_rows

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

LEAST_POINTS = 3
"""Points on the axis of a sweep; fewer show no course."""

PANELS = {"repeats": "recall (trained with repeats)", "plain": "way to memorising (plain data)"}
GUESSES = ("guess among values shown", "guess among all values")
MEASURES = {"repeats": ("probes", "recall"), "plain": ("posteriors", "memorised_share")}


def _of_values(config: PermutationStudyConfig) -> list[Configuration]:
    found = []
    for data in PANELS:
        known = configurations_with(config, data, "values")
        found += known if len({config.task(each).values for each in known}) > 1 else []
    return found


def value_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Recall and memorised share by V."""
    rows: list[Row] = []
    for found in shown:
        data = found.configuration.data
        rows += summary_rows(
            found.seeds,
            found.each(*MEASURES[data]),
            panel=PANELS[data],
            values=config.task(found.configuration).values,
        )
    return rows


def guess_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Recall of two observers that do not recall, by V: `kind` "guess among …"."""
    values = {
        config.task(found.configuration).values for found in shown if found.configuration.data == "repeats"
    }
    return [
        {"panel": PANELS["repeats"], "values": count, "kind": "guess", "guess": name, "value": round(1 / among, 5)}
        for count in sorted(values)
        for name, among in zip(GUESSES, (count - 1, count), strict=True)
    ]  # fmt: skip


def _draw_values(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"panel": "string", "values": "number", "guess": "string", **SUMMARY}
    data = list(dict.fromkeys(found.configuration.data for found in shown))
    x = alt.X("values:O", title="V, number of values", axis=alt.Axis(labelAngle=0))
    panels = []
    for kind in data:
        title, scale = PANELS[kind], alt.Scale(domain=[0, 1]) if kind == "repeats" else alt.Scale(zero=True)
        by = alt.Color("panel:N", scale=alt.Scale(domain=list(PANELS.values())[::-1]), legend=None)
        y = alt.Y(title=title, scale=scale, axis=alt.Axis(format="%", tickCount=6))
        layers = seeds_and_means(x, y, by, "values:O")
        guesses = (
            alt.Chart()
            .transform_filter("datum.kind == 'guess'")
            .mark_line(color=QUIET_INK, strokeWidth=1.3)
            .encode(
                x=x,
                y=on(y, "value"),
                strokeDash=alt.StrokeDash("guess:N", scale=alt.Scale(domain=list(GUESSES)), legend=legend(columns=1)),
                tooltip=["guess:N", "values:O", "value:Q"],
            )
        )  # fmt: skip
        panel = alt.layer(*([guesses] if kind == "repeats" else []), *layers)
        panels.append(panel.transform_filter(f"datum.panel == '{title}'").properties(width=245, height=230))
    chart = alt.hconcat(*panels, data=data_url("sweep_values", types))
    return chart, value_rows(config, shown) + guess_rows(config, shown)


def _of_capacity(config: PermutationStudyConfig) -> list[Configuration]:
    known = [each for each in config.grid() if each.data == "repeats" and not each.changes]
    return known if len({each.width for each in known}) >= LEAST_POINTS else []


def capacity_rows(shown: "list[Evidence]") -> list[Row]:
    """Recall by width and heads."""
    return [
        row
        for found in shown
        for row in summary_rows(
            found.seeds,
            found.each("probes", "recall"),
            width=found.configuration.width,
            heads=_heads(found.configuration.heads),
        )
    ]


def _heads(count: int) -> str:
    return f"{count} head" if count == 1 else f"{count} heads"


def _draw_capacity(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"width": "number", "heads": "string", **SUMMARY}
    heads = [_heads(count) for count in sorted({found.configuration.heads for found in shown})]
    layers = seeds_and_means(
        alt.X("width:O", title="width of the model", axis=alt.Axis(labelAngle=0)),
        _share("recall (held-out mappings)"),
        colour("heads", heads),
        "width:O",
        "heads:N",
        offset=alt.XOffset("heads:N", sort=heads),
    )
    chart = alt.layer(*layers, data=data_url("sweep_capacity", types))
    return chart.properties(width=560, height=260), capacity_rows(shown)


def _share(title: str) -> alt.Y:
    return alt.Y(title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=6))


def _of_ratio(config: PermutationStudyConfig) -> list[Configuration]:
    known = configurations_with(config, "repeats", "repeat_ratio")
    return known if len(known) >= LEAST_POINTS else []


def ratio_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Both skills by the share of training sequences with a repeat."""
    return [
        row
        for found in shown
        for skill in SKILLS
        for row in summary_rows(
            found.seeds,
            found.each("probes", skill),
            ratio=config.task(found.configuration).repeat_ratio,
            skill=skill,
        )
    ]


def _draw_ratio(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"ratio": "number", "skill": "string", **SUMMARY}
    layers = seeds_and_means(
        alt.X("ratio:Q", title="share of training sequences with a repeat", axis=alt.Axis(format="%"),
              scale=alt.Scale(domain=[0, 1])),
        _share("accuracy (held-out mappings)"),
        colour("skill", list(SKILLS)),
        "ratio:Q", "skill:N",
    )  # fmt: skip
    chart = alt.layer(*layers, data=data_url("sweep_ratio", types))
    return chart.properties(width=560, height=260), ratio_rows(config, shown)


SWEEP_VALUES = Figure("sweep_values", _of_values, _draw_values)
SWEEP_CAPACITY = Figure("sweep_capacity", _of_capacity, _draw_capacity)
SWEEP_RATIO = Figure("sweep_ratio", _of_ratio, _draw_ratio)
