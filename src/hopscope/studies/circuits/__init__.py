"""The study of circuits (paper, section 8): which circuits seeds learn, read and proven member by member."""

from typing import TYPE_CHECKING

from hopscope.runs import RunFolder
from hopscope.studies.chains.study import ChainsStudy
from hopscope.studies.circuits.config import COSTS, FIGURE_NAMES, PRESETS, CircuitsConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.claims import Claim, Ledger
    from hopscope.runs.evidence import Evidence, Row


class CircuitsStudy(ChainsStudy):
    """See `hopscope.studies.base.Program`."""

    name = "circuits"
    summary = "models of many layers follow a chain: which heads do it, how, and whether seeds agree"
    presets = PRESETS
    costs = COSTS
    config_type = CircuitsConfig

    def figures(self, config: CircuitsConfig) -> tuple[str, ...]:
        """Names of the figures."""
        return FIGURE_NAMES

    def measurements(self, run: RunFolder, config: CircuitsConfig) -> "Iterable[Row]":
        """Losses, circuits and their formation, as rows of the evidence table."""
        from hopscope.studies.chains.measures import measurements

        return measurements(run, config)

    def claims(self, config: CircuitsConfig) -> "tuple[Claim, ...]":
        """R4 to R7."""
        from hopscope.studies.circuits.claims import claims

        return claims(config)

    def present(self, run: RunFolder, config: CircuitsConfig, evidence: "Evidence", ledger: "Ledger") -> None:
        """Figures and story."""
        from hopscope.studies.chains.evidence import gather
        from hopscope.studies.chains.figures import write_figures
        from hopscope.studies.circuits.figures import FIGURES
        from hopscope.studies.circuits.story import write_story

        members = gather(run, config)
        write_figures(run, FIGURES, config, members)
        write_story(run, config, members, ledger)
