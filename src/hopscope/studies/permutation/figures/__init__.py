"""The figures of the permutation study, as Vega-Lite specifications with their data as CSV beside them.

Which figures a run has depends on what it trains, and is known from its configuration alone.
"""

from typing import TYPE_CHECKING

from hopscope.runs import RunFolder
from hopscope.studies.figures import write_figure
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.figures.attention import ATTENTION
from hopscope.studies.permutation.figures.bayes import ACCURACY_BY_STEP, POSTERIOR, TILT
from hopscope.studies.permutation.figures.causal import ABLATION, BATTERY
from hopscope.studies.permutation.figures.common import Figure
from hopscope.studies.permutation.figures.decoding import DECODING
from hopscope.studies.permutation.figures.floors import floors as floors
from hopscope.studies.permutation.figures.formation import FORMATION, FORMATION_ORDER
from hopscope.studies.permutation.figures.readings import READINGS
from hopscope.studies.permutation.figures.roles import HEAD_ROLES
from hopscope.studies.permutation.figures.slots import RECALL_BY_SLOT, SWEEP_SLOTS
from hopscope.studies.permutation.figures.sweeps import SWEEP_CAPACITY, SWEEP_RATIO, SWEEP_VALUES
from hopscope.studies.permutation.figures.training import LOSS, SKILL_CURVES

if TYPE_CHECKING:
    # It takes torch along, which the names of the figures do not need.
    from hopscope.studies.permutation.evidence import Evidence

FIGURES: tuple[Figure, ...] = (
    LOSS, SKILL_CURVES, RECALL_BY_SLOT, POSTERIOR, ACCURACY_BY_STEP, TILT, ATTENTION, HEAD_ROLES, BATTERY, ABLATION,
    DECODING, FORMATION, FORMATION_ORDER, READINGS, SWEEP_VALUES, SWEEP_CAPACITY, SWEEP_RATIO, SWEEP_SLOTS,
)  # fmt: skip
"""Every figure that a run may have."""


def figure_names(config: PermutationStudyConfig) -> tuple[str, ...]:
    """Names of the figures of a run: those that have something to show.  Loads no torch."""
    return tuple(figure.name for figure in FIGURES if figure.shows(config))


def write_figures(run: RunFolder, config: PermutationStudyConfig, evidence: "dict[str, Evidence]") -> None:
    """Write every figure of a run.

    Raises:
        UserError: a file cannot be written, or an analysis is missing.
    """
    for figure in FIGURES:
        shown = [evidence[configuration.name] for configuration in figure.shows(config)]
        if shown:
            write_figure(run, figure.name, *figure.draw(run, config, shown))
