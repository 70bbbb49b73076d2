"""The depth study (paper, section 7): how many layers retrieval takes, and what order it is learned in."""

from typing import TYPE_CHECKING, cast

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.depth.config import ANALYSES, COSTS, PRESETS, DepthStudyConfig, plan
from hopscope.tasks.config import RetrievalConfig

if TYPE_CHECKING:
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class DepthStudy:
    """See `hopscope.studies.base.Study`; what needs torch or charts is imported when it is called."""

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

    def figures(self, config: DepthStudyConfig) -> tuple[str, ...]:
        """The figures that there is something to draw of."""
        from hopscope.studies.depth.figures import figure_names

        return figure_names(config)

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

    def conclude(self, run: RunFolder) -> None:
        """Claims, figures and story."""
        from hopscope.studies.depth.evidence import gather
        from hopscope.studies.depth.figures import write_figures
        from hopscope.studies.depth.ledger import judge
        from hopscope.studies.depth.story import write_story

        config = DepthStudyConfig.model_validate(run.config)
        evidence = gather(run, config)
        judged = judge(evidence, config)
        run.write_json("claims.json", [claim.to_json() for claim, _ in judged])
        write_figures(run, config, evidence)
        write_story(run, config, evidence, judged)
