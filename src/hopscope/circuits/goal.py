"""What the reader of circuits must know of a task: what a circuit has to account for, and what can be exchanged.

A model that never learned has no circuit, and one that learned half of its task has a circuit for that half.  Tasks
differ in what counts as learned and in how much of it a circuit may lose: each has a `Goal`, set by a model's own
predictions, and a `Setting` that hands out sequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.circuits.grammar import Grammar
from hopscope.circuits.read_model import ReadModel, Stream
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch

Predictions = Float[Tensor, "1 batch readout output"]

Use = Literal["search", "report", "watch", "check", "look", "unseen"]
"""What sequences are for: to search on; for everything that is reported of a circuit; to watch it form; to see whether
what was found holds on further sequences of the kind that it was searched on; to look which rows there are; or for
claims about circuits, unseen until it is settled which circuits there are."""

NO_ANSWER = -1
"""Where no single answer is right, or none would follow."""


@runtime_checkable
class Goal(Protocol):
    """What a circuit of one model has to reach on one batch.

    It may have a number `least_effect` besides: the rise of the loss from which on something counts as carried.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """What the model has learned, and so what its circuit must account for."""
        ...

    @property
    def full(self) -> float:
        """Loss of the model itself over that."""
        ...

    @property
    def threshold(self) -> float:
        """τ: what the loss may be."""
        ...

    @property
    def searched(self) -> float:
        """Share of what may be lost, that a search may use up: what it finds must hold for other sequences too."""
        ...

    def on(self, predictions: Predictions, batch: Batch) -> "Goal":
        """The same goal on another batch, for which the model itself predicts this."""
        ...

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Loss over what was learned."""
        ...

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """How badly it stands with what has suffered most: larger is worse."""
        ...

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """What was learned and an intact pass has, but this one has not, in order."""
        ...

    def reached(self, mode: str, predictions: Predictions, batch: Batch, share: float = 1.0) -> bool:
        """Whether a pass is good enough.

        Args:
            mode: `"rules"` or `"recomputed"`.
            predictions, batch: of the pass.
            share: of what may be lost, that the pass may use up.
        """
        ...

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """What is wrong with a circuit on fresh samples, from its predictions by mode; `None` if nothing is."""
        ...


@dataclass(frozen=True)
class Exchange:
    """Other sequences, in which one thing is not what it was.

    Attributes:
        name: of the thing, such as `x_2` or `position`.
        stream: before the first layer.
        right: the answers of the sequences as they were, `NO_ANSWER` where several are right; `None` where answers are
            no choices.
        follows: the answers if the thing decides them, `NO_ANSWER` where it should not; `None` where nothing is said.
    """

    name: str
    stream: Stream
    right: Int[Tensor, "1 batch readout"] | None = None
    follows: Int[Tensor, "1 batch readout"] | None = None


@runtime_checkable
class Setting(Protocol):
    """How a task is put to the reader.

    Attributes:
        samples, validation: how many sequences are searched on and reported on, if not told otherwise; of each sort
            where there are several.
    """

    samples: int
    validation: int

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of roles whose numbers have names, as `Task.role_values`."""
        ...

    def model(self, model: Transformer) -> Transformer:
        """The model on these sequences: the same weights, with no more positions than the sequences have."""
        ...

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Annotated sequences of one member; other ones for every use."""
        ...

    def grammar(self, batch: Batch, *, causal: bool) -> Grammar:
        """The rules on a batch of this setting, for models that see earlier positions only or all."""
        ...

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> Goal:
        """The goal that a model's own predictions set.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        ...

    def exchanges(self, model: ReadModel, batch: Batch) -> list[Exchange]:
        """The batch with one thing exchanged, for everything that a path could carry."""
        ...


def checked_threshold(threshold: float | None, full: float, default: float) -> float:
    """τ: what was asked for, or the default.

    Raises:
        UserError: the model itself does not meet it.
    """
    if threshold is not None and threshold < full:
        raise UserError(
            f"tau: expected at least the loss of the unablated model, {full:.4f}, found {threshold}; "
            "take a larger one or leave it out"
        )
    return default if threshold is None else threshold


def recoded(
    model: ReadModel,
    inputs: Int[Tensor, "1 batch position"] | Float[Tensor, "1 batch position feature"],
    given: Int[Tensor, "1 batch position"],
) -> Stream:
    """The stream before the first layer if each position has the learned position code of another one.

    Tokens (or vectors) are put where the codes are, and the stream is put back.
    """
    where = given if inputs.dim() == given.dim() else given[..., None].expand_as(inputs)
    moved = torch.empty_like(inputs).scatter(2, where, inputs)
    stream = model.embedded(moved)
    return stream.gather(2, given[..., None].expand_as(stream))
