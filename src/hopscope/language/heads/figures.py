"""Heat maps of the heads' scores, layers × heads, one for each structural target."""

import csv
import io
from pathlib import Path
from typing import Any, Final

from hopscope.runs import write_atomic, write_json

NAME: Final = "heads"
"""Of the figure's files."""

_COLUMNS = 4


def target_words(name: str) -> str:
    """A target as a person would say it: "answer → hop 2"."""
    row, target = name.split(":")
    return f"{row} → {target.replace('_', ' ')}"


def write_heat_maps(folder: Path, scores: dict[str, Any]) -> None:
    """Write `heads.vl.json` and `heads.csv`, from which `hopscope.report.figures.render_figure` draws.

    Args:
        folder: for both files; it is made if it is missing.
        scores: what `hopscope.language.heads.score` returned.

    Raises:
        UserError: a file cannot be written.
    """
    import altair as alt

    rows = [
        {"target": target_words(name), "layer": layer, "head": head, "attention": round(value, 4)}
        for name, target in scores["targets"].items()
        for layer, heads in enumerate(target["scores"])
        for head, value in enumerate(heads)
    ]
    types = {"target": "string", "layer": "number", "head": "number", "attention": "number"}
    data = alt.UrlData(url=f"{NAME}.csv", format=alt.CsvDataFormat(type="csv", parse=types))
    names = [target_words(name) for name in scores["targets"]]
    step = max(6, min(22, 240 // max(scores["layers"], scores["heads"])))
    axis: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "ticks": False}
    chart = (
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=alt.X("head:O", title="head", axis=alt.Axis(**axis)),
            y=alt.Y("layer:O", title="layer", sort="descending", axis=alt.Axis(**axis)),
            color=alt.Color(
                "attention:Q",
                scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                legend=alt.Legend(title="mean attention", orient="top", gradientLength=200),
            ),
            tooltip=["target:N", "layer:O", "head:O", alt.Tooltip("attention:Q", format=".3f")],
        )
        .properties(width=step * scores["heads"], height=step * scores["layers"])
        .facet(facet=alt.Facet("target:N", title=None, sort=names), columns=_COLUMNS)
    )
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(types), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{NAME}.csv", text.getvalue())
    write_json(folder / f"{NAME}.vl.json", chart.to_dict())
