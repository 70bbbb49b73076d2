"""The study of emergence as a value."""

from typing import TYPE_CHECKING, Any

from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.chains.config import plan
from hopscope.studies.chains.page import names as chain_names
from hopscope.studies.chains.study import circuits_of_members, member_name
from hopscope.studies.emergence.claims import claims
from hopscope.studies.emergence.config import COSTS, PRESETS, EmergenceConfig, candidates, clamps_name
from hopscope.studies.emergence.figures import figures
from hopscope.studies.emergence.measures import measurements
from hopscope.studies.emergence.page import names
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan


def files(options: EmergenceConfig, plan: "UnitPlan") -> dict[str, str]:
    """The members that are trained again."""
    return {clamps_name(member.member): "json" for _, member in candidates(options, plan)}


def analyse(
    options: EmergenceConfig,
    unit: "UnitFolder",
    plan: "UnitPlan",
    task: Any,
    budget: "TimeBudget",
    device: str,
) -> None:
    """Train some members again, each with the reads of a step clamped.

    Raises:
        TimeBudgetReached: what is done is kept.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    from hopscope.studies.emergence.clamps import analyse

    analyse(options, unit, plan, task, budget, device)


study = Study(
    name="emergence",
    question="the heads of a circuit as they form: in which order, with which losses, and what needs what",
    options=EmergenceConfig(),
    units=plan,
    analyses=(circuits_of_members, UnitAnalysis(files, analyse, measurements)),
    claims=claims,
    figures=figures,
    presets={name: dict(options) for name, options in PRESETS.items()},
    costs=COSTS,
    page="page.md.j2",
    page_names=lambda page, options: {**chain_names(page, options), **names(page, options)},
    member_name=member_name,
)
