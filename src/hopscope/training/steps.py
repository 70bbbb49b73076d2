"""The training steps of a unit: losses and gradients by its engine, then the optimiser; in parts where memory is short.

Members do not touch each other, so a step that does not fit into the device's memory is taken for fewer members at a
time.  The record and the unit stay as they are, and results change by rounding only.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks.device import DeviceTask
from hopscope.training.config import TrainingConfig
from hopscope.training.engines import Engine, Gradient
from hopscope.training.optimizer import Optimizer

_R = TypeVar("_R")

Notice = Callable[[int], None]
"""A function that is called with the number of members at a time, when that gets smaller."""

_MEMORY_MESSAGES = ("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Words by which libraries below torch report that memory ran out."""


class Fitting:
    """Work on many members, as many at a time as fit into memory.

    Attributes:
        members: how many there are.
        at_a_time: how many are worked on together.
    """

    def __init__(self, members: int, what: str, remedy: str, notice: Notice):
        """Name the work, the remedy where one member does not fit, and a function that is told of smaller parts."""
        self.members, self.at_a_time = members, members
        self._what, self._remedy, self._notice = what, remedy, notice

    @property
    def parts(self) -> list[slice]:
        """Members of each part.  All parts have one size: the last begins within the one before where it must."""
        size = self.at_a_time
        firsts = [*range(0, self.members - size, size), self.members - size]
        return [slice(first, first + size) for first in firsts]

    def run(self, work: Callable[[], _R], release: Callable[[], None] = lambda: None) -> _R:
        """Do the work, again with half as many members at a time as long as memory runs out.

        Args:
            work: reads `parts`; it must be possible to do it again after it failed.
            release: lets go of what an earlier size held in memory.

        Raises:
            UserError: one member alone needs more memory than there is.
        """
        while True:
            try:
                return work()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Here, where the error and with it every tensor of the failed work is gone.
            release()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._halve()

    def _halve(self) -> None:
        if self.at_a_time == 1:
            raise UserError(
                f"{self._what}: expected one member at a time to fit into the device's memory, found that it needs "
                f"more; {self._remedy}"
            )
        self.at_a_time //= 2
        self._notice(self.at_a_time)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device's memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in _MEMORY_MESSAGES)


class TrainingSteps:
    """Takes one step after another.

    Attributes:
        engine: computes the gradients.
        model, optimizer: the members, and what moves them.
        fitting: how many members a gradient is computed for at a time.
    """

    def __init__(
        self,
        engine: Engine,
        model: Transformer,
        task: DeviceTask,
        training: TrainingConfig,
        seeds: Int[Tensor, " member"],
        optimizer: Optimizer,
        notice: Notice = lambda size: None,
    ):
        """Prepare the engine (see `Engine.gradient`); `notice` is called where members are split into parts.

        Raises:
            UserError: this machine lacks what the engine needs.
        """
        self.engine, self.model, self.optimizer = engine, model, optimizer
        self._task, self._training, self._seeds = task, training, seeds
        remedy = f"use a batch size below {training.batch_size}, a smaller model, or --device cpu"
        self.fitting = Fitting(model.members, "training", remedy, notice)
        self._gradient: Gradient | None = engine.gradient(model, task, training, seeds, optimizer.gradient)
        self._update = engine.update(optimizer)

    def take(self, step: int) -> Mapping[str, Float[Tensor, " member"]]:
        """Take step number `step` (from 0); returns each member's losses before it.

        Raises:
            UserError: one member's gradient needs more memory than there is.
        """
        if self.engine.raises_out_of_memory:
            losses = self.fitting.run(lambda: self._gradient_now(step), self._forget)
        else:
            losses = self._gradient_now(step)
        self._update(step, losses["loss"])
        return losses

    def _gradient_now(self, step: int) -> Mapping[str, Tensor]:
        if self._gradient is None:
            self._gradient = self._in_parts()
        return self._gradient(step)

    def _forget(self) -> None:
        self._gradient = None

    def _in_parts(self) -> Gradient:
        """The gradient of all members by way of one for a few, through which their weights pass in turn."""
        parts, buffer, flat = self.fitting.parts, self.optimizer.gradient, self.model.parameters.flat
        few = self.model.select(list(range(self.fitting.at_a_time)))
        seeds, part_buffer = self._seeds[parts[0]].clone(), torch.zeros_like(buffer[parts[0]])
        of_few = self.engine.gradient(few, self._task, self._training, seeds, part_buffer)

        def gradient(step: int) -> Mapping[str, Tensor]:
            together: dict[str, Tensor] = {}
            for part in parts:
                with torch.no_grad():
                    few.parameters.flat.copy_(flat[part])
                    seeds.copy_(self._seeds[part])
                for name, losses in of_few(step).items():
                    together.setdefault(name, losses.new_zeros(len(flat)))[part] = losses
                buffer[part] = part_buffer
            return together

        return gradient
