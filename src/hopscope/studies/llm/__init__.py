"""The study of language models (paper, section 4): retrieval problems in words, and how they fail."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hopscope.runs import RunFolder, UnitFolder
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.claims import Claim, Ledger
    from hopscope.runs.evidence import Evidence, Row
    from hopscope.tasks.device import DeviceTask
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


class LanguageModelStudy:
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

    def present(
        self, run: RunFolder, config: LanguageModelConfig, evidence: "Evidence", ledger: "Ledger"
    ) -> None:
        """Figures and story."""
        from hopscope.studies.llm.cells import read_cells
        from hopscope.studies.llm.figures import write_figures
        from hopscope.studies.llm.story import write_story

        cells = read_cells(run)
        write_figures(run, config, cells)
        write_story(run, config, cells, ledger)
