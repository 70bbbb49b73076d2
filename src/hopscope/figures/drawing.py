"""Drawings of a declared study's figures: learning curves, bars of the last checkpoint, maps of heads."""

from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.claims.numbers import format_number
from hopscope.figures import Drawing, Figure
from hopscope.figures.bar_chart import draw_bars
from hopscope.figures.choice import (
    HEIGHT,
    LABELS_WIDTH,
    Chosen,
    axis_of,
    choose,
    estimate_of,
    hue,
    legend_of,
    range_of,
)
from hopscope.figures.levels import level_layers
from hopscope.figures.marks import ZERO, given, in_lines, numbers, of_kind, on, within
from hopscope.figures.own_chart import draw_own
from hopscope.figures.points import table
from hopscope.figures.rows import MOST_POINTS, WIDTH, Row, short
from hopscope.figures.selection import CONFIGURATION, Floors, Group, at_last_step
from hopscope.figures.series_chart import draw_series

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

BAND_RESAMPLES = 1000
"""Bootstrap samples of a band: it is drawn at many points, and read to a few pixels."""

CELL, LEAST_MAP = 36, 120
"""Height of a cell in a map of heads, and least width of such a map, in pixels."""


def draw(figure: Figure, evidence: "Evidence", floors: Floors | None) -> Drawing:
    """The chart of a figure and its rows; see `Figure.draw`."""
    if figure.kind == "chart":
        return _or_nothing(*draw_own(figure, evidence))
    if figure.series is not None:
        return _or_nothing(*draw_series(figure.name, figure.series, evidence))
    chosen = choose(figure, evidence, floors)
    drawn = {"curves": _draw_curves, "bars": draw_bars, "heads": _draw_heads}[figure.kind]
    return drawn(chosen)


def _or_nothing(chart: alt.TopLevelMixin, rows: list[dict[str, Any]]) -> Drawing:
    """The chart; words in its place where it has no rows, because panels of nothing cannot be drawn."""
    if rows:
        return chart, rows
    said = given([{"words": "nothing to show: no model of this run has it"}]).mark_text()
    empty = alt.layer(said.encode(text="words:N"), data=alt.UrlData.from_dict(chart.to_dict()["data"]))
    return empty.properties(width=WIDTH, height=40), rows


def words(figure: Figure, evidence: "Evidence", floors: Floors | None) -> tuple[str, str]:
    """Caption and alternative text of a figure; see `Figure.words`."""
    if figure.kind in ("chart", "series"):
        return figure.caption, figure.alt or figure.caption or f"Chart {figure.name}."
    chosen = choose(figure, evidence, floors)
    title = chosen.title[0].upper() + chosen.title[1:]
    shown = {
        "curves": f"{title} during training. Thin lines are single seeds; thick lines are their means, with the 95 % "
        "bootstrap interval over seeds as a band.",
        "bars": f"{title} at the end of training. A point is one seed; a bar is their mean, with its 95 % bootstrap "
        "interval over seeds.",
        "heads": f"{title} of each head at the last checkpoint, mean over seeds. Layers and heads count from 0.",
    }[figure.kind]
    dashed = " Dashed lines are the floors of the task." if chosen.levels else ""
    # The alternative text names the ends, which is what a reader takes from the picture.
    ends = "; ".join(f"{group.label}: {_end(chosen, group)}" for group in chosen.groups)
    kind = {"curves": "Line chart", "bars": "Bar chart", "heads": "Heat map"}[figure.kind]
    caption = shown + dashed + _pooled(chosen) + _left_out(chosen)
    return caption, f"{kind} of {chosen.title}. At the end, {ends}."


def _pooled(chosen: Chosen) -> str:
    most = max((len(group.configurations) for group in chosen.groups), default=1)
    if most < 2:
        return ""
    if len(chosen.groups) > 1:
        return f" Each group takes {most} configurations together."
    return f" All {most} configurations are taken together."


def _left_out(chosen: Chosen) -> str:
    count = len([member for member in chosen.gone if any(member in group.members for group in chosen.groups)])
    if not count:
        return ""
    who = "1 member diverged and is" if count == 1 else f"{count} members diverged and are"
    where = " (✕ marks where)" if chosen.figure.kind == "curves" else ""
    return f" {who} left out of the means{where}."


def _end(chosen: Chosen, group: Group) -> str:
    found = estimate_of(chosen, group)
    if found.mean is None:
        return found.reason
    return f"{format_number(found.mean, chosen.unit)} ({found.count})"


# Curves.


def _draw_curves(chosen: Chosen) -> Drawing:
    frame = chosen.frame
    time = "samples" if frame["samples"].max() > 0 else "step"
    low, high = range_of(chosen)
    title = "training samples of each seed" if time == "samples" else "training step"
    times = alt.Axis(format="~s", labelExpr=ZERO)
    x = alt.X("at:Q", title=title, axis=times, scale=alt.Scale(nice=False, zero=True))
    y = alt.Y(title=chosen.title, scale=alt.Scale(domain=[low, high], nice=False), axis=axis_of(chosen))
    by = hue(chosen.labels, legend_of(chosen.labels))
    tip = ["group:N", "seed:N", alt.Tooltip("at:Q", title=time), *numbers("value")]

    def shown(kind: str, *columns: str) -> alt.Chart:
        return of_kind(kind).transform_calculate(
            **{f"shown_{name}": within(name, low, high) for name in columns}
        )

    rows = curve_rows(chosen, time)
    # One evaluation is a point, not a line.
    point = frame[time].nunique() < 2
    band = shown("mean", "low", "high").transform_filter("isValid(datum.low)")
    layers = [
        band.mark_area(opacity=0.16).encode(x=x, y=on(y, "shown_low"), y2="shown_high:Q", color=by),
        shown("seed", "value")
        .mark_line(strokeWidth=1, strokeOpacity=0.45, point={"size": 22} if point else False)
        .encode(x=x, y=on(y, "shown_value", shown=False), color=by, detail="member:N", tooltip=tip),
        shown("mean", "value")
        .mark_line(strokeWidth=2.6, point={"size": 40} if point else False)
        .encode(x=x, y=on(y, "shown_value", shown=False), color=by, tooltip=[tip[0], *tip[2:]]),
        shown("end", "value")
        .mark_text(text="✕", fontSize=13, fontWeight="bold")
        .encode(x=x, y=on(y, "shown_value", shown=False), color=by, tooltip=tip),
    ]
    data = table(chosen.figure.name, "kind group configuration", "member seed at value low high")
    width = WIDTH - LABELS_WIDTH * bool(chosen.levels)
    floor = level_layers(chosen.levels, by, y, (low, high), HEIGHT, chosen.unit)
    chart = alt.layer(*layers, *floor, data=data).resolve_axis(y="independent")
    return chart.properties(width=width, height=HEIGHT), rows


def curve_rows(chosen: Chosen, time: str) -> list[Row]:
    """Rows of kind `seed`, of kind `mean` where a whole group has a value, and of kind `end` of diverged members.

    Args:
        chosen: what is shown.
        time: the column of the horizontal axis, `samples` or `step`.
    """
    frame = chosen.frame.dropna(subset="value")
    every = max(1, -(-len(frame) // MOST_POINTS))
    rows: list[Row] = []
    for group in chosen.groups:
        own = frame[frame["member"].isin(group.members)].sort_values(["member", time])
        for member, curve in own.groupby("member"):
            columns = {"group": group.label, "member": int(member), "seed": int(curve["seed"].iloc[0]),
                       "configuration": curve[CONFIGURATION].iloc[0]}  # fmt: skip
            points = list(zip(curve[time], curve["value"], strict=True))
            kept = points[(len(points) - 1) % every :: every]
            rows += [{"kind": "seed", **columns, "at": int(at), "value": short(value)} for at, value in kept]
            if member in chosen.gone:
                rows.append(
                    {"kind": "end", **columns, "at": int(points[-1][0]), "value": short(points[-1][1])}
                )
        rows += _mean_rows(own[~own["member"].isin(chosen.gone)], group, time, every)
    return rows


def _mean_rows(frame: "pd.DataFrame", group: Group, time: str, every: int) -> list[Row]:
    wide = frame.pivot_table(index=time, columns="member", values="value").dropna()
    wide = wide.iloc[(len(wide) - 1) % every :: every] if len(wide) else wide
    seeds = frame.groupby("member")["seed"].first().reindex(wide.columns).tolist()
    rows: list[Row] = []
    for at, values in zip(wide.index, wide.to_numpy().tolist(), strict=True):
        interval = bootstrap_mean(values, clusters=seeds, resamples=BAND_RESAMPLES)
        ends = {} if interval is None else {"low": short(interval[0]), "high": short(interval[1])}
        rows.append(
            {"kind": "mean", "group": group.label, "at": int(at), "value": short(mean(values)), **ends}
        )
    return rows


# Heads.


def _draw_heads(chosen: Chosen) -> Drawing:
    rows = head_rows(chosen)
    most = 1 + max((row["head"] for row in rows), default=0)
    cell = max(CELL, LEAST_MAP // most)
    values = [row["value"] for row in rows if row["value"] is not None]
    ends = (0.0, 1.0) if chosen.share or not values else (min(0.0, *values), max(0.0, *values))
    columns = max(1, min(len(chosen.groups), WIDTH // (cell * most + 60)))
    panels = [_map_of_heads(chosen, label, cell, ends) for label in chosen.labels]
    data = table(chosen.figure.name, "group note", "layer head value seeds")
    # Panels side by side, and no facets: a model of two layers has a map of two rows beside one of four.
    return alt.concat(*panels, columns=columns, data=data), rows


def _map_of_heads(chosen: Chosen, label: str, cell: int, ends: tuple[float, float]) -> Any:
    """The map of one group; grey where no member has a value."""
    x = alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0))
    y = alt.Y("layer:O", title="layer", sort="descending")
    tip = ["group:N", "layer:Q", "head:Q", *numbers("value"), "seeds:Q"]
    bar = alt.Legend(format="%" if chosen.share else "~g")
    hue = alt.Color(
        "value:Q",
        title=in_lines(chosen.title, 18).split("|"),
        scale=alt.Scale(scheme="viridis", domain=ends),
        legend=bar,
    )
    dark = f"isValid(datum.value) && datum.value < {sum(ends) / 2}"
    ink = alt.condition(dark, alt.value("#ffffff"), alt.value("#111111"))
    base = alt.Chart().transform_filter(alt.datum.group == label)
    known = base.transform_filter("isValid(datum.value)")
    layers = [
        base.mark_rect(color="#e4e7eb").encode(x=x, y=y, tooltip=tip),
        known.mark_rect().encode(x=x, y=y, tooltip=tip, color=hue),
        base.mark_text(fontSize=12).encode(x=x, y=y, text="note:N", color=ink),
    ]
    title = alt.TitleParams(in_lines(label, 18).split("|"), fontSize=12.5, anchor="middle")
    return alt.layer(*layers).properties(width=alt.Step(cell), height=alt.Step(CELL), title=title)


def head_rows(chosen: Chosen) -> list[Row]:
    """A row for each group, layer and head: the mean over the members that have a value."""
    rows: list[Row] = []
    frame = chosen.frame
    for group in chosen.groups:
        final = at_last_step(frame[frame["member"].isin(group.members)])
        for (layer, head), cell in final.groupby(["layer", "head"]):
            values = cell["value"].dropna().tolist()
            value = short(mean(values)) if values else None
            note = "–" if value is None else f"{100 * value:.0f} %" if chosen.share else f"{value:.2g}"
            rows.append({"group": group.label, "layer": int(layer), "head": int(head), "value": value,
                         "seeds": len(values), "note": note})  # fmt: skip
    return rows
