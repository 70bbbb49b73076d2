"""The study of a small language model as a value; what needs torch, Inspect or charts is imported when it is called."""

from typing import TYPE_CHECKING, Any

from hopscope.circuits.config import followed_names
from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.study import Study
from hopscope.studies.tiny_lm.claims import claims
from hopscope.studies.tiny_lm.config import COSTS, EXAM, PRESETS, TinyLmConfig, plan
from hopscope.studies.tiny_lm.figures import figures
from hopscope.studies.tiny_lm.measures import measurements
from hopscope.studies.tiny_lm.page import names

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan
    from hopscope.training.trainer import Evaluate


def files(options: TinyLmConfig, plan: "UnitPlan") -> dict[str, str]:
    """Answers through Inspect, circuits, and how their paths formed."""
    members = [member.member for member in plan.members]
    return {EXAM: "json", **followed_names(members, options.reader())}


def evaluator(options: TinyLmConfig, task: Any) -> "Evaluate":
    """Losses and accuracies on held-out questions."""
    from hopscope.studies.tiny_lm.analysis import evaluator

    return evaluator(task, options.evaluation_samples)


def analyse(
    options: TinyLmConfig, unit: "UnitFolder", plan: "UnitPlan", task: Any, budget: "TimeBudget", device: str
) -> None:
    """Write each member as a folder that language-model tools read, ask it through Inspect, read its circuit.

    Raises:
        TimeBudgetReached: between two members.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    from hopscope.studies.tiny_lm.analysis import analyse

    analyse(options, unit, plan, task, budget)


study = Study(
    name="tiny-lm",
    question="a small language model learns questions in equations and is asked them as any language model is",
    options=TinyLmConfig(),
    units=plan,
    analyses=(UnitAnalysis(files, analyse, measurements, evaluator),),
    claims=claims,
    figures=figures,
    presets={name: dict(options) for name, options in PRESETS.items()},
    costs=COSTS,
    page="page.md.j2",
    page_names=names,
)
