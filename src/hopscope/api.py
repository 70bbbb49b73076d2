"""The library in a few calls: run a study, open a run, load what it trained, look at what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

from pydantic import ValidationError

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import ReaderConfig
from hopscope.circuits.record import read_member
from hopscope.config import validation_line
from hopscope.errors import UserError
from hopscope.executors.local import run_study
from hopscope.models.member import MemberTransformer
from hopscope.probes.worked import worked_sequence
from hopscope.report.shown import ShownSequence
from hopscope.runs import MemberRecord, RunFolder, UnitFolder, find_run
from hopscope.studies import find_study
from hopscope.studies.permutation.worked import worked_steps
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.splits import MappingSplit
from hopscope.training import restore


def run(
    study: str,
    preset: str = "laptop",
    *,
    out: Path | str = "runs",
    device: str = "auto",
    threads: int | None = None,
    time_budget: float | None = None,
    **fields: Any,
) -> RunFolder:
    """Run a study, or go on with it, or find it finished.

    Args:
        study: its name.
        preset: the configuration to start from.
        out, device, threads, time_budget: as on the command line.
        fields: fields of the study's configuration that differ from the preset.

    Raises:
        UserError: something the user can mend.
        TimeBudgetReached: the same call goes on.
    """
    found = find_study(study)
    if preset not in found.presets:
        raise UserError(f"preset: expected one of {', '.join(found.presets)}, found {preset!r}")
    base = found.presets[preset]
    try:
        config = type(base).model_validate({**base.model_dump(), **fields})
    except ValidationError as error:
        raise UserError(validation_line(error)) from None
    return run_study(
        found, config, out=Path(out), preset=preset, device=device, threads=threads, time_budget=time_budget
    )


def open_run(path: Path | str) -> RunFolder:
    """A run folder, or the only run under a root.

    Raises:
        UserError: there is none, or there are several.
    """
    return find_run(Path(path))


def load_member(run: RunFolder | Path | str, member: int, step: int | None = None) -> MemberTransformer:
    """One trained member as a plain module, at its last checkpoint or at that of `step`.

    Raises:
        UserError: no such run, member or checkpoint.
    """
    return restore.load_member(_folder(run), member, step)


@dataclass(frozen=True)
class ReadCircuit:
    """The circuit of one trained member, as it was read.

    Attributes:
        circuit: which rows of which heads read what.
        record: everything that was found, as `hopscope circuit --json` prints it.
    """

    circuit: Circuit
    record: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """Whether the circuit accounts for what the member has learned."""
        return str(self.record["verdict"])

    def __str__(self) -> str:
        title = f"member {self.record['member']}, step {self.record['checkpoint']:,}: {self.verdict}"
        return f"{title}\n{self.circuit}" if self.circuit.paths else title


def read_circuit(
    run: RunFolder | Path | str, member: int, step: int | None = None, *, threshold: float | None = None
) -> ReadCircuit:
    """Read the circuit that a member of a run has learned, or find it on record.

    Args:
        run: the run, its folder, or a root that holds one.
        member: the member's number in the run.
        step: training step of the checkpoint; the last by default.
        threshold: loss that the circuit may have; by default 0.05, or 1.5 times that of the model if that is more; of a
            permutation model 0.02 nats more than its own, of a language model with N chains 0.05 ln N nats more.

    Raises:
        UserError: no such run, member or checkpoint; a threshold below the model's own loss.
    """
    record = read_member(_folder(run), member, step, ReaderConfig(threshold=threshold))
    return ReadCircuit(Circuit.model_validate(record["circuit"]), record)


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
        steps=worked_steps(entry, 0),
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


def _folder(run: RunFolder | Path | str) -> RunFolder:
    return run if isinstance(run, RunFolder) else open_run(run)


def _permutation_task(run: RunFolder, unit: UnitFolder) -> PermutationConfig:
    """The task of a unit, if it is permutation lookup; other tasks' plans need not even be readable here."""
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
