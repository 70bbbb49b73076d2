"""The study of emergence (paper, section 9): in which order heads form, and what needs what."""

from typing import TYPE_CHECKING, cast

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.study import ChainsStudy
from hopscope.studies.emergence.config import (
    COSTS,
    PRESETS,
    EmergenceConfig,
    candidates,
    clamps_name,
    figure_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.claims import Claim, Ledger
    from hopscope.runs.evidence import Evidence, Row
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan


class EmergenceStudy(ChainsStudy):
    """See `hopscope.studies.base.Program`."""

    name = "emergence"
    summary = "the heads of a circuit as they form: in which order, with which losses, and what needs what"
    presets = PRESETS
    costs = COSTS
    config_type = EmergenceConfig

    def analyses(self, config: ChainsConfig, plan: "UnitPlan") -> dict[str, str]:
        """What is measured of a unit."""
        again = candidates(cast(EmergenceConfig, config), plan)
        return super().analyses(config, plan) | {clamps_name(member.member): "json" for _, member in again}

    def figures(self, config: EmergenceConfig) -> tuple[str, ...]:
        """Names of the figures that there is something to draw of."""
        return figure_names(config)

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: "RetrievalTask", budget: "TimeBudget", device: str
    ) -> None:
        """As for all studies of chains; then some members are trained again."""
        from hopscope.studies.emergence.clamps import analyse

        super().analyse(unit, plan, task, budget, device)
        analyse(cast(EmergenceConfig, self.config_of(unit)), unit, plan, task, budget, device)

    def measurements(self, run: RunFolder, config: EmergenceConfig) -> "Iterable[Row]":
        """Losses, circuits, their formation, and members trained again, as rows of the evidence table."""
        from hopscope.studies.emergence.measures import measurements

        return measurements(run, config)

    def claims(self, config: EmergenceConfig) -> "tuple[Claim, ...]":
        """R8."""
        from hopscope.studies.emergence.claims import claims

        return claims(config)

    def present(
        self, run: RunFolder, config: EmergenceConfig, evidence: "Evidence", ledger: "Ledger"
    ) -> None:
        """Figures and story."""
        from hopscope.studies.chains.evidence import gather
        from hopscope.studies.chains.figures import write_figures
        from hopscope.studies.emergence.figures import figures
        from hopscope.studies.emergence.story import write_story

        members = gather(run, config)
        write_figures(run, figures(config), config, members)
        write_story(run, config, members, ledger)
