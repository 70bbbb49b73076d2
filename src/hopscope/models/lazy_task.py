"""The task that a model was trained on, found when somebody first asks for it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch


@runtime_checkable
class Sampling(Protocol):
    """What a model needs of its task on a device: samples to be shown."""

    def sample(self, seeds: Tensor, stream: str, step: int, batch: int) -> Batch:
        """Draw the samples of one step."""
        ...

    def evaluation(self, count: int) -> Batch:
        """Draw a number of held-out samples."""
        ...


TaskSource = Sampling | Callable[[], Sampling] | None
"""A task on a device, or a function that finds it (or raises a `UserError` that says why it cannot), or none."""


class LazyTask:
    """The task of a model; a function is called once, when the task is first needed."""

    def __init__(self, source: TaskSource):
        self._source = source

    @property
    def task(self) -> Any:
        """The task on its device; `None` where none is known.

        Raises:
            UserError: it cannot be found, such as when a study's file has changed.
        """
        if callable(self._source) and not isinstance(self._source, Sampling):
            self._source = self._source()
        return self._source

    def batch(self, count: int, use: str, seeds: Sequence[int] | None, device: torch.device) -> Batch:
        """Samples with a member axis (of 1 where all members share them); at most as many as the task has.

        Args:
            count: how many.
            use: `"held-out"`; `"train"` or `"probe"`, then those of step 0.
            seeds: data seeds of the members, for training and probe samples.
            device: of the model.

        Raises:
            UserError: the task is not known, or a use does not exist.
        """
        task = self.task
        if task is None:
            raise UserError(
                "batch: expected a model that knows its task, found weights alone; "
                "load the member from its run: hopscope.open_run(…).member(…)"
            )
        if count < 1:
            raise UserError(f"n: expected at least 1 sample, found {count}")
        if use in ("held-out", "held_out"):
            found: Batch = task.evaluation(count)
        elif use not in ("train", "probe"):
            raise UserError(f"use: expected 'held-out', 'train' or 'probe', found {use!r}")
        elif not seeds:
            raise UserError(f"use: expected 'held-out' for members whose seeds are not known, found {use!r}")
        else:
            found = task.sample(torch.tensor(list(seeds), device=device), use, 0, count)
        return found.take(slice(count)) if found.inputs.shape[1] > count else found
