"""Loss curves that the page itself draws: of several runs beside each other, and of a run that is not finished."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from hopscope.report.theme import with_theme

_FEW = 8
"""Lines whose names stand in a legend; more of them are told by pointing at them."""


def loss_curves(
    rows: Sequence[Mapping[str, Any]], by: str, order: Sequence[str], *extra: str, what: str = "held-out loss"
) -> dict[str, Any]:
    """A Vega-Lite specification with its rows, in the theme.

    Args:
        rows: each with the columns `by`, `extra`, `step` and `loss`.
        by: the column whose values have a colour each.
        order: these values in the order of the legend; empty: as they come.
        extra: columns that part lines of one colour.
        what: is drawn, in words.
    """
    names = list(order) or list(dict.fromkeys(row[by] for row in rows))
    words = [by, *extra]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*words, "step", "loss"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    parse = dict.fromkeys(words, "string") | {"step": "number", "loss": "number"}
    legend = {"title": None, "orient": "top", "labelLimit": 0} if len(names) <= _FEW else None
    return with_theme({
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": text.getvalue(), "format": {"type": "csv", "parse": parse}},
        "width": 640, "height": 320,
        "mark": {"type": "line"},
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "training step", "axis": {"format": "~s"}},
            "y": {"field": "loss", "type": "quantitative", "title": what, "scale": {"zero": False}},
            "color": {"field": by, "type": "nominal", "sort": None, "scale": {"domain": names}, "legend": legend},
            "detail": [{"field": name, "type": "nominal"} for name in extra],
            "tooltip": [{"field": name, "type": "nominal"} for name in words]
            + [{"field": name, "type": "quantitative"} for name in ("step", "loss")],
        },
    })  # fmt: skip
