"""The study of a small language model of our own, asked through the same harness as any other."""

from typing import TYPE_CHECKING, Any, cast

from hopscope.circuits.config import followed_names
from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.builtin import BuiltInStudy
from hopscope.studies.tiny_lm.config import COSTS, EXAM, PRESETS, TinyLmConfig, plan
from hopscope.tasks.config import EquationsConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.claims import Claim
    from hopscope.runs.evidence import Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.tasks.equations import EquationsTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class TinyLmStudy(BuiltInStudy):
    """See `hopscope.studies.base.Program`; what needs torch, Inspect or charts is imported when it is called."""

    name = "tiny-lm"
    summary = (
        "a small language model learns questions in equations and is asked them as any language model is"
    )
    presets = PRESETS
    costs = COSTS

    def plan(self, config: TinyLmConfig) -> "list[UnitPlan]":
        """Units of the grid."""
        return plan(config)

    def analyses(self, config: TinyLmConfig, plan: "UnitPlan") -> dict[str, str]:
        """What is measured of a unit."""
        members = [member.member for member in plan.members]
        return {EXAM: "json", **followed_names(members, config.reader())}

    def figures(self, config: TinyLmConfig) -> "tuple[Figure, ...]":
        """Accuracy by depth, and during training."""
        from hopscope.studies.tiny_lm.figures import figures

        return figures(config)

    def task(self, plan: "UnitPlan", device: str) -> "EquationsTask":
        """The training data of a unit."""
        from hopscope.tasks.equations import EquationsTask

        return EquationsTask(cast(EquationsConfig, plan.task), device)

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: "EquationsTask") -> "Evaluate":
        """Losses and accuracies on held-out questions."""
        from hopscope.studies.tiny_lm.analysis import evaluator

        return evaluator(task, TinyLmConfig.model_validate(unit.run.config).evaluation_samples)

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: "EquationsTask", budget: "TimeBudget", device: str
    ) -> None:
        """Write each member as a folder that language-model tools read, ask it through Inspect, read its circuit."""
        from hopscope.studies.tiny_lm.analysis import analyse

        analyse(TinyLmConfig.model_validate(unit.run.config), unit, plan, task, budget)

    def measurements(self, run: RunFolder, config: TinyLmConfig) -> "Iterable[Row]":
        """Answers, circuits and their formation, as rows of the evidence table."""
        from hopscope.studies.tiny_lm.measures import measurements

        return measurements(run, config)

    def claims(self, config: TinyLmConfig) -> "tuple[Claim, ...]":
        """Claim S6."""
        from hopscope.studies.tiny_lm.claims import claims

        return claims(config)

    def page_names(self, page: "PageFunctions", config: TinyLmConfig) -> "Mapping[str, Any]":
        """An example of a question, the shares of a text's mixture, and the circuits."""
        from hopscope.studies.tiny_lm.page import names

        return names(page, config)
