"""Gradients by autograd: any model, any task, any device."""

import torch
from torch import Tensor

from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Task
from hopscope_next.training.config import Training

from .batches import Step, batches


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    weights, views, batch_of = list(model.parameters()), model.views(buffer), batches(task, training, seeds)

    def of_step(step: int) -> dict[str, Tensor]:
        batch = batch_of(step)
        found = task.parts(model(batch.inputs), batch)
        for view, slope in zip(
            views.values(), torch.autograd.grad(found["loss"].sum(), weights), strict=True
        ):
            view.copy_(slope)
        return {name: loss.detach() for name, loss in found.items()}

    return of_step
