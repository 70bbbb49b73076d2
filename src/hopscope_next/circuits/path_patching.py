"""Path patching: what a path carries, and what its readers do with it.

*Carries* (interchange): the path alone reads values from a run in which one thing is exchanged everywhere, such as the
symbols in some place, or the position codes.  What follows is recomputed.  If the loss rises, the path brings that thing
to where it is needed; where answers are classes, one can also count how many become what the model itself answers to the
exchanged inputs.

*Composition*: the path is removed, but only one reader notices, and only in one of its inputs: its queries (Q), its
keys (K) or its values (V); or the readout, which notices without any later head.  What follows is recomputed.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hopscope_next.circuits.criterion import Criterion
from hopscope_next.circuits.execution import Assignment, Execution, Predictions, Slot, Stream
from hopscope_next.circuits.grammar import POSITION, Rows
from hopscope_next.circuits.rules import Uniform
from hopscope_next.config import Config
from hopscope_next.errors import UserError
from hopscope_next.models.sites import described
from hopscope_next.tasks import Batch, Task
from hopscope_next.tasks.task import role_words

_MOST_VALUES = 24  # a role with more values than this is not exchanged value by value
_PAIR = 2  # positions that share one learned code where codes are learned for pairs

Part = Literal["Q", "K", "V"]


class Carried(Config):
    """What happens if one thing is exchanged in what one path reads.

    Attributes:
        name: of the thing.
        rise: of the loss.
        kept, follows: of the answers at the path's rows that the exchange of that thing everywhere turns into others,
            the share that stays, and the share that turns into these; `None` where there are none.
    """

    name: str
    rise: float
    kept: float | None = None
    follows: float | None = None


class Use(Config):
    """One use of a path.

    Attributes:
        layer, head, rows: the path that uses it, `rows` in words; `None` for the readout.
        part: as its queries, keys or values; `None` for the readout.
        rise: of the loss, where only this use is without the path.
    """

    layer: int | None = None
    head: int | None = None
    rows: str | None = None
    part: Part | None = None
    rise: float


class PathPatching:
    """What flows along the paths of a circuit, on one batch.

    Attributes:
        execution, criterion: what is run, and what is measured.
        assignment: the circuit; `base` is its recomputed pass.
    """

    def __init__(self, execution: Execution, criterion: Criterion, assignment: Assignment):
        self.execution, self.criterion, self.assignment = execution, criterion, assignment
        self.base = execution.run(assignment, "recomputed")
        self._loss = criterion.loss(self.base.predictions)
        self._held = execution.held(assignment, self.base)
        layers = range(execution.model.config.layers)
        self._heads = [execution.brought(self._held, self.base, layer) for layer in layers]

    def carries(self, exchanged: Mapping[str, Stream]) -> dict[Slot, tuple[Carried, ...]]:
        """What becomes of every path's readers if one thing is exchanged in what it reads, by the streams of inputs in
        which it is exchanged."""
        found: dict[Slot, list[Carried]] = {slot: [] for slot in self.assignment.circuit}
        execution, classes = self.execution, not self.execution.grammar.batch.targets.is_floating_point()
        for name, start in exchanged.items():
            other = execution.run(self._held, "rules", self.base, start=start)
            if classes:
                follows = execution.run(execution.untouched, "recomputed", start=start).predictions.argmax(-1)
            for slot, carried in found.items():
                layer, head, _ = slot
                predictions = self._with(slot, self._pattern(slot), other.values[layer][:, :, head])
                shares = self._answers(slot, predictions, follows) if classes else (None, None)
                rise = self.criterion.loss(predictions) - self._loss
                carried.append(Carried(name=name, rise=rise, kept=shares[0], follows=shares[1]))
        return {slot: tuple(carried) for slot, carried in found.items()}

    def _answers(
        self, slot: Slot, predictions: Predictions, follows: Int[Tensor, "1 batch readout"]
    ) -> tuple[float | None, float | None]:
        own, now = (each.argmax(-1) for each in (self.execution.clean.predictions, predictions))
        rows = self.execution.grammar.rows[slot[2]][:, list(self.execution.model.config.readout_positions)]
        told = rows & (own != follows)
        if not told.any():
            return None, None
        return tuple(float((now == each)[told].float().mean()) for each in (own, follows))  # type: ignore[return-value]

    def _pattern(self, slot: Slot) -> Float[Tensor, "batch query key"]:
        return self._held.layers[slot[0]].given[:, slot[1]]

    def _with(
        self,
        slot: Slot,
        pattern: Float[Tensor, "batch query key"],
        values: Float[Tensor, "key batch head_dim"],
    ) -> Predictions:
        """Predictions where the slot's rows have read these values instead, and everything later is recomputed."""
        read = (pattern @ values.transpose(0, 1)).transpose(0, 1)
        changed = self.execution.changed([slot])
        return self.execution.run(
            self.assignment, "recomputed", self.base, changed, patch=(slot, read)
        ).predictions

    def composition(self, slot: Slot) -> tuple[Use, ...]:
        """Uses of a path that count, the strongest first."""
        execution, base, grammar = self.execution, self.base, self.execution.grammar
        without = execution.assigned(self.assignment, {slot: Uniform()})
        ablated = execution.run(without, "recomputed", base, execution.changed([slot]))
        heads = execution.brought(without, base, slot[0])
        direct = execution.onward(base, slot[0], [heads, *self._heads[slot[0] + 1 :]])
        found = [Use(rise=self.criterion.loss(direct) - self._loss)]
        for reader in self.assignment.circuit:
            layer, head, role = reader
            if layer <= slot[0]:
                continue
            own, values = self._pattern(reader), base.values[layer][:, :, head]
            now, then = base.normed[layer], ablated.normed[layer]
            ways: dict[Part, Predictions] = {
                "Q": self._with(reader, execution.pattern(layer, then, now, [head])[:, 0], values),
                "K": self._with(reader, execution.pattern(layer, now, then, [head])[:, 0], values),
                "V": self._with(reader, own, ablated.values[layer][:, :, head]),
            }
            rows = grammar.words(grammar.roles[role])
            found += [
                Use(layer=layer, head=head, rows=rows, part=part, rise=self.criterion.loss(each) - self._loss)
                for part, each in ways.items()
            ]
        return tuple(
            sorted(
                (use for use in found if use.rise >= self.criterion.least_effect), key=lambda use: -use.rise
            )
        )


# What is exchanged.


def exchanged(task: Task, rows: Rows, batch: Batch, execution: Execution) -> dict[str, Stream]:
    """Streams before the first layer of the batch with one thing exchanged: what the task says, or the inputs of each
    role for those of another sample; and position codes, moved on by one.

    Raises:
        UserError: what the task gives is not like its inputs.
    """
    given, size = task.counterfactuals(batch), task.shape().position_size
    others = _by_role(task, rows, batch) if given is None else _checked(task, batch, given)
    found = {name: execution.embedded(inputs) for name, inputs in others.items()}
    config = execution.model.config
    if POSITION not in found and config.position_count:
        # Inputs are put where the codes are, and the stream is put back.
        by = _PAIR if config.positions == "pair" else 1
        found[POSITION] = execution.embedded(batch.inputs.roll(by, 2)).roll(-by, 0)
    elif POSITION not in found and size:
        codes = batch.inputs[..., -size:].roll(-1, 2)
        found[POSITION] = execution.embedded(torch.cat((batch.inputs[..., :-size], codes), -1))
    return found


def _checked(task: Task, batch: Batch, given: object) -> Mapping[str, Tensor]:
    maker, inputs = f"{type(task).__name__}.counterfactuals", batch.inputs
    if not isinstance(given, Mapping):
        raise UserError(f"{maker}: expected a mapping from name to inputs, found {type(given).__name__}")
    for name, other in given.items():
        if (
            not isinstance(other, Tensor)
            or other.shape != inputs.shape
            or other.is_floating_point() != inputs.is_floating_point()
        ):
            raise UserError(
                f"{maker}: {name!r}: expected inputs as those of the batch, {described(inputs)}, found {described(other)}"
            )
    return given


def _by_role(task: Task, rows: Rows, batch: Batch) -> dict[str, Tensor]:
    """The inputs of each role value taken from the next sample; of all positions, where no role has few values."""
    words, size, found = role_words(task), task.shape().position_size, dict[str, Tensor]()
    for role in (name for name in batch.roles if name not in rows.made):
        values = batch.roles[role].unique().tolist()
        for value in values if len(values) <= _MOST_VALUES else ():
            told = words.get(role, ())
            name = told[value] if 0 <= value < len(told) and told[value] else f"{role} {value}"
            name = f"{role} {name}" if name in found or name == POSITION else name
            found[name] = resampled(batch.inputs, batch.roles[role] == value, size)
    everywhere = torch.ones(batch.inputs.shape[:3], dtype=torch.bool, device=batch.inputs.device)
    return found or {"inputs": resampled(batch.inputs, everywhere, size)}


def resampled(
    inputs: Int[Tensor, "1 batch position"] | Float[Tensor, "1 batch position feature"],
    here: Bool[Tensor, "1 batch position"],
    carried: int,
) -> Tensor:
    """The samples with some positions' inputs from the next sample: the first such position there for the first here.

    Where the next sample has fewer of them, they are used again; where it has none, nothing changes.  The last `carried`
    features of a vector, its position code, stay.
    """
    other = here.roll(-1, 1)
    count = other.sum(-1, keepdim=True)
    rank = (here.long().cumsum(-1) - 1).clamp(min=0) % count.clamp(min=1)
    source = (~other).long().argsort(dim=-1, stable=True).gather(-1, rank)
    changes, following = here & (count > 0), inputs.roll(-1, 1)
    if inputs.dim() == source.dim():
        return torch.where(changes, following.gather(-1, source), inputs)
    taken = following.gather(2, source[..., None].expand_as(inputs))
    if carried:
        taken = torch.cat((taken[..., :-carried], inputs[..., -carried:]), -1)
    return torch.where(changes[..., None], taken, inputs)
