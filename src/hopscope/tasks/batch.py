"""What a task hands out: samples of every member, what each of their positions is, and the default loss on them."""

import math
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.errors import UserError

Predictions = Float[Tensor, "member batch readout output"]

NO_RELATION = -1
"""Key position of a row that has no partner under a relation."""

_NAMED = ("groups", "roles", "relations")


class Lazy(UserDict[str, Any]):
    """Named tensors, of which some are functions that are called when somebody reads them, once."""

    def __getitem__(self, name: str) -> Tensor:
        value = self.data[name]
        if callable(value):
            value = self.data[name] = value()
        return value


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of every member, side by side.

    Attributes:
        inputs: token ids `[member, batch, position]` or vectors `[member, batch, position, feature]`.
        targets: class ids `[member, batch, readout]` or vectors `[member, batch, readout, output]`.
        weights: `[member, batch, readout]`, and for vectors `[member, batch, readout, output]`; an axis may be 1.  What
            counts in the loss, and how much: the loss is the sum of weight · term, divided by the number of terms.
            Normalised by a constant of the task, never by the batch.  `None`: everything counts alike.
        groups: subgroups of the samples; name → `[member, batch]` booleans.  Every measure reports each apart.
        roles: what each position is; name → `[member, batch, position]` integers (the task's words may name them).
        relations: name → key position that is the row's partner, `[member, batch, position]`, or `NO_RELATION`.

    A group, role or relation may be given as a function without arguments, which is called when somebody reads it.
    The samples of a single model (`member.batch(64)`) have no member axis.
    """

    inputs: Int[Tensor, "*member batch position"] | Float[Tensor, "*member batch position feature"]
    targets: Int[Tensor, "*member batch readout"] | Float[Tensor, "*member batch readout output"]
    weights: (
        Float[Tensor, "*#member #batch #readout"] | Float[Tensor, "*#member #batch #readout #output"] | None
    ) = field(default=None, kw_only=True)
    groups: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    roles: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    relations: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for kind in _NAMED:
            named = getattr(self, kind)
            if named and not isinstance(named, Lazy):
                object.__setattr__(self, kind, Lazy(named))

    @property
    def batch_axis(self) -> int:
        """0 for samples of a single model, 1 where there is a member axis."""
        return self.inputs.ndim - (3 if self.inputs.is_floating_point() else 2)

    def pieces(self, size: int) -> "Iterator[Batch]":
        """The batch in pieces of at most `size` samples, so that a forward pass bounds its memory."""
        for start in range(0, self.inputs.shape[self.batch_axis], size):
            yield self.take(slice(start, start + size))

    def take(self, samples: slice | Tensor) -> "Batch":
        """Some samples (a slice, indices, or a mask over the batch axis), the same ones of every member."""
        return self._at((*(slice(None),) * self.batch_axis, samples))

    def member(self, number: int) -> "Batch":
        """One member's samples, with a member axis of 1 (where all share them, these); `UserError`: there is none."""
        members = len(self.inputs) if self.batch_axis else 0
        if members == 1 and number >= 0:
            return self
        if not 0 <= number < members:
            have = f"0 to {members - 1}" if members else "samples with a member axis"
            raise UserError(f"member: expected {have}, found {number}")
        return self._at((slice(number, number + 1),))

    def _at(self, where: tuple[slice | Tensor, ...]) -> "Batch":
        weights = self.weights
        if weights is not None:  # of which an axis may be 1
            axes = self.batch_axis + 1
            weights = weights.expand(*self.inputs.shape[:axes], *weights.shape[axes:])
        return replace(self, weights=weights).changed(lambda tensor: tensor[where])

    def to(self, device: torch.device | str) -> "Batch":
        """The same samples on a device."""
        return self.changed(lambda tensor: tensor.to(device))

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """A batch in which every tensor is changed; a named one is changed when somebody reads it."""

        def later(kind: str, name: str) -> Tensor:
            return change(getattr(self, kind)[name])

        named = {kind: {name: partial(later, kind, name) for name in getattr(self, kind)} for kind in _NAMED}
        weights = None if self.weights is None else change(self.weights)
        return Batch(change(self.inputs), change(self.targets), weights=weights, **named)

    def plain(self) -> "Batch":
        """The same samples without groups, roles and relations."""
        return Batch(self.inputs, self.targets, weights=self.weights)


# Losses, of several members and a batch whose member axis may be 1: all members answer the same.


def terms(predictions: Predictions, batch: Batch) -> Float[Tensor, "member batch readout *output"]:
    """Cross-entropy in nats of each readout where targets are classes, squared error of each dimension of vectors."""
    if batch.targets.is_floating_point():
        return (predictions - batch.targets).square()
    targets = batch.targets.expand(len(predictions), -1, -1)
    return functional.cross_entropy(predictions.movedim(-1, 1), targets, reduction="none")


def weighted(terms: Tensor, batch: Batch) -> Tensor:
    """Every term times its weight; weights may lack the axis of dimensions or classes."""
    if batch.weights is None:
        return terms
    return terms * (batch.weights[..., None] if batch.weights.dim() < terms.dim() else batch.weights)


def default_parts(predictions: Predictions, batch: Batch) -> dict[str, Float[Tensor, " member"]]:
    """`"loss"`: the sum of weight · term over all `terms` of a member, divided by their number."""
    return {"loss": weighted(terms(predictions, batch), batch).flatten(1).mean(1)}


def default_gradient(predictions: Predictions, batch: Batch) -> Predictions:
    """Derivative of the sum of the members' losses of `default_parts` by the predictions."""
    if batch.targets.is_floating_point():
        return weighted((predictions - batch.targets) * (2.0 / math.prod(predictions.shape[1:])), batch)
    targets = batch.targets.expand(len(predictions), -1, -1)[..., None]
    slope = predictions.softmax(-1)
    slope.scatter_add_(-1, targets, torch.full_like(slope[..., :1], -1.0))
    return weighted(slope.mul_(1.0 / math.prod(predictions.shape[1:-1])), batch)


def accuracy(predictions: Predictions, batch: Batch) -> Float[Tensor, " member"]:
    """Share of the readouts that count at which the most probable class is the right one; NaN where none counts."""
    counts = counted(batch).expand(predictions.shape[:3])
    right = (predictions.argmax(-1) == batch.targets) & counts
    return right.flatten(1).sum(1) / counts.flatten(1).sum(1)


def counted(batch: Batch) -> Bool[Tensor, "#member batch readout"]:
    """Mask of the readouts that enter the loss."""
    if batch.weights is None:
        return torch.ones(1, *batch.targets.shape[1:3], dtype=torch.bool, device=batch.targets.device)
    counts = batch.weights > 0.0
    counts = counts.any(-1) if counts.dim() > 3 else counts
    return counts.expand(len(counts), *batch.targets.shape[1:3])
