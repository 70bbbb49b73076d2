"""Heat maps of the heads' scores, layers × heads, one for each structural target."""

from pathlib import Path
from typing import Any, Final

from hopscope.figures import write_figure

NAME: Final = "heads"
"""Of the figure's files."""

_COLUMNS = 4


def target_words(name: str) -> str:
    """A target as a person would say it: "answer → hop 2"."""
    row, target = name.split(":")
    return f"{row} → {target.replace('_', ' ')}"


def write_heat_maps(folder: Path, scores: dict[str, Any]) -> None:
    """Write the figure `heads` into a folder, which is made if it is missing.

    Args:
        folder: for the files.
        scores: what `hopscope.language.heads.score` returned.

    Raises:
        UserError: a file cannot be written.
    """
    import altair as alt

    from hopscope.figures.marks import table

    rows = [
        {"target": target_words(name), "layer": layer, "head": head, "attention": round(value, 4)}
        for name, target in scores["targets"].items()
        for layer, heads in enumerate(target["scores"])
        for head, value in enumerate(heads)
    ]
    names = [target_words(name) for name in scores["targets"]]
    step = max(6, min(22, 240 // max(scores["layers"], scores["heads"])))
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False)
    chart = (
        alt.Chart(table(NAME, "target", "layer head attention"))
        .mark_rect()
        .encode(
            x=alt.X("head:O", title="head", axis=axis),
            y=alt.Y("layer:O", title="layer", sort="descending", axis=axis),
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
    folder.mkdir(parents=True, exist_ok=True)
    write_figure(folder, NAME, chart, rows)
