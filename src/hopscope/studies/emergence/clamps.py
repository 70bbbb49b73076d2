"""Causal timelines of some members: trained again from a checkpoint, with one read of each hop clamped."""

from collections.abc import Mapping, Sequence
from typing import Any

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.clamping import Clamp, clamp_of, controls_of, rerun
from hopscope.circuits.emergence import FORMED
from hopscope.circuits.reader import READ
from hopscope.circuits.record import read_member
from hopscope.claims.crossings import first_crossing
from hopscope.models.interventions import ReplacePattern, Roles
from hopscope.runs import UnitFolder
from hopscope.studies.chains.names import formation_name
from hopscope.studies.emergence.config import EmergenceConfig, candidates, clamps_name
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.restore import load_ensemble

LEFT_ALONE, CONTROL = "nothing clamped", "as many rows outside of the circuit clamped"


def analyse(
    config: EmergenceConfig, unit: UnitFolder, plan: UnitPlan, task: RetrievalTask, budget: TimeBudget
) -> None:
    """Write the re-runs of a unit's members; those that are there already are kept.

    Raises:
        TimeBudgetReached: within a re-run, which then begins anew.
    """
    last = plan.training.steps
    for index, member in candidates(config, plan):
        name = clamps_name(member.member)
        if unit.analysis_path(name, last).is_file():
            continue
        reading = read_member(unit.run, member.member, last, config.reader())
        found = _rerun(config, unit, plan, task, budget, index, reading) if _reads(reading) else {}
        unit.write_analysis(name, last, {"member": member.member, **found})


def _rerun(
    config: EmergenceConfig,
    unit: UnitFolder,
    plan: UnitPlan,
    task: RetrievalTask,
    budget: TimeBudget,
    index: int,
    reading: Mapping[str, Any],
) -> dict[str, Any]:
    member, chosen = plan.members[index], _reads(reading)
    followed = unit.read_analysis(formation_name(member.member), plan.training.steps)
    start = _before(followed, [path for paths in chosen.values() for path in paths])
    clamps: dict[str, Clamp] = {LEFT_ALONE: ()}
    clamps |= {name: tuple(map(clamp_of, paths)) for name, paths in chosen.items()}
    control = controls_of(next(iter(chosen.values())), _used(reading), config.layers, config.heads)
    if control is not None:
        clamps[CONTROL] = control
    found = rerun(
        load_ensemble(unit, start).select([index]), task, plan.training, member.data_seed, start, clamps,
        steps=config.clamp_steps, every=config.checkpoint_every, samples=config.evaluation_samples, check=budget.check,
    )  # fmt: skip
    rows = {str(path.roles): path.query for paths in chosen.values() for path in paths}
    return {
        "start": start,
        "steps": list(found.steps),
        "runs": [
            {
                "name": name,
                "clamped": [_words(clamp, rows) for clamp in clamps[name]],
                "losses": {key: list(values) for key, values in losses.items()},
            }
            for name, losses in found.losses.items()
        ],
    }


def _reads(reading: Mapping[str, Any]) -> dict[str, list[Path]]:
    """For each target, the paths that do the read whose removal costs most of those that it is the first lost without.

    Several heads may do one read, and while one of them is clamped another would serve.  Nothing for a member that was
    not read.
    """
    if reading["verdict"] != READ:
        return {}
    circuit = Circuit.model_validate(reading["circuit"])
    found: dict[str, list[Path]] = {}
    pairs = zip(circuit.paths, reading["paths"], strict=True)
    for path, words in sorted(pairs, key=lambda pair: -pair[1]["loss_if_removed"]["recomputed"]):
        if words["needed_for"] is not None:
            same = [each for each in circuit.paths if (each.roles, each.target) == (path.roles, path.target)]
            found.setdefault(words["needed_for"], same)
    return dict(sorted(found.items()))


def _used(reading: Mapping[str, Any]) -> list[tuple[int, int, Roles]]:
    """What reads something in any minimal circuit: a control must be of no use to any."""
    circuits = [Circuit.model_validate(each["circuit"]) for each in reading["minimal_circuits"]]
    return [(path.layer, path.head, path.roles) for circuit in circuits for path in circuit.paths]


def _words(clamp: ReplacePattern, rows: Mapping[str, str]) -> str:
    """A clamp in words: the head, and its rows."""
    return f"{clamp.layer}.{(clamp.heads or (0,))[0]} {rows[str(clamp.rows)]}"


def _before(followed: Mapping[str, Any], paths: Sequence[Path]) -> int:
    """The last checkpoint before any of some paths had formed."""
    wanted = {(path.layer, path.head, path.query) for path in paths}
    steps = followed["checkpoints"]
    crossings = [
        first_crossing(steps, path["attention"], FORMED)
        for path in followed["paths"]
        if (path["layer"], path["head"], path["query_role"]) in wanted
    ]
    return int(min((crossing.low for crossing in crossings if crossing.low is not None), default=steps[0]))
