"""Marks, axes, legends and small charts that several figures share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from hopscope.claims.crossings import Crossing
from hopscope.figures import data_url
from hopscope.figures.rows import Row, short

ZERO = "datum.value == 0 ? '0' : datum.label"
"""Labels of large numbers: zero is `0`, and not `0M`."""

INK, QUIET_INK = "#333333", "#666666"
"""Of means and intervals; of floors, thresholds and their labels."""


def legend(**options: Any) -> alt.Legend:
    """A legend above the chart, without a title and with labels in full."""
    return alt.Legend(title=None, orient="top", labelLimit=0, **options)


def colour(field: str, order: Sequence[str], **options: Any) -> alt.Color:
    """Colour by a field, in the order of the theme's colours."""
    # The scale names no colours: they are the theme's, which any colour vision tells apart.
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(order)), legend=legend(**options))


def shape(field: str, order: Sequence[str], **options: Any) -> alt.Shape:
    """Encode a field as the shape of marks."""
    shapes = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down"][: len(order)]
    return alt.Shape(
        f"{field}:N", scale=alt.Scale(domain=list(order), range=shapes), legend=legend(**options)
    )


COLOURS = 8
"""Colours that the theme has; further names of a legend begin with them again."""


def apart(field: str, order: Sequence[str], by: Literal["shape", "strokeDash"]) -> dict[str, Any]:
    """Encodings that tell any number of names apart: by colour, and where colours come again by shape or dash too."""
    if len(order) <= COLOURS:
        return {"color": colour(field, order)}
    kinds: dict[str, Sequence[Any]] = {
        "shape": ["circle", "diamond", "square"],
        "strokeDash": [[1, 0], [5, 3], [1, 2]],
    }
    rounds = [at // COLOURS % len(kinds[by]) for at in range(len(order))]
    scale = alt.Scale(domain=list(order), range=[kinds[by][turn] for turn in rounds])
    encode = alt.Shape if by == "shape" else alt.StrokeDash
    return {"color": colour(field, order), by: encode(f"{field}:N", scale=scale, legend=legend())}


def on(axis: alt.Y, column: str, shown: bool = True) -> alt.Y:
    """Return an axis with its column: layers whose axes are equal but for the column share one axis.

    Args:
        axis: title, scale and axis, without a column.
        column: what stands on it.
        shown: whether this layer draws the axis; where layers have axes of their own, only the first one does.
    """
    found = axis.copy().field(column).type("quantitative")
    return found if shown else found.axis(None)


def of_kind(kind: str) -> alt.Chart:
    """Return a chart of the rows of one kind, such as `seed` or `mean`."""
    return alt.Chart().transform_filter(f"datum.kind == '{kind}'")


def numbers(*columns: str) -> list[alt.Tooltip]:
    """Return tooltips of numbers, with four digits."""
    return [alt.Tooltip(f"{column}:Q", format=".4~g") for column in columns]


def given(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of data that stand in the specification: floors and thresholds, the same in every facet."""
    return alt.Chart(alt.InlineData(values=[dict(each) for each in values]))


def within(field: str, low: float, high: float) -> str:
    """An expression: a column, or nothing where it is outside the axis, so that its line is broken there.

    Clipping the marks would show the same, but drawing fifty clipped lines as PNG takes half a minute.
    """
    return f"inrange(datum.{field}, [{low}, {high}]) ? datum.{field} : null"


def facet(field: str, order: Sequence[str]) -> alt.Facet:
    """One small chart for each value of a field, in the given order."""
    return alt.Facet(f"{field}:N", title=None, sort=list(order), header=alt.Header(labelLimit=0))


def in_lines(label: str, longest: int = 30) -> str:
    """A label cut at spaces into as few lines as need be, of about equal length, with `|` between them."""
    fewest = _cut(label, longest)
    length = longest
    while len(_cut(label, length - 1)) == len(fewest) and length > 1:
        length -= 1
    return "|".join(_cut(label, length))


def _cut(label: str, length: int) -> list[str]:
    lines = [""]
    for word in label.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], joined] if len(joined) <= length or not lines[-1] else [*lines, word]
    return lines


def broken_labels() -> alt.Axis:
    """A vertical axis whose labels are broken where `|` stands, and centred on their rows all the same."""
    lines = "length(split(datum.value, '|'))"
    up = {
        "condition": [{"test": f"{lines} == {n}", "value": -7.0 * (n - 1)} for n in (2, 3, 4)],
        "value": 0.0,
    }
    return alt.Axis(labelExpr="split(datum.label, '|')", labelLimit=0, labelOffset=up, grid=False)


def seeds_and_means(
    x: alt.X, y: alt.Y, by: alt.Color, *extra: str, offset: alt.XOffset | None = None
) -> list[alt.Chart]:
    """Seeds as points, means as a line with points and their intervals, along a horizontal axis.

    Args:
        x: the horizontal axis.
        y: title, scale and axis of the vertical one; its column is put in.
        by: what has a line of its own.
        extra: further columns for the tooltips.
        offset: sets what stands at one place of a horizontal axis apart.
    """
    place: dict[str, Any] = {"x": x, "color": by, **({} if offset is None else {"xOffset": offset})}

    def tooltip(*names: str) -> list[alt.Tooltip]:
        return [*map(alt.Tooltip, extra), *numbers(*names)]

    seeds, means = of_kind("seed"), of_kind("mean")
    spread = means.transform_filter("isValid(datum.low)")
    return [
        seeds.mark_point(filled=True, size=26, fillOpacity=0.45).encode(
            **place, y=on(y, "value"), tooltip=tooltip("seed", "value")
        ),
        spread.mark_rule(strokeWidth=1.6).encode(**place, y=on(y, "low"), y2="high:Q"),
        means.mark_line(strokeWidth=2).encode(
            **place, y=on(y, "value"), tooltip=tooltip("value", "low", "high")
        ),
    ]


def crossing_columns(found: Crossing, seen: str, never: str) -> Row:
    """Return a crossing as columns of a figure; a censored one stands at the last evaluation.

    Args:
        found: the crossing.
        seen, never: what the column `seen` says.
    """
    there = found.time is not None
    at = found.time if found.time is not None else found.censored_at or 0.0
    return {"seen": seen if there else never, "step": short(at), "low": found.low, "high": found.high}


def table(name: str, texts: str, numbers: str) -> alt.UrlData:
    """The data of a figure, by the names of its columns."""
    return data_url(name, dict.fromkeys(texts.split(), "string") | dict.fromkeys(numbers.split(), "number"))


def points(
    data: alt.UrlData,
    x: alt.X,
    column: str,
    y: alt.Y,
    by: alt.Color,
    ranged: bool = False,
    offset: alt.YOffset | None = None,
    **more: Any,
) -> list[alt.Chart]:
    """Layers of a point for each row; if `ranged`, on a line between its columns `low` and `high` where it has them.

    Args:
        data: as `table` makes it.
        x: title, scale and axis of the horizontal axis.
        column: what stands there.
        y, by: the vertical axis, and the colour.
        ranged: see above.
        offset: sets what stands in one row apart.
        more: further encodings of the points.
    """

    def at(name: str) -> alt.X:
        return x.copy().field(name).type("quantitative")

    place = {"y": y, "color": by, **({} if offset is None else {"yOffset": offset})}
    dots = alt.Chart().mark_point(size=55, filled=True, fillOpacity=0.88)
    layers = [dots.encode(x=at(column), tooltip=_every_column(data), **place, **more)]
    if ranged:
        between = alt.Chart().transform_filter("isValid(datum.high)").mark_rule(strokeWidth=1.6)
        layers.insert(0, between.encode(x=at("low"), x2="high:Q", **place))
    return layers


def matrix(data: alt.UrlData, x: alt.X, y: alt.Y, share: str, words: str, title: str) -> alt.LayerChart:
    """Cells as blue as their share, with words in them."""
    base = alt.Chart(data).encode(x=x, y=y, tooltip=_every_column(data))
    ink = alt.condition(f"datum.{share} > 0.55", alt.value("white"), alt.value("#222222"))
    cells = base.mark_rect(stroke="white").encode(color=blues(share, title))
    return cells + base.mark_text(fontSize=10).encode(text=f"{words}:N", color=ink)


def blues(share: str, title: str) -> alt.Color:
    """Encode a share as a shade of blue."""
    bar = alt.Legend(title=title, orient="top", gradientLength=160)
    return alt.Color(f"{share}:Q", scale=alt.Scale(domain=[0.0, 1.0], scheme="blues"), legend=bar)


def _every_column(data: alt.UrlData) -> list[str]:
    types: Iterable[tuple[str, str]] = data.to_dict()["format"]["parse"].items()
    return [f"{name}:{'Q' if kind == 'number' else 'N'}" for name, kind in types]
