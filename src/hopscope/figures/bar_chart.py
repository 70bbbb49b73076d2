"""Bars of the last checkpoint: a point for each seed, and their mean with its interval."""

import json
from typing import Any

import altair as alt

from hopscope.figures import Drawing
from hopscope.figures.choice import (
    HEIGHT,
    LABELS_WIDTH,
    Chosen,
    axis_of,
    hue,
    last_values,
    range_of,
)
from hopscope.figures.levels import level_layers
from hopscope.figures.marks import INK, QUIET_INK, in_lines, numbers, of_kind, on
from hopscope.figures.points import table
from hopscope.figures.rows import WIDTH, Row, short
from hopscope.figures.selection import CONFIGURATION, estimated

BAR = 0.32
"""Half of a bar, where the distance from one to the next is 1."""

LETTER = 7
"""Width of a letter of a label, in pixels, a little more than it takes."""

MOST_NUMBERS = 9
"""Bars of a figure that carry their numbers; with more there is no room."""

FEW_BARS = 4
"""Bars of a figure that keeps its width."""


def draw_bars(chosen: Chosen) -> Drawing:
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
