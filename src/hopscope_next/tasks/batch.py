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

    def __repr__(self) -> str:
        return f"Lazy({', '.join(self._given)})"

    def ready(self) -> dict[str, Any]:
        """The tensors that are there already; no function is called."""
        return {name: value for name, value in self._given.items() if not callable(value)}


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
        relations: name → key position that is the row's partner, `[member, batch, position]`; `NO_RELATION` where there
            is none.

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
        for name in _NAMED:
            given = getattr(self, name)
            if given and not isinstance(given, Lazy):
                object.__setattr__(self, name, Lazy(given))

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
        axis = self.batch_axis
        where = (slice(None),) * axis + (samples,)
        weights = self.weights
        if weights is not None and weights.shape[axis] == self.inputs.shape[axis]:
            weights = weights[where]
        return self._with(lambda tensor: tensor[where], weights)

    def member(self, number: int) -> "Batch":
        """The samples of one member, with a member axis of 1."""
        one = slice(number, number + 1)
        weights = self.weights
        if weights is not None and len(weights) > 1:
            weights = weights[one]
        return self._with(lambda tensor: tensor[one], weights)

    def to(self, device: torch.device | str) -> "Batch":
        """The same samples on a device."""
        same = self.inputs.device == torch.device(device)
        return self if same else self.changed(lambda tensor: tensor.to(device))

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """A batch in which every tensor is changed; a named one is changed when somebody reads it."""
        return self._with(change, None if self.weights is None else change(self.weights))

    def plain(self) -> "Batch":
        """The same samples without groups, roles and relations."""
        return Batch(self.inputs, self.targets, weights=self.weights)

    def _with(self, change: Callable[[Tensor], Tensor], weights: Tensor | None) -> "Batch":
        def later(named: Mapping[str, Tensor], name: str) -> Tensor:
            return change(named[name])

        every = {kind: getattr(self, kind) for kind in _NAMED}
        return Batch(
            change(self.inputs),
            change(self.targets),
            weights=weights,
            **{kind: {name: partial(later, named, name) for name in named} for kind, named in every.items()},
        )


def joined(batches: Sequence[Batch]) -> Batch:
    """The samples of several batches with a member axis, one after another; names are those of the first."""
    first = batches[0]

    def together(kind: str, name: str) -> Tensor:
        return torch.cat([getattr(batch, kind)[name] for batch in batches], 1)

    def whole(batch: Batch) -> Tensor:
        assert batch.weights is not None
        members, _, *rest = batch.weights.shape
        return batch.weights.expand(members, batch.inputs.shape[1], *rest)

    return replace(
        first,
        inputs=torch.cat([batch.inputs for batch in batches], 1),
        targets=torch.cat([batch.targets for batch in batches], 1),
        weights=None if first.weights is None else torch.cat([whole(batch) for batch in batches], 1),
        **{kind: {name: partial(together, kind, name) for name in getattr(first, kind)} for kind in _NAMED},
    )
