"""The figures of the depth study, as Vega-Lite specifications with their data as CSV beside them.

Which figures a run has depends on what it trains, and is known from its configuration alone.
"""

from typing import TYPE_CHECKING

from hopscope.runs import RunFolder
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.figures.common import Figure
from hopscope.studies.depth.figures.depths import LOSS_BY_DEPTH, PARTIAL_BY_DEPTH
from hopscope.studies.depth.figures.learning import CROSSINGS, CURVES
from hopscope.studies.depth.figures.sweeps import SPECIFICATION, STEPS_BY_DEPTH
from hopscope.studies.depth.figures.theory import INFORMATION_FLOW
from hopscope.studies.figures import write_figure

if TYPE_CHECKING:
    from hopscope.studies.depth.results import AllResults

FIGURES: tuple[Figure, ...] = (
    LOSS_BY_DEPTH, PARTIAL_BY_DEPTH, CURVES, CROSSINGS, INFORMATION_FLOW, STEPS_BY_DEPTH, SPECIFICATION,
)  # fmt: skip
"""Every figure that a run may have."""


def figure_names(config: DepthStudyConfig) -> tuple[str, ...]:
    """Names of the figures of a run: those that have something to show.  Loads no torch."""
    return tuple(figure.name for figure in FIGURES if figure.shown(config))


def write_figures(run: RunFolder, config: DepthStudyConfig, results: "AllResults") -> None:
    """Write every figure of a run.

    Raises:
        UserError: a file cannot be written.
    """
    for figure in FIGURES:
        if figure.shown(config):
            write_figure(run, figure.name, *figure.draw(config, results))
