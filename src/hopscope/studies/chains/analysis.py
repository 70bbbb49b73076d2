"""What is read of a unit: each member's circuit, how its paths formed, and its attention maps."""

from typing import Any

from hopscope.circuits.following import read_and_follow
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.settings import setting_of, task_of
from hopscope.runs import UnitFolder
from hopscope.studies.chains.config import ChainsConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.words import symbol


def analyse(
    config: ChainsConfig,
    unit: UnitFolder,
    plan: UnitPlan,
    task: RetrievalTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Write the analyses of a trained unit; those that are there already are kept.

    Raises:
        TimeBudgetReached: between two members.
        UserError: a checkpoint is damaged, or a file cannot be written.
    """
    step = plan.training.steps
    for index, member in enumerate(plan.members):
        budget.check()
        # Circuits are read and followed by the CPU, wherever the unit was trained.
        setting = setting_of(task_of(task.config))
        read_and_follow(unit, index, member.member, step, config.reader(), setting, _example)


def _example(grammar: Grammar) -> dict[str, Any]:
    """The positions of the sequence that the maps are of, and the row roles in the order of the chain."""
    of = {name: grammar.batch.roles[name][0, 0].tolist() for name in ("kind", "step", "chain", "holds")}
    tokens = [
        {
            "role": grammar.words({"kind": kind, "step": step}),
            "chain": chain,
            "label": symbol(holds),
        }
        for kind, step, chain, holds in zip(*of.values(), strict=True)
    ]
    in_chain = sorted(grammar.roles, key=lambda roles: (roles["step"], roles["kind"]))
    return {"tokens": tokens, "rows": [grammar.words(roles) for roles in in_chain]}
