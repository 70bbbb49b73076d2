"""What is measured of a unit: losses, each member's circuit, how its paths formed, and its attention maps."""

from typing import Any

import numpy as np

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.emergence import formation, maps, spaced, watched
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.record import path_json, read_member
from hopscope.runs import UnitFolder
from hopscope.studies import retrieval
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.names import formation_name, maps_name
from hopscope.studies.words import symbol
from hopscope.tasks.batch import Batch
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.restore import load_ensemble

MOST_MAPS = 24
"""Checkpoints of which attention maps are kept."""


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
    retrieval.analyse(unit, plan, task, config.analysis_samples, device)
    step = plan.training.steps
    for index, member in enumerate(plan.members):
        budget.check()
        reading = read_member(unit.run, member.member, step, config.reader())
        if not unit.analysis_path(formation_name(member.member), step).is_file():
            # Circuits are read and followed by the CPU, wherever the unit was trained.
            _follow(unit, RetrievalTask(task.config), index, member.member, reading)


def _follow(unit: UnitFolder, task: RetrievalTask, index: int, member: int, reading: dict[str, Any]) -> None:
    """Attention on the paths at every checkpoint, and maps at some."""
    last = reading["checkpoint"]
    batch = watched(task)
    steps = [step for step, _ in unit.checkpoints() if step <= last]
    models = [(step, load_ensemble(unit, step).select([index])) for step in steps]
    found = formation(Circuit.model_validate(reading["circuit"]), models, task, batch)
    shown = spaced(steps, MOST_MAPS)
    of_heads = [bytes_.numpy() for _, bytes_ in maps((pair for pair in models if pair[0] in shown), batch)]
    unit.write_analysis(maps_name(member), last, {"steps": np.array(shown), "maps": np.stack(of_heads)})
    # Last, because its file says that both are there.
    unit.write_analysis(
        formation_name(member),
        last,
        {
            "member": member,
            "checkpoints": list(found.checkpoints),
            "paths": [
                {**path_json(path), "attention": list(values)}
                for path, values in zip(found.paths, found.attention, strict=True)
            ],
            **_example(task, batch),
        },
    )


def _example(task: RetrievalTask, batch: Batch) -> dict[str, Any]:
    """The positions of the sequence that the maps are of, and the row roles in the order of the chain."""
    grammar = Grammar(batch, causal=True, words=task.role_values)
    of = {name: batch.roles[name][0, 0].tolist() for name in ("kind", "step", "chain", "holds")}
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
