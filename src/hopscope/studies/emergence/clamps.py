"""Causal timelines of some members: trained again from a checkpoint, with one read of each hop clamped."""

from collections.abc import Mapping, Sequence
from typing import Any

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.clamping import Clamp, clamp_of, controls_of, rerun
from hopscope.circuits.config import FORMED, READ, formation_name
from hopscope.circuits.path_history import seen_from_start
from hopscope.circuits.record import StoredStages, read_member
from hopscope.claims.crossings import first_crossing
from hopscope.models.interventions import ReplacePattern, Roles
from hopscope.models.patterns import OwnChain, Related
from hopscope.runs import UnitFolder
from hopscope.studies.emergence.config import CONTROL, LEFT_ALONE, EmergenceConfig, candidates, clamps_name
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob
from hopscope.training.restore import load_ensemble


def analyse(
    config: EmergenceConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: RetrievalTask,
    budget: TimeBudget,
    device: str,
) -> None:
    """Write the re-runs of a unit's members; those that are there already are kept.

    Raises:
        TimeBudgetReached: within a run, which then begins anew; those before it are kept.
    """
    for index, member in candidates(config, job):
        if not unit.analysis_path(clamps_name(member.member), job.training.steps).is_file():
            _train_again(config, unit, job, task, budget, device, index)


def _train_again(
    config: EmergenceConfig,
    unit: UnitFolder,
    job: TrainJob,
    task: RetrievalTask,
    budget: TimeBudget,
    device: str,
    index: int,
) -> None:
    """Write the re-runs of one member; nothing but its number if it was not read, or not seen from the start."""
    member, last = job.members[index], job.training.steps
    name = clamps_name(member.member)
    found: dict[str, Any] = {"member": member.member}
    stages = StoredStages(unit, f"{name}-stages", last)
    reading = read_member(unit.run, member.member, last, config.reader())
    chosen = _reads(reading)
    followed = unit.read_analysis(formation_name(member.member), last)
    if chosen and seen_from_start(followed["checkpoints"]):
        paths = [path for same in chosen.values() for path in same]
        start = _before(followed, paths)
        rows = {str(path.roles): path.query for path in paths}
        for run, clamp in _clamps(config, chosen, _used(reading)).items():
            if run not in stages:
                again = rerun(
                    load_ensemble(unit, start, device).select([index]), task, job.training, member.data_seed, start,
                    {run: clamp}, steps=config.clamp_steps, every=config.checkpoint_every,
                    samples=config.evaluation_samples, check=budget.check,
                )  # fmt: skip
                stages[run] = {
                    "name": run,
                    "clamped": [_words(each, rows) for each in clamp],
                    "steps": list(again.steps),
                    "losses": {key: list(values) for key, values in again.losses[run].items()},
                }
        runs = [dict(run) for run in stages.values()]
        found |= {"start": start, "steps": runs[0]["steps"], "runs": runs}
    unit.write_analysis(name, last, found)
    stages.discard()


def _clamps(
    config: EmergenceConfig, chosen: Mapping[str, Sequence[Path]], used: Sequence[tuple[int, int, Roles]]
) -> dict[str, Clamp]:
    """The runs: nothing clamped; the read for each target; and, where heads are left for it, a control for each."""
    clamps: dict[str, Clamp] = {LEFT_ALONE: ()}
    for name, paths in chosen.items():
        clamps[name] = tuple(map(clamp_of, paths))
        control = controls_of(paths, used, config.layers, config.heads)
        if control is not None:
            clamps[f"{CONTROL}{name}"] = control
    return clamps


def _reads(reading: Mapping[str, Any]) -> dict[str, list[Path]]:
    """For each target, the paths that do the read of a single token whose removal costs most of those for the target.

    Several heads may do one read, and while one of them is clamped another would serve.  Nothing for a member that was
    not read.
    """
    if reading["verdict"] != READ:
        return {}
    circuit = Circuit.model_validate(reading["circuit"])
    found: dict[str, list[Path]] = {}
    pairs = [
        (path, words)
        for path, words in zip(circuit.paths, reading["paths"], strict=True)
        if isinstance(path.rule, Related | OwnChain) and words["needed_for"] is not None
    ]
    for path, words in sorted(pairs, key=lambda pair: -pair[1]["loss_if_removed"]["recomputed"]):
        same = [each for each, _ in pairs if (each.roles, each.target) == (path.roles, path.target)]
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
