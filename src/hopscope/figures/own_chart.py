"""A chart that a study draws itself: its rows become the figure's CSV, and the chart is drawn from that."""

import math
import traceback
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.figures import Drawing, Figure, data_url

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

_EXPECTED = "an Altair chart and the rows of its data"


def draw_own(figure: Figure, evidence: "Evidence") -> Drawing:
    """The chart of a study's own function, with its rows as data.

    Raises:
        UserError: the function returns something else.
    """
    what = f"figure chart {figure.name!r}: expected {_EXPECTED}"
    found = _called(figure, evidence, what)
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(f"{what}, found {type(found).__name__}; return both")
    chart: Any = found[0]
    is_chart: bool = isinstance(chart, alt.TopLevelMixin)
    if not is_chart:
        raise UserError(f"{what}, found {type(chart).__name__} as the chart")
    rows = [_plain(row) for row in _rows(found[1], figure.name)]
    types = column_types(rows) or _declared(chart)
    if not types:
        raise UserError(f"{what}, found no rows; return what it shows")
    chart = chart.copy(deep=False)
    chart["data"] = data_url(figure.name, types)
    return chart, rows


def _declared(chart: Any) -> dict[str, str]:
    """Columns that the chart's own data declare: a figure without rows, of a run without results, is still a figure."""
    data = chart.to_dict().get("data", {})
    return dict(data.get("format", {}).get("parse") or {})


def _called(figure: Figure, evidence: "Evidence", what: str) -> Any:
    assert figure.function is not None
    try:
        return figure.function(evidence)
    except HopscopeError:
        raise
    except Exception as error:  # whatever the study's author wrote: it is named, with its line
        last = traceback.extract_tb(error.__traceback__)[-1]
        cause = in_words(error)
        raise UserError(
            f"{what}, found {cause} ({PurePath(last.filename).name}, line {last.lineno})"
        ) from error


def column_types(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Vega-Lite's type of every column: `number` or `boolean` where all its values are, else `string`."""
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).extend([] if value is None else [value])
    return {name: _type(found) for name, found in values.items()}


def _type(values: list[Any]) -> str:
    if values and all(isinstance(value, bool) for value in values):
        return "boolean"
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "number" if numbers else "string"


def _rows(given: Any, name: str) -> list[Mapping[Any, Any]]:
    records = given.to_dict("records") if hasattr(given, "to_dict") else given
    if isinstance(records, Mapping | str) or not isinstance(records, Iterable):
        raise UserError(
            f"figure chart {name!r}: expected {_EXPECTED}, found {type(given).__name__} as the rows"
        )
    rows = list(records)
    if not all(isinstance(row, Mapping) for row in rows):
        raise UserError(
            f"figure chart {name!r}: expected rows that are mappings from column to value, found others"
        )
    return rows


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Plain Python values; nothing where there is no number."""
    plain = {str(name): value.item() if hasattr(value, "item") else value for name, value in row.items()}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in plain.items()
    }
