"""Any `hs.Task`, put to the reader of circuits."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import get_args

import torch

from hopscope.circuits.declared_exchanges import exchanges_of
from hopscope.circuits.declared_goal import DeclaredGoal
from hopscope.circuits.declared_grammar import DeclaredGrammar
from hopscope.circuits.declared_rows import Rows
from hopscope.circuits.goal import Exchange, Goal, Predictions, Use
from hopscope.circuits.read_model import ReadModel
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import TaskOnDevice

STREAM = "probe"
"""Use of the samples that circuits are read on."""

_LOOKED_AT = 256
"""Samples from which it is told which rows there are."""

_MOST_WEIGHTS = 1 << 20
"""Attention weights of a head, over all samples, up to which as many samples are searched on as there should be."""

_FEWEST, _MOST, _TIMES = 16, 256, 4
"""Samples to search on; how many times as many are reported on."""


class DeclaredSetting:
    """A task that a user wrote, put to the reader; see `Setting`.

    A task without roles has the role `position`: then every position is a row of its own.  The relation `previous` is
    added where there is none.
    """

    def __init__(self, task: TaskOnDevice):
        self.task = task
        self.samples = min(_MOST, max(_FEWEST, _MOST_WEIGHTS // task.positions**2))
        self.validation = _TIMES * self.samples

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of the task's roles."""
        return self.task.role_values

    @cached_property
    def rows(self) -> Rows:
        """How rows are told apart: the same on all batches."""
        return Rows.of(self._sample(0, get_args(Use).index("look"), _LOOKED_AT), self.task.readout)

    def model(self, model: Transformer) -> Transformer:
        """The model as it is."""
        return model

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Samples of the use `probe`, each use of the reader from a step of its own."""
        return self.rows.annotated(self._sample(seed, get_args(Use).index(use), samples))

    def _sample(self, seed: int, step: int, samples: int) -> Batch:
        return self.task.sample(torch.tensor([seed], device=self.task.device), STREAM, step, samples)

    def grammar(self, batch: Batch, *, causal: bool) -> DeclaredGrammar:
        """The rules on a batch."""
        return DeclaredGrammar(batch, causal=causal, words=self.words, rows=self.rows)

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> Goal:
        """The task's own criterion if it brings one, else the goal over those parts of the loss that were learned.

        Raises:
            UserError: a threshold that the model itself does not meet, or a criterion that lacks something.
        """
        own = self.task.task.faithfulness_criterion(predictions, batch, threshold)
        if own is None:
            return DeclaredGoal.of(self.task, predictions, batch, threshold)
        if not isinstance(own, Goal):
            needed = (
                "names",
                "full",
                "threshold",
                "searched",
                "on",
                "loss",
                "worst",
                "lost",
                "reached",
                "fault",
            )
            missing = [name for name in needed if not hasattr(own, name)]
            raise UserError(
                f"{type(self.task.task).__name__}.faithfulness_criterion: expected what hopscope.circuits.goal.Goal "
                f"has, found a {type(own).__name__} without {', '.join(missing)}"
            )
        return own

    def exchanges(self, model: ReadModel, batch: Batch) -> list[Exchange]:
        """The inputs of each role, from another sample, or what the task says; and position codes."""
        roles = {name: batch.roles[name] for name in batch.roles if name not in self.rows.made}
        return exchanges_of(self.task, model, batch, roles)
