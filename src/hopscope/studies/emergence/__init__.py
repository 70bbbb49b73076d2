"""The study of emergence (paper, section 9): in which order heads form, and what needs what."""

from typing import TYPE_CHECKING, Any, cast

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.study import ChainsStudy
from hopscope.studies.emergence.config import COSTS, PRESETS, EmergenceConfig, candidates, clamps_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.claims import Claim
    from hopscope.runs.evidence import Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page_functions import PageFunctions
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

    def figures(self, config: EmergenceConfig) -> "tuple[Figure, ...]":
        """The figures that there is something to draw of."""
        from hopscope.studies.emergence.figures import figures

        return figures(config)

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

    def page_names(self, page: "PageFunctions", config: Any) -> "Mapping[str, Any]":
        """As for all studies of chains; then orders, members trained again, and crossed seeds."""
        from hopscope.studies.emergence.page import names

        return {**super().page_names(page, config), **names(page, config)}
