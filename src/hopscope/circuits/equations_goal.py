"""Questions in equations as the reader sees them: each depth is a skill, shown by the answer to the paper's questions.

A row is told by the round of lines that it is of, counted from the beginning: while a line is read, nothing says how
many will follow.  The words of the question are told by the last round.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import get_args

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
from hopscope.tasks.config import LINE
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.equations_layout import KINDS
from hopscope.tasks.losses import counted
from hopscope.tasks.text.tokens import question_words

LOST = 0.05
"""How far a circuit may fall from what is perfect towards a guess, in nats and in accuracy: what the paper (appendix E)
asks of its loss, which is 1 for a guess."""

SEARCHED = 0.3
"""Share of that which a search may use up: it sees few questions."""

_SYMBOLS = ("given", "found", "query")
"""Kinds of tokens that are symbols."""


class EquationsSkills:
    """What is right of the answers at each depth; see `Skills`.

    Attributes:
        names: `D = 1` and so on.
        excess, most_lost, searched: see `Skills`.
        ends: position of the last token of the question, by depth, ascending.
        readouts: number of each of these among the task's readouts.
    """

    def __init__(self, task: EquationsTask):
        config = task.config
        self.ends = [config.prompt_length(depth) - 1 for depth in config.depths]
        self.readouts = [config.readout.index(end) for end in self.ends]
        self.names = tuple(f"D = {depth}" for depth in config.depths)
        self.excess, self.most_lost = LOST * math.log(config.chains), LOST * (1.0 - 1.0 / config.chains)
        self.searched = SEARCHED

    def accuracy(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Share of right answers at a depth; 0 where no sequence is of it."""
        said, answers = self._answered(name, predictions, batch)
        return float((said.argmax(-1) == answers).float().sum() / max(1, len(answers)))

    def loss(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats of the answers at a depth."""
        return float(functional.cross_entropy(*self._answered(name, predictions, batch)))

    def _answered(self, name: str, predictions: Predictions, batch: Batch) -> tuple[Tensor, Tensor]:
        number = self.names.index(name)
        here = self.asked(batch)[0, :, number]
        return predictions[0, here, number], batch.targets[0, here, number]

    def asked(self, batch: Batch) -> Bool[Tensor, "1 batch readout"]:
        """At which readout each question ends."""
        return counted(batch)


class EquationsSetting:
    """Questions in equations, put to the reader; see `Setting`.

    All depths side by side: one circuit has to account for all that were learned.  Searched on and checked are
    questions with mappings that training may see, reported on and watched held-out ones.  Nothing stands behind the
    questions.
    """

    samples, validation = 64, 256

    def __init__(self, task: EquationsTask):
        # The same questions, in texts that end with the answer.
        self.task = EquationsTask(task.config.model_copy(update={"repeated": False}), task.device)
        self.skills = EquationsSkills(self.task)

    @property
    def words(self) -> Mapping[str, Sequence[str]]:
        """Words of the task's roles; those of the question sentence stand for themselves."""
        words = sum(question_words(self.task.config.chains, self.task.config.depths[-1]), ())
        again = [words[:slot].count(word) for slot, word in enumerate(words)]
        said = (
            f"“{word}” ({count + 1})" if count else f"“{word}”"
            for word, count in zip(words, again, strict=True)
        )
        return {**self.task.role_values, "slot": ("", *said)}

    def model(self, model: Transformer) -> Transformer:
        """The model on questions alone, read out at their ends."""
        return model.cut(self.skills.ends[-1] + 1, tuple(self.skills.ends))

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """So many questions of each depth."""
        draw = self.task.familiar if use in ("search", "check") else self.task.held_out
        step = get_args(Use).index(use)
        # The deepest first: that is the example of whoever shows one.
        depths = reversed(self.task.config.depths)
        batch = joined([draw(seed, "circuit", step, samples, depth) for depth in depths])
        return _cut(batch, self.skills.ends[-1] + 1, self.skills.readouts)

    def grammar(self, batch: Batch, *, causal: bool) -> Grammar:
        """The rules on a batch."""
        return Grammar(batch, causal=causal, words=self.words)

    def goal(self, predictions: Predictions, batch: Batch, threshold: float | None) -> SkillGoal:
        """The goal over those depths that are answered well enough; see `SkillGoal.of`."""
        return SkillGoal.of(self.skills, predictions, batch, threshold)

    def exchanges(self, model: ReadModel, batch: Batch) -> list[Exchange]:
        """What a path could carry: `value`, `name 1` … of each round, and `position`.

        A value is exchanged for the next one, the last for the first; the names of a round likewise, wherever they
        stand, so that the answer is the same.  The codes of a round's lines go one line further, the last one's to the
        first.
        """
        return list(self._exchanges(model, batch))

    def _exchanges(self, model: ReadModel, batch: Batch) -> Iterator[Exchange]:
        asked = self.skills.asked(batch)
        right = torch.where(asked, batch.targets, NO_ANSWER)
        for number in range(self.task.config.depths[-1] + 1):
            moved = self._moved(number)
            changed = torch.where(_symbols(batch), moved[batch.inputs], batch.inputs)
            follows = None if number else torch.where(asked, moved[right.clamp(min=0)], NO_ANSWER)
            yield Exchange(f"name {number}" if number else "value", model.embedded(changed), right, follows)
        given = _codes_moved(batch, self.task.config.chains)
        yield Exchange("position", recoded(model, batch.inputs, given), right)

    def _moved(self, number: int) -> Int[Tensor, " token"]:
        """The token in place of each: the next value, or name of a round, in place of each of them."""
        chains = self.task.config.chains
        of_round = self.task.symbols[number * chains : (number + 1) * chains]
        moved = torch.arange(len(self.task.vocabulary), device=of_round.device)
        moved[of_round] = of_round.roll(-1)
        return moved


def _symbols(batch: Batch) -> Bool[Tensor, "1 batch position"]:
    kinds = torch.tensor([KINDS.index(kind) for kind in _SYMBOLS], device=batch.inputs.device)
    return torch.isin(batch.roles["kind"], kinds)


def _codes_moved(batch: Batch, chains: int) -> Int[Tensor, "1 batch position"]:
    """Whose position code each position gets."""
    position = torch.arange(batch.inputs.shape[-1], device=batch.inputs.device).expand_as(batch.inputs)
    in_round = LINE * chains
    following = position // in_round * in_round + (position + LINE) % in_round
    lines = torch.isin(
        batch.roles["kind"], torch.tensor([KINDS.index(kind) for kind in ("given", "equals", "found")])
    )
    return torch.where(lines, following, position)


def _cut(batch: Batch, length: int, readouts: list[int]) -> Batch:
    """The first positions and some readouts, with the rows told by rounds and not by steps, and words before the name
    alike."""
    kind, position = batch.roles["kind"], torch.arange(batch.inputs.shape[-1], device=batch.inputs.device)
    query = (kind == KINDS.index("query")).int().argmax(-1, keepdim=True)
    roles = {**batch.roles, "slot": torch.where(position < query, 0, batch.roles["slot"])}
    del roles["step"]
    return replace(
        batch,
        inputs=batch.inputs[..., :length],
        targets=batch.targets[..., readouts],
        weights=None if batch.weights is None else batch.weights[..., readouts],
        roles={name: role[..., :length] for name, role in roles.items()},
        relations={name: key[..., :length] for name, key in batch.relations.items()},
    )
