"""The study of language models (paper, section 4): retrieval problems in words, and how they fail."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.builtin import BuiltInStudy
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.claims import Claim
    from hopscope.runs.evidence import Row
    from hopscope.studies.figures import Figure
    from hopscope.studies.page_functions import PageFunctions
    from hopscope.tasks.device import DeviceTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class LanguageModelStudy(BuiltInStudy):
    """See `hopscope.studies.base.Program` and `Gathering`: nothing is trained, so there are no units and no members."""

    name = "llm"
    summary = "language models answer retrieval problems in words: how often, and how they fail"
    presets = PRESETS
    costs = COSTS
    gathered = ("llm/answers.json",)

    def plan(self, config: LanguageModelConfig) -> "list[UnitPlan]":
        """No units."""
        return []

    def analyses(self, config: LanguageModelConfig, plan: "UnitPlan") -> dict[str, str]:
        """Nothing is measured of a unit."""
        return {}

    def figures(self, config: LanguageModelConfig) -> "tuple[Figure, ...]":
        """Accuracy by formulation and by depth, and which chains wrong answers follow."""
        from hopscope.studies.llm.figures import figures

        return figures(config)

    def gather(
        self, run: RunFolder, config: LanguageModelConfig, budget: "TimeBudget", say: Callable[[str], None]
    ) -> None:
        """Ask the models what has not been answered yet."""
        from hopscope.studies.llm.asking import gather

        gather(run, config, budget, say)

    def task(self, plan: "UnitPlan", device: str) -> "DeviceTask":
        """Never called: there are no units."""
        raise NotImplementedError("the study of language models has no units")

    def evaluator(self, unit: UnitFolder, plan: "UnitPlan", task: object) -> "Evaluate":
        """Never called: there are no units."""
        raise NotImplementedError("the study of language models has no units")

    def analyse(
        self, unit: UnitFolder, plan: "UnitPlan", task: object, budget: "TimeBudget", device: str
    ) -> None:
        """Never called: there are no units."""
        raise NotImplementedError("the study of language models has no units")

    def measurements(self, run: RunFolder, config: LanguageModelConfig) -> "Iterable[Row]":
        """What the models answered."""
        from hopscope.studies.llm.measurements import measurements

        return measurements(run, config)

    def claims(self, config: LanguageModelConfig) -> "tuple[Claim, ...]":
        """Claim R10."""
        from hopscope.studies.llm.claims import claims

        return claims(config)

    def page_names(self, page: "PageFunctions", config: LanguageModelConfig) -> "Mapping[str, Any]":
        """Example questions, counts of wrong answers, and what each hop leaves."""
        from hopscope.studies.llm.page import names

        return names(page, config)
