"""Samples of any task, the check that it keeps what it promises, and what a model is worth on them."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hopscope_next.errors import UserError
from hopscope_next.tasks.batch import NO_RELATION, Batch
from hopscope_next.tasks.draws import STREAMS, Draws, Seeds, Step
from hopscope_next.tasks.loss import Predictions
from hopscope_next.tasks.task import Shape, Task

_KNOWN = set[tuple[type, str]]()
"""Types of tasks, and uses, of which some samples were looked at in this process; `cases` is one of these uses."""

_End = bool | int | float
_MOST = torch.finfo(torch.float32).max


def draw(
    task: Task,
    seeds: Seeds,
    use: str,
    step: Step,
    batch: int,
    *,
    start: int = 0,
    examples: int | None = None,
    annotate: bool = True,
) -> Batch:
    """Samples of a task on the device of the seeds; arguments as of `Draws`.

    Args:
        task: goes through `check_task` when samples of its type are drawn for a use for the first time.
        annotate: whether groups, roles and relations are kept.

    Raises:
        UserError: the task breaks its promises.
    """
    if (type(task), use) not in _KNOWN and not torch.compiler.is_compiling():
        check_task(task, seeds.device, (use,))
    drawn = task.sample(Draws(seeds, use, step, batch, start=start, examples=examples))
    return drawn if annotate else drawn.plain()


def held_out(task: Task, count: int, device: torch.device | str = "cpu", *, annotate: bool = True) -> Batch:
    """Held-out samples with a member axis of 1: all members answer the same.

    The task's exhaustive set, where it has one (then of another size than `count`); else `count` samples.

    Raises:
        UserError: the task breaks its promises.
    """
    found = task.cases("held-out")
    if found is None:
        seeds = torch.tensor([task.held_out_seed], device=device)
        return draw(task, seeds, "held-out", 0, count, annotate=annotate)
    if (type(task), "cases") not in _KNOWN:
        _check(f"{type(task).__name__}.cases('held-out')", found, task.shape(), None)
        _KNOWN.add((type(task), "cases"))
    return found.to(device) if annotate else found.to(device).plain()


def check_task(task: Task, device: torch.device | str = "cpu", uses: Sequence[str] = tuple(STREAMS)) -> None:
    """Draw the same few samples of some uses several times, and refuse a task that breaks its promises.

    Raises:
        UserError: a batch does not have the task's shape, or samples depend on a generator that is not `draws`.
    """
    shape, seeds, name = task.shape(), torch.tensor([3, 7], device=device), type(task).__name__
    if not isinstance(shape, Shape):
        raise UserError(f"{name}.shape: expected an hs.Shape, found {type(shape).__name__}")
    for use in uses:
        with _generators_put_back(seeds.device):
            draws = (Draws(seeds, use, 1, 5) for _ in range(4))
            first, *again = (_check(f"{name}.sample", task.sample(each), shape, each) for each in draws)
        if any(not torch.equal(*pair) for each in again for pair in zip(first, each, strict=True)):
            words = "take all random numbers from `draws`, none from torch, numpy or random"
            raise UserError(f"{name}.sample: expected equal samples for equal draws, found others; {words}")
        _KNOWN.add((type(task), use))


def has_standard_loss(task: Task) -> bool:
    """Whether a task's loss is the default one, whose derivative is known without autograd."""
    # Whoever overrides `parts` must say so anew.
    own = next(each for each in type(task).__mro__ if {"parts", "standard_loss"} & {*vars(each)})
    return own is Task or bool(vars(own).get("standard_loss", False))


def losses(task: Task, predictions: Predictions, batch: Batch) -> dict[str, Float[Tensor, " member"]]:
    """The task's parts and scores; of each group of the batch besides as `metric@group`, NaN of an empty one."""

    def measured(some: Tensor, of: Batch) -> dict[str, Tensor]:
        return {**task.scores(some.detach(), of), **task.parts(some, of)}

    whole = measured(predictions, batch)
    found = dict(whole)
    for group in batch.groups:
        here = batch.groups[group]
        # Members that answer the same are measured together.
        each = [(predictions[one : one + 1], batch.member(one)) for one in range(len(here))]
        units, values = [(predictions, batch)] if len(here) == 1 else each, list[dict[str, Tensor]]()
        for (some, of), chosen in zip(units, here, strict=True):
            empty = dict.fromkeys(whole, some.new_full((len(some),), torch.nan))
            values.append(measured(some[:, chosen], of.take(chosen)) if chosen.any() else empty)
        found |= {f"{name}@{group}": torch.cat([each[name] for each in values]) for name in whole}
    return found


# The check.


@contextmanager
def _generators_put_back(device: torch.device) -> Iterator[None]:
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _check(maker: str, batch: object, shape: Shape, draws: Draws | None) -> list[Tensor]:
    """All tensors of a batch, if they are what the task's shape says; functions are called here."""
    if not isinstance(batch, Batch):
        raise UserError(f"{maker}: expected an hs.Batch, found {type(batch).__name__}")
    size, device = (draws.size, draws.device) if draws else ((1, len(batch.inputs[0])), batch.inputs.device)
    rows, asked, look = (*size, shape.positions), (*size, len(shape.readout)), partial(_look, maker, device)
    classes, weights = shape.outputs == "classes", batch.weights
    found = [
        look("inputs", batch.inputs, *_numbers(rows, shape.input_size, shape.inputs == "tokens")),
        look("targets", batch.targets, *_numbers(asked, shape.output_size, classes)),
        *(look(f"groups[{name!r}]", batch.groups[name], size, False, True) for name in batch.groups),
        *(look(f"roles[{name!r}]", batch.roles[name], rows, -(1 << 63), 1 << 63) for name in batch.roles),
    ]
    for name in batch.relations:
        found.append(look(f"relations[{name!r}]", batch.relations[name], rows, NO_RELATION, rows[-1] - 1))
    if weights is not None:
        # An axis may be 1, and weights of vectors may leave out the axis of their dimensions.
        whole, own = (*asked, shape.output_size)[: 3 if classes else max(3, weights.ndim)], (*weights.shape,)
        fits = len(own) == len(whole) and all(one in (1, size) for one, size in zip(own, whole, strict=True))
        found.append(look("weights", weights, own if fits else whole, 0.0, _MOST))
    return found


def _numbers(sizes: tuple[int, ...], many: int, ids: bool) -> tuple[tuple[int, ...], _End, _End]:
    return (sizes, 0, many - 1) if ids else ((*sizes, many), -_MOST, _MOST)


def _look(
    maker: str, device: torch.device, field: str, value: object, sizes: Sequence[int], low: _End, high: _End
) -> Tensor:
    """A tensor of these sizes, whose numbers are from `low` to `high`, and of their type."""
    kind = {bool: torch.bool, int: torch.int64, float: torch.float32}[type(low)]
    expected, found = f"{kind} {[*sizes]} on {device}", type(value).__name__
    if isinstance(value, Tensor):
        found = f"{value.dtype} {[*value.shape]} on {value.device}"
        if found == expected:
            smallest, largest = (end.item() for end in value.aminmax())
            if low <= smallest <= largest <= high:
                return value
            expected, found = f"numbers from {low:g} to {high:g}", f"{smallest:g} to {largest:g}"
    raise UserError(f"{maker}: {field}: expected {expected}, found {found}")
