"""The built-in tasks, put to the reader of circuits: what is special to them, and how a task finds its reader."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.any_task import AnyTask
from hopscope.circuits.circuit_task import NO_ANSWER, CircuitTask, Counterfactual, Use, recoded
from hopscope.circuits.criteria import LossCriterion, Predictions, SkillCriterion
from hopscope.circuits.virtual_model import ReadModel
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch, joined
from hopscope.tasks.config import LINE, TaskConfig, TaskReference
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.equations import EquationsTask
from hopscope.tasks.equations_layout import KINDS
from hopscope.tasks.losses import counted
from hopscope.tasks.permutation import PermutationTask
from hopscope.tasks.text.tokens import question_words
from hopscope.tasks.vector_task import VectorTask

ReadTask = VectorTask | PermutationTask | EquationsTask | TaskOnDevice
"""A task that circuits can be read on: one of the package, or any `hs.Task` on a device."""


def task_of(config: TaskConfig) -> ReadTask:
    """The task of a configuration, on the CPU: circuits are read there, wherever a unit was trained.

    Raises:
        UserError: the task is written in a file or a package, and only its name is known here.
    """
    if isinstance(config, TaskReference):
        raise UserError(
            f"task {config.reference}: expected the task itself to draw samples of it, found its name alone; "
            "open the run with hopscope.open_run and call its circuit(member)"
        )
    found: ReadTask = config.on()
    return found


def circuit_task_of(task: ReadTask) -> CircuitTask:
    """How a task is put to the reader."""
    if isinstance(task, VectorTask):
        return VectorCircuits(task)
    if isinstance(task, PermutationTask):
        return PermutationCircuits(task)
    return EquationsCircuits(task) if isinstance(task, EquationsTask) else AnyTask(task)


# Tasks on vectors.


class VectorCriterion(LossCriterion):
    """The partial losses of the learned targets: their floor is 1, and τ is absolute."""

    searched = 1.0

    @property
    def scale(self) -> float:
        """The scale is that of one target."""
        return 1.0

    @property
    def guess(self) -> float:
        """Partial loss of a model that reads by position alone."""
        return float(self.task.config.plateau)

    def shares(self, predictions: Predictions, batch: Batch) -> dict[str, float]:
        """The partial loss of every learned target."""
        losses = self.task.losses(predictions, batch)
        return {name: float(losses[f"loss_{name}"]) for name in self.floors}

    def on(self, predictions: Predictions, batch: Batch) -> LossCriterion:
        """This criterion itself: it holds for any predictions."""
        return self

    def loss_words(self, loss: float) -> str:
        """What is said of a loss over τ."""
        return f"loss {loss:.3f} on fresh samples under the rules, τ is {self.threshold:.3f}"

    def worst_words(self, share: float) -> str:
        """What is said of a target with this partial loss."""
        return f"a learned target has partial loss {share:.3f} on fresh samples when recomputed"


class VectorCircuits(CircuitTask):
    """A task on vectors, put to the reader: chains to follow, and the partial losses of their steps."""

    samples, validation = 48, 256

    def __init__(self, task: VectorTask):
        self.task = task

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Samples of the stream `circuit`, each use from a step of its own."""
        return self.task.sample(torch.tensor([seed]), "circuit", get_args(Use).index(use), samples)

    def criterion(self, predictions: Predictions, batch: Batch, threshold: float | None) -> LossCriterion:
        """The criterion over those targets whose partial loss is small.

        Raises:
            UserError: a threshold that the model itself does not meet.
        """
        floors = dict.fromkeys(self.task.names, 1.0)
        return VectorCriterion.of(self.task, floors, predictions, batch, threshold)

    def counterfactuals(self, model: ReadModel, batch: Batch) -> Iterator[Counterfactual]:
        """Symbols of each node, `x_NODE`, and `position`: see `vectors_exchanged`."""
        for name, inputs in vectors_exchanged(self.task, batch.inputs, batch.roles).items():
            yield Counterfactual(name, model.embedded(inputs))


def vectors_exchanged(
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


# Permutation lookup.


Skill = Literal["elimination", "recall"]
SKILLS: tuple[Skill, ...] = ("elimination", "recall")


def _permutation_asked(name: str, batch: Batch) -> Bool[Tensor, "batch readout"]:
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
    excess, most_lost, searched = 0.02, 0.01, 0.75

    def accuracy(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Share of right answers of a skill; 0 where no sequence asks for it."""
        asked = _permutation_asked(name, batch)
        right = predictions[0].argmax(-1) == batch.targets[0]
        return float(right[asked].float().sum() / asked.sum().clamp(min=1))

    def loss(self, name: str, predictions: Predictions, batch: Batch) -> float:
        """Mean cross-entropy in nats over all answers of the sequences of a skill."""
        found = functional.cross_entropy(
            predictions[0].transpose(1, 2), batch.targets[0], reduction="none"
        ).mean(-1)
        return float(found[_permutation_asked(name, batch).any(-1)].mean())


class PermutationCircuits(CircuitTask):
    """Permutation lookup, put to the reader: two skills, each on sequences of its own.

    Elimination is asked for at the last step of sequences without a repeat, recall at the repeat of those with one; the
    loss of a skill is the mean cross-entropy over all answers of its sequences.

    Searched on and checked are training mappings, reported on held-out ones; half of the sequences have a repeat, where
    the task knows repeats at all.
    """

    samples, validation = 512, 2048

    def __init__(self, task: PermutationTask):
        self.task = task

    @property
    def _sorts(self) -> tuple[str, ...]:
        return ("plain", "repeats") if self.task.config.repeat_ratio > 0.0 else ("plain",)

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """So many sequences of each sort: drawn from training mappings by the seed, or fixed ones of held-out mappings.

        Of the latter all, if there are not that many.
        """
        if use not in ("search", "check"):
            # The first sequence that is watched is the example of whoever shows one: it has a repeat, if any has.
            sorts = self._sorts[::-1] if use == "watch" else self._sorts
            return joined([self.task.evaluation(sort, limit=samples) for sort in sorts])
        found = []
        for ratio, _ in zip((0.0, 1.0), self._sorts, strict=False):
            task = PermutationTask(self.task.config.model_copy(update={"repeat_ratio": ratio}))
            found.append(task.sample(torch.tensor([seed]), "circuit", get_args(Use).index(use), samples))
        return joined(found)

    def criterion(self, predictions: Predictions, batch: Batch, threshold: float | None) -> SkillCriterion:
        """The criterion over those skills that are accurate enough; see `SkillCriterion.of`."""
        return SkillCriterion.of(PermutationSkills(), predictions, batch, threshold)

    def counterfactuals(self, model: ReadModel, batch: Batch) -> Iterator[Counterfactual]:
        """What a path could carry from the earlier pairs: `x` and `y`, the symbols; `x position` and `y position`.

        A symbol is exchanged for the next larger one, V for 1.  Position codes go one pair further among those of the
        earlier pairs, the last one's to the first.
        """
        inputs, values = batch.inputs, self.task.config.values
        right = batch.targets
        certain = torch.stack([_permutation_asked(name, batch) for name in SKILLS]).any(0)[None]
        right = torch.where(certain, right, NO_ANSWER)
        kind = batch.roles["kind"]
        for number, name in enumerate(("x", "y")):
            changed = torch.where(kind == number, inputs % values + 1, inputs)
            # Of another y, another answer would follow: of the y that is recalled, and of those that are used.
            follows = torch.where(right == NO_ANSWER, NO_ANSWER, right % values + 1) if name == "y" else None
            yield Counterfactual(name, model.embedded(changed), right, follows)
        for number, name in enumerate(("x", "y")):
            given = _pair_codes_moved(batch, number)
            yield Counterfactual(
                f"{name} position",
                recoded(model, inputs, given),
                right,
                _pointed(batch, given) if name == "x" else None,
            )


def _pair_codes_moved(batch: Batch, kind: int) -> Int[Tensor, "1 batch position"]:
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


# Questions in equations.

LOST = 0.05
"""How far a circuit may fall from what is perfect towards a guess, in nats and in accuracy: what the paper (appendix E)
asks of its loss, which is 1 for a guess."""

SEARCHED_EQUATIONS = 0.3
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
        self.searched = SEARCHED_EQUATIONS

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


class EquationsCircuits(CircuitTask):
    """Questions in equations, put to the reader: each depth is a skill, shown by the answer to the paper's questions.

    All depths side by side: one circuit has to account for all that were learned.  Searched on and checked are
    questions with mappings that training may see, reported on and watched held-out ones.  Nothing stands behind the
    questions.  A row is told by the round of lines that it is of, counted from the beginning: while a line is read,
    nothing says how many will follow.  The words of the question are told by the last round.
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
        step, familiar = get_args(Use).index(use), use in ("search", "check")
        # The deepest first: that is the example of whoever shows one.
        depths = reversed(self.task.config.depths)
        draw = partial(self.task.questions, seed, "circuit", step, samples, familiar=familiar)
        batch = joined([draw(depth) for depth in depths])
        return _cut(batch, self.skills.ends[-1] + 1, self.skills.readouts)

    def criterion(self, predictions: Predictions, batch: Batch, threshold: float | None) -> SkillCriterion:
        """The criterion over those depths that are answered well enough; see `SkillCriterion.of`."""
        return SkillCriterion.of(self.skills, predictions, batch, threshold)

    def counterfactuals(self, model: ReadModel, batch: Batch) -> Iterator[Counterfactual]:
        """What a path could carry: `value`, `name 1` … of each round, and `position`.

        A value is exchanged for the next one, the last for the first; the names of a round likewise, wherever they
        stand, so that the answer is the same.  The codes of a round's lines go one line further, the last one's to the
        first.
        """
        asked = self.skills.asked(batch)
        right = torch.where(asked, batch.targets, NO_ANSWER)
        for number in range(self.task.config.depths[-1] + 1):
            moved = self._moved(number)
            changed = torch.where(_symbols(batch), moved[batch.inputs], batch.inputs)
            follows = None if number else torch.where(asked, moved[right.clamp(min=0)], NO_ANSWER)
            yield Counterfactual(
                f"name {number}" if number else "value", model.embedded(changed), right, follows
            )
        given = _line_codes_moved(batch, self.task.config.chains)
        yield Counterfactual("position", recoded(model, batch.inputs, given), right)

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


def _line_codes_moved(batch: Batch, chains: int) -> Int[Tensor, "1 batch position"]:
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
