"""What the tasks of this package have in common as `hs.Task`: their device classes draw samples and know the losses."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from hopscope.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from hopscope.tasks.batch import Batch
    from hopscope.tasks.device import DeviceTask
    from hopscope.tasks.draws import Draws

_Made = TypeVar("_Made")


class BuiltInTask(Task):
    """A task of this package: `on` gives its device class."""

    def on(self, device: "torch.device | str" = "cpu", examples: int | None = None) -> "DeviceTask":
        """The task on a device; see `Task.on`."""
        raise NotImplementedError

    def sample(self, draws: "Draws") -> "Batch":
        """Samples at the addresses of some draws."""
        return self.on(draws.device).drawn(draws)

    def parts(self, predictions: "torch.Tensor", batch: "Batch") -> "Mapping[str, torch.Tensor]":
        """Losses by name, each `[member]`."""
        return self.on(predictions.device).losses(predictions, batch)

    def loss_gradient(self, predictions: "torch.Tensor", batch: "Batch") -> "torch.Tensor":
        """Derivative of the sum of the members' `"loss"` by the predictions."""
        return self.on(predictions.device).slope(predictions, batch)

    @property
    def held_out_seed(self) -> int:
        """Seed that chooses the held-out samples."""
        return int(getattr(self, "split_seed", 0))


def made(kind: Callable[..., _Made], task: Task, device: "torch.device | str", *more: Any) -> _Made:
    """The device class of a task, whose tables are kept for the next call."""
    try:
        return _kept(kind, task, str(device), *more)
    except TypeError:
        # Somebody's subclass may have a field that cannot be a key.
        return kind(task, device, *more)


@lru_cache(maxsize=8)
def _kept(kind: Callable[..., _Made], task: Task, device: str, *more: Any) -> _Made:
    return kind(task, device, *more)
