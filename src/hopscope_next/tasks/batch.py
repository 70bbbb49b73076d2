"""What a task hands out: samples of every member, and what each of their positions is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

NO_RELATION = -1
"""Key position of a row that has no partner under a relation."""

_NAMED = ("groups", "roles", "relations")


class Lazy(Mapping[str, Tensor]):
    """Named tensors, of which some are functions that are called when somebody reads them, once."""

    def __init__(self, given: Mapping[str, Any]):
        self._given = dict(given)

    def __getitem__(self, name: str) -> Tensor:
        value = self._given[name]
        if callable(value):
            value = self._given[name] = value()
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._given

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


@dataclass(frozen=True)
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
        where = (slice(None),) * self.batch_axis + (samples,)
        return self._whole().changed(lambda tensor: tensor[where])

    def member(self, number: int) -> "Batch":
        """The samples of one member, with a member axis of 1."""
        return self._whole().changed(lambda tensor: tensor[number : number + 1])

    def to(self, device: torch.device | str) -> "Batch":
        """The same samples on a device."""
        same = self.inputs.device == torch.device(device)
        return self if same else self.changed(lambda tensor: tensor.to(device))

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

    def _whole(self) -> "Batch":
        """The same samples, with weights for every member and sample."""
        if self.weights is None:
            return self
        axes = self.batch_axis + 1
        lead, rest = self.inputs.shape[:axes], self.weights.shape[axes:]
        return replace(self, weights=self.weights.expand(*lead, *rest))


def joined(batches: Sequence[Batch]) -> Batch:
    """The samples of several batches with a member axis, one after another; names are those of the first."""
    first = batches[0]
    weights = [batch.weights for batch in map(Batch._whole, batches) if batch.weights is not None]

    def together(kind: str, name: str) -> Tensor:
        return torch.cat([getattr(batch, kind)[name] for batch in batches], 1)

    return Batch(
        torch.cat([batch.inputs for batch in batches], 1),
        torch.cat([batch.targets for batch in batches], 1),
        weights=torch.cat(weights, 1) if weights else None,
        **{kind: {name: partial(together, kind, name) for name in getattr(first, kind)} for kind in _NAMED},
    )
