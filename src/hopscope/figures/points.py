"""Points with their ranges, and cells with words: what charts are made of whose rows have names."""

from collections.abc import Iterable
from typing import Any

import altair as alt

from hopscope.claims.crossings import Crossing
from hopscope.figures import data_url
from hopscope.figures.rows import Row, short


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
