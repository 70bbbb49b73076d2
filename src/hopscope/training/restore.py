"""From a run folder back to models."""

from collections.abc import Mapping
from pathlib import Path

import torch

from hopscope.errors import UserError
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.runs import CheckpointDamaged, MemberRecord, RunFolder, UnitFolder
from hopscope.runs.arrays import Array
from hopscope.training.config import TrainJob, job_of


def load_ensemble(
    unit: UnitFolder, step: int | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """All members of a unit at a checkpoint (the last by default).

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    step, tensors, _ = unit.checkpoint(step)
    job = job_of(unit)
    check_weights(unit.checkpoint_path(step), tensors, job)
    parameters = Parameters(parameter_specs(job.model), len(job.members), device)
    parameters.load({name: torch.from_numpy(tensors[f"weights/{name}"]) for name in parameters.views()})
    return Transformer(job.model, parameters)


def check_weights(path: Path, tensors: Mapping[str, Array], job: TrainJob) -> None:
    """Refuse a checkpoint that does not hold the weights of a job's members, before anything is made of them.

    Raises:
        CheckpointDamaged: names or shapes are others.
    """
    found = {name: array.shape for name, array in tensors.items() if name.startswith("weights/")}
    # A configuration of few bytes can say any number of layers; each has weights.
    specs = parameter_specs(job.model) if job.model.layers < len(found) else []
    if not found or found != {f"weights/{spec.name}": (len(job.members), *spec.shape) for spec in specs}:
        raise CheckpointDamaged(path, "weights of another model than the unit's")


def member_record(run: RunFolder, member: int) -> MemberRecord:
    """The record of a member in `members.json`.

    Raises:
        UserError: the run has no such member.
    """
    for record in run.members:
        if record.member == member:
            return record
    raise UserError(
        f"member: expected 0 to {len(run.members) - 1} in {run.path}, found {member}; "
        "members.json lists them with their seeds"
    )


def load_member(run: RunFolder, member: int, step: int | None = None) -> MemberTransformer:
    """One member of a run as a plain module.

    Raises:
        UserError: the run has no such member, or no such checkpoint.
    """
    record = member_record(run, member)
    return load_ensemble(run.unit(record.unit), step).member(record.index)
