"""The library in a few calls: run a study, open a run, load what it trained, look at what it answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

from hopscope.circuits.config import Proof
from hopscope.errors import UserError
from hopscope.executors.local import run_study
from hopscope.models.member import MemberTransformer
from hopscope.opened import ReadCircuit, Run
from hopscope.report.shown import ShownSequence
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, find_run
from hopscope.story.worked import worked_steps
from hopscope.studies import find_study
from hopscope.studies.loading import home_of, loading
from hopscope.studies.permutation.probes.worked import worked_sequence
from hopscope.studies.program import Program
from hopscope.studies.study import Study
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.splits import MappingSplit
from hopscope.training import restore


def run(
    study: Study | str,
    preset: str | None = None,
    *,
    out: Path | str = "runs",
    device: str = "auto",
    threads: int | None = None,
    time_budget: float | None = None,
    executor: str = "local",
    address: str | None = None,
    tracker: str | Sequence[str] = (),
    fields: Mapping[str, Any] | None = None,
    **more: Any,
) -> Run:
    """Run a study, or go on with it, or find it finished.

    A study of a file or a package is trained by worker processes, which load it from there.  A study of a notebook, or
    one that was made inside a function, is trained in this process, one unit after another.

    Args:
        study: a study, the name of one, `package.module:name`, or `file.py`.
        preset: the configuration to start from; by default `laptop` where the study has it, else the study as written.
        out, device, threads, time_budget, executor, address: as on the command line.
        tracker: one or several of `tensorboard`, `wandb` and `trackio`, which follow the run; one that fails is a
            warning, and the run goes on.
        fields: dotted fields of the configuration that differ from the preset, such as `{"training.steps": 300}`.
        more: the same for fields without a dot, such as `seeds=3`.

    Raises:
        UserError: something the user can mend.
        TimeBudgetReached: the same call goes on.
    """
    place = loading()
    if place is not None:
        raise UserError(
            f"{place}: expected a file that only defines its study when it is loaded, found a call of hopscope.run; "
            'put the call under `if __name__ == "__main__":`'
        )
    if not str(out):
        raise UserError("out: expected a folder, found an empty path; name one, such as 'runs'")
    program = program_for(study)
    preset = program.chosen_preset(preset)
    config = program.configured(preset, {**(fields or {}), **more})
    folder = run_study(
        program,
        config,
        out=Path(out),
        preset=preset,
        device=device,
        threads=threads,
        time_budget=time_budget,
        executor=executor,
        address=address,
        tracker=(tracker,) if isinstance(tracker, str) else tuple(tracker),
    )
    return Run(folder.path, program)


def program_for(study: Study | str) -> Program:
    """A study as the executor takes it.

    Raises:
        UserError: there is no such study.
    """
    if isinstance(study, Study):
        return Program(study, home_of(study))
    if isinstance(study, str):
        return find_study(study)
    raise UserError(f"study: expected a hopscope.Study or the name of one, found {type(study).__name__}")


def open_run(path: Path | str, study: Study | None = None) -> Run:
    """A run folder, or the only run under a root.

    Args:
        path: the folder, or a root.
        study: the study that it is of, where the run cannot find it itself: a file that was moved, or a notebook.

    Raises:
        UserError: there is none, there are several, or the study's task is not the one of the run.
    """
    return Run(find_run(Path(path)).path, None if study is None else program_for(study))


def load_member(run: RunFolder | Path | str, member: int, step: int | None = None) -> MemberTransformer:
    """One trained member as a plain module, at its last checkpoint or at that of `step`.

    Raises:
        UserError: no such run, member or checkpoint.
    """
    return restore.load_member(_folder(run), member, step)


def read_circuit(
    run: RunFolder | Path | str,
    member: int,
    step: int | None = None,
    *,
    threshold: float | None = None,
    proof: Proof = "both",
) -> ReadCircuit:
    """Read the circuit that a member of a run has learned, or find it on record.

    Args:
        run: the run, its folder, or a root that holds one.
        member: the member's number in the run.
        step: training step of the checkpoint; the last by default.
        threshold: loss that the circuit may have; by default 0.05, or 1.5 times that of the model if that is more; of a
            permutation model 0.02 nats more than its own, of a language model with N chains 0.05 ln N nats more; of a
            task of one's own a twentieth of its lowest floor in place of 0.05.
        proof: what the circuit must hold under: `both`, its rules and its own attention recomputed; or `rules` alone,
            as in the paper (appendix E), which keeps no head that only shapes what later heads attend to.

    Raises:
        UserError: no such run, member or checkpoint; a threshold below the model's own loss; the file of the run's task
            is gone or has changed.
    """
    return _run(run).circuit(member, step, threshold=threshold, proof=proof)


def show(
    run: RunFolder | Path | str, member: int, sequence: Sequence[SupportsIndex], step: int | None = None
) -> ShownSequence:
    """What a member of a permutation run answers at every x of a sequence, beside the ideal observer.

    Printed, it is one bar for each value; a notebook draws it; its `steps` are plain values.  A model also gives a
    little probability to token 0, which is no value: what the bars lack to one.

    Args:
        run: the run, its folder, or a root that holds one.
        member: the member's number in the run.
        sequence: tokens x₁ y₁ x₂ y₂ …, V pairs from 1 to V; the last y may be left out, and an x may come back.
        step: training step of the checkpoint; the last by default.

    Raises:
        UserError: no such run, member or checkpoint; the run is of another task; the sequence is none of its task.
    """
    folder = _folder(run)
    record = restore.member_record(folder, member)
    unit = folder.unit(record.unit)
    task = _permutation_task(folder, unit)
    checkpoint = unit.checkpoint(step)[0]
    split = MappingSplit(task.values, task.held_out_share, task.split_seed)
    entry = worked_sequence(restore.load_member(folder, member, checkpoint), sequence, split)
    return ShownSequence(
        title=_title(unit, record, checkpoint),
        sequence=entry["tokens"],
        steps=worked_steps(entry),
        caption=_SIDES[entry["split"]],
        run=folder.hash,
        member=member,
        checkpoint=checkpoint,
        mapping=entry["mapping"],
        split=entry["split"],
    )


_SIDES = {
    "train": "The mapping is one of the training mappings.",
    "held_out": "The mapping is held out: it never occurs in training.",
    None: "The pairs leave more than one mapping.",
}


def load(folder: Path | str) -> MemberTransformer:
    """A model from a folder that Hopscope wrote, as a plain module, ready for evaluation.

    Args:
        folder: an exported member (`hopscope export`), a planted model (`hopscope zoo export`), a member of a
            collection (`hopscope zoo members`; it knows its task, and its files are checked against the index), or a
            language model of the study tiny-lm in the Hugging Face layout.

    Raises:
        UserError: the folder holds none of these, or a damaged one.
    """
    from hopscope.collection.index import INDEX
    from hopscope.collection.opening import open_member
    from hopscope.language.gpt2_folder import ORIGIN, read_folder
    from hopscope.models.export import load_module

    path = Path(folder)
    if (path.parent / INDEX).is_file():
        return open_member(path)
    return read_folder(path)[0] if (path / ORIGIN).is_file() else load_module(path)


def load_module(directory: Path | str) -> MemberTransformer:
    """An exported member as a plain module: the older name of `hopscope.load`, with the same argument and errors."""
    return load(directory)


def _folder(run: RunFolder | Path | str) -> RunFolder:
    return run if isinstance(run, RunFolder) else open_run(run)


def _run(run: RunFolder | Path | str) -> Run:
    found = _folder(run)
    return found if isinstance(found, Run) else Run(found.path)


def _permutation_task(run: RunFolder, unit: UnitFolder) -> PermutationConfig:
    """The task of a unit, if it is permutation lookup; other tasks' jobs need not even be readable here."""
    task = unit.record["plan"]["task"]
    if task.get("kind") != "permutation":
        raise UserError(
            f"{run.path}: expected a run of the permutation lookup task, found study '{run.study}' with task "
            f"{task.get('kind')!r}; choose a run of `hopscope run permutation`"
        )
    return PermutationConfig.model_validate(task)


def _title(unit: UnitFolder, record: MemberRecord, checkpoint: int) -> str:
    label = unit.record.get("label", unit.hash)
    return f"{label}, member {record.member}, seed {record.seed}, step {checkpoint:,}"
