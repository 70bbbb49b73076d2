"""Drawings of a declared study's figures: learning curves, bars of the last checkpoint, maps of heads."""

import json
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.claims.numbers import format_number
from hopscope.figures import Drawing, Figure
from hopscope.figures.choice import (
    HEIGHT,
    LABELS_WIDTH,
    Chosen,
    axis_of,
    choose,
    estimate_of,
    hue,
    last_values,
    legend_of,
    level_layers,
    range_of,
)
from hopscope.figures.marks import INK, QUIET_INK, ZERO, given, in_lines, numbers, of_kind, on, table, within
from hopscope.figures.own_chart import draw_own
from hopscope.figures.rows import MOST_POINTS, WIDTH, Row, short
from hopscope.figures.selection import CONFIGURATION, Floors, Group, at_last_step, estimated
from hopscope.figures.series_chart import draw_series

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

BAND_RESAMPLES = 1000
"""Bootstrap samples of a band: it is drawn at many points, and read to a few pixels."""

CELL, LEAST_MAP = 36, 120
"""Height of a cell in a map of heads, and least width of such a map, in pixels."""


BAR = 0.32
"""Half of a bar, where the distance from one to the next is 1."""

LETTER = 7
"""Width of a letter of a label, in pixels, a little more than it takes."""

MOST_NUMBERS = 9
"""Bars of a figure that carry their numbers; with more there is no room."""

FEW_BARS = 4
"""Bars of a figure that keeps its width."""


def draw(figure: Figure, evidence: "Evidence", floors: Floors | None) -> Drawing:
    """The chart of a figure and its rows; see `Figure.draw`."""
    if figure.kind == "chart":
        return _or_nothing(*draw_own(figure, evidence))
    if figure.series is not None:
        return _or_nothing(*draw_series(figure.name, figure.series, evidence))
    chosen = choose(figure, evidence, floors)
    drawn = {"curves": _draw_curves, "bars": _draw_bars, "heads": _draw_heads}[figure.kind]
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


# Bars.


def _draw_bars(chosen: Chosen) -> Drawing:
    """Bars of the groups, side by side, and their rows."""
    rows = bar_rows(chosen)
    low, high = range_of(chosen, room=0.12)
    y = alt.Y(title=chosen.title, scale=alt.Scale(domain=[low, high], nice=False), axis=axis_of(chosen))
    by = hue(chosen.labels, None)
    # Places are numbers, so that the seeds of a bar can stand beside each other.
    count = len(chosen.groups)
    width = min(WIDTH - LABELS_WIDTH * bool(chosen.levels), 60 + 110 * count)
    axis = _group_axis(chosen, width // count if count else width)
    place = alt.Scale(domain=[0.5, count + 0.5], nice=False, zero=False)

    def x(column: str) -> alt.X:
        return alt.X(f"{column}:Q", scale=place, axis=axis)

    bar = of_kind("mean").transform_calculate(left=f"datum.at - {BAR}", right=f"datum.at + {BAR}", zero="0")
    spread = of_kind("mean").transform_filter("isValid(datum.low)")
    tip = ["group:N", *numbers("value", "low", "high"), "note:N"]
    of_seed = ["group:N", "seed:Q", *numbers("value")]
    note = alt.value(HEIGHT - 8)
    layers = [
        bar.mark_rect(fillOpacity=0.35).encode(
            x=x("left"), x2="right:Q", y=on(y, "zero"), y2="value:Q", color=by, tooltip=tip
        ),
        of_kind("seed")
        .mark_point(filled=True, size=34, fillOpacity=0.75)
        .encode(x=x("at"), y=on(y, "value", shown=False), color=by, tooltip=of_seed),
        spread.mark_rule(strokeWidth=1.8, color=INK).encode(
            x=x("at"), y=on(y, "low", shown=False), y2="high:Q", tooltip=tip
        ),
        of_kind("none")
        .mark_text(fontSize=11, color=QUIET_INK, baseline="bottom")
        .encode(x=x("at"), y=note, text="note:N"),
    ]
    if count <= MOST_NUMBERS:
        number = of_kind("mean").mark_text(dy=-9, fontSize=12, color=INK)
        layers.append(number.encode(x=x("at"), y=on(y, "top", shown=False), text="note:N"))
    floor = level_layers(chosen.levels, by, y, (low, high), HEIGHT, chosen.unit)
    data = table(chosen.figure.name, "kind group note", "member seed at value low high top")
    chart = alt.layer(*layers, *floor).resolve_axis(y="independent").properties(width=width, height=HEIGHT)
    if count <= FEW_BARS:
        # A page gives a single chart all of its width, which a few bars do not fill.
        return alt.hconcat(chart, data=data), rows
    return chart.properties(data=data), rows


def _group_axis(chosen: Chosen, room: int) -> alt.Axis:
    """An axis of places 1, 2, … that names the groups; `room` is what each has, in pixels."""
    count = len(chosen.groups)
    labels = [in_lines(label, max(6, room // LETTER)) for label in chosen.labels]
    lines = [line for label in labels for line in label.split("|")]
    slanted = max(map(len, lines), default=0) * LETTER > room or any(label.count("|") > 3 for label in labels)
    if slanted:
        labels = chosen.labels
    # The labels stand in an expression: JSON writes them as Vega reads them.
    expression = f"split({json.dumps(labels, ensure_ascii=False)}[datum.value - 1], '|')"
    by = chosen.figure.by or CONFIGURATION
    turned: dict[str, Any] = {"labelAngle": -40, "labelAlign": "right"} if slanted else {"labelAngle": 0}
    return alt.Axis(
        values=list(range(1, count + 1)),
        tickCount=count,  # the theme's, if it is lower, would leave places out
        labelExpr=expression,
        title=None if by == CONFIGURATION else by,
        labelLimit=0,
        labelOverlap=False,
        grid=False,
        ticks=False,
        labelPadding=6,
        **turned,
    )


def bar_rows(chosen: Chosen) -> list[Row]:
    """Rows of kind `seed`, and one of kind `mean` for each group, or of kind `none` where no member has a value."""
    rows: list[Row] = []
    for at, group in enumerate(chosen.groups, start=1):
        values = last_values(chosen.frame, group)
        known = values.dropna()
        columns = {"group": group.label, "at": at}
        for number, (member, value) in enumerate(known.items()):
            place = at + 1.3 * BAR * ((number + 0.5) / len(known) - 0.5)
            seed = int(chosen.table.loc[member, "seed"])
            columns_of_seed = {"kind": "seed", "member": int(member), "seed": seed, "at": short(place)}
            rows.append({**columns, **columns_of_seed, "value": short(value)})
        found = estimated(values, chosen.table, chosen.gone)
        if found.mean is None:
            rows.append({**columns, "kind": "none", "note": "no value"})
            continue
        low, high = (None, None) if found.interval is None else map(short, found.interval)
        top = max(0.0, found.mean, float(known.max()), high or 0.0)
        note = (
            f"{100 * found.mean:.3g} %"
            if chosen.share
            else f"{found.mean:.3g}".replace("-", "\N{MINUS SIGN}")
        )
        numbers = {"value": short(found.mean), "low": low, "high": high, "top": short(top)}
        rows.append({**columns, "kind": "mean", **numbers, "note": note})
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
