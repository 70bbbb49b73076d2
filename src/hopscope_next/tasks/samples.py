"""Samples of any task, the check that it keeps what it promises, and what a model is worth on them."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hopscope_next.errors import UserError
from hopscope_next.tasks.batch import NO_RELATION, Batch, Predictions
from hopscope_next.tasks.draws import USES, Draws, Seeds, Step
from hopscope_next.tasks.task import Shape, Task

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
    """Samples of a task on the device of the seeds; arguments as of `Draws`.  Not `annotate`: without annotations.

    Before its first samples for a use the task goes through `check_task`.
    """
    if use not in task.checked_uses:
        check_task(task, seeds.device, (use,))
    drawn = task.sample(Draws(seeds, use, step, batch, start=start, examples=examples))
    return drawn if annotate else drawn.plain()


def held_out(task: Task, count: int, device: torch.device | str = "cpu", *, annotate: bool = True) -> Batch:
    """Held-out samples with a member axis of 1: all members answer the same.

    The task's exhaustive set, where it has one (then of another size than `count`); else `count` samples.
    """
    found = task.cases("held-out")
    if found is None:
        seeds = torch.tensor([task.held_out_seed], device=device)
        return draw(task, seeds, "held-out", 0, count, annotate=annotate)
    if "cases" not in task.checked_uses:
        _check(f"{type(task).__name__}.cases('held-out')", found, task.shape(), None)
        task.checked_uses.add("cases")
    return found.to(device) if annotate else found.to(device).plain()


def check_task(task: Task, device: torch.device | str = "cpu", uses: Sequence[str] = tuple(USES)) -> None:
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
        same = all(len(each) == len(first) and all(map(torch.equal, first, each)) for each in again)
        if not same:
            words = "take all random numbers from `draws`, none from torch, numpy or random"
            raise UserError(f"{name}.sample: expected equal samples for equal draws, found others; {words}")
        few = Draws(seeds[1:], use, 1, 2, start=2)
        alone = _check(f"{name}.sample", task.sample(few), shape, few)
        if not all(_alike(every, these) for every, these in zip(first, alone, strict=True)):
            words = "let nothing depend on the other samples of a batch, or on other members"
            raise UserError(
                f"{name}.sample: expected each sample by itself, found others beside others; {words}"
            )
        task.checked_uses.add(use)


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
    for group, here in batch.groups.items():
        # Members that answer the same are measured together.
        each = [(predictions[one : one + 1], batch.member(one)) for one in range(len(here))]
        units, values = [(predictions, batch)] if len(here) == 1 else each, list[dict[str, Tensor]]()
        for (some, of), chosen in zip(units, here, strict=True):
            empty = dict.fromkeys(whole, some.new_full((len(some),), torch.nan))
            values.append(measured(some[:, chosen], of.take(chosen)) if chosen.any() else empty)
        found |= {f"{name}@{group}": torch.cat([each[name] for each in values]) for name in whole}
    return found


@contextmanager
def _generators_put_back(device: torch.device) -> Iterator[None]:
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _alike(every: Tensor, these: Tensor) -> bool:
    # The samples 2 and 3 of the last of two members, with and without the others; an axis of weights may be 1.
    own = every.expand(2, 5, *every.shape[2:])[1:, 2:4]
    return torch.allclose(own.double(), these.expand_as(own).double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def _check(maker: str, batch: object, shape: Shape, draws: Draws | None) -> list[Tensor]:
    """All tensors of a batch, if they are what the task's shape says; functions are called here."""
    if not isinstance(batch, Batch):
        raise UserError(f"{maker}: expected an hs.Batch, found {type(batch).__name__}")
    device = draws.device if draws else batch.inputs.device
    size = draws.size if draws else (1, len(batch.inputs[0]))
    rows, asked = (*size, shape.positions), (*size, len(shape.readout))
    last, large = shape.positions - 1, 1 << 63

    def numbers(kind: str, sizes: tuple[int, ...], count: int) -> tuple[tuple[int, ...], _End, _End]:
        return ((*sizes, count), -_MOST, _MOST) if kind == "vectors" else (sizes, 0, count - 1)

    # Field, tensor, its sizes, smallest and largest number; these are of the tensor's type.
    fields: list[tuple[str, Any, tuple[int, ...], _End, _End]] = [
        ("inputs", batch.inputs, *numbers(shape.inputs, rows, shape.input_size)),
        ("targets", batch.targets, *numbers(shape.outputs, asked, shape.output_size)),
        *((f"groups[{name!r}]", value, size, False, True) for name, value in batch.groups.items()),
        *((f"roles[{name!r}]", value, rows, -large, large - 1) for name, value in batch.roles.items()),
        *((f"relations[{name!r}]", key, rows, NO_RELATION, last) for name, key in batch.relations.items()),
    ]
    if (weights := batch.weights) is not None:
        # An axis may be 1, and weights of vectors may leave out the axis of their dimensions.
        whole = asked if shape.outputs == "classes" or weights.ndim < 4 else (*asked, shape.output_size)
        own = (1 if one == 1 else size for one, size in zip(weights.shape, whole, strict=False))
        fields.append(("weights", weights, tuple(own) if weights.ndim == len(whole) else whole, 0.0, _MOST))
    for field, value, sizes, low, high in fields:
        kind = {bool: torch.bool, int: torch.int64, float: torch.float32}[type(low)]
        wanted, found = f"{kind} {[*sizes]} on {device}", type(value).__name__
        if isinstance(value, Tensor):
            found = f"{value.dtype} {[*value.shape]} on {value.device}"
        if found == wanted:
            smallest, largest = (end.item() for end in value.aminmax())
            if low <= smallest <= largest <= high:
                continue
            wanted, found = f"numbers from {low:g} to {high:g}", f"{smallest:g} to {largest:g}"
        raise UserError(f"{maker}: {field}: expected {wanted}, found {found}")
    return [value for _, value, *_ in fields]
