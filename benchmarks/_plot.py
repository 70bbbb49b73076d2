"""The picture of what training costs as the work grows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt

_WORDS = {"members": "members", "values": "V", "steps": "D", "layers": "layers", "width": "width"}


def growth_chart(result: Mapping[str, Any]) -> alt.HConcatChart:
    """Time per member's sample by each axis on its own: medians, with bars from the lowest round to the highest.

    The dashed line goes up in proportion from the first point; members have none, for beside any number of others a
    member's sample is the same work.
    """
    by_axis: dict[str, list[Mapping[str, Any]]] = {}
    for row in result["rows"]:
        if row["microseconds_per_sample"]:
            by_axis.setdefault(row["axis"], []).append(row)
    title = alt.TitleParams(
        "Time per member's sample as the work grows",
        subtitle=f"One process of one thread, batch {result['batch']}; dashed: in proportion to the first point",
        anchor="start",
    )
    return alt.hconcat(*(_panel(rows, axis) for axis, rows in by_axis.items()), title=title)


def _panel(rows: list[Mapping[str, Any]], axis: str) -> alt.LayerChart:
    first = rows[0]
    points = [
        {
            "value": row["value"],
            **{name: row["microseconds_per_sample"][name] for name in ("median", "min", "max")},
            "proportional": first["microseconds_per_sample"]["median"] * row["value"] / first["value"],
        }
        for row in rows
    ]
    values = [row["value"] for row in rows]
    scale = alt.Scale(type="log", base=2) if axis == "members" else alt.Scale()
    ticks = alt.Axis(values=values, grid=False, labelOverlap=False)
    x = alt.X("value:Q", title=_WORDS.get(axis, axis), axis=ticks, scale=scale)
    y = alt.Y("median:Q", title="µs per member's sample", scale=alt.Scale(zero=True))
    base = alt.Chart(alt.Data(values=points)).encode(x=x)
    layers = [
        base.mark_line(point=True, color="#2c6fad").encode(y=y),
        base.mark_rule(color="#2c6fad").encode(y="min:Q", y2="max:Q"),
    ]
    if axis != "members":
        layers.append(base.mark_line(strokeDash=[4, 4], color="#888").encode(y="proportional:Q"))
    return alt.layer(*layers).properties(width=230, height=200)


def write_growth_plot(path: Path, result: Mapping[str, Any]) -> None:
    """Write it as SVG."""
    growth_chart(result).save(str(path))
