"""Gradients by autograd: any model, any task, any device."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.layers import At
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task
from hopscope.training.config import Training

from .batches import Step, batches

Backward = Callable[[Batch, At | None], dict[str, Tensor]]
"""From a batch, and what is called at the model's sites, to each member's losses by name; the gradient is written."""


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    batch_of, backward = batches(task, training, seeds), backward_into(model, task, buffer)
    return lambda step: backward(batch_of(step), None)


def backward_into(model: Transformer, task: Task, buffer: Tensor) -> Backward:
    """What takes a batch forward and writes the gradient of the members' losses into a buffer."""
    written = gradient_into(model, buffer)
    return lambda batch, at: written(task.parts(model(batch.inputs, at), batch))


def gradient_into(model: Transformer, buffer: Tensor) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """What writes the gradient of the members' losses into a buffer, and gives the losses without a gradient.

    Raises:
        UserError: none of the losses is `"loss"`, or one is not a number for each member.
    """
    weights, layout, members = list(model.parameters()), model.layout, len(buffer)
    ends = [*(start for _, start, _, _ in layout[1:]), buffer.shape[1]]
    gaps = [buffer.new_zeros(members, end - own[2]) for own, end in zip(layout, ends, strict=True)]

    def written(losses: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shapes = {name: [*loss.shape] for name, loss in losses.items()}
        if "loss" not in shapes or any(shape != [members] for shape in shapes.values()):
            wanted = f"'loss' among losses [member], here [{members}]"
            raise UserError(f"parts: expected {wanted}, found {shapes or 'none'}")
        found = torch.autograd.grad(losses["loss"].sum(), weights)
        with torch.no_grad():
            # One kernel for a hundred tensors, where a copy of each would take one for each.
            parts = [part for each, gap in zip(found, gaps, strict=True) for part in (each.flatten(1), gap)]
            torch.cat([part for part in parts if part.shape[1]], 1, out=buffer)
        return {name: loss.detach() for name, loss in losses.items()}

    return written
