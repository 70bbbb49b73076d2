"""A task on a device: what the trainer and the measures use, for any `hs.Task`."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch
from hopscope.tasks.checks import BatchCheck
from hopscope.tasks.draws import Draws
from hopscope.tasks.losses import accuracy, default_gradient
from hopscope.tasks.task import Shape, Task, Use, role_words

GROUP = "@"
"""Separator between the name of a metric and the name of a group of samples."""


class DeviceTask:
    """A task on a device: what the trainer and the probes need of any task.

    Attributes:
        shape: its sizes.
        device: where samples are made.
        examples: number of different training samples that each member sees; `None`: fresh ones without end.
        positions: length of the input.
        readout: positions that enter the loss, ascending.
        output_size: size of a prediction (classes or dimensions).
        input_size: vocabulary of a token task, features of a vector task.
        input_kind: `"tokens"` or `"vectors"`.
        role_values: role name → words of its integers; roles that are plain numbers have no entry.
    """

    def __init__(self, task: Task, device: torch.device | str = "cpu", examples: int | None = None):
        self.device, self.examples = torch.device(device), examples
        self.shape = task.shape()
        if not isinstance(self.shape, Shape):
            raise UserError(
                f"{type(task).__name__}.shape: expected an hs.Shape, found {type(self.shape).__name__}"
            )
        self.positions, self.readout = self.shape.positions, self.shape.readout
        self.input_size, self.output_size = self.shape.input_size, self.shape.output_size
        self.input_kind: str = self.shape.inputs
        self.role_values: Mapping[str, tuple[str, ...]] = role_words(task)

    def sample(
        self,
        seeds: Int[Tensor, " member"],
        stream: str,
        step: int | range | Int[Tensor, ""],
        batch: int,
        *,
        start: int = 0,
        annotate: bool = True,
    ) -> Batch:
        """Draw samples `start … start + batch - 1` of a step, each a pure function of (seed, stream, step, index).

        Of a range of steps the batch axis holds the samples of each step, one step after another.  A tensor holds
        one step that is known on the device only, so that a recorded program can be replayed for the next one.
        """
        draws = Draws.of(seeds, stream, step, batch, start=start, examples=self.examples)
        return self.drawn(draws, annotate=annotate)

    def drawn(self, draws: Draws, *, annotate: bool = True) -> Batch:
        """Samples at the addresses of some draws."""
        raise NotImplementedError

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Mean losses per member; `"loss"` is what training minimises, the others are its parts."""
        raise NotImplementedError

    def slope(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Float[Tensor, "member batch readout output"]:
        """Gradient of `"loss"` by the predictions, for training without autograd."""
        return default_gradient(predictions, batch)


class TaskOnDevice(DeviceTask):
    """Any task on a device; its samples are checked once.

    Attributes:
        task: what the task is.
    """

    def __init__(self, task: Task, device: torch.device | str = "cpu", examples: int | None = None):
        super().__init__(task, device, examples)
        self.task = task
        self._checked: set[bool] = set()

    def drawn(self, draws: Draws, *, annotate: bool = True) -> Batch:
        """Samples at the addresses of some draws.

        Raises:
            UserError: what the task returns does not have the task's shape (looked at in the first batch).
        """
        drawn = self.task.sample(draws)
        if annotate not in self._checked:
            BatchCheck(f"{self._name}.sample", self.shape, draws.size, self.device)(drawn, annotate)
            self._checked.add(annotate)
        return drawn if annotate else drawn.plain()

    def evaluation(self, count: int, *, annotate: bool = True) -> Batch:
        """Held-out samples with `member == 1`: all members answer the same.

        The task's exhaustive set, where it has one (then of another size than `count`); else `count` samples.
        """
        return self.cases("held-out", annotate=annotate) or self.sample(
            self._held_out_seeds(), "held-out", 0, count, annotate=annotate
        )

    def cases(self, use: Use, *, annotate: bool = True) -> Batch | None:
        """The task's exhaustive set of a use, with `member == 1`, where it has one."""
        found = self.task.cases(use)
        if found is None:
            return None
        maker = f"{self._name}.cases({use!r})"
        if not isinstance(found, Batch):
            raise UserError(f"{maker}: expected an hs.Batch or None, found {type(found).__name__}")
        found = found.to(self.device)
        BatchCheck(maker, self.shape, (1, found.inputs.shape[1]), self.device)(found, annotate)
        return found if annotate else found.plain()

    @property
    def _name(self) -> str:
        return type(self.task).__name__

    def _held_out_seeds(self) -> Int[Tensor, "1"]:
        return torch.tensor([self.task.held_out_seed], device=self.device)

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> dict[str, Float[Tensor, " member"]]:
        """The task's parts, and for classes the accuracy; of each group of the batch besides as `metric@group`.

        A group without samples has NaN.  A batch that was drawn with `annotate=False` has no groups.
        """
        losses = self._measured(predictions, batch)
        whole = list(losses)
        for group in batch.groups:
            of_group = self._of_group(predictions, batch, batch.groups[group], whole)
            losses |= {f"{name}{GROUP}{group}": values for name, values in of_group.items()}
        return losses

    def _measured(self, predictions: Tensor, batch: Batch) -> dict[str, Tensor]:
        parts = dict(self.task.parts(predictions, batch))
        if self.shape.outputs == "classes":
            parts.setdefault("accuracy", accuracy(predictions, batch))
        return parts

    def _of_group(
        self, predictions: Tensor, batch: Batch, chosen: Bool[Tensor, "#member batch"], names: list[str]
    ) -> dict[str, Tensor]:
        """Everything that is measured, on chosen samples alone."""
        if len(chosen) == 1 < len(predictions):
            return self._on_some(predictions, batch, chosen[0], names)
        members = [
            self._on_some(predictions[member : member + 1], batch.member(member), here, names)
            for member, here in enumerate(chosen)
        ]
        return {name: torch.cat([each[name] for each in members]) for name in names}

    def _on_some(
        self, predictions: Tensor, batch: Batch, here: Bool[Tensor, " batch"], names: list[str]
    ) -> dict[str, Tensor]:
        if not here.any():
            return {name: predictions.new_full((len(predictions),), torch.nan) for name in names}
        return self._measured(predictions[:, here], batch.take(here))

    def slope(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Float[Tensor, "member batch readout output"]:
        """Gradient of `"loss"` by the predictions."""
        return self.task.loss_gradient(predictions, batch)
