"""The study of language models (paper, section 4): retrieval problems in words, and how they fail."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig

if TYPE_CHECKING:
    from hopscope.tasks.batch import Task
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class LanguageModelStudy:
    """See `hopscope.studies.base.Study` and `Gathering`: nothing is trained, so there are no units and no members."""

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

    def figures(self, config: LanguageModelConfig) -> tuple[str, ...]:
        """The figures that there is something to draw of."""
        from hopscope.studies.llm.figures import figure_names

        return figure_names(config)

    def gather(
        self, run: RunFolder, config: LanguageModelConfig, budget: "TimeBudget", say: Callable[[str], None]
    ) -> None:
        """Ask the models what has not been answered yet."""
        from hopscope.studies.llm.asking import gather

        gather(run, config, budget, say)

    def task(self, plan: "UnitPlan", device: str) -> "Task":
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

    def conclude(self, run: RunFolder) -> None:
        """Claims, figures and story."""
        from hopscope.studies.llm.cells import read_cells
        from hopscope.studies.llm.figures import write_figures
        from hopscope.studies.llm.ledger import judge
        from hopscope.studies.llm.story import write_story

        config = LanguageModelConfig.model_validate(run.config)
        cells = read_cells(run)
        judged = judge(cells, config)
        run.write_json("claims.json", [claim.to_json() for claim, _ in judged])
        write_figures(run, config, cells)
        write_story(run, config, cells, judged)
