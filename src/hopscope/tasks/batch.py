"""What a task hands out: a batch whose positions carry roles and relations, and the contract of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NO_RELATION = -1
"""Key position of a row that has no partner under a relation."""


@dataclass(frozen=True)
class Batch:
    """Samples of every member, side by side.

    Attributes:
        inputs: token ids `[member, batch, position]` or vectors `[member, batch, position, feature]`.
        targets: token ids `[member, batch, position]`, or vectors `[member, batch, readout, target]` at the positions
            that enter the loss.
        loss_mask: `[member, batch, position]`, true where a prediction enters the loss.
        roles: what each position is; name → `[member, batch, position]` integers (the task's `role_values` give
            words for them).  Empty when the batch was drawn with `annotate=False`.
        relations: name → key position that is the row's partner, `NO_RELATION` where there is none.
        target_weights: `[batch, target]`, how much each dimension of a vector target counts in the loss, where that
            changes during training; `None` where all count alike.
    """

    inputs: Int[Tensor, "member batch position"] | Float[Tensor, "member batch position feature"]
    targets: Int[Tensor, "member batch position"] | Float[Tensor, "member batch readout target"]
    loss_mask: Bool[Tensor, "member batch position"]
    roles: Mapping[str, Int[Tensor, "member batch position"]]
    relations: Mapping[str, Int[Tensor, "member batch position"]]
    target_weights: Float[Tensor, "batch target"] | None = None

    def take(self, samples: slice | Tensor) -> "Batch":
        """Some samples (a slice, indices, or a mask over the batch axis), the same ones of every member."""
        return Batch(
            self.inputs[:, samples],
            self.targets[:, samples],
            self.loss_mask[:, samples],
            {name: role[:, samples] for name, role in self.roles.items()},
            {name: relation[:, samples] for name, relation in self.relations.items()},
            None if self.target_weights is None else self.target_weights[samples],
        )


def addresses(
    step: int | range | Int[Tensor, ""], start: int, batch: int, device: torch.device
) -> tuple[int | Int[Tensor, "*sample"], Int[Tensor, " sample"]]:
    """Step and index of every sample of `Task.sample`, as `rng.bits` takes them."""
    index = torch.arange(start, start + batch, device=device)
    if not isinstance(step, range):
        return step, index
    steps = torch.arange(step.start, step.stop, step.step, device=device)
    return steps.repeat_interleave(batch), index.repeat(len(steps))


def joined(batches: Sequence[Batch]) -> Batch:
    """The samples of several batches, one after another."""
    first = batches[0]
    return replace(
        first,
        inputs=torch.cat([batch.inputs for batch in batches], 1),
        targets=torch.cat([batch.targets for batch in batches], 1),
        loss_mask=torch.cat([batch.loss_mask for batch in batches], 1),
        roles={name: torch.cat([batch.roles[name] for batch in batches], 1) for name in first.roles},
        relations={
            name: torch.cat([batch.relations[name] for batch in batches], 1) for name in first.relations
        },
    )


@runtime_checkable
class Task(Protocol):
    """What the trainer and the probes need of any task.

    Attributes:
        positions: length of the input.
        readout: positions that enter the loss, ascending.
        output_size: size of a prediction (classes or dimensions).
        input_size: vocabulary of a token task, features of a vector task.
        input_kind: `"tokens"` or `"vectors"`.
        role_values: role name → words of its integers; roles that are plain numbers have no entry.
    """

    positions: int
    readout: tuple[int, ...]
    input_size: int
    output_size: int
    input_kind: str
    role_values: Mapping[str, tuple[str, ...]]

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
        ...

    def reference_sample(self, seed: int, stream: str, step: int, index: int) -> dict[str, object]:
        """One sample in plain Python: the slow obvious reference of `sample`."""
        ...

    def losses(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Mapping[str, Float[Tensor, " member"]]:
        """Mean losses per member; `"loss"` is what training minimises, the others are its parts."""
        ...


@runtime_checkable
class SlopedTask(Task, Protocol):
    """A task that writes out the derivative of its loss, for training without autograd."""

    def slope(
        self, predictions: Float[Tensor, "member batch readout output"], batch: Batch
    ) -> Float[Tensor, "member batch readout output"]:
        """Gradient of `"loss"` by the predictions."""
        ...
