"""The batches of training steps."""

from collections.abc import Callable, Mapping

from torch import Tensor

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
