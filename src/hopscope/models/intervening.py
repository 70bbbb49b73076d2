"""Checks of the arguments of `cache` and `intervene`: inputs, a batch, values and functions of named sites.

A member and an ensemble share this file: their forward passes are two, but what may be asked of them is one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import get_args

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.edits import Editable, Edits, Means
from hopscope.models.interventions import Intervention
from hopscope.models.sites import Visit, in_turn, site_names, unknown_site
from hopscope.tasks.batch import Batch

SiteFunction = Callable[[Tensor], Tensor]
"""Any function of the tensor at a site; it returns one of the same shape."""

Interventions = Mapping[str, SiteFunction] | Sequence[Intervention | Mapping[str, SiteFunction]]
"""A dict from site to function, or a list of interventions and such dicts."""

Reference = Batch | Tensor | None
"""Samples, or their inputs, over which the means of a `"mean"` are taken; `None`: the batch itself."""

_KINDS = get_args(get_args(Intervention)[0])


def _call_functions(functions: Mapping[str, Sequence[SiteFunction]], name: str, tensor: Tensor) -> Tensor:
    """The tensor of a site after its functions; each is given a copy, which it may change in place."""
    for function in functions.get(name, ()):
        found = function(tensor.clone())
        if not isinstance(found, Tensor) or (found.shape, found.dtype) != (tensor.shape, tensor.dtype):
            raise UserError(
                f"{name}: expected a function that returns a tensor like the one it is given, "
                f"{_described(tensor)}, found {_described(found)}; return the tensor, changed or not"
            )
        tensor = found
    return tensor


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__ if value is not None else "None"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def parted(
    interventions: Interventions, config: TransformerConfig
) -> tuple[list[Intervention], dict[str, list[SiteFunction]]]:
    """Values, and functions by site, in the order in which they are called.

    Raises:
        UserError: something is neither, or a function is for a site that the model lacks.
    """
    if isinstance(interventions, _KINDS) or not isinstance(interventions, Iterable):
        raise UserError(
            "interventions: expected a list of interventions, or a dict from site to function, "
            f"found {type(interventions).__name__}; put it into a list"
        )
    known = site_names(config)
    values: list[Intervention] = []
    functions: dict[str, list[SiteFunction]] = {}
    for each in [interventions] if isinstance(interventions, Mapping) else interventions:
        if isinstance(each, _KINDS):
            values.append(each)
            continue
        if not isinstance(each, Mapping):
            raise UserError(
                "interventions: expected interventions such as ReplacePattern(layer=0, by='uniform'), "
                f"and dicts from site to function, found {each!r}"
            )
        for name, function in each.items():
            if name not in known:
                raise unknown_site(name, known)
            if not callable(function):
                raise UserError(f"{name}: expected a function of the tensor at this site, found {function!r}")
            functions.setdefault(name, []).append(function)
    return values, functions


def visit_of(
    interventions: Interventions,
    model: Editable,
    batch: Batch,
    reference: Reference,
) -> Visit:
    """Interventions on this batch as one visit: at each site values come first, then functions in their order.

    Args:
        interventions: what to change.
        model: that will be edited.
        batch: the samples, with a member axis.
        reference: the samples of the means.

    Raises:
        UserError: something does not exist, or the reference does not fit the batch or the model.
    """
    values, functions = parted(interventions, model.config)
    through_functions = partial(_call_functions, functions) if functions else None
    if not values:
        return in_turn(through_functions)
    means = None
    if any(getattr(value, "by", None) == "mean" for value in values):
        means = Means.of(model, _reference_inputs(reference, model, batch))
    try:
        return in_turn(Edits(model, values, batch, means=means), through_functions)
    except ValueError as error:
        raise UserError(str(error)) from None


def _reference_inputs(reference: Reference, model: Editable, batch: Batch) -> Tensor:
    if reference is None:
        return batch.inputs
    inputs = checked(
        reference.inputs if isinstance(reference, Batch) else reference, model.config, model.members
    )
    if inputs.shape[2] != batch.inputs.shape[2]:
        raise UserError(
            f"means: expected samples of {batch.inputs.shape[2]} positions, as the batch has, "
            f"found {inputs.shape[2]}"
        )
    return inputs


def checked(inputs: Tensor, config: TransformerConfig, members: int) -> Tensor:
    """Inputs that the model can read, with a member axis (of 1 where they had none).

    Raises:
        UserError: another shape, dtype or number of members; tokens outside of the vocabulary.
    """
    inputs = with_member_axis(inputs, config)
    if inputs.shape[0] not in (1, members):
        raise UserError(
            f"inputs: expected no member axis, or one of {' or '.join(map(str, sorted({1, members})))}, "
            f"found one of {inputs.shape[0]}"
        )
    if not 1 <= inputs.shape[2] <= config.length:
        raise UserError(f"inputs: expected 1 to {config.length} positions, found {inputs.shape[2]}")
    if config.input_kind == "vectors":
        if inputs.shape[3] != config.input_size or inputs.dtype != torch.float32:
            raise UserError(
                f"inputs: expected float32 vectors of {config.input_size} features, found {_described(inputs)}"
            )
        return inputs
    if inputs.dtype not in (torch.int32, torch.int64):
        raise UserError(f"inputs: expected token ids as int64, found {_described(inputs)}")
    if inputs.numel() and not (int(inputs.min()) >= 0 and int(inputs.max()) < config.input_size):
        raise UserError(
            f"inputs: expected token ids from 0 to {config.input_size - 1}, "
            f"found {int(inputs.min())} to {int(inputs.max())}"
        )
    return inputs


def with_member_axis(inputs: Tensor, config: TransformerConfig) -> Tensor:
    """Inputs with a member axis of 1 where they had none.

    Raises:
        UserError: they are no tensor, or have another number of axes.
    """
    shape = ("batch", "position", "feature") if config.input_kind == "vectors" else ("batch", "position")
    if not isinstance(inputs, Tensor) or inputs.ndim not in (len(shape), len(shape) + 1):
        found = _described(inputs)
        raise UserError(
            f"inputs: expected {config.input_kind} [{', '.join(shape)}], with or without a member axis before it, "
            f"found {found}"
        )
    return inputs[None] if inputs.ndim == len(shape) else inputs


def checked_batch(batch: Batch, config: TransformerConfig, members: int) -> Batch:
    """A batch that the model can read, with a member axis (of 1 where it had none).

    Raises:
        UserError: it is no batch, or its inputs do not fit, see `checked`.
    """
    if not isinstance(batch, Batch):
        raise UserError(
            f"batch: expected a Batch, such as .batch(64) gives, found {type(batch).__name__}; "
            "roles and relations say where to intervene"
        )
    inputs = checked(batch.inputs, config, members)
    if inputs is batch.inputs:
        return batch
    return batch.changed(lambda tensor: tensor[None])
