"""The goal of tasks that are made of skills, each shown by answers that are right or wrong.

A skill counts as learned with an accuracy of at least 0.9 on held-out sequences.  The loss is the mean
cross-entropy over the sequences of the learned skills, each skill counting alike.  A circuit may add a little to
it, and lose a little of each skill.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hopscope.circuits.goal import Predictions, checked_threshold
from hopscope.tasks.batch import Batch

LEARNED = 0.9
"""Accuracy from which on a skill counts as learned."""

SLACK = 2.0
"""How many times as much may be lost, of both, where patterns are recomputed.

Rows that follow their rules exactly can make up for what the others no longer bring, so a circuit chosen under the
rules can stand a little worse with the model's own attention."""


@runtime_checkable
class Skills(Protocol):
    """The skills of a task.

    Attributes:
        names: all of them, in order.
        excess: nats that a circuit may add to the model's own cross-entropy.
        most_lost: accuracy that a circuit may lose of each skill.
        searched: share of what may be lost that a search may use up: what it finds must hold for other sequences too.
    """

    names: tuple[str, ...]
    excess: float
    most_lost: float
    searched: float

    def accuracy(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Share of right answers of a skill; 0 where no sequence asks for it."""
        ...

    def loss(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats over the sequences of a skill."""
        ...


@dataclass(frozen=True)
class SkillGoal:
    """The skills that were learned, and what of them may be lost.

    Attributes:
        skills: of the task.
        names: the learned skills.
        full: mean cross-entropy of the model itself over their sequences, in nats.
        threshold: what the mean cross-entropy may be.
        accuracies: of the model itself, by skill.
    """

    skills: Skills
    names: tuple[str, ...]
    full: float
    threshold: float
    accuracies: Mapping[str, float]

    @classmethod
    def of(
        cls, skills: Skills, predictions: Predictions, batch: Batch, threshold: float | None
    ) -> "SkillGoal":
        """The goal over those skills in which a model is accurate enough.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        found = {name: skills.accuracy(name, predictions, batch) for name in skills.names}
        names = tuple(name for name in skills.names if found[name] >= LEARNED)
        full = cls(skills, names, 0.0, 0.0, found).loss(predictions, batch)
        tau = checked_threshold(threshold if names else None, full, full + skills.excess)
        return cls(skills, names, full, tau, found)

    @property
    def searched(self) -> float:
        """See `Skills`."""
        return self.skills.searched

    def on(self, predictions: Predictions, batch: Batch) -> "SkillGoal":
        """The same goal on other sequences: the model's own loss is another there."""
        full = self.loss(predictions, batch)
        accuracies = {name: self.skills.accuracy(name, predictions, batch) for name in self.names}
        return SkillGoal(self.skills, self.names, full, full + self.threshold - self.full, accuracies)

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats, each learned skill's sequences counting alike."""
        losses = [self.skills.loss(name, predictions, batch) for name in self.names]
        return sum(losses) / max(1, len(losses))

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """Largest accuracy lost of a learned skill."""
        return max(
            self.accuracies[name] - self.skills.accuracy(name, predictions, batch) for name in self.names
        )

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """Learned skills whose accuracy falls by 1 - `LEARNED` or more from an intact pass."""
        accuracy = self.skills.accuracy
        falls = {
            name: accuracy(name, intact, batch) - accuracy(name, predictions, batch) for name in self.names
        }
        return [name for name, fall in falls.items() if fall >= 1.0 - LEARNED]

    def reached(self, mode: str, predictions: Predictions, batch: Batch, share: float = 1.0) -> bool:
        """Whether a pass adds and loses little enough; see `Skills` and `SLACK`."""
        room = share * (SLACK if mode == "recomputed" else 1.0)
        if self.loss(predictions, batch) > self.full + room * (self.threshold - self.full):
            return False
        return self.worst(predictions, batch) <= room * self.skills.most_lost

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """What a circuit adds or loses too much, in the mode where that is so."""
        words = {"rules": "under the rules", "recomputed": "when recomputed"}
        for mode, predictions in passed.items():
            if self.reached(mode, predictions, batch):
                continue
            room = SLACK if mode == "recomputed" else 1.0
            excess = self.loss(predictions, batch) - self.full
            return (
                f"{excess:.3f} nats more and {100 * self.worst(predictions, batch):.1f} points of a skill less on "
                f"fresh samples {words[mode]}, allowed are {room * (self.threshold - self.full):.3f} and "
                f"{100 * room * self.skills.most_lost:.0f}"
            )
        return None
