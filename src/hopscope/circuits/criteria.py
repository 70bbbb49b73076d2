"""What a circuit has to account for, and how much of it may be lost.

A model that never learned has no circuit, and one that learned half of its task has a circuit for that half.  So a
criterion is set by a model's own predictions.  There are two kinds.

*Loss*: tasks have parts of a loss, and a part counts as learned below a quarter of its floor.  A circuit must keep the
loss over the learned parts under τ, by default 1.5 times the loss of the model itself, and at least 0.05 of the floor;
the paper (appendix E) asks for 0.05.

*Skill*: tasks are made of skills, each shown by answers that are right or wrong.  A skill counts as learned with an
accuracy of at least 0.9 on held-out sequences.  The loss is the mean cross-entropy over the sequences of the learned
skills, each skill counting alike.  A circuit may add a little to it, and lose a little of each skill.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from hopscope.circuits.config import LEARNED, LEAST_EFFECT
from hopscope.errors import UserError
from hopscope.tasks.batch import Batch

Predictions = Float[Tensor, "1 batch readout output"]

LEAST_THRESHOLD, SLACK = 0.05, 1.5
"""τ is the larger of the first, in the loss's own scale, and the second times the unablated loss."""

STILL_LEARNED = 0.5
"""Share that every learned part must keep under where patterns are recomputed on fresh samples (paper, §7.2)."""

ACCURATE = 0.9
"""Accuracy from which on a skill counts as learned."""

RECOMPUTED_SLACK = 2.0
"""How many times as much may be lost of a skill, and added to the loss, where patterns are recomputed.

Rows that follow their rules exactly can make up for what the others no longer bring, so a circuit chosen under the
rules can stand a little worse with the model's own attention."""


@runtime_checkable
class FaithfulnessCriterion(Protocol):
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

    def on(self, predictions: Predictions, batch: Batch) -> "FaithfulnessCriterion":
        """The same criterion on another batch, for which the model itself predicts this."""
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


# Losses.


@dataclass(frozen=True)
class LossCriterion:
    """The loss over the learned parts, and what it may be.

    Attributes:
        task: what predictions are of; it has `losses(predictions, batch)`.
        floors: the learned parts with their lowest floors.
        full: loss of the model itself over them.
        full_worst: the largest share of its floor that one of them has.
        threshold: τ.
        searched: see `FaithfulnessCriterion`.
    """

    searched: ClassVar[float] = 0.75
    task: Any
    floors: Mapping[str, float]
    threshold: float = field(default=0.0, kw_only=True)
    full: float = field(default=0.0, kw_only=True)
    full_worst: float = field(default=0.0, kw_only=True)

    @classmethod
    def of(
        cls,
        task: Any,
        floors: Mapping[str, float],
        predictions: Predictions,
        batch: Batch,
        threshold: float | None,
    ) -> "LossCriterion":
        """The criterion over those parts that a model has learned.

        Args:
            task: what predictions are of.
            floors: of every part that a circuit could be asked for.
            predictions, batch: the model's own.
            threshold: τ; by default see the module.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        shares = cls(task, {name: floor for name, floor in floors.items() if floor > 0.0}).shares(
            predictions, batch
        )
        bare = cls(task, {name: floors[name] for name, share in shares.items() if share < LEARNED})
        full = bare.loss(predictions, batch)
        least = max(LEAST_THRESHOLD * bare.scale, SLACK * full)
        tau = checked_threshold(threshold if bare.floors else None, full, least)
        return replace(bare, threshold=tau, full=full, full_worst=bare.worst(predictions, batch))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts that were learned."""
        return tuple(self.floors)

    @property
    def scale(self) -> float:
        """Mean of the lowest floors of the learned parts."""
        return sum(self.floors.values()) / max(1, len(self.floors))

    @property
    def least_effect(self) -> float:
        """Rise of the loss from which on something counts as carried, in the loss's own scale."""
        return LEAST_EFFECT * self.scale

    def shares(self, predictions: Predictions, batch: Batch) -> dict[str, float]:
        """Every learned part as a share of its floor."""
        losses = self.task.losses(predictions, batch)
        return {name: float(losses[name]) / floor for name, floor in self.floors.items()}

    def on(self, predictions: Predictions, batch: Batch) -> "LossCriterion":
        """The same criterion on other samples: the model's own loss is another there, and as much may be lost."""
        full = self.loss(predictions, batch)
        threshold = full + self.threshold - self.full
        return replace(self, threshold=threshold, full=full, full_worst=self.worst(predictions, batch))

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Mean over the learned parts; where their floors differ, each counts in proportion to its own."""
        shares = self.shares(predictions, batch).values()
        return self.scale * sum(shares) / max(1, len(shares))

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """The largest share of its floor that a learned part has."""
        return max(self.shares(predictions, batch).values(), default=0.0)

    @property
    def guess(self) -> float:
        """Share of its floor that a part has where it is not known at all."""
        return 1.0

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """Learned parts that are half way from an intact pass to a guess, or beyond."""
        now, before = self.shares(predictions, batch), self.shares(intact, batch)
        return [name for name in now if now[name] >= (before[name] + self.guess) / 2.0]

    def reached(self, mode: str, predictions: Predictions, batch: Batch, share: float = 1.0) -> bool:
        """Whether a pass is under τ where patterns are given, and every part about as learned where not."""
        if mode == "rules":
            return self.loss(predictions, batch) <= self.full + share * (self.threshold - self.full)
        # A part that the model itself has barely learned leaves room too.
        bound = max(LEARNED, SLACK * self.full_worst)
        return self.worst(predictions, batch) <= self.full_worst + share * (bound - self.full_worst)

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """A loss over τ under the rules, or a part that is no longer learned when recomputed."""
        loss = self.loss(passed["rules"], batch)
        if not loss <= self.threshold:  # nor is a loss that is no number under it
            return self.loss_words(loss)
        worst = self.worst(passed["recomputed"], batch)
        return None if worst < STILL_LEARNED else self.worst_words(worst)

    def loss_words(self, loss: float) -> str:
        """What is said of a loss over τ."""
        return f"loss {loss:.3g} on fresh samples under the rules, τ is {self.threshold:.3g}"

    def worst_words(self, share: float) -> str:
        """What is said of a part that has this share of its floor."""
        return f"a learned part has {share:.0%} of its floor on fresh samples when recomputed"


# Skills.


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
class SkillCriterion:
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
    ) -> "SkillCriterion":
        """The criterion over those skills in which a model is accurate enough.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        found = {name: skills.accuracy(name, predictions, batch) for name in skills.names}
        names = tuple(name for name in skills.names if found[name] >= ACCURATE)
        full = cls(skills, names, 0.0, 0.0, found).loss(predictions, batch)
        tau = checked_threshold(threshold if names else None, full, full + skills.excess)
        return cls(skills, names, full, tau, found)

    @property
    def searched(self) -> float:
        """Share of what may be lost that a search may use up, as in `Skills`."""
        return self.skills.searched

    def on(self, predictions: Predictions, batch: Batch) -> "SkillCriterion":
        """The same criterion on other sequences: the model's own loss is another there."""
        full = self.loss(predictions, batch)
        accuracies = {name: self.skills.accuracy(name, predictions, batch) for name in self.names}
        return SkillCriterion(self.skills, self.names, full, full + self.threshold - self.full, accuracies)

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
        """Learned skills whose accuracy falls by 1 - `ACCURATE` or more from an intact pass."""
        accuracy = self.skills.accuracy
        falls = {
            name: accuracy(name, intact, batch) - accuracy(name, predictions, batch) for name in self.names
        }
        return [name for name, fall in falls.items() if fall >= 1.0 - ACCURATE]

    def reached(self, mode: str, predictions: Predictions, batch: Batch, share: float = 1.0) -> bool:
        """Whether a pass adds and loses little enough; see `Skills` and `RECOMPUTED_SLACK`."""
        room = share * (RECOMPUTED_SLACK if mode == "recomputed" else 1.0)
        if self.loss(predictions, batch) > self.full + room * (self.threshold - self.full):
            return False
        return self.worst(predictions, batch) <= room * self.skills.most_lost

    def fault(self, passed: Mapping[str, Predictions], batch: Batch) -> str | None:
        """What a circuit adds or loses too much, in the mode where that is so."""
        words = {"rules": "under the rules", "recomputed": "when recomputed"}
        for mode, predictions in passed.items():
            if self.reached(mode, predictions, batch):
                continue
            room = RECOMPUTED_SLACK if mode == "recomputed" else 1.0
            excess = self.loss(predictions, batch) - self.full
            return (
                f"{excess:.3f} nats more and {100 * self.worst(predictions, batch):.1f} points of a skill less on "
                f"fresh samples {words[mode]}, allowed are {room * (self.threshold - self.full):.3f} and "
                f"{100 * room * self.skills.most_lost:.0f}"
            )
        return None
