"""The permutation study as a value; what needs torch or charts is imported when it is called."""

from typing import TYPE_CHECKING, Any

from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.config import COSTS, PRESETS, PermutationStudyConfig, analyses, plan
from hopscope.studies.permutation.figures import figures
from hopscope.studies.permutation.measures import measurements
from hopscope.studies.permutation.page import names
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


def evaluator(options: PermutationStudyConfig, task: Any) -> "Evaluate":
    """Elimination and recall on held-out mappings."""
    from hopscope.studies.permutation.analysis import evaluator

    return evaluator(task)


def analyse(
    options: PermutationStudyConfig,
    unit: "UnitFolder",
    plan: "UnitPlan",
    task: Any,
    budget: "TimeBudget",
    device: str,
) -> None:
    """Probes, causal tests, head roles, formation and attention maps of the trained members.

    Raises:
        TimeBudgetReached: between two analyses.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    from hopscope.studies.permutation.analysis import analyse

    analyse(unit, plan, task, budget, analyses(options, plan), options.evaluation_limit, device)


study = Study(
    name="permutation",
    question="one-layer models look up a permutation: elimination, recall, and which model learns which",
    options=PermutationStudyConfig(),
    units=plan,
    analyses=(UnitAnalysis(analyses, analyse, measurements, evaluator),),
    claims=claims,
    figures=figures,
    presets={name: dict(options) for name, options in PRESETS.items()},
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
