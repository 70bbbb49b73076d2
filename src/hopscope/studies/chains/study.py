"""What the studies of circuits and of emergence do alike; see `hopscope.studies.base.Program`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hopscope.circuits.config import followed_names
from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.builtin import BuiltInStudy
from hopscope.studies.chains.config import ChainsConfig, plan
from hopscope.studies.recipe import RETRIEVAL
from hopscope.tasks.config import RetrievalConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.runs.evidence import Row
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.tasks.retrieval import RetrievalTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class ChainsStudy(BuiltInStudy):
    """One model, many seeds, every member read and followed; torch and charts are imported when they are needed."""

    config_type: ClassVar[type[ChainsConfig]]

    def config_of(self, unit: UnitFolder) -> ChainsConfig:
        """The configuration of a unit's run."""
        return self.config_type.model_validate(unit.run.config)

    def plan(self, config: ChainsConfig) -> "list[UnitPlan]":
        """Units of the members."""
        return plan(config)

    def analyses(self, config: ChainsConfig, plan: "UnitPlan") -> dict[str, str]:
        """What is measured of a unit."""
        members = [member.member for member in plan.members]
        return {RETRIEVAL: "json", **followed_names(members, config.reader())}

    def task(self, plan: "UnitPlan", device: str) -> "RetrievalTask":
        """The training data of a unit."""
        from hopscope.tasks.retrieval import RetrievalTask

        return RetrievalTask(cast(RetrievalConfig, plan.task), device)

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: "RetrievalTask") -> "Evaluate":
        """Losses and accuracies on held-out samples."""
        from hopscope.studies.retrieval import evaluator

        return evaluator(task, self.config_of(unit).evaluation_samples)

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: "RetrievalTask", budget: "TimeBudget", device: str
    ) -> None:
        """Losses on many samples, circuits, and how their paths formed."""
        from hopscope.studies.chains.analysis import analyse

        analyse(self.config_of(unit), unit, plan, task, budget, device)

    def measurements(self, run: RunFolder, config: Any) -> "Iterable[Row]":
        """Losses, circuits and their formation, as rows of the evidence table."""
        from hopscope.studies.chains.measures import measurements

        return measurements(run, config)

    def member_name(self, config: ChainsConfig, member: int, seed: int, configuration: str) -> str:
        """A member by its seed, or by the seeds of its weights and its data."""
        return config.names[member]

    def page_names(self, page: "PageFunctions", config: Any) -> Mapping[str, Any]:
        """The circuits, who was read, and the first useful heads."""
        from hopscope.studies.chains.page import names

        return names(page, config)
