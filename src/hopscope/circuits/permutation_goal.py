"""Permutation lookup as the reader sees it: two skills, elimination and recall, each on sequences of its own.

Elimination is asked for at the last step of sequences without a repeat, recall at the repeat of those with one; the
loss of a skill is the mean cross-entropy over all answers of its sequences.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.goal import NO_ANSWER, Exchange, Predictions, Use, recoded
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.read_model import ReadModel
from hopscope.circuits.skill_goal import SkillGoal
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch, joined
from hopscope.tasks.permutation import PermutationTask

Skill = Literal["elimination", "recall"]
SKILLS: tuple[Skill, ...] = ("elimination", "recall")

EXCESS = 0.02
"""Nats that a circuit may add to the model's own cross-entropy."""

MOST_LOST = 0.01
"""Accuracy that a circuit may lose of each skill."""

SEARCHED = 0.75
"""Share of both that a search may use up."""


def _asked(name: str, batch: Batch) -> Bool[Tensor, "batch readout"]:
    """The answers that show a skill: one of each of its sequences."""
    repeats = batch.roles["repeat"][0, :, ::2] == 1
    if name == "recall":
        return repeats
    asked = torch.zeros_like(repeats)
    asked[:, -1] = ~repeats.any(-1)
    return asked


class PermutationSkills:
    """What is right of elimination and of recall; see `Skills`."""

    names: tuple[str, ...] = SKILLS
    excess, most_lost, searched = EXCESS, MOST_LOST, SEARCHED

    def accuracy(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Share of right answers of a skill; 0 where no sequence asks for it."""
        asked = _asked(name, batch)
        right = predictions[0].argmax(-1) == batch.targets[0]
        return float(right[asked].float().sum() / asked.sum().clamp(min=1))

    def loss(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats over all answers of the sequences of a skill."""
        found = functional.cross_entropy(
            predictions[0].transpose(1, 2), batch.targets[0], reduction="none"
        ).mean(-1)
        return float(found[_asked(name, batch).any(-1)].mean())


class PermutationSetting:
    """Permutation lookup, put to the reader; see `Setting`.

    Searched on and checked are training mappings, reported on held-out ones; half of the sequences have a repeat, where
    the task knows repeats at all.
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

    def model(self, model: Transformer) -> Transformer:
        """The model as it is."""
        return model

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """So many sequences of each sort: drawn from training mappings by the seed, or fixed ones of held-out mappings.

        Of the latter all, if there are not that many.
        """
        if use not in ("search", "check"):
            return joined([self.task.evaluation(sort, limit=samples) for sort in self._sorts])
        found = []
        for ratio, _ in zip((0.0, 1.0), self._sorts, strict=False):
            task = PermutationTask(self.task.config.model_copy(update={"repeat_ratio": ratio}))
            found.append(task.sample(torch.tensor([seed]), "circuit", get_args(Use).index(use), samples))
        return joined(found)

    def grammar(self, batch: Batch, *, causal: bool) -> Grammar:
        """The rules on a batch."""
        return Grammar(batch, causal=causal, words=self.words)

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> SkillGoal:
        """The goal over those skills that are accurate enough; see `SkillGoal.of`."""
        return SkillGoal.of(PermutationSkills(), predictions, batch, threshold)

    def exchanges(self, model: ReadModel, batch: Batch) -> list[Exchange]:
        """What a path could carry from the earlier pairs: `x` and `y`, the symbols; `x position` and `y position`.

        A symbol is exchanged for the next larger one, V for 1.  Position codes go one pair further among those of the
        earlier pairs, the last one's to the first.
        """
        return list(self._exchanges(model, batch))

    def _exchanges(self, model: ReadModel, batch: Batch) -> Iterator[Exchange]:
        inputs, values = batch.inputs, self.task.config.values
        right = batch.targets
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
                recoded(model, inputs, given),
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


def _pointed(batch: Batch, given: Int[Tensor, "1 batch position"]) -> Int[Tensor, "1 batch readout"]:
    """What recall would answer if the position code of the earlier copy told where to look."""
    source = batch.relations["same_symbol"]
    pointed = given.gather(-1, source.clamp(min=0)) + 1
    answers = batch.inputs.gather(-1, pointed)
    return torch.where(source >= 0, answers, NO_ANSWER)[..., ::2]
