"""Gradients by autograd: any model, any task, any device; and the batches of the steps of every engine."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.layers import At, unchanged
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task, draw
from hopscope.training.config import Training

Step = Callable[[int], Mapping[str, Tensor]]
"""From the number of a step to each member's losses by name, `[member]`; what an engine gives."""

_DRAWN_AHEAD = 1 << 14
"""Samples drawn at a time: enough that drawing is arithmetic rather than overhead, few enough to stay in cache."""

_NUMBERS_AHEAD = 1 << 22
"""Input numbers drawn at a time, at most: they lie in memory."""


def batches(task: Task, training: Training, seeds: Tensor) -> Callable[[int], Batch]:
    """From the number of a step to its batch, which is annotated; those of several steps are drawn together."""
    size, seeds, shape = training.batch_size, seeds.clone(), task.shape()
    numbers = shape.positions * (shape.input_size if shape.inputs == "vectors" else 1)
    many = max(1, min(_DRAWN_AHEAD, _NUMBERS_AHEAD // numbers) // (size * len(seeds)))
    steps, drawn = range(0), None

    def of_step(step: int) -> Batch:
        nonlocal steps, drawn
        if step not in steps or drawn is None:
            steps = range(step, max(min(step + many, training.steps), step + 1))
            drawn = draw(task, seeds, "train", steps, size, examples=training.examples)
        first = (step - steps.start) * size
        return drawn.take(slice(first, first + size))

    return of_step


def gradient(model: Transformer, task: Task, training: Training, seeds: Tensor, buffer: Tensor) -> Step:
    """The engine."""
    batch_of, backward = batches(task, training, seeds), backward_into(model, task, buffer)
    return lambda step: backward(batch_of(step), unchanged)


def backward_into(model: Transformer, task: Task, buffer: Tensor) -> Callable[[Batch, At], dict[str, Tensor]]:
    """What takes a batch forward, calling at sites, and writes the gradient of the members' losses into a buffer."""
    written = gradient_into(model, buffer)
    return lambda batch, at: written(task.parts(model(batch.inputs, at), batch))


def gradient_into(model: Transformer, buffer: Tensor) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """What writes the gradient of the members' losses into a buffer, and gives the losses without a gradient.

    `UserError`: none of the losses is `"loss"`, or one is not a number for each member.
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
