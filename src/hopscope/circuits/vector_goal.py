"""The tasks on vectors as the reader sees them: chains to follow, and the partial losses of their steps.

A target counts as learned with a partial loss under 0.25.  Its circuit must keep the loss over the learned targets
under τ = max(0.05, 1.5 × the loss of the model itself); the paper (appendix E) asks for 0.05.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.goal import Exchange, Predictions, Use, checked_threshold
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.loss_goal import LEARNED, LEAST_THRESHOLD, SLACK, STILL_LEARNED, LossGoal
from hopscope.circuits.read_model import ReadModel
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.vector_task import VectorTask


@dataclass(frozen=True)
class VectorGoal(LossGoal):
    """The loss over the learned targets, and what it may be.

    Attributes:
        task: what predictions are of.
        names: the learned targets.
        full: mean squared error of the model itself over them.
        full_worst: the largest of its partial losses.
        threshold: τ.
        searched: a search may use up all that may be lost.
    """

    searched: ClassVar[float] = 1.0
    task: VectorTask
    names: tuple[str, ...]
    full: float
    full_worst: float
    threshold: float

    def on(self, predictions: Predictions, batch: Batch) -> "VectorGoal":
        """The same goal: τ is absolute."""
        return self

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Mean squared error over the learned targets."""
        losses = self.task.losses(predictions, batch)
        return sum(float(losses[f"loss_{name}"]) for name in self.names) / max(1, len(self.names))

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """Largest partial loss of a learned target."""
        losses = self.task.losses(predictions, batch)
        return max(float(losses[f"loss_{name}"]) for name in self.names)

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """Learned targets whose partial loss is half way from an intact pass to the plateau, or beyond."""
        now, before = self.task.losses(predictions, batch), self.task.losses(intact, batch)
        plateau = self.task.config.plateau
        return [
            name
            for name in self.names
            if float(now[f"loss_{name}"]) >= (float(before[f"loss_{name}"]) + plateau) / 2.0
        ]

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """A loss over τ under the rules, or a target that is no longer learned when recomputed."""
        loss = self.loss(passed["rules"], batch)
        if loss > self.threshold:
            return f"loss {loss:.3f} on fresh samples under the rules, τ is {self.threshold:.3f}"
        worst = self.worst(passed["recomputed"], batch)
        if worst >= STILL_LEARNED:
            return f"a learned target has partial loss {worst:.3f} on fresh samples when recomputed"
        return None


class VectorSetting:
    """A task on vectors, put to the reader; see `Setting`."""

    samples, validation = 48, 256

    def __init__(self, task: VectorTask):
        self.task = task

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of the task's roles."""
        return self.task.role_values

    def model(self, model: Transformer) -> Transformer:
        """The model as it is."""
        return model

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Samples of the stream `circuit`, each use from a step of its own."""
        return self.task.sample(torch.tensor([seed]), "circuit", get_args(Use).index(use), samples)

    def grammar(self, batch: Batch, *, causal: bool) -> Grammar:
        """The rules on a batch."""
        return Grammar(batch, causal=causal, words=self.words)

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> VectorGoal:
        """The goal over those targets whose partial loss is small.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        losses = self.task.losses(predictions, batch)
        names = tuple(name for name in self.task.names if float(losses[f"loss_{name}"]) < LEARNED)
        partial = [float(losses[f"loss_{name}"]) for name in names]
        full = sum(partial) / max(1, len(partial))
        tau = checked_threshold(threshold if names else None, full, max(LEAST_THRESHOLD, SLACK * full))
        return VectorGoal(self.task, names, full, max(partial, default=0.0), tau)

    def exchanges(self, model: ReadModel, batch: Batch) -> list[Exchange]:
        """Symbols of each node, `x_NODE`, and `position`: see `exchanged`."""
        others = exchanged(self.task, batch.inputs, batch.roles)
        return [Exchange(name, model.embedded(inputs)) for name, inputs in others.items()]


def exchanged(
    task: VectorTask, inputs: Float[Tensor, "1 batch position feature"], roles: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The same sequences with one thing exchanged for that of another sample.

    Returns:
        `x_NODE` for each node of the chains: its symbol, in all chains and at every token that holds it; `position`:
        all position codes, each moved by one tuple of two.
    """
    size = task.config.symbol_dim
    symbols, codes = inputs[0, ..., :size], inputs[0, ..., size:]
    holds, chain = roles["holds"][0], roles["chain"][0]
    found = {}
    for node in holds.unique().tolist():
        changed = symbols.clone()
        for number in range(task.config.chains):
            here = (holds == node) & (chain == number)
            first = here.int().argmax(-1)
            symbol = symbols[torch.arange(len(first)), first]
            changed = torch.where(here[..., None], symbol.roll(1, 0)[:, None], changed)
        found[f"x_{node}"] = torch.cat((changed, codes), -1)[None]
    found["position"] = torch.cat((symbols, codes.roll(2, 1)), -1)[None]
    return found
