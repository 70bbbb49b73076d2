"""The study of emergence as a value."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hopscope.studies.analysis import UnitAnalysis
from hopscope.studies.chains import study as chains
from hopscope.studies.chains.config import plan
from hopscope.studies.emergence.claims import claims
from hopscope.studies.emergence.config import COSTS, PRESETS, EmergenceConfig, candidates, clamps_name
from hopscope.studies.emergence.figures import figures
from hopscope.studies.emergence.measures import measurements
from hopscope.studies.recipe import evaluator
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.runs import UnitFolder
    from hopscope.training.budget import TimeBudget
    from hopscope.training.config import UnitPlan


def files(options: EmergenceConfig, plan: "UnitPlan") -> dict[str, str]:
    """As for all studies of chains, and members that are trained again."""
    again = {clamps_name(member.member): "json" for _, member in candidates(options, plan)}
    return chains.files(options, plan) | again


def analyse(
    options: EmergenceConfig,
    unit: "UnitFolder",
    plan: "UnitPlan",
    task: Any,
    budget: "TimeBudget",
    device: str,
) -> None:
    """As for all studies of chains; then some members are trained again.

    Raises:
        TimeBudgetReached: what is done is kept.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    from hopscope.studies.emergence.clamps import analyse

    chains.analyse(options, unit, plan, task, budget, device)
    analyse(options, unit, plan, task, budget, device)


def page_names(page: Any, options: EmergenceConfig) -> Mapping[str, Any]:
    """As for all studies of chains; then orders, members trained again, and crossed seeds."""
    from hopscope.studies.emergence.page import names

    return {**chains.page_names(page, options), **names(page, options)}


study = Study(
    name="emergence",
    question="the heads of a circuit as they form: in which order, with which losses, and what needs what",
    options=EmergenceConfig(),
    units=plan,
    analyses=(UnitAnalysis(files, analyse, measurements, evaluator),),
    claims=claims,
    figures=figures,
    presets={name: dict(options) for name, options in PRESETS.items()},
    costs=COSTS,
    page="page.md.j2",
    page_names=page_names,
    member_name=chains.member_name,
)
