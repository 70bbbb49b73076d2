"""The study of language models as a value: nothing is trained, so there are no units and no members."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from hopscope.studies.analysis import RunAnalysis
from hopscope.studies.llm.cells import FILE
from hopscope.studies.llm.claims import claims
from hopscope.studies.llm.config import COSTS, PRESETS, LanguageModelConfig
from hopscope.studies.llm.figures import figures
from hopscope.studies.llm.measurements import measurements
from hopscope.studies.llm.page import names
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
    page_names=names,
)
