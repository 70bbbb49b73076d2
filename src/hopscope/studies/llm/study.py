"""The study of language models as a value: nothing is trained, so there are no units and no members."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hopscope.studies.analysis import RunAnalysis
from hopscope.studies.llm.cells import FILE
from hopscope.studies.llm.claims import claims
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig
from hopscope.studies.llm.figures import figures
from hopscope.studies.llm.measurements import measurements
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.runs import RunFolder
    from hopscope.training.budget import TimeBudget


def ask(
    run: "RunFolder", options: LanguageModelConfig, budget: "TimeBudget", say: Callable[[str], None]
) -> None:
    """Ask the models what has not been answered yet.

    Raises:
        TimeBudgetReached: what is answered is kept.
        UserError: a model cannot be asked.
    """
    from hopscope.studies.llm.asking import gather

    gather(run, options, budget, say)


def page_names(page: Any, options: LanguageModelConfig) -> Mapping[str, Any]:
    """Example questions, counts of wrong answers, and what each hop leaves."""
    from hopscope.studies.llm.page import names

    return names(page, options)


study = Study(
    name="llm",
    question="language models answer retrieval problems in words: how often, and how they fail",
    options=LanguageModelConfig(),
    units=lambda options: [],
    analyses=(RunAnalysis((FILE,), ask, measurements),),
    claims=claims,
    figures=figures,
    presets={name: dict(options) for name, options in PRESETS.items()},
    costs=COSTS,
    page="page.md.j2",
    page_names=page_names,
)
