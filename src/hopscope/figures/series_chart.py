"""Drawings of figures of series: the same four shapes for every study."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.errors import UserError
from hopscope.figures import Drawing, data_url
from hopscope.figures.marks import (
    INK,
    QUIET_INK,
    ZERO,
    broken_labels,
    colour,
    facet,
    given,
    in_lines,
    legend,
    numbers,
    of_kind,
    on,
    seeds_and_means,
    shape,
    within,
)
from hopscope.figures.rows import SUMMARY, WIDTH, Row
from hopscope.figures.series import Axis, Mark, Series, SeriesFigure
from hopscope.figures.series_rows import HOLLOW, UNNAMED, final_rows, line_rows, mark_rows, told_apart

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

GAP = 20
"""Pixels between two small charts, with the axis of the second."""

ROW, LABELS = 14, 170
"""Pixels of one series in a row, and what the labels of rows take of the width."""

HEIGHT = {"lines": 150, "sweep": 280}

OUTLINE = "#d62728"

DASHES = ([1, 0], [5, 3], [1, 2], [2, 6])
"""Of lines, for what their dashes stand for."""

_TYPES = {"panel": "string", "name": "string", "x": "string", "y": "string", "arm": "string", **SUMMARY}


def draw_series(name: str, figure: SeriesFigure, evidence: "Evidence") -> Drawing:
    """The chart of a figure of series, and its rows.

    Raises:
        UserError: the evidence has no such metric or column.
    """
    try:
        series, marks = (
            list(each(evidence) if callable(each) else each) for each in (figure.series, figure.marks)
        )
        return _SHAPES[figure.shape](name, figure, evidence, series, marks)
    except UserError as error:
        raise UserError(f"figure {name!r}: {error}") from error


# Shapes.


def _lines(
    name: str, figure: SeriesFigure, evidence: "Evidence", series: Sequence[Series], marks: Sequence[Mark]
) -> Drawing:
    rows = line_rows(evidence, series, figure.time)
    apart = told_apart(series, Series("")) if series else {}
    title = figure.across.title or ("training samples" if figure.time == "samples" else "training step")
    shown = within("value", *figure.value.ends) if figure.value.ends else "datum.value"
    times = alt.Axis(format="~s", tickCount=4, labelExpr=ZERO)
    lines = (
        alt.Chart()
        .transform_calculate(shown=shown)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("at:Q", title=title, axis=times, scale=alt.Scale(nice=False)),
            y=on(_axis(alt.Y, figure.value), "shown"),
            color=_hue(_names(series), symbolType="stroke", **_columns(_names(series))),
            detail=["member:N", *(["line:N"] if "line" in apart else [])],
            tooltip=["panel:N", "name:N", *(f"{column}:N" for column in apart), "seed:N", "at:Q",
                     *numbers("value")],
        )
    )  # fmt: skip
    if "dash" in apart:
        kinds = list(dict.fromkeys(each.dash for each in series))
        scale = alt.Scale(domain=kinds, range=[list(dash) for dash in DASHES[: len(kinds)]])
        lines = lines.encode(
            strokeDash=alt.StrokeDash("dash:N", scale=scale, legend=legend(symbolType="stroke"))
        )
    types = dict.fromkeys(("panel", "name", *apart), "string") | dict.fromkeys(
        ("member", "seed", "at", "value"), "number"
    )
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    columns = max(1, min(figure.columns, len(panels)))
    chart = alt.layer(lines, *_levels(marks, figure.value), data=data_url(name, types)).properties(
        width=(WIDTH - GAP * (columns - 1)) // columns, height=figure.height or HEIGHT["lines"]
    )
    return _in_panels(chart, panels, columns), rows


def _sweep(
    name: str, figure: SeriesFigure, evidence: "Evidence", series: Sequence[Series], marks: Sequence[Mark]
) -> Drawing:
    rows = final_rows(evidence, series)
    figure = replace(figure, value=_reaching(figure.value, rows))
    places = list(dict.fromkeys(each.x for each in series))
    numbers = sorted(place for place in places if isinstance(place, int | float))
    numeric = len(numbers) == len(places)
    ends = figure.across.ends
    if numeric:
        scale = alt.Scale(domain=list(ends), nice=False) if ends else alt.Scale(zero=False, padding=14)
        x = alt.X(
            "x:Q",
            title=figure.across.title,
            scale=scale,
            axis=alt.Axis(values=numbers, format=figure.across.format, grid=False, labelOverlap=True),
        )
    else:
        x = alt.X(
            "x:N",
            title=figure.across.title,
            sort=[str(place) for place in places],
            axis=alt.Axis(labelAngle=0),
            # What stands at one place stands close together, so that it is seen to belong there.
            scale=alt.Scale(paddingInner=0.6, paddingOuter=0.3),
        )
    names, panels = _names(series), _panels(series)
    rows += mark_rows(marks, panels, "x")
    by = _hue(names)
    offset = None if numeric else alt.XOffset("name:N", sort=names)
    columns = max(1, min(figure.columns, len(panels)))
    types = _TYPES | ({"x": "number"} if numeric else {})
    everywhere = [mark for mark in marks if mark.at is None]
    layers = [
        *_levels([mark for mark in everywhere if mark.axis == "y"], figure.value),
        *_flags([mark for mark in everywhere if mark.axis == "x"], by),
        *_own_intervals(x, _axis(alt.Y, figure.value), by, offset, any(each.ends for each in series)),
        *seeds_and_means(x, _axis(alt.Y, figure.value), by, "name:N", offset=offset),
        *_crosses(x, _axis(alt.Y, figure.value), marks),
    ]
    chart = alt.layer(*layers, data=data_url(name, types)).properties(
        width=(WIDTH - 3 * GAP * (columns - 1)) // columns, height=figure.height or HEIGHT["sweep"]
    )
    return _in_panels(chart, panels, columns), rows


def _dots(
    name: str, figure: SeriesFigure, evidence: "Evidence", series: Sequence[Series], marks: Sequence[Mark]
) -> Drawing:
    rows = final_rows(evidence, series)
    figure = replace(figure, value=_reaching(figure.value, rows))
    for row in rows:
        row["y"] = in_lines(str(row["y"]))
        row["place"] = f"{row['name']}, {row['arm']}"
    there = {row["y"] for row in rows}
    labels = [each for each in dict.fromkeys(in_lines(str(each.y)) for each in series) if each in there]
    names, panels = _names(series), _panels(series)
    rows += [
        {**row, "y": in_lines(str(row["y"]))}
        for row in mark_rows(marks, panels, "y")
        if in_lines(str(row["y"])) in there
    ]
    places = [f"{each}, {arm}" for each in names for arm in HOLLOW]
    used = [place for place in places if place in {row.get("place") for row in rows}]
    y = {
        "y": alt.Y("y:N", title=figure.down or None, sort=labels, axis=broken_labels(),
                   scale=alt.Scale(domain=labels, paddingInner=0.2, paddingOuter=0.1)),
        "yOffset": alt.YOffset("place:N", sort=used),
    }  # fmt: skip
    arms = any(each.hollow for each in series)
    tip = ["y:N", "name:N", *(["arm:N"] if arms else [])]
    height = figure.height or max(30, ROW * len(used) + 8)
    # Both have the legend: it is one, and without either there would be none.
    shown = legend() if len(names) > 1 else None
    scale = alt.Scale(domain=names)
    hue = {
        "stroke": alt.Stroke("name:N", scale=scale, legend=shown),
        "fill": alt.Fill("name:N", scale=scale, legend=shown),
    }
    seeds = of_kind("seed").mark_point(size=42, strokeOpacity=0.8).encode(
        **y, **hue, x=_across(figure.value, "value"), tooltip=[*tip, "seed:Q", *numbers("value")],
        **({"shape": shape("arm", HOLLOW)} if arms else {}),
        fillOpacity=alt.condition(f"datum.arm == '{HOLLOW[1]}'", alt.value(0.0), alt.value(0.6)),
    )  # fmt: skip
    own = alt.Chart().transform_filter("datum.kind == 'seed' && isValid(datum.low)")
    means = of_kind("mean")
    of_mean = [*tip, *numbers("value", "low", "high")]
    layers = [
        *_levels([replace(mark, axis="x") for mark in marks if mark.at is None], figure.value),
        *_row_levels(_across(figure.value, "value"), marks),
        own.mark_rule(strokeWidth=2.2, strokeOpacity=0.5).encode(
            **y, x=_across(figure.value, "low"), x2="high:Q", stroke=hue["stroke"]
        ),
        seeds,
        # An interval of no length would be drawn through the whole row.
        means.transform_filter("isValid(datum.low) && datum.low < datum.high")
        .mark_rule(color=INK, strokeWidth=1.4)
        .encode(**y, x=_across(figure.value, "low"), x2="high:Q"),
        # The mean of one seed is that seed.
        means.transform_filter("isValid(datum.low)")
        .mark_tick(color=INK, thickness=2.4, size=11)
        .encode(**y, x=_across(figure.value, "value"), tooltip=of_mean),
    ]
    chart = alt.layer(*layers, data=data_url(name, {**_TYPES, "place": "string"})).properties(
        width=WIDTH - LABELS, height=height * max(1, len(labels))
    )
    return _in_panels(chart, panels, 1), rows


def _cells(
    name: str, figure: SeriesFigure, evidence: "Evidence", series: Sequence[Series], marks: Sequence[Mark]
) -> Drawing:
    rows = [row for row in final_rows(evidence, series) if row["kind"] == "mean"]
    across, down = (list(dict.fromkeys(getattr(each, of) for each in series)) for of in ("x", "y"))
    x = alt.X("x:N", title=figure.across.title, sort=list(map(str, across)), axis=alt.Axis(labelAngle=0))
    y = alt.Y("y:N", title=figure.down, sort=list(map(str, down)))
    low, high = figure.value.ends or (min([0.0, *_values(rows)]), max([0.0, *_values(rows)]))
    dark = f"datum.value < {(low + high) / 2}"
    tip = [
        "panel:N",
        "x:N",
        "y:N",
        *numbers("value", "low", "high"),
    ]
    bar = alt.Legend(format=figure.value.format)
    hue = alt.Color(
        "value:Q", title=in_lines(figure.value.title, 18).split("|"), legend=bar,
        scale=alt.Scale(scheme="viridis", domain=[low, high], clamp=True),
    )  # fmt: skip
    cells = alt.Chart().mark_rect().encode(x=x, y=y, tooltip=tip, color=hue)
    text = alt.Chart().mark_text(fontSize=12).encode(
        x=x, y=y, text=alt.Text("value:Q", format=".0%" if "%" in figure.value.format else ".2f"),
        color=alt.condition(dark, alt.value("#ffffff"), alt.value("#111111")),
    )  # fmt: skip
    size = figure.height or 48
    outlines = _outlines(x, y, series, size - 10)
    types = _TYPES | ({"outline": "string"} if outlines else {})
    chart = alt.layer(cells, *outlines, text, data=data_url(name, types)).properties(
        width=alt.Step(size + 14), height=alt.Step(size)
    )
    return _in_panels(chart, _panels(series), figure.columns), rows


_SHAPES: dict[str, Callable[..., Drawing]] = {
    "lines": _lines,
    "sweep": _sweep,
    "dots": _dots,
    "cells": _cells,
}


# What the shapes share.


def _hue(names: Sequence[str], **options: Any) -> alt.Color:
    """Colour by name, without a legend where there are no names."""
    by = colour("name", names, **options)
    return by if any(name != UNNAMED for name in names) else by.legend(None)


def _crosses(x: alt.X, y: alt.Y, marks: Sequence[Mark]) -> list[alt.Chart]:
    """Marks of one place of a sweep: a black symbol for each label."""
    if not (labels := _placed(marks)):
        return []
    scale = alt.Scale(domain=labels, range=["cross", "diamond", "triangle-down"][: len(labels)])
    symbol = alt.Shape("name:N", scale=scale, legend=legend(symbolFillColor=INK, symbolStrokeColor=INK))
    tip = ["panel:N", "name:N", "x:N", *numbers("value")]
    points = of_kind("mark").mark_point(filled=True, size=45, fillOpacity=1, color=INK)
    return [points.encode(x=x, y=on(y, "value"), shape=symbol, tooltip=tip)]


def _row_levels(x: alt.X, marks: Sequence[Mark]) -> list[alt.Chart]:
    """Marks of one row of dots: a dashed line through the row."""
    if not (labels := _placed(marks)):
        return []
    # Another mark than the seeds' and means', so that it has a legend of its own.
    scale = alt.Scale(domain=labels, range=[[3, 2], [6, 3], [1, 2]][: len(labels)])
    dash = alt.StrokeDash("name:N", scale=scale, legend=legend(symbolType="stroke", symbolStrokeWidth=2))
    tip = ["y:N", "name:N", *numbers("value")]
    rules = of_kind("mark").mark_rule(color=QUIET_INK, strokeWidth=1.6)
    top, bottom = alt.Y("y:N", bandPosition=0), alt.Y2("y:N", bandPosition=1)
    return [rules.encode(x=x, y=top, y2=bottom, strokeDash=dash, tooltip=tip)]


def _placed(marks: Iterable[Mark]) -> list[str]:
    """Labels of the marks that stand at one place."""
    return list(dict.fromkeys(mark.label for mark in marks if mark.at is not None))


def _outlines(x: alt.X, y: alt.Y, series: Iterable[Series], size: int) -> list[alt.Chart]:
    """Draw outlines inside cells; the dashes of an outline show its kind."""
    labels = list(dict.fromkeys(each.outline for each in series if each.outline))
    if not labels:
        return []
    edge = legend(symbolType="square", symbolFillColor="transparent")
    scale = alt.Scale(domain=labels, range=[[1, 0], [3, 3], [8, 4]][: len(labels)])
    base = alt.Chart().transform_filter("isValid(datum.outline) && datum.outline != ''")
    square = base.mark_point(shape="square", size=size**2, filled=False, strokeWidth=2.5, color=OUTLINE)
    return [square.encode(x=x, y=y, strokeDash=alt.StrokeDash("outline:N", scale=scale, legend=edge))]


def _names(series: Iterable[Series]) -> list[str]:
    return list(dict.fromkeys(each.name or UNNAMED for each in series))


def _columns(names: Sequence[str]) -> dict[str, int]:
    """Columns of a legend whose names do not fit into one line."""
    widths = [30 + 7 * len(name) for name in names]
    return {"columns": max(1, WIDTH // max(widths))} if sum(widths) > WIDTH else {}


def _panels(series: Iterable[Series]) -> list[str]:
    return list(dict.fromkeys(each.panel for each in series))


def _values(rows: Iterable[Row]) -> list[float]:
    return [row["value"] for row in rows]


def _in_panels(chart: Any, panels: Sequence[str], columns: int) -> alt.TopLevelMixin:
    if len(panels) < 2 and not any(panels):
        return chart
    return chart.facet(facet("panel", panels), columns=columns)


def _reaching(axis: Axis, rows: Sequence[Mapping[str, Any]]) -> Axis:
    """The axis, longer where a point or an interval lies beyond its ends: it would be drawn beside the chart."""
    if not axis.ends:
        return axis
    low, high = axis.ends
    found = [row[name] for row in rows for name in ("value", "low", "high") if row.get(name) is not None]
    least, most = min([low, *found]), max([high, *found])
    return replace(axis, ends=(math.floor(least * 10) / 10 if least < low else low,
                               math.ceil(most * 10) / 10 if most > high else high))  # fmt: skip


def _axis(kind: type[alt.Y], axis: Axis) -> alt.Y:
    """A vertical axis without its column."""
    scale = alt.Scale(domain=list(axis.ends), nice=False) if axis.ends else alt.Scale(zero=not axis.log)
    ticks: dict[str, Any] = {"tickCount": 6}
    if axis.log:
        scale, ticks = alt.Scale(type="log"), {"values": [10.0**power for power in range(-12, 13)]}
    return kind(title=axis.title, scale=scale, axis=alt.Axis(format=axis.format, **ticks))


def _across(axis: Axis, column: str) -> alt.X:
    scale = alt.Scale(domain=list(axis.ends)) if axis.ends else alt.Scale(zero=False, padding=8)
    labels: dict[str, Any] = {"labelExpr": ZERO} if axis.format == "~s" else {}
    ticks = alt.Axis(format=axis.format, tickCount=6, **labels)
    return alt.X(f"{column}:Q", title=axis.title, scale=scale, axis=ticks)


def _at(mark: Mark) -> alt.Chart:
    """A chart of one row, the mark: in every small chart, or in its own alone."""
    row = {"at": mark.value, "name": mark.name, "label": mark.label}
    if not mark.panel:
        return given([row])
    # Data of its own would stand in every small chart, so the row is made from the figure's data.
    there = alt.Chart().transform_filter(alt.datum.panel == mark.panel)
    there = there.transform_aggregate(rows="count()", groupby=["panel"])
    return there.transform_calculate(**{name: json.dumps(value) for name, value in row.items()})


def _levels(marks: Sequence[Mark], axis: Axis) -> list[alt.Chart]:
    """Dashed lines at levels, with their names."""
    layers: list[alt.Chart] = []
    for mark in marks:
        base = _at(mark)
        rule = base.mark_rule(strokeDash=[5, 4], color=QUIET_INK, strokeWidth=1.2)
        tip = [alt.Tooltip("label:N"), *numbers("at")]
        if mark.axis == "x":
            layers.append(rule.encode(x=alt.X("at:Q", title=axis.title), tooltip=tip))
            place: dict[str, Any] = {"x": alt.X("at:Q", title=axis.title), "y": alt.value(0)}
            align: dict[str, Any] = {"align": "center", "baseline": "bottom", "dy": -2}
        else:
            y = on(_axis(alt.Y, axis), "at")
            layers.append(rule.encode(y=y, tooltip=tip))
            place = {"y": y, "x": alt.value("width")}
            align = {"align": "right", "baseline": "bottom", "dx": -3, "dy": -2}
        if mark.label:
            text = {"fontSize": 11, **align}
            # Curves run through the label; a white edge keeps it readable.
            edge = base.mark_text(stroke="#ffffff", strokeWidth=4, strokeJoin="round", **text)
            label = base.mark_text(color=QUIET_INK, **text)
            layers += [each.encode(**place, text="label:N") for each in (edge, label)]
    return layers


def _own_intervals(
    x: alt.X, y: alt.Y, by: alt.Color, offset: alt.XOffset | None, shown: bool
) -> list[alt.Chart]:
    """A thin line through each seed that has an interval of its own."""
    if not shown:
        return []
    place: dict[str, Any] = {"x": x, "color": by, **({} if offset is None else {"xOffset": offset})}
    seeds = alt.Chart().transform_filter("datum.kind == 'seed' && isValid(datum.low)")
    return [seeds.mark_rule(strokeWidth=1.2, strokeOpacity=0.6).encode(**place, y=on(y, "low"), y2="high:Q")]


def _flags(marks: Sequence[Mark], by: alt.Color) -> list[alt.Chart]:
    """Vertical lines with a flag, in the colour of what they are about; lines of one place stand side by side."""
    names = list(dict.fromkeys(mark.name for mark in marks))
    tip = [alt.Tooltip("label:N"), *numbers("at")]
    layers: list[alt.Chart] = []
    for mark in marks:
        aside = 4 * (names.index(mark.name) - (len(names) - 1) / 2)
        base, x = _at(mark), alt.X("at:Q")
        layers += [
            base.mark_rule(strokeWidth=1.5, strokeDash=[2, 3], xOffset=aside).encode(
                x=x, color=by, tooltip=tip
            ),
            base.mark_point(shape="triangle-up", filled=True, size=90, yOffset=-5, xOffset=aside).encode(
                x=x, y=alt.value("height"), color=by, tooltip=tip
            ),
        ]
    return layers
