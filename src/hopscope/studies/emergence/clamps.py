"""Causal timelines of some members: trained again from a checkpoint, with one path of each hop clamped."""

from collections.abc import Mapping, Sequence
from typing import Any

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.clamping import Clamp, clamp_of, control_of, rerun
from hopscope.circuits.emergence import FORMED
from hopscope.circuits.reader import READ
from hopscope.circuits.record import read_member
from hopscope.claims.crossings import first_crossing
from hopscope.models.interventions import Roles
from hopscope.runs import UnitFolder
from hopscope.studies.chains.names import formation_name
from hopscope.studies.emergence.config import EmergenceConfig, candidates, clamps_name
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import UnitPlan
from hopscope.training.restore import load_ensemble

LEFT_ALONE, CONTROL = "nothing clamped", "a head outside of the circuit clamped"


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
        found = _rerun(config, unit, plan, task, budget, index, reading) if reading["verdict"] == READ else {}
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
    member = plan.members[index]
    chosen = _strongest(reading)
    followed = unit.read_analysis(formation_name(member.member), plan.training.steps)
    start = _before(followed, [words for _, words in chosen.values()])
    clamps: dict[str, Clamp] = {LEFT_ALONE: ()}
    words = {LEFT_ALONE: "", CONTROL: ""}
    for name, (path, _) in chosen.items():
        clamps[name] = (clamp_of(path),)
        words[name] = f"{path.layer + 1}.{path.head + 1} {path.query} → {path.target}"
    first = next(iter(chosen.values()))[0]
    control = control_of(first, _used(reading), config.layers, config.heads)
    if control is not None:
        clamps[CONTROL] = (control,)
        words[CONTROL] = f"{control.layer + 1}.{(control.heads or (0,))[0] + 1} {first.query}"
    model = load_ensemble(unit, start).select([index])
    found = rerun(
        model, task, plan.training, member.data_seed, start, clamps,
        every=config.checkpoint_every, samples=config.evaluation_samples, check=budget.check,
    )  # fmt: skip
    return {
        "start": start,
        "steps": list(found.steps),
        "runs": [
            {
                "name": name,
                "clamped": words[name],
                "losses": {key: list(values) for key, values in losses.items()},
            }
            for name, losses in found.losses.items()
        ],
    }


def _used(reading: Mapping[str, Any]) -> list[tuple[int, int, Roles]]:
    """What reads something in any minimal circuit: a control must be of no use to any."""
    circuits = [Circuit.model_validate(each["circuit"]) for each in reading["minimal_circuits"]]
    return [(path.layer, path.head, path.roles) for circuit in circuits for path in circuit.paths]


def _strongest(reading: Mapping[str, Any]) -> dict[str, tuple[Path, dict[str, Any]]]:
    """For each target, the path whose removal costs most among those without which it is the first lost."""
    circuit = Circuit.model_validate(reading["circuit"])
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    pairs = zip(circuit.paths, reading["paths"], strict=True)
    for path, words in sorted(pairs, key=lambda pair: -pair[1]["loss_if_removed"]["recomputed"]):
        if words["needed_for"] is not None:
            found.setdefault(words["needed_for"], (path, words))
    return dict(sorted(found.items()))


def _before(followed: Mapping[str, Any], paths: Sequence[Mapping[str, Any]]) -> int:
    """The last checkpoint before any of some paths had formed."""
    keys = ("layer", "head", "query_role")
    wanted = {tuple(path[key] for key in keys) for path in paths}
    steps = followed["checkpoints"]
    crossings = [
        first_crossing(steps, path["attention"], FORMED)
        for path in followed["paths"]
        if tuple(path[key] for key in keys) in wanted
    ]
    return int(min((crossing.low for crossing in crossings if crossing.low is not None), default=steps[0]))
