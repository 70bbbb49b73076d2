"""Permutation lookup as the reader sees it: two skills, elimination and recall, each on sequences of its own.

A skill counts as learned with an accuracy of at least 0.9 on held-out mappings: elimination at the last step of
sequences without a repeat, recall at the repeat of those with one.  The loss is the mean cross-entropy over all answers
of the sequences of the learned skills.  A circuit may add 0.02 nats to it and lose one point of each skill.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.goal import NO_ANSWER, Exchange, Predictions, checked_threshold
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.permutation import PermutationTask

LEARNED = 0.9
"""Accuracy from which on a skill counts as learned."""

EXCESS = 0.02
"""Nats that a circuit may add to the model's own cross-entropy."""

MOST_LOST = 0.01
"""Accuracy that a circuit may lose of each skill."""

SLACK = 2.0
"""How many times as much may be lost, of both, where patterns are recomputed.

Rows that follow their rules exactly can make up for what the others no longer bring, so a circuit chosen under the
rules can stand a little worse with the model's own attention."""

SEARCHED = 0.75
"""Share of what may be lost that a search may use up: what it finds must hold for other sequences too."""

Skill = Literal["elimination", "recall"]
SKILLS: tuple[Skill, ...] = ("elimination", "recall")


@dataclass(frozen=True)
class PermutationGoal:
    """The skills that were learned, and what of them may be lost.

    Attributes:
        names: the learned skills.
        full: mean cross-entropy of the model itself over their sequences, in nats.
        threshold: what the mean cross-entropy may be.
        accuracies: of the model itself, by skill.
        room: share of what may be lost, that may be used up.
    """

    names: tuple[Skill, ...]
    full: float
    threshold: float
    accuracies: Mapping[Skill, float]
    room: float = 1.0

    def on(self, predictions: Predictions, batch: Batch) -> "PermutationGoal":
        """The same goal on other sequences, to search on: the model's own loss is another there."""
        full = self.loss(predictions, batch)
        accuracies = {name: accuracy(name, predictions, batch) for name in self.names}
        return PermutationGoal(self.names, full, full + self.threshold - self.full, accuracies, SEARCHED)

    def loss(self, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats over all answers, each learned skill's sequences counting alike."""
        found = functional.cross_entropy(
            predictions[0].transpose(1, 2), batch.targets[0, :, ::2], reduction="none"
        ).mean(-1)
        losses = [float(found[_asked(name, batch).any(-1)].mean()) for name in self.names]
        return sum(losses) / max(1, len(losses))

    def worst(self, predictions: Predictions, batch: Batch) -> float:
        """Largest accuracy lost of a learned skill."""
        return max(self.accuracies[name] - accuracy(name, predictions, batch) for name in self.names)

    def lost(self, predictions: Predictions, intact: Predictions, batch: Batch) -> list[str]:
        """Learned skills whose accuracy falls by 1 - `LEARNED` or more from an intact pass."""
        falls = {
            name: accuracy(name, intact, batch) - accuracy(name, predictions, batch) for name in self.names
        }
        return [name for name, fall in falls.items() if fall >= 1.0 - LEARNED]

    def reached(self, mode: str, predictions: Predictions, batch: Batch, share: float = 1.0) -> bool:
        """Whether a pass adds and loses little enough; see `EXCESS`, `MOST_LOST` and `SLACK`."""
        room = share * self.room * (SLACK if mode == "recomputed" else 1.0)
        if self.loss(predictions, batch) > self.full + room * (self.threshold - self.full):
            return False
        return self.worst(predictions, batch) <= room * MOST_LOST

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
                f"{100 * room * MOST_LOST:.0f}"
            )
        return None


def _asked(name: Skill, batch: Batch) -> Bool[Tensor, "batch readout"]:
    """The answers that show a skill: one of each of its sequences."""
    repeats = batch.roles["repeat"][0, :, ::2] == 1
    if name == "recall":
        return repeats
    asked = torch.zeros_like(repeats)
    asked[:, -1] = ~repeats.any(-1)
    return asked


def accuracy(name: Skill, predictions: Predictions, batch: Batch) -> float:
    """Share of right answers of a skill; 0 where no sequence asks for it."""
    asked = _asked(name, batch)
    right = predictions[0].argmax(-1) == batch.targets[0, :, ::2]
    return float(right[asked].float().sum() / asked.sum().clamp(min=1))


class PermutationSetting:
    """Permutation lookup, put to the reader; see `Setting`.

    Searched on are training mappings, reported on held-out ones; half of the sequences have a repeat, where the task
    knows repeats at all.
    """

    samples, validation = 512, 2048

    def __init__(self, task: PermutationTask):
        self.task = task

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of the task's roles."""
        return self.task.role_values

    @property
    def _sorts(self) -> tuple[str, ...]:
        return ("plain", "repeats") if self.task.config.repeat_ratio > 0.0 else ("plain",)

    def batch(self, seed: int, samples: int, *, fresh: bool) -> Batch:
        """So many sequences of each sort: drawn from training mappings by the seed, or fixed ones of held-out mappings.

        Of the latter all, if there are not that many.
        """
        if fresh:
            return _joined([self.task.evaluation(sort, limit=samples) for sort in self._sorts])
        found = []
        for ratio, _ in zip((0.0, 1.0), self._sorts, strict=False):
            task = PermutationTask(self.task.config.model_copy(update={"repeat_ratio": ratio}))
            found.append(task.sample(torch.tensor([seed]), "circuit", 0, samples))
        return _joined(found)

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> PermutationGoal:
        """The goal over those skills that are accurate enough.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        found = {name: accuracy(name, predictions, batch) for name in SKILLS}
        names = tuple(name for name in SKILLS if found[name] >= LEARNED)
        full = PermutationGoal(names, 0.0, 0.0, found).loss(predictions, batch)
        tau = checked_threshold(threshold if names else None, full, full + EXCESS)
        return PermutationGoal(names, full, tau, found)

    def exchanges(self, model: Transformer, batch: Batch) -> list[Exchange]:
        """What a path could carry from the earlier pairs: `x` and `y`, the symbols; `x position` and `y position`.

        A symbol is exchanged for the next larger one, V for 1.  Position codes go one pair further among those of the
        earlier pairs, the last one's to the first.
        """
        return list(self._exchanges(model, batch))

    def _exchanges(self, model: Transformer, batch: Batch) -> Iterator[Exchange]:
        inputs, values = batch.inputs, self.task.config.values
        right = batch.targets[:, :, ::2]
        certain = torch.stack([_asked(name, batch) for name in SKILLS]).any(0)[None]
        right = torch.where(certain, right, NO_ANSWER)
        kind = batch.roles["kind"]
        for number, name in enumerate(("x", "y")):
            changed = torch.where(kind == number, inputs % values + 1, inputs)
            # Of another y, another answer would follow: of the y that is recalled, and of those that are used.
            follows = torch.where(right == NO_ANSWER, NO_ANSWER, right % values + 1) if name == "y" else None
            yield Exchange(name, model.embedded(changed), right, follows)
        for number, name in enumerate(("x", "y")):
            given = _codes_moved(batch, number)
            yield Exchange(
                f"{name} position",
                _recoded(model, inputs, given),
                right,
                _pointed(batch, given) if name == "x" else None,
            )


def _codes_moved(batch: Batch, kind: int) -> Int[Tensor, "1 batch position"]:
    """Whose position code each position gets, if those of one kind move on among the pairs before the last one."""
    step, repeat = batch.roles["step"], batch.roles["repeat"]
    last = torch.where(repeat == 1, step, step.amax()).amin(-1, keepdim=True)
    earlier = (step < last) & (batch.roles["kind"] == kind)
    position = torch.arange(step.shape[-1]).expand_as(step)
    following = torch.where(step < last - 1, position + 2, kind)
    return torch.where(earlier, following, position)


def _recoded(
    model: Transformer, inputs: Int[Tensor, "1 batch position"], given: Int[Tensor, "1 batch position"]
) -> Float[Tensor, "1 batch position model"]:
    """The stream before the first layer if each position has the position code of another one.

    Tokens are put where the codes are, and the stream is put back.
    """
    moved = torch.empty_like(inputs).scatter(-1, given, inputs)
    stream = model.embedded(moved)
    return stream.gather(2, given[..., None].expand_as(stream))


def _pointed(batch: Batch, given: Int[Tensor, "1 batch position"]) -> Int[Tensor, "1 batch readout"]:
    """What recall would answer if the position code of the earlier copy told where to look."""
    source = batch.relations["same_symbol"]
    pointed = given.gather(-1, source.clamp(min=0)) + 1
    answers = batch.inputs.gather(-1, pointed)
    return torch.where(source >= 0, answers, NO_ANSWER)[..., ::2]


def _joined(batches: Sequence[Batch]) -> Batch:
    """The samples of several batches, one after another."""
    first = batches[0]

    return replace(
        first,
        inputs=torch.cat([batch.inputs for batch in batches], 1),
        targets=torch.cat([batch.targets for batch in batches], 1),
        loss_mask=torch.cat([batch.loss_mask for batch in batches], 1),
        roles={name: torch.cat([batch.roles[name] for batch in batches], 1) for name in first.roles},
        relations={
            name: torch.cat([batch.relations[name] for batch in batches], 1) for name in first.relations
        },
    )
