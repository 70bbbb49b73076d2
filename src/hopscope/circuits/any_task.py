"""Any `hs.Task`, put to the reader of circuits.

*What a circuit must account for*: the parts of the loss that the model has learned.  They are those of the task's
`parts` on which right answers score lower than a guess; the `"loss"` itself where there are no others.  Where the
samples have groups, each part is asked of every group by itself.  The floors are the task's own (`Task.floors`); a part
without any takes those of the loss.  Where the task gives none, the floor is the loss of a guess on the samples: for
classes the uniform one, so ln(output_size) nats where everything counts alike; for vectors the mean of the targets, so
their variance.

*Counterfactuals*: the inputs of one role from another sample, unless the task says what can be exchanged.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.any_grammar import POSITION, RoleGrammar, Rows
from hopscope.circuits.circuit_task import CircuitTask, Counterfactual, Use, recoded
from hopscope.circuits.criteria import FaithfulnessCriterion, LossCriterion, Predictions
from hopscope.circuits.virtual_model import ReadModel, Stream
from hopscope.errors import UserError
from hopscope.tasks.batch import Batch
from hopscope.tasks.device import GROUP, TaskOnDevice
from hopscope.tasks.task import Floors, role_words

STREAM = "probe"
"""Use of the samples that circuits are read on."""

_LOOKED_AT = 256
"""Samples from which it is told which rows there are."""

_MOST_WEIGHTS = 1 << 20
"""Attention weights of a head, over all samples, up to which as many samples are searched on as there should be."""

_FEWEST, _MOST, _TIMES = 16, 256, 4
"""Samples to search on; how many times as many are reported on."""

_NEEDED = ("names", "full", "threshold", "searched", "on", "loss", "worst", "lost", "reached", "fault")
"""What a criterion must have."""

_CERTAIN = 30.0
"""Logit of an answer that is beyond doubt."""

_LOSS = "loss"

MOST_VALUES = 24
"""A role with more values than this is not exchanged value by value."""

EVERYTHING = "inputs"
"""Name of what is exchanged where there is no role with few values."""

_PAIR = 2
"""Positions that share one learned code where codes are learned for pairs."""


class AnyTask(CircuitTask):
    """Any task, put to the reader.

    A task without roles has the role `position`: then every position is a row of its own.  The relation `previous` is
    added where there is none.
    """

    def __init__(self, task: TaskOnDevice):
        self.task = task
        self.samples = min(_MOST, max(_FEWEST, _MOST_WEIGHTS // task.positions**2))
        self.validation = _TIMES * self.samples

    @cached_property
    def rows(self) -> Rows:
        """How rows are told apart: the same on all batches."""
        return Rows.of(self._sample(0, get_args(Use).index("look"), _LOOKED_AT), self.task.readout)

    def batch(self, seed: int, samples: int, use: Use) -> Batch:
        """Samples of the use `probe`, each use of the reader from a step of its own."""
        return self.rows.annotated(self._sample(seed, get_args(Use).index(use), samples))

    def _sample(self, seed: int, step: int, samples: int) -> Batch:
        return self.task.sample(torch.tensor([seed], device=self.task.device), STREAM, step, samples)

    def grammar(self, batch: Batch, *, causal: bool) -> RoleGrammar:
        """The rules on a batch."""
        return RoleGrammar(batch, causal=causal, words=self.words, rows=self.rows)

    def criterion(
        self, predictions: Predictions, batch: Batch, threshold: float | None
    ) -> FaithfulnessCriterion:
        """The task's own criterion if it brings one, else that over those parts of the loss that were learned.

        Raises:
            UserError: a threshold that the model itself does not meet, or a criterion that lacks something.
        """
        own = self.task.task.faithfulness_criterion(predictions, batch, threshold)
        if own is None:
            return PartsCriterion.of_task(self.task, predictions, batch, threshold)
        if not isinstance(own, FaithfulnessCriterion):
            missing = [name for name in _NEEDED if not hasattr(own, name)]
            raise UserError(
                f"{type(self.task.task).__name__}.faithfulness_criterion: expected what "
                f"hopscope.circuits.criteria.FaithfulnessCriterion has, found a {type(own).__name__} without "
                f"{', '.join(missing)}"
            )
        return own

    def counterfactuals(self, model: ReadModel, batch: Batch) -> list[Counterfactual]:
        """The inputs of each role, from another sample, or what the task says; and position codes."""
        roles = {name: batch.roles[name] for name in batch.roles if name not in self.rows.made}
        return counterfactuals_of(self.task, model, batch, roles)


class PartsCriterion(LossCriterion):
    """The loss over the learned parts of a task's loss."""

    @classmethod
    def of_task(
        cls, task: TaskOnDevice, predictions: Predictions, batch: Batch, threshold: float | None
    ) -> LossCriterion:
        """The criterion over those parts that a model has learned; arguments and errors as of `of`."""
        return cls.of(task, lowest_floors(task, batch), predictions, batch, threshold)

    def shares(self, predictions: Predictions, batch: Batch) -> dict[str, float]:
        """Every learned part as a share of its floor; without groups that have no samples here."""
        empty = _empty(batch)
        every = super().shares(predictions, batch)
        return {name: share for name, share in every.items() if name.partition(GROUP)[2] not in empty}


def _empty(batch: Batch) -> set[str]:
    """Groups without samples."""
    return {group for group in batch.groups if not bool(batch.groups[group].any())}


# Floors.


def lowest_floors(task: TaskOnDevice, batch: Batch) -> dict[str, float]:
    """Parts that a circuit could be asked for, each with its lowest floor; see the module."""
    guess = task.losses(guessed(task, batch), batch)
    right = task.losses(_right(task, batch), batch)
    told = task.task.floors()
    names = _parts(right, guess, batch)
    return {name: _told(told, name) or float(guess[name]) for name in names}


def _parts(right: Mapping[str, Tensor], guess: Mapping[str, Tensor], batch: Batch) -> list[str]:
    whole = [name for name in guess if GROUP not in name]
    parts = [name for name in whole if name != _LOSS and float(right[name]) < float(guess[name])] or [_LOSS]
    groups = [group for group in batch.groups if group not in _empty(batch)]
    covered = bool(groups) and bool(torch.stack([batch.groups[group][0] for group in groups]).any(0).all())
    of_groups = [f"{part}{GROUP}{group}" for part in parts for group in groups]
    return of_groups if covered else [*parts, *of_groups]


def _told(floors: Floors, name: str) -> float | None:
    """The lowest floor above zero that a task gives for a part, or else for its loss."""
    by_metric: dict[str, Mapping[str, float]] = {
        metric: values for metric, values in floors.items() if isinstance(values, Mapping)
    }
    of_loss = {each: value for each, value in floors.items() if not isinstance(value, Mapping)}
    for metric in (name, name.partition(GROUP)[0], _LOSS):
        lowest = _lowest(by_metric.get(metric, {}).values())
        if lowest is not None:
            return lowest
    return _lowest(of_loss.values())


def _lowest(values: Iterable[float]) -> float | None:
    return min((float(value) for value in values if value > 0.0), default=None)


def guessed(task: TaskOnDevice, batch: Batch) -> Predictions:
    """Predictions that know nothing of a sample: all classes alike, or the mean of the targets."""
    if task.shape.outputs == "classes":
        return torch.zeros(*batch.targets.shape, task.output_size, device=batch.targets.device)
    return batch.targets.mean(1, keepdim=True).expand_as(batch.targets)


def _right(task: TaskOnDevice, batch: Batch) -> Predictions:
    if task.shape.outputs == "classes":
        return _CERTAIN * functional.one_hot(batch.targets, task.output_size).float()
    return batch.targets


# Counterfactuals.


def counterfactuals_of(
    task: TaskOnDevice, model: ReadModel, batch: Batch, roles: Mapping[str, Tensor]
) -> list[Counterfactual]:
    """What the task says that can be exchanged, or the inputs of each role; and the position codes, if there are any.

    Args:
        task: whose samples they are.
        model: that reads them.
        batch: samples of one member.
        roles: those by which inputs are exchanged.

    Raises:
        UserError: what the task gives is not like its inputs.
    """
    given = task.task.counterfactuals(batch)
    others = _by_role(task, batch, roles) if given is None else _checked(task, batch, given)
    found = [Counterfactual(name, model.embedded(inputs)) for name, inputs in others.items()]
    code = None if POSITION in others else _recoded(task, model, batch)
    return found if code is None else [*found, Counterfactual(POSITION, code)]


def _checked(task: TaskOnDevice, batch: Batch, given: object) -> dict[str, Tensor]:
    maker = f"{type(task.task).__name__}.counterfactuals"
    if not isinstance(given, Mapping):
        raise UserError(f"{maker}: expected a mapping from name to inputs, found {type(given).__name__}")
    for name, inputs in given.items():
        if (
            not isinstance(inputs, Tensor)
            or inputs.shape != batch.inputs.shape
            or inputs.dtype != batch.inputs.dtype
        ):
            found = (
                f"{inputs.dtype} of shape {list(inputs.shape)}"
                if isinstance(inputs, Tensor)
                else type(inputs).__name__
            )
            raise UserError(
                f"{maker}: {name!r}: expected inputs as those of the batch, {batch.inputs.dtype} of shape "
                f"{list(batch.inputs.shape)}, found {found}"
            )
    return {str(name): inputs for name, inputs in given.items()}


def _by_role(task: TaskOnDevice, batch: Batch, roles: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of each role value taken from the next sample; of all positions, where no role has few values."""
    words = role_words(task.task)
    found: dict[str, Tensor] = {}
    for role, of_positions in roles.items():
        values = of_positions.unique().tolist()
        if len(values) > MOST_VALUES:
            continue
        for value in values:
            told = words.get(role, ())
            name = told[value] if 0 <= value < len(told) and told[value] else f"{role} {value}"
            name = f"{role} {name}" if name in found or name == POSITION else name
            found[name] = resampled(batch.inputs, of_positions == value, _carried(task))
    everywhere = torch.ones(batch.inputs.shape[:3], dtype=torch.bool, device=batch.inputs.device)
    return found or {EVERYTHING: resampled(batch.inputs, everywhere, _carried(task))}


def _carried(task: TaskOnDevice) -> int:
    return task.shape.position_size


def resampled(
    inputs: Int[Tensor, "1 batch position"] | Float[Tensor, "1 batch position feature"],
    here: Bool[Tensor, "1 batch position"],
    carried: int,
) -> Tensor:
    """The samples with some positions' inputs from the next sample: the first such position there for the first here.

    Where the next sample has fewer of them, they are used again; where it has none, nothing changes.

    Args:
        inputs: token ids or vectors.
        here: positions that are exchanged.
        carried: how many last features of a vector are its position code, which stays.
    """
    other = here.roll(-1, 1)
    count = other.sum(-1, keepdim=True)
    rank = (here.long().cumsum(-1) - 1).clamp(min=0) % count.clamp(min=1)
    in_order = (~other).long().argsort(dim=-1, stable=True)
    source, changes = in_order.gather(-1, rank), here & (count > 0)
    following = inputs.roll(-1, 1)
    if inputs.dim() == source.dim():
        return torch.where(changes, following.gather(-1, source), inputs)
    taken = following.gather(2, source[..., None].expand_as(inputs))
    if carried:
        taken = torch.cat((taken[..., :-carried], inputs[..., -carried:]), -1)
    return torch.where(changes[..., None], taken, inputs)


def _recoded(task: TaskOnDevice, model: ReadModel, batch: Batch) -> Stream | None:
    """The stream before the first layer with every position code moved on by one; `None` if there are no codes."""
    carried, inputs = _carried(task), batch.inputs
    if model.config.position_count:
        by = _PAIR if model.config.positions == "pair" else 1
        position = torch.arange(inputs.shape[2], device=inputs.device)
        given = ((position + by) % len(position)).expand(inputs.shape[:3])
        return recoded(model, inputs, given)
    if not carried:
        return None
    codes = inputs[..., -carried:].roll(-1, 2)
    return model.embedded(torch.cat((inputs[..., :-carried], codes), -1))
