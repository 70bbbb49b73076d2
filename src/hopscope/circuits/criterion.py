"""What a circuit has to account for, and how much of it may be lost.

A model that learned half of its task has a circuit for that half: a criterion is set by a model's own predictions.
*Losses*: a circuit must keep the loss over the learned parts under τ; where patterns are recomputed, every part must
stay away from its floor.  *Skills* (`Task.skills`): it may add a little to the cross-entropy over the sequences of
learned skills, and lose a little of the accuracy of each.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from hopscope.circuits.execution import Execution, Mode, Predictions
from hopscope.errors import UserError
from hopscope.tasks import Batch, Task, counted, losses
from hopscope.tasks.task import LEARNED

KEPT, STILL_LEARNED = LEARNED, 2 / 3
"""Shares of a part's lowest floor: where patterns are recomputed, a search keeps it under the first, and on fresh
samples it must be under the second (0.5 for the paper's chains, section 7.2)."""

LEAST_THRESHOLD, SLACK, LEAST_EFFECT = 1 / 15, 1.5, 0.4
"""τ is the larger of the first, as a share of the floor (0.05 for the paper's chains, appendix E), and the second times
the model's own loss; a rise of the loss counts as an effect from the third on, as a share of the least τ."""

WRONG, EXCESS, MOST_LOST, RECOMPUTED_SLACK = 0.1, 0.02, 0.01, 2.0
"""Share of wrong answers up to which a skill is learned; nats that a circuit may add, accuracy that it may lose of
each, and how many times as much where patterns are recomputed: rows that follow rules can make up for others."""

_CERTAIN = 30.0  # logit of an answer that is beyond doubt


class Criterion:
    """What a circuit of one model must reach on one batch: the loss over the parts that the model has learned.

    Attributes:
        names: what was learned.
        full: loss of the model itself over that; `threshold`: τ, what it may be.
        least_effect: rise of the loss from which on something counts.
    """

    def __init__(self, task: Task, batch: Batch, learned: Mapping[str, float], predictions: Predictions):
        """`learned`: parts of the loss and their floors, or skills; `predictions`: of the model itself."""
        self._task, self._batch, self._learned = task, batch, learned
        self.names = tuple(name.removeprefix("loss_") for name in learned)
        self._scale = sum(learned.values()) / max(1, len(learned))
        self.least_effect = LEAST_EFFECT * LEAST_THRESHOLD * self._scale
        self._prepare()
        self._own = self.parts(predictions)
        self.full = self.loss(predictions)
        self.threshold = max(LEAST_THRESHOLD * self._scale, SLACK * self.full)

    def _prepare(self) -> None:
        self._some: dict[str, tuple[Any, Batch]] = {"": (slice(None), self._batch)}
        for group in {name.partition("@")[2] for name in self._learned} - {""}:
            here = self._batch.groups[group][0]
            self._some |= {group: (here, self._batch.take(here))} if here.any() else {}

    def on(self, execution: Execution, samples: int | None = None) -> "Criterion":
        """The same on other samples (all of the model's, or the first ones), where as much may be lost."""
        batch, predictions = execution.grammar.batch, execution.clean.predictions
        few = slice(samples)
        found = type(self)(self._task, batch.take(few), self._learned, predictions[:, few])
        found.threshold, found.least_effect = found.full + self.threshold - self.full, self.least_effect
        return found

    def parts(self, predictions: Predictions) -> dict[str, float]:
        """How badly every part stands: as a share of its lowest floor; without groups that have no samples here."""
        some = self._some.items()
        of_group = {group: self._task.parts(predictions[:, at], batch) for group, (at, batch) in some}
        found = dict[str, float]()
        for name, floor in self._learned.items():
            part, _, group = name.partition("@")
            if group in of_group:
                found[name] = float(of_group[group][part]) / floor
        return found

    def loss(self, predictions: Predictions) -> float:
        """Mean over what was learned; where floors differ, each part counts in proportion to its own."""
        parts = self.parts(predictions).values()
        return self._scale * sum(parts) / max(1, len(parts))

    def worst(self, predictions: Predictions) -> float:
        """What has suffered most: the largest share of a floor, or accuracy that is lost."""
        return max(self.parts(predictions).values(), default=0.0)

    def lost(self, predictions: Predictions, intact: Predictions) -> list[str]:
        """What was learned and an intact pass has, but this one has not: parts that are half way to a guess."""
        now, before = self.parts(predictions), self.parts(intact)
        return [name.removeprefix("loss_") for name in now if now[name] >= (before[name] + 1.0) / 2.0]

    def budget_used(self, mode: Mode, predictions: Predictions) -> float:
        """How much of what may be lost in a search is lost: 0 for the model itself, beyond 1 too much."""
        if mode == "rules":
            return (self.loss(predictions) - self.full) / (self.threshold - self.full)
        # A part that the model itself has barely learned leaves room too.
        worst = max(self._own.values(), default=0.0)
        return (self.worst(predictions) - worst) / (max(KEPT, SLACK * worst) - worst)

    def fault(self, passed: Mapping[Mode, Predictions]) -> str | None:
        """What is wrong with a circuit on fresh samples, from its predictions in each mode that counts."""
        loss, worst = self.loss(passed["rules"]), self.worst(passed.get("recomputed", passed["rules"]))
        if not loss <= self.threshold:  # nor is a loss that is no number
            return f"loss {loss:.3g} on fresh samples under the rules, τ is {self.threshold:.3g}"
        if "recomputed" in passed and not worst < STILL_LEARNED:
            return f"a learned part has {worst:.0%} of its floor on fresh samples when recomputed"
        return None


class _SkillCriterion(Criterion):
    # The accuracies of the learned skills, and the cross-entropy over their sequences, each skill counting alike.

    def _prepare(self) -> None:
        skills = self._task.skills(self._batch)
        self._asked = {name: skills[name][0] for name in self._learned}
        self._counted = counted(self._batch)[0]

    def parts(self, predictions: Predictions) -> dict[str, float]:
        # Share of wrong answers of each skill; 1 where no sequence asks for it.
        right, asked = predictions[0].argmax(-1) == self._batch.targets[0], self._asked.items()
        return {name: 1.0 - float(right[at].sum() / max(1, int(at.sum()))) for name, at in asked}

    def loss(self, predictions: Predictions) -> float:
        # Mean cross-entropy in nats over what counts in the sequences that ask for a learned skill.
        logits, targets = predictions[0].transpose(1, 2), self._batch.targets[0]
        terms = functional.cross_entropy(logits, targets, reduction="none") * self._counted
        each = terms.sum(-1) / self._counted.sum(-1).clamp(min=1)
        asked = (at.any(-1) for at in self._asked.values())
        losses = [float(each[here].mean()) for here in asked if here.any()]
        return sum(losses) / max(1, len(losses))

    def worst(self, predictions: Predictions) -> float:
        return max(now - self._own[name] for name, now in self.parts(predictions).items())

    def lost(self, predictions: Predictions, intact: Predictions) -> list[str]:
        # Those of which `WRONG` or more is lost.
        now, before = self.parts(predictions), self.parts(intact)
        return [name for name in now if now[name] - before[name] >= WRONG]

    def budget_used(self, mode: Mode, predictions: Predictions) -> float:
        most = max(super().budget_used("rules", predictions), self.worst(predictions) / MOST_LOST)
        return most / RECOMPUTED_SLACK if mode == "recomputed" else most

    def fault(self, passed: Mapping[Mode, Predictions]) -> str | None:
        for mode, found in passed.items():
            if not self.budget_used(mode, found) <= 1.0:
                more, less = self.loss(found) - self.full, 100 * self.worst(found)
                words = "when recomputed" if mode == "recomputed" else "under the rules"
                return f"{more:.3f} nats more and {less:.1f} points of a skill less on fresh samples {words}"
        return None


def criterion_of(task: Task, batch: Batch, predictions: Predictions, threshold: float | None) -> Criterion:
    """What a circuit of a model with these predictions must reach: for its skills, or the learned parts of its loss.

    `threshold` is τ, if it is not the default; a `UserError` if the model itself does not meet it.
    """
    skills = dict.fromkeys(task.skills(batch), 1.0)
    kind, most = (_SkillCriterion, WRONG) if skills else (Criterion, LEARNED)
    floors = skills or lowest_floors(task, batch)
    parts = kind(task, batch, floors, predictions).parts(predictions)
    learned = {name: floors[name] for name, part in parts.items() if part <= most}
    found = kind(task, batch, learned, predictions)
    if skills:
        found.threshold, found.least_effect = found.full + EXCESS, EXCESS
    if threshold is not None and found.names:
        if threshold <= found.full:
            wanted = f"more than the loss of the unablated model, {found.full:.4f}"
            hint = "take a larger one or leave it out"
            raise UserError(f"threshold: expected {wanted}, found {threshold}; {hint}")
        found.threshold = threshold
    return found


def lowest_floors(task: Task, batch: Batch) -> dict[str, float]:
    """Parts of the loss that a circuit could be asked for, each with its lowest floor above zero.

    They are those on which right answers score lower than a guess (all classes alike, the mean of the targets), the
    `"loss"` itself where there are no others; where all samples are of groups, each part of every group.  A part for
    which the task tells no floor has those of the loss, and where it tells none, the loss of the guess.
    """
    right = guess = batch.targets
    if right.is_floating_point():
        guess = right.mean(1, keepdim=True).expand_as(right)
    else:
        right = _CERTAIN * functional.one_hot(right, task.shape().output_size).float()
        guess = torch.zeros_like(right)
    guessed, best = losses(task, guess, batch), task.parts(right, batch)
    names = [name for name in best if name != "loss" and best[name] < guessed[name]] or ["loss"]
    groups = [name for name, each in batch.groups.items() if each.any()]
    if not groups or not torch.cat([batch.groups[name] for name in groups]).any(0).all():
        groups = ["", *groups]
    told, found = task.floors(), dict[str, float]()
    of_loss = {name: floor for name, floor in told.items() if not isinstance(floor, Mapping)}
    by_metric = {"loss": of_loss, **{name: each for name, each in told.items() if isinstance(each, Mapping)}}
    above = {metric: [floor for floor in each.values() if floor > 0.0] for metric, each in by_metric.items()}
    for group in groups:
        for name in names:
            part = f"{name}@{group}".removesuffix("@")
            lowest = (min(above[metric]) for metric in (part, name, "loss") if above.get(metric))
            found[part] = next(lowest, float(guessed[part]))
    return {part: floor for part, floor in found.items() if floor > 0.0}
