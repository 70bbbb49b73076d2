"""Gradients by autograd: any model, any task, any device."""

from collections.abc import Callable

import torch
from torch import Tensor

from hopscope_next.models.layers import At
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Batch, Task
from hopscope_next.training.config import Training

from .batches import Step, batches

Backward = Callable[[Batch, At | None], dict[str, Tensor]]
"""From a batch, and what is called at the model's sites, to each member's losses by name; the gradient is written."""


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    batch_of, backward = batches(task, training, seeds), backward_into(model, task, buffer)
    return lambda step: backward(batch_of(step), None)


def backward_into(model: Transformer, task: Task, buffer: Tensor) -> Backward:
    """What takes a batch forward and writes the gradient of the members' losses into a buffer."""
    weights, views = list(model.parameters()), model.views(buffer)

    def backward(batch: Batch, at: At | None) -> dict[str, Tensor]:
        found = task.parts(model(batch.inputs, at), batch)
        for view, slope in zip(
            views.values(), torch.autograd.grad(found["loss"].sum(), weights), strict=True
        ):
            view.copy_(slope)
        return {name: loss.detach() for name, loss in found.items()}

    return backward
