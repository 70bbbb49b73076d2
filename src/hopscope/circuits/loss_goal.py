"""What a circuit must reach where a loss decides: one rule for tasks on vectors and for tasks of one's own."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hopscope.circuits.goal import Predictions
    from hopscope.tasks.batch import Batch

LEARNED = 0.25
"""Loss of a part, as a share of its floor, under which it counts as learned; the floor of vectors is 1."""

LEAST_THRESHOLD, SLACK = 0.05, 1.5
"""τ is the larger of the first, in the loss's own scale, and the second times the unablated loss."""

STILL_LEARNED = 0.5
"""Share that every learned part must keep under where patterns are recomputed on fresh samples (paper, §7.2)."""


class LossGoal:
    """A goal that a loss decides, and the worst of its parts.

    Attributes:
        full: loss of the model itself over what it has learned.
        full_worst: the largest share of a floor that a learned part has.
        threshold: τ.
    """

    full: float
    full_worst: float
    threshold: float

    def loss(self, predictions: "Predictions", batch: "Batch") -> float:
        """Loss over what is learned."""
        raise NotImplementedError

    def worst(self, predictions: "Predictions", batch: "Batch") -> float:
        """Largest share of its floor that a learned part has."""
        raise NotImplementedError

    def reached(self, mode: str, predictions: "Predictions", batch: "Batch", share: float = 1.0) -> bool:
        """Whether a pass is under τ where patterns are given, and every part about as learned where not."""
        if mode == "rules":
            return self.loss(predictions, batch) <= self.full + share * (self.threshold - self.full)
        # A part that the model itself has barely learned leaves room too.
        bound = max(LEARNED, SLACK * self.full_worst)
        return self.worst(predictions, batch) <= self.full_worst + share * (bound - self.full_worst)
