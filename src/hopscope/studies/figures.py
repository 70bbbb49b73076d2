"""Writing a figure: a Vega-Lite specification that names its data, and the data as CSV beside it."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hopscope.runs import RunFolder, write_atomic, write_json

if TYPE_CHECKING:
    import altair


def data_url(name: str, types: Mapping[str, str]) -> "altair.UrlData":
    """The data of figure `name` for an Altair chart; types are Vega-Lite's `number`, `string`, `boolean`."""
    import altair

    return altair.UrlData(url=f"{name}.csv", format=altair.CsvDataFormat(type="csv", parse=dict(types)))


def write_figure(
    run: RunFolder, name: str, chart: "altair.TopLevelMixin", rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write `figures/<name>.vl.json` and `<name>.csv`.

    Raises:
        UserError: a file cannot be written.
    """
    spec = chart.to_dict()
    text = io.StringIO()
    # The columns are those that the specification declares, so that a figure without rows is still a figure.
    writer = csv.DictWriter(text, fieldnames=list(spec["data"]["format"]["parse"]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(run.path / "figures" / f"{name}.csv", text.getvalue())
    write_json(run.path / "figures" / f"{name}.vl.json", spec)
