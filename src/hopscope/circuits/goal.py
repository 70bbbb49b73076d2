"""What a circuit has to account for: the targets that a model has learned, and how well.

A model that never learned has no circuit, and one that learned the first hop only has a circuit for the first hop: a
target counts as learned with a partial loss under 0.25.  Its circuit must keep the loss over the learned targets under
τ = max(0.05, 1.5 × the loss of the model itself); the paper (appendix E) asks for 0.05.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from hopscope.errors import UserError
from hopscope.tasks.batch import Batch
from hopscope.tasks.vector_task import VectorTask

LEARNED = 0.25
"""Partial loss under which a target counts as learned."""

LEAST_THRESHOLD, SLACK = 0.05, 1.5
"""τ is the larger of the first, and the second times the unablated loss."""


@dataclass(frozen=True)
class Goal:
    """The loss over the learned targets, and what it may be.

    Attributes:
        task: what predictions are of.
        names: the learned targets.
        full: loss of the model itself over them.
        threshold: τ.
    """

    task: VectorTask
    names: tuple[str, ...]
    full: float
    threshold: float

    @classmethod
    def of(
        cls,
        task: VectorTask,
        predictions: Float[Tensor, "1 batch readout output"],
        batch: Batch,
        threshold: float | None = None,
    ) -> "Goal":
        """The goal that a model's own predictions set.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        losses = task.losses(predictions, batch)
        names = tuple(name for name in task.names if float(losses[f"loss_{name}"]) < LEARNED)
        full = sum(float(losses[f"loss_{name}"]) for name in names) / max(1, len(names))
        if threshold is not None and names and threshold < full:
            raise UserError(
                f"tau: expected at least the loss of the unablated model, {full:.4f}, found {threshold}; "
                "take a larger one or leave it out"
            )
        return cls(task, names, full, threshold or max(LEAST_THRESHOLD, SLACK * full))

    def loss(self, predictions: Float[Tensor, "1 batch readout output"], batch: Batch) -> float:
        """Mean squared error over the learned targets."""
        losses = self.task.losses(predictions, batch)
        return sum(float(losses[f"loss_{name}"]) for name in self.names) / len(self.names)

    def worst(self, predictions: Float[Tensor, "1 batch readout output"], batch: Batch) -> float:
        """Largest partial loss of a learned target."""
        losses = self.task.losses(predictions, batch)
        return max(float(losses[f"loss_{name}"]) for name in self.names)

    def first_lost(
        self,
        predictions: Float[Tensor, "1 batch readout output"],
        intact: Float[Tensor, "1 batch readout output"],
        batch: Batch,
    ) -> str | None:
        """The first learned target whose partial loss is half way from an intact pass to the plateau, or beyond."""
        now, before = self.task.losses(predictions, batch), self.task.losses(intact, batch)
        for name in self.names:
            least = (float(before[f"loss_{name}"]) + self.task.config.plateau) / 2.0
            if float(now[f"loss_{name}"]) >= least:
                return name
        return None

    def reached(
        self,
        mode: str,
        predictions: Float[Tensor, "1 batch readout output"],
        batch: Batch,
        share: float = 1.0,
    ) -> bool:
        """Whether a pass is good enough: under τ where patterns are given, and every target still learned where not.

        Args:
            mode: `"rules"` or `"recomputed"`.
            predictions, batch: of the pass.
            share: of what the loss may rise by, that it may use up.
        """
        if mode == "rules":
            return self.loss(predictions, batch) <= self.full + share * (self.threshold - self.full)
        return self.worst(predictions, batch) <= share * LEARNED
