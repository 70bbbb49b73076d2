"""Path patching: what a path carries, and what its readers do with it.

*Carries* (interchange): the path alone reads values from a run in which one thing is exchanged everywhere, such as the
symbols in some place, or the position codes.  What follows is recomputed.  If the loss rises, the path brings that
thing to where it is needed.  *Composition*: the path is removed, but only one reader notices, and only in one of its
inputs: its queries (Q), its keys (K) or its values (V), through whatever heads in between; or the readout alone, which
notices without any later head.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from hopscope.circuits.criterion import Criterion
from hopscope.circuits.execution import Execution, Pass, Pattern, Slot, Stream, Values
from hopscope.circuits.grammar import POSITION, Rows
from hopscope.circuits.rules import Uniform, selected
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.sites import described
from hopscope.tasks import Batch, Task
from hopscope.tasks.task import role_words

_MOST_VALUES = 24  # a role with more values than this is not exchanged value by value

Part = Literal["Q", "K", "V"]


class Use(Config, allow_inf_nan=True, ser_json_inf_nan="constants"):
    """One use of a path: by the `rows`, in words, of another one as their queries, keys or values, or by the readout.

    `rise` is that of the loss, where only this use is without the path.
    """

    layer: int | None = None
    head: int | None = None
    rows: str | None = None
    part: Part | None = None
    rise: float


class PathPatching:
    """What flows along the paths of a circuit, whose recomputed pass is `base`."""

    def __init__(self, execution: Execution, criterion: Criterion, base: Pass):
        self._execution, self._criterion, self._base = execution, criterion, base
        self._loss, self._held = criterion.loss(base.predictions), execution.held(base)
        layers = range(execution.model.config.layers)
        self._heads = {layer: execution.brought_home(self._held, layer) for layer in layers}

    def carries(self, exchanged: Mapping[str, Stream]) -> dict[Slot, dict[str, float]]:
        """For every path the rise of the loss if one thing is exchanged in what it reads; see `exchanged`."""
        found: dict[Slot, dict[str, float]] = {slot: {} for slot in self._base.circuit}
        for name, start in exchanged.items():
            other = self._execution.under(self._held, {}, start=start)
            for slot, rises in found.items():
                rises[name] = self._rise(slot, self._held.given[slot[0]], other.values[slot[0]])
        return found

    def _rise(self, slot: Slot, pattern: Pattern, values: Values) -> float:
        # Where the slot's rows have read these values by this pattern instead, and everything later is recomputed.
        (layer, head, role), heads = slot, self._heads[slot[0]].clone()
        rows = self._execution.grammar.rows[role, : len(pattern)].t()[..., None]
        read = (pattern[:, head] @ values[:, :, head].transpose(0, 1)).transpose(0, 1)
        heads[:, :, head] = torch.where(rows, read, heads[:, :, head])
        unchanged = {slot: self._base.rules[slot]}
        passed = self._execution.under(self._base, unchanged, brought={layer: heads})
        return self._criterion.loss(passed.predictions) - self._loss

    def composition(self, slot: Slot) -> tuple[Use, ...]:
        """Uses of a path that count, the strongest first."""
        execution, base, grammar = self._execution, self._base, self._execution.grammar
        ablated = execution.under(base, {slot: Uniform()})
        # The readout alone: this slot's own layer is without it, later heads do as before.
        later = {layer: heads for layer, heads in self._heads.items() if layer > slot[0]}
        directly = execution.under(self._held, {slot: Uniform()}, brought=later)
        found = [Use(rise=self._criterion.loss(directly.predictions) - self._loss)]
        for reader in (other for other in base.circuit if other[0] > slot[0]):
            layer, head, role = reader
            parts: dict[Part, tuple[Pattern, Values]] = {
                "Q": (execution.pattern(layer, ablated, base), base.values[layer]),
                "K": (execution.pattern(layer, base, ablated), base.values[layer]),
                "V": (self._held.given[layer], ablated.values[layer]),
            }
            rows = grammar.words(grammar.roles[role])
            for part, read in parts.items():
                rise = self._rise(reader, *read)
                found.append(Use(layer=layer, head=head, rows=rows, part=part, rise=rise))
        counted = (use for use in found if use.rise >= self._criterion.least_effect)
        return tuple(sorted(counted, key=lambda use: -use.rise))


def exchanged(task: Task, rows: Rows, batch: Batch, execution: Execution) -> dict[str, Stream]:
    """Streams before the first layer of the batch with one thing exchanged: what the task says (if that is not like its
    inputs, a `UserError`), or the inputs of each role for another sample's; and position codes, moved on by one."""
    inputs, others, config = batch.inputs, task.counterfactuals(batch), execution.model.config
    if others is None:
        others = _by_role(task, rows, batch)
    for name, other in others.items():
        if not isinstance(other, Tensor) or (other.shape, other.dtype) != (inputs.shape, inputs.dtype):
            maker = f"{type(task).__name__}.counterfactuals"
            wanted = f"inputs as those of the batch, {described(inputs)}"
            raise UserError(f"{maker}: {name!r}: expected {wanted}, found {described(other)}")
    found = {name: execution.embedded(other) for name, other in others.items()}
    if POSITION not in found and config.position_count:
        table = execution.model.weights()["embed.position.weight"]
        changes = (table.roll(-1, 0) - table)[[*config.position_codes], None]
        found[POSITION] = execution.embedded(inputs) + execution.centred(changes)
    elif POSITION not in found and (size := task.shape().position_size):
        moved = inputs[..., -size:].roll(-1, 2)
        found[POSITION] = execution.embedded(torch.cat((inputs[..., :-size], moved), -1))
    return found


def _by_role(task: Task, rows: Rows, batch: Batch) -> dict[str, Tensor]:
    # The inputs of each role value taken from the next sample; of all positions, where no role has few values.
    words, size, found = role_words(task), task.shape().position_size, dict[str, Tensor]()
    for role in (name for name in batch.roles if name not in rows.derived):
        values, told = batch.roles[role].unique().tolist(), dict(enumerate(words.get(role, ())))
        for value in values if len(values) <= _MOST_VALUES else ():
            name = told.get(value) or f"{role} {value}"
            name = f"{role} {name}" if name in found or name == POSITION else name
            name = f"{role} {value}" if name in found else name
            found[name] = resampled(batch.inputs, selected(batch, {role: value}), size)
    return found or {"inputs": resampled(batch.inputs, selected(batch, {}), size)}


def resampled(inputs: Tensor, here: Bool[Tensor, "1 batch position"], carried: int) -> Tensor:
    """The samples with some positions' inputs from the next sample: the first such position there for the first here.

    Where the next sample has fewer of them, they are used again; where it has none, nothing changes.  The `carried`
    last features of a vector, its position code, stay.
    """
    other = here.roll(-1, 1)
    count = other.sum(-1, keepdim=True)
    rank = (here.long().cumsum(-1) - 1).clamp(min=0) % count.clamp(min=1)
    source = (~other).long().argsort(dim=-1, stable=True).gather(-1, rank)
    changes = here & (count > 0)
    if inputs.dim() > source.dim():
        features = torch.arange(inputs.shape[-1], device=inputs.device)
        source, changes = source[..., None], changes[..., None] & (features < len(features) - carried)
    return torch.where(changes, inputs.roll(-1, 1).take_along_dim(source, 2), inputs)
