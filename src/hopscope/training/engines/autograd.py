"""Gradients by autograd: any model, any task, any device."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hopscope.models.transformer import Transformer
from hopscope.tasks.device import DeviceTask, TaskOnDevice
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Gradient
from hopscope.training.engines.batches import TrainingBatches


def gradient(
    model: Transformer, task: DeviceTask, training: TrainingConfig, seeds: Tensor, buffer: Tensor
) -> Gradient:
    """Losses and gradients by autograd; see `Engine.gradient`."""
    weights = [weight.requires_grad_() for weight in model.weights.values()]
    views = model.parameters.views(buffer)
    # A declared task may be slow to draw, one small batch after another; those of this package are quick.
    batches = TrainingBatches(task, training, seeds, ahead=isinstance(task, TaskOnDevice))

    def of_step(step: int) -> Mapping[str, Tensor]:
        batch = batches.of(step)
        losses = task.losses(model(batch.inputs), batch)
        found = torch.autograd.grad(losses["loss"].sum(), weights)
        for name, each in zip(model.weights, found, strict=True):
            views[name].copy_(each)
        return {name: loss.detach() for name, loss in losses.items()}

    return of_step
