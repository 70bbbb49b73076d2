"""The permutation-lookup study (presentation): elimination, recall, and what it takes to learn them."""

from typing import TYPE_CHECKING, Any, cast

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.builtin import BuiltInStudy
from hopscope.studies.permutation.config import (
    COSTS,
    PRESETS,
    PermutationStudyConfig,
    analyses,
    plan,
)
from hopscope.tasks.config import PermutationConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.claims import Claim
    from hopscope.runs.evidence import Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.tasks.permutation import PermutationTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class PermutationStudy(BuiltInStudy):
    """See `hopscope.studies.base.Program`; what needs torch or charts is imported when it is called."""

    name = "permutation"
    summary = "one-layer models look up a permutation: elimination, recall, and which model learns which"
    presets = PRESETS
    costs = COSTS

    def plan(self, config: PermutationStudyConfig) -> "list[UnitPlan]":
        """Units of the grid."""
        return plan(config)

    def analyses(self, config: PermutationStudyConfig, plan: "UnitPlan") -> dict[str, str]:
        """What is measured of a unit."""
        return analyses(config, plan)

    def figures(self, config: PermutationStudyConfig) -> "tuple[Figure, ...]":
        """The figures that there is something to draw of."""
        from hopscope.studies.permutation.figures import figures

        return figures(config)

    def task(self, plan: "UnitPlan", device: str) -> "PermutationTask":
        """The training data of a unit."""
        from hopscope.tasks.permutation import PermutationTask

        return PermutationTask(cast(PermutationConfig, plan.task), device)

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: "PermutationTask") -> "Evaluate":
        """Elimination and recall on held-out mappings."""
        from hopscope.studies.permutation.analysis import evaluator

        return evaluator(task)

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: "PermutationTask", budget: "TimeBudget", device: str
    ) -> None:
        """Probes, causal tests, head roles, formation and attention maps of the trained members."""
        from hopscope.studies.permutation.analysis import analyse

        config = PermutationStudyConfig.model_validate(unit.run.config)
        analyse(unit, plan, task, budget, analyses(config, plan), config.evaluation_limit, device)

    def measurements(self, run: RunFolder, config: PermutationStudyConfig) -> "Iterable[Row]":
        """Everything that the analyses say, as rows of the evidence table."""
        from hopscope.studies.permutation.measures import measurements

        return measurements(run, config)

    def claims(self, config: PermutationStudyConfig) -> "tuple[Claim, ...]":
        """P1 to P11."""
        from hopscope.studies.permutation.claims import claims

        return claims(config)

    def page_names(self, page: "PageFunctions", config: PermutationStudyConfig) -> "Mapping[str, Any]":
        """What the page shows that is no number of the evidence, such as worked sequences."""
        from hopscope.studies.permutation.page import names

        return names(page, config)
