"""What contestants are asked when somebody wants to know whether they have learned, and what counts as learned.

Permutation: every sequence of a held-out mapping (24 of 120) whose x5 copies one of x1 … x4, in every order, 11,520 in
all; the score is the recall, the share of right answers to x5.  Retrieval: fresh samples; the score is the larger of
the partial losses, the mean squared errors of x_1 … x_D.
"""

import math
from dataclasses import dataclass

import numpy as np

from _common import INPUT_LENGTH, SYMBOLS, TRAIN_MAPPINGS, all_orders, train_mappings

ORDERS = math.factorial(SYMBOLS)
REPEATS = (ORDERS - TRAIN_MAPPINGS) * ORDERS * (SYMBOLS - 1)  # held-out sequences
SAMPLES = 512  # of the retrieval problem, as many as the studies evaluate on
SEED = 10**6  # of those samples; no contestant trains with it
CHUNK = 360  # sequences that a contestant is asked at a time; about the quickest for all of them


@dataclass(frozen=True)
class Bar:
    """Scores that count as learned: `threshold` or more, or, of losses, less than it."""

    threshold: float
    losses: bool = False

    def met(self, score: float) -> bool:
        """Whether a member with this score has learned; one whose score is no number has not."""
        return score < self.threshold if self.losses else score >= self.threshold

    @property
    def words(self) -> str:
        """The bar for people."""
        if self.losses:
            return f"all partial losses under {self.threshold:g}"
        return f"recall of {self.threshold:.4g} or more"


def held_out_mappings(seed: int) -> list[tuple[int, ...]]:
    """The 24 mappings that training with this seed leaves out."""
    return sorted(set(all_orders()) - set(train_mappings(seed)))


def held_out_repeats(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[sequence, position]` and the right answers at x5 `[sequence]`, token ids."""
    inputs, answers = [], []
    for mapping in held_out_mappings(seed):
        for order in all_orders():
            for source in range(SYMBOLS - 1):
                xs = [*order[:-1], order[source]]
                sequence = [token for x in xs for token in (x, mapping[x - 1])]
                inputs.append(sequence[:INPUT_LENGTH])
                answers.append(sequence[-1])
    return np.array(inputs), np.array(answers)


def recalls(logits: np.ndarray, answers: np.ndarray) -> list[float]:
    """Of each member, from logits `[member, sequence, token]` at x5 and the right tokens `[sequence]`."""
    return [float(share) for share in (logits.argmax(-1) == answers).mean(-1)]


def worst_losses(predictions: np.ndarray, targets: np.ndarray, steps: int) -> list[float]:
    """The largest partial loss of each member.

    Args:
        predictions: `[member, sample, query, number]`, the numbers of x_1 … x_D one after another.
        targets: `[sample, query, number]`.
        steps: D.
    """
    errors = np.square(predictions - targets)
    by_step = errors.reshape(*errors.shape[:-1], steps, -1).mean((1, 2, 4))
    return [float(loss) for loss in by_step.max(-1)]


def finite(score: float) -> float | None:
    """The score, or `None` for what is no number: JSON has no word for it."""
    return score if math.isfinite(score) else None
