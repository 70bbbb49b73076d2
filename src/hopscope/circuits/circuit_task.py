"""How a task is put to the reader of circuits: its sequences, rules on them, a criterion, and counterfactuals.

Any `hs.Task` can be read (`any_task`); the built-in tasks have what is special to them in `built_in_tasks`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hopscope.circuits.criteria import FaithfulnessCriterion, Predictions
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.virtual_model import ReadModel, Stream
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch

Use = Literal["search", "report", "watch", "check", "look", "unseen"]
"""What sequences are for: to search on; for everything that is reported of a circuit; to watch it form; to see whether
what was found holds on further sequences of the kind that it was searched on; to look which rows there are; or for
claims about circuits, unseen until it is settled which circuits there are."""

NO_ANSWER = -1
"""Where no single answer is right, or none would follow."""


@dataclass(frozen=True)
class Counterfactual:
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


class CircuitTask(ABC):
    """A task, put to the reader.

    Attributes:
        task: on its device.
        samples, validation: how many sequences are searched on and reported on, if not told otherwise; of each sort
            where there are several.
    """

    task: Any
    samples: int
    validation: int

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of roles whose numbers have names, as `Task.role_values`."""
        found: Mapping[str, Sequence[str]] = self.task.role_values
        return found

    def model(self, model: Transformer) -> Transformer:
        """The model on these sequences: the same weights, with no more positions than the sequences have."""
        return model

    @abstractmethod
    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Annotated sequences of one member; other ones for every use."""

    def grammar(self, batch: Batch, *, causal: bool) -> Grammar:
        """The rules on a batch of these sequences, for models that see earlier positions only or all."""
        return Grammar(batch, causal=causal, words=self.words)

    @abstractmethod
    def criterion(
        self, predictions: Predictions, batch: Batch, threshold: float | None
    ) -> FaithfulnessCriterion:
        """What a circuit must reach, by the model's own predictions.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """

    @abstractmethod
    def counterfactuals(self, model: ReadModel, batch: Batch) -> Iterable[Counterfactual]:
        """The batch with one thing exchanged, for everything that a path could carry."""


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
    stream: Stream = model.embedded(moved)
    return stream.gather(2, given[..., None].expand_as(stream))
