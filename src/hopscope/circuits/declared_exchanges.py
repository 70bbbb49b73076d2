"""What can be exchanged in the samples of a task that a user wrote: the inputs of one role, or what the task says."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.circuits.declared_rows import POSITION
from hopscope.circuits.goal import Exchange, recoded
from hopscope.circuits.read_model import ReadModel, Stream
from hopscope.errors import UserError
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.task import role_words

MOST_VALUES = 24
"""A role with more values than this is not exchanged value by value."""

EVERYTHING = "inputs"
"""Name of what is exchanged where there is no role with few values."""

_PAIR = 2
"""Positions that share one learned code where codes are learned for pairs."""


def exchanges_of(
    task: TaskOnDevice, model: ReadModel, batch: Batch, roles: Mapping[str, Tensor]
) -> list[Exchange]:
    """What the task says that can be exchanged, or the inputs of each role; and the position codes, if there are any.

    Args:
        task: whose samples they are.
        model: that reads them.
        batch: samples of one member.
        roles: those by which inputs are exchanged.

    Raises:
        UserError: what the task gives is not like its inputs.
    """
    given = task.task.counterfactuals(batch)
    others = _by_role(task, batch, roles) if given is None else _checked(task, batch, given)
    found = [Exchange(name, model.embedded(inputs)) for name, inputs in others.items()]
    code = None if POSITION in others else _recoded(task, model, batch)
    return found if code is None else [*found, Exchange(POSITION, code)]


def _checked(task: TaskOnDevice, batch: Batch, given: object) -> dict[str, Tensor]:
    maker = f"{type(task.task).__name__}.exchanges"
    if not isinstance(given, Mapping):
        raise UserError(f"{maker}: expected a mapping from name to inputs, found {type(given).__name__}")
    for name, inputs in given.items():
        if (
            not isinstance(inputs, Tensor)
            or inputs.shape != batch.inputs.shape
            or inputs.dtype != batch.inputs.dtype
        ):
            found = (
                f"{inputs.dtype} of shape {list(inputs.shape)}"
                if isinstance(inputs, Tensor)
                else type(inputs).__name__
            )
            raise UserError(
                f"{maker}: {name!r}: expected inputs as those of the batch, {batch.inputs.dtype} of shape "
                f"{list(batch.inputs.shape)}, found {found}"
            )
    return {str(name): inputs for name, inputs in given.items()}


def _by_role(task: TaskOnDevice, batch: Batch, roles: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of each role value taken from the next sample; of all positions, where no role has few values."""
    words = role_words(task.task)
    found: dict[str, Tensor] = {}
    for role, of_positions in roles.items():
        values = of_positions.unique().tolist()
        if len(values) > MOST_VALUES:
            continue
        for value in values:
            told = words.get(role, ())
            name = told[value] if 0 <= value < len(told) and told[value] else f"{role} {value}"
            name = f"{role} {name}" if name in found or name == POSITION else name
            found[name] = resampled(batch.inputs, of_positions == value, _carried(task))
    everywhere = torch.ones(batch.inputs.shape[:3], dtype=torch.bool, device=batch.inputs.device)
    return found or {EVERYTHING: resampled(batch.inputs, everywhere, _carried(task))}


def _carried(task: TaskOnDevice) -> int:
    return task.shape.position_size


def resampled(
    inputs: Int[Tensor, "1 batch position"] | Float[Tensor, "1 batch position feature"],
    here: Bool[Tensor, "1 batch position"],
    carried: int,
) -> Tensor:
    """The samples with some positions' inputs from the next sample: the first such position there for the first here.

    Where the next sample has fewer of them, they are used again; where it has none, nothing changes.

    Args:
        inputs: token ids or vectors.
        here: positions that are exchanged.
        carried: how many last features of a vector are its position code, which stays.
    """
    other = here.roll(-1, 1)
    count = other.sum(-1, keepdim=True)
    rank = (here.long().cumsum(-1) - 1).clamp(min=0) % count.clamp(min=1)
    in_order = (~other).long().argsort(dim=-1, stable=True)
    source, changes = in_order.gather(-1, rank), here & (count > 0)
    following = inputs.roll(-1, 1)
    if inputs.dim() == source.dim():
        return torch.where(changes, following.gather(-1, source), inputs)
    taken = following.gather(2, source[..., None].expand_as(inputs))
    if carried:
        taken = torch.cat((taken[..., :-carried], inputs[..., -carried:]), -1)
    return torch.where(changes[..., None], taken, inputs)


def _recoded(task: TaskOnDevice, model: ReadModel, batch: Batch) -> Stream | None:
    """The stream before the first layer with every position code moved on by one; `None` if there are no codes."""
    carried, inputs = _carried(task), batch.inputs
    if model.config.position_count:
        by = _PAIR if model.config.positions == "pair" else 1
        position = torch.arange(inputs.shape[2], device=inputs.device)
        given = ((position + by) % len(position)).expand(inputs.shape[:3])
        return recoded(model, inputs, given)
    if not carried:
        return None
    codes = inputs[..., -carried:].roll(-1, 2)
    return model.embedded(torch.cat((inputs[..., :-carried], codes), -1))
