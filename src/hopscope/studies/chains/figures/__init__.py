"""Figures that the studies of circuits and of their emergence share."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hopscope.runs import RunFolder
from hopscope.studies.figures import write_figure
from hopscope.studies.rows import Drawn

if TYPE_CHECKING:
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
        write_figure(run, name, *draw(config, members))
