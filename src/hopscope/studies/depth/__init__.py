"""The depth study (paper, section 7): how many layers retrieval takes, and what order it is learned in."""

from typing import TYPE_CHECKING, Any, cast

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.builtin import BuiltInStudy
from hopscope.studies.depth.config import ANALYSES, COSTS, PRESETS, DepthStudyConfig, plan
from hopscope.tasks.config import RetrievalConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.claims import Claim
    from hopscope.runs.evidence import Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class DepthStudy(BuiltInStudy):
    """See `hopscope.studies.base.Program`; what needs torch or charts is imported when it is called."""

    name = "depth"
    summary = (
        "models of many depths follow a chain: which steps they learn, in which order, and how deep it takes"
    )
    presets = PRESETS
    costs = COSTS

    def plan(self, config: DepthStudyConfig) -> "list[UnitPlan]":
        """Units of the grid."""
        return plan(config)

    def analyses(self, config: DepthStudyConfig, plan: "UnitPlan") -> dict[str, str]:
        """What is measured of a unit."""
        return ANALYSES

    def figures(self, config: DepthStudyConfig) -> "tuple[Figure, ...]":
        """The figures that there is something to draw of."""
        from hopscope.studies.depth.figures import figures

        return figures(config)

    def task(self, plan: "UnitPlan", device: str) -> "RetrievalTask":
        """The training data of a unit."""
        from hopscope.tasks.retrieval import RetrievalTask

        return RetrievalTask(cast(RetrievalConfig, plan.task), device)

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: "RetrievalTask") -> "Evaluate":
        """Losses and accuracies on held-out samples."""
        from hopscope.studies.retrieval import evaluator

        config = DepthStudyConfig.model_validate(unit.run.config)
        return evaluator(task, config.evaluation_samples)

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: "RetrievalTask", budget: "TimeBudget", device: str
    ) -> None:
        """Losses and accuracies of the trained members on many held-out samples."""
        from hopscope.studies.retrieval import analyse

        config = DepthStudyConfig.model_validate(unit.run.config)
        analyse(unit, plan, task, config.analysis_samples, device)

    def measurements(self, run: RunFolder, config: DepthStudyConfig) -> "Iterable[Row]":
        """Final losses, and what was measured of the last checkpoints."""
        from hopscope.studies.depth.measures import measurements

        return measurements(run, config)

    def claims(self, config: DepthStudyConfig) -> "tuple[Claim, ...]":
        """R1 to R3, R9a, R9b and R11."""
        from hopscope.studies.depth.claims import claims

        return claims(config)

    def page_names(self, page: "PageFunctions", config: DepthStudyConfig) -> "Mapping[str, Any]":
        """An example of a sample, the order of learning, theory, and what the sweeps come to."""
        from hopscope.studies.depth.page import names

        return names(page, config)
