"""Reading the circuits of a run's members: from checkpoints, into the unit's analysis folder, resumable."""

from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any

from hopscope.circuits.built_in_tasks import ReadTask, task_of
from hopscope.circuits.circuit import Path
from hopscope.circuits.config import ReaderConfig, reading_name
from hopscope.circuits.path_patching import Composition
from hopscope.circuits.reader import Reading, read_circuit
from hopscope.models.patterns import said
from hopscope.models.transformer import Transformer
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.files import remove
from hopscope.tasks.config import TaskReference
from hopscope.training.config import job_of
from hopscope.training.restore import load_ensemble, member_record


def read_member(
    run: RunFolder,
    member: int,
    step: int | None = None,
    config: ReaderConfig | None = None,
    progress: Callable[[str], None] = lambda _: None,
    *,
    task: Callable[[UnitFolder], ReadTask] | None = None,
) -> dict[str, Any]:
    """The reading of one member, made now or found on record.

    Args:
        run: the run.
        member: number of the member in the run.
        step: of the checkpoint; the last by default.
        config: how to read.
        progress: told what is being done.
        task: gives the task of a unit whose plan has its name alone (`TaskReference`); called where a circuit must be
            read.

    Returns:
        JSON values: what `hopscope circuit --json` prints.

    Raises:
        UserError: no such member or checkpoint, a threshold below the unablated loss, or a task that cannot be found.
    """
    config = config or ReaderConfig()
    unit = run.unit(member_record(run, member).unit)
    step = unit.checkpoint(step)[0]
    name = reading_name(member, config)
    if unit.analysis_path(name, step).is_file():
        return unit.read_analysis(name, step)
    model, read = model_and_task(run, member, step, task=task)
    stages = StoredStages(unit, f"{name}-stages", step)
    reading = read_circuit(model, read, config, stages=stages, progress=progress)
    found = as_json(reading, member, step)
    unit.write_analysis(name, step, found)
    stages.discard()
    return found


def read_again(
    run: RunFolder,
    member: int,
    times: int,
    step: int | None = None,
    config: ReaderConfig | None = None,
    **how: Any,
) -> list[dict[str, Any]]:
    """Further readings of one member (`ReaderConfig.again`), each kept on record.

    Args:
        run, member, step, config: as of `read_member`.
        times: number of readings.
        how: `progress` and `task`, as there.

    Raises:
        UserError: as `read_member`.
    """
    config = config or ReaderConfig()
    return [read_member(run, member, step, config.again(number), **how) for number in range(1, times + 1)]


def model_and_task(
    run: RunFolder, member: int, step: int | None, *, task: Callable[[UnitFolder], ReadTask] | None = None
) -> tuple[Transformer, ReadTask]:
    """One member as it was at a checkpoint, and what it was trained on; arguments and errors as of `read_member`."""
    record = member_record(run, member)
    unit = run.unit(record.unit)
    job = job_of(unit)
    named = isinstance(job.task, TaskReference)
    read = task(unit) if named and task is not None else task_of(job.task)
    return load_ensemble(unit, unit.checkpoint(step)[0]).select([record.index]), read


class StoredStages(UserDict[str, Any]):
    """Finished stages of long work, in a file of the unit's analysis folder."""

    def __init__(self, unit: UnitFolder, name: str, step: int):
        self._unit, self._name, self._step = unit, name, step
        on_record = unit.analysis_path(name, step).is_file()
        super().__init__()
        self.data = unit.read_analysis(name, step) if on_record else {}

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._unit.write_analysis(self._name, self._step, self.data)

    def discard(self) -> None:
        """Remove the file: the work is whole."""
        remove(self._unit.analysis_path(self._name, self._step))


# JSON.


def as_json(reading: Reading, member: int, checkpoint: int) -> dict[str, Any]:
    """What `hopscope circuit --json` prints."""
    losses = dict(reading.loss)
    random = losses.pop("random_circuits", [])
    if random:
        losses |= {
            "random_circuits": sum(random) / len(random),
            "random_circuits_range": [min(random), max(random)],
        }
    return {
        "member": member,
        "checkpoint": checkpoint,
        "learned": list(reading.learned),
        "threshold": reading.threshold,
        "paths": [
            {
                **path_json(path),
                "mean_attention": evidence.mean_attention,
                "carries": [
                    carried.name for carried in evidence.carries if carried.rise >= reading.least_effect
                ],
                "composition": [_use(use, reading.role_words) for use in evidence.composition],
                "loss_if_removed": evidence.removed,
                "needed_for": evidence.needed_for,
            }
            for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True)
        ],
        "loss": losses,
        "worst_recomputed": reading.worst,
        "exchanges": [
            {
                "layer": path.layer,
                "head": path.head,
                "query_role": path.query,
                "exchanged": carried.name,
                "rise": carried.rise,
                "answers_kept": carried.kept,
                "answers_follow": carried.follows,
            }
            for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True)
            for carried in evidence.carries
        ],
        "minimal_circuits": [
            {
                "found": found,
                "paths": [path_json(path) for path in circuit.paths],
                "circuit": circuit.model_dump(mode="json"),
            }
            for circuit, found in reading.minimal
        ],
        "merges": [[list(one), list(other)] for one, other in reading.merges],
        "reads": [list(read) for read in reading.circuit.reads],
        "circuit": reading.circuit.model_dump(mode="json"),
        "verdict": reading.verdict,
    }


def _use(use: Composition, words: Sequence[str]) -> dict[str, Any]:
    if use.reader is None:
        return {"reader": "readout", "part": None, "rise": use.rise}
    layer, head, role = use.reader
    return {
        "reader": {"layer": layer, "head": head, "query_role": words[role]},
        "part": use.part,
        "rise": use.rise,
    }


def path_json(path: Path) -> dict[str, Any]:
    """Where a path is and what it reads, in the words of `hopscope circuit --json`."""
    return {
        "layer": path.layer,
        "head": path.head,
        "query_role": path.query,
        "rule": said(path.rule),
        "target_role": path.target or None,
    }
