"""Figures that the studies of circuits and of their emergence share."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url, write_figure
from hopscope.studies.rows import WIDTH, Drawn

if TYPE_CHECKING:
    import altair

    from hopscope.studies.chains.evidence import Member

Draw = Callable[[Any, "Sequence[Member]"], Drawn]
"""From configuration and members to chart and data."""


def write_figures(
    run: RunFolder, figures: Mapping[str, Draw], config: Any, members: "Sequence[Member]"
) -> None:  # fmt: skip
    """Write some figures of a run.

    Raises:
        UserError: a file cannot be written.
    """
    for name, draw in figures.items():
        chart, rows = draw(config, members)
        write_figure(run, name, chart if rows else _nothing(name), rows)


def _nothing(name: str) -> "altair.TopLevelMixin":
    """What stands in for a chart without data, which cannot be drawn in panels."""
    import altair

    words = altair.InlineData(values=[{"words": "nothing to show: no model of this run has it"}])
    said = altair.Chart(words).mark_text().encode(text="words:N")
    chart = altair.layer(said, data=data_url(name, {"nothing": "string"}))
    return chart.properties(width=WIDTH, height=40)
