"""What a circuit must account for on a task that a user wrote: the parts of its loss that the model has learned.

The parts are those of the task's `parts` on which right answers score lower than a guess; the `"loss"` itself where
there are no others.  Where the samples have groups, each part is asked of every group by itself.  A part counts as
learned below a quarter of its lowest floor.

The floors are the task's own (`Task.floors`); a part without any takes those of the loss.  Where the task gives none,
the floor is the loss of a guess on the samples: for classes the uniform one, so ln(output_size) nats where everything
counts alike; for vectors the mean of the targets, so their variance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.flow import LEAST_EFFECT
from hopscope.circuits.goal import Predictions, checked_threshold
from hopscope.circuits.loss_goal import LEARNED, LEAST_THRESHOLD, SLACK, STILL_LEARNED, LossGoal
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import GROUP, TaskOnDevice
from hopscope.tasks.task import Floors

SEARCHED = 0.75
"""Share of what may be lost that a search may use up: what it finds must hold for other samples too."""

_CERTAIN = 30.0
"""Logit of an answer that is beyond doubt."""

_LOSS = "loss"


@dataclass(frozen=True)
class DeclaredGoal(LossGoal):
    """The loss over the learned parts, and what it may be.

    Attributes:
        task: what predictions are of.
        floors: the learned parts with their lowest floors.
        full: loss of the model itself over them.
        full_worst: the largest share of its floor that one of them has.
        threshold: τ.
        searched: see `Goal`.
    """

    searched: ClassVar[float] = SEARCHED
    task: TaskOnDevice
    floors: Mapping[str, float]
    threshold: float = field(default=0.0, kw_only=True)
    full: float = field(default=0.0, kw_only=True)
    full_worst: float = field(default=0.0, kw_only=True)

    @classmethod
    def of(
        cls, task: TaskOnDevice, predictions: Predictions, batch: Batch, threshold: float | None
    ) -> "DeclaredGoal":
        """The goal over those parts that a model has learned.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        losses = task.losses(predictions, batch)
        every = {name: floor for name, floor in lowest_floors(task, batch).items() if floor > 0.0}
        learned = {name: floor for name, floor in every.items() if float(losses[name]) < LEARNED * floor}
        bare = cls(task, learned)
        full = bare.loss(predictions, batch)
        tau = checked_threshold(
            threshold if learned else None, full, max(LEAST_THRESHOLD * bare.scale, SLACK * full)
        )
        return cls(task, learned, threshold=tau, full=full, full_worst=bare.worst(predictions, batch))

    @property
    def names(self) -> tuple[str, ...]:
        """The learned parts."""
        return tuple(self.floors)

    @property
    def scale(self) -> float:
        """Mean of the lowest floors of the learned parts."""
        return sum(self.floors.values()) / max(1, len(self.floors))

    @property
    def least_effect(self) -> float:
        """Rise of the loss from which on something counts as carried: as for other tasks, whose floor is about one."""
        return LEAST_EFFECT * self.scale

    def on(self, predictions: Predictions, batch: Batch) -> "DeclaredGoal":
        """The same goal on other samples: the model's own loss is another there, and as much may be lost."""
        full = self.loss(predictions, batch)
        return DeclaredGoal(
            self.task,
            self.floors,
            threshold=full + self.threshold - self.full,
            full=full,
            full_worst=self.worst(predictions, batch),
        )

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Mean over the learned parts; where their floors differ, each counts in proportion to its own."""
        shares = self._shares(predictions, batch).values()
        return self.scale * sum(shares) / max(1, len(shares))

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """The largest share of its floor that a learned part has."""
        return max(self._shares(predictions, batch).values(), default=0.0)

    def _shares(self, predictions: Predictions, batch: Batch) -> dict[str, float]:
        """Every learned part as a share of its floor; without groups that have no samples here."""
        losses, empty = self.task.losses(predictions, batch), _empty(batch)
        return {
            name: float(losses[name]) / floor
            for name, floor in self.floors.items()
            if name.partition(GROUP)[2] not in empty
        }

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """Learned parts that are half way from an intact pass to their floor, or beyond."""
        now, before = self._shares(predictions, batch), self._shares(intact, batch)
        return [name for name in now if now[name] >= (before[name] + 1.0) / 2.0]

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """A loss over τ under the rules, or a part that is no longer learned when recomputed."""
        loss = self.loss(passed["rules"], batch)
        if loss > self.threshold:
            return f"loss {loss:.3g} on fresh samples under the rules, τ is {self.threshold:.3g}"
        worst = self.worst(passed["recomputed"], batch)
        if worst >= STILL_LEARNED:
            return f"a learned part has {worst:.0%} of its floor on fresh samples when recomputed"
        return None


def _empty(batch: Batch) -> set[str]:
    """Groups without samples."""
    return {group for group in batch.groups if not bool(batch.groups[group].any())}


# Floors.


def lowest_floors(task: TaskOnDevice, batch: Batch) -> dict[str, float]:
    """Parts that a circuit could be asked for, each with its lowest floor; see the module."""
    guess = task.losses(guessed(task, batch), batch)
    right = task.losses(_right(task, batch), batch)
    told = task.task.floors()
    names = _parts(right, guess, batch)
    return {name: _told(told, name) or float(guess[name]) for name in names}


def _parts(right: Mapping[str, Tensor], guess: Mapping[str, Tensor], batch: Batch) -> list[str]:
    whole = [name for name in guess if GROUP not in name]
    parts = [name for name in whole if name != _LOSS and float(right[name]) < float(guess[name])] or [_LOSS]
    groups = [group for group in batch.groups if group not in _empty(batch)]
    covered = bool(groups) and bool(torch.stack([batch.groups[group][0] for group in groups]).any(0).all())
    of_groups = [f"{part}{GROUP}{group}" for part in parts for group in groups]
    return of_groups if covered else [*parts, *of_groups]


def _told(floors: Floors, name: str) -> float | None:
    """The lowest floor above zero that a task gives for a part, or else for its loss."""
    by_metric: dict[str, Mapping[str, float]] = {
        metric: values for metric, values in floors.items() if isinstance(values, Mapping)
    }
    of_loss = {each: value for each, value in floors.items() if not isinstance(value, Mapping)}
    for metric in (name, name.partition(GROUP)[0], _LOSS):
        lowest = _lowest(by_metric.get(metric, {}).values())
        if lowest is not None:
            return lowest
    return _lowest(of_loss.values())


def _lowest(values: Iterable[float]) -> float | None:
    return min((float(value) for value in values if value > 0.0), default=None)


def guessed(task: TaskOnDevice, batch: Batch) -> Predictions:
    """Predictions that know nothing of a sample: all classes alike, or the mean of the targets."""
    if task.shape.outputs == "classes":
        return torch.zeros(*batch.targets.shape, task.output_size, device=batch.targets.device)
    return batch.targets.mean(1, keepdim=True).expand_as(batch.targets)


def _right(task: TaskOnDevice, batch: Batch) -> Predictions:
    if task.shape.outputs == "classes":
        return _CERTAIN * functional.one_hot(batch.targets, task.output_size).float()
    return batch.targets
