"""From a run folder back to models."""

import torch

from hopscope.errors import UserError
from hopscope.models.member import MemberTransformer
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.runs import MemberRecord, RunFolder, UnitFolder
from hopscope.training.config import job_of


def load_ensemble(
    unit: UnitFolder, step: int | None = None, device: torch.device | str = "cpu"
) -> Transformer:
    """All members of a unit at a checkpoint (the last by default).

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    _, tensors, _ = unit.checkpoint(step)
    job = job_of(unit)
    parameters = Parameters(parameter_specs(job.model), len(job.members), device)
    parameters.load({name: torch.from_numpy(tensors[f"weights/{name}"]) for name in parameters.views()})
    return Transformer(job.model, parameters)


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
