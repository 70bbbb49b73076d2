"""Samples of any task, the check that it keeps what it promises, and what a model is worth on them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hopscope import rng
from hopscope.errors import UserError
from hopscope.tasks.batch import NO_RELATION, Batch
from hopscope.tasks.draws import USES, Draws, Seeds, Step
from hopscope.tasks.task import Shape, Task

_End = bool | int | float
_MOST = torch.finfo(torch.float32).max

_LOOKED_AT = 5
"""Samples of each of the steps 0 and 1, by which a task is checked."""


def draw(
    task: Task, seeds: Seeds, use: str, step: Step, batch: int, *, start: int = 0, examples: int | None = None
) -> Batch:
    """Samples of a task on the device of the seeds; arguments as of `Draws`, errors as of `check_task`."""
    _check(task, use, seeds.device)
    return task.sample(Draws(seeds, use, step, batch, start=start, examples=examples))


def held_out(task: Task, count: int, device: torch.device | str = "cpu") -> Batch:
    """Held-out samples with a member axis of 1: all members answer the same.

    The task's exhaustive set, where it has one (then of another size than `count`); else `count` samples of its
    `split_seed`, if it has such a field, or 0.  Errors are as of `check_task`.
    """
    check_task(task, device, ("held-out",))
    if (found := task.cases("held-out")) is not None:
        return found.to(device)
    seeds = torch.tensor([getattr(task, "split_seed", 0)], device=device)
    return draw(task, seeds, "held-out", 0, count)


def some_held_out(task: Task, count: int, device: torch.device | str = "cpu") -> Batch:
    """At most `count` held-out samples; of an exhaustive set, which is in order, a random part, always the same."""
    found = held_out(task, count, device)
    if task.cases("held-out") is None:
        return found
    place = torch.arange(found.inputs.shape[1], device=device)
    return found.take(rng.bits(0, "probe", 0, place)[:, 0].argsort()[:count])


def check_task(task: Task, device: torch.device | str = "cpu", uses: Sequence[str] = tuple(USES)) -> None:
    """Draw the same few samples of some uses several times, and refuse a task that breaks its promises.

    Every task goes through it before its first samples for a use, once in a process.  `UserError`: there is no such
    use, a batch or the exhaustive set does not have the task's shape, or samples depend on a generator that is not
    `draws`, on other samples, on members, or on which steps are drawn together.
    """
    for use in uses:
        _check(task, use, torch.device(device))


def checked(task: Task, draws: Draws) -> list[Tensor]:
    """All tensors of some samples; `UserError`: they do not have the task's shape and numbers."""
    return _tensors(f"{type(task).__name__}.sample", task.sample(draws), task.shape(), draws)


@lru_cache(maxsize=256)
def _check(task: Task, use: str, device: torch.device) -> None:
    shape, seeds, name = task.shape(), torch.tensor([3, 7], device=device), type(task).__name__
    if not isinstance(shape, Shape):
        raise UserError(f"{name}.shape: expected an hs.Shape, found {type(shape).__name__}")

    def drawn(seeds: Tensor, step: Step, batch: int, start: int = 0) -> list[Tensor]:
        return checked(task, Draws(seeds, use, step, batch, start=start))

    first, *again = (drawn(seeds, range(2), _LOOKED_AT) for _ in range(4))
    if not all(_pairwise(torch.equal, first, each) for each in again):
        hint = "take all random numbers from `draws`, none from torch, numpy or random"
        raise UserError(f"{name}.sample: expected equal samples for equal draws, found others; {hint}")
    if not _pairwise(_alike, first, drawn(seeds[1:], 1, 2, start=2)):
        hint = "let nothing depend on the other samples of a batch, their steps, or other members"
        raise UserError(f"{name}.sample: expected samples that are alike alone, found others; {hint}")
    if use == "held-out" and (cases := task.cases("held-out")) is not None:
        _tensors(f"{name}.cases('held-out')", cases, shape)


def has_standard_loss(task: Task) -> bool:
    """Whether a task's loss is the default one, whose derivative is known without autograd."""
    # Whoever overrides `parts` must say so anew.
    own = next(each for each in type(task).__mro__ if {"parts", "standard_loss"} & {*vars(each)})
    return own is Task or bool(vars(own).get("standard_loss", False))


def by_member(found: Mapping[str, Any], members: int) -> dict[str, Float[Tensor, " member"]]:
    """What `parts` or `scores` gave; `UserError`: something else than a number for each member."""
    for name, values in found.items():
        if not isinstance(values, Tensor) or values.shape != (members,):
            shown = f"shape {[*values.shape]}" if isinstance(values, Tensor) else type(values).__name__
            wanted = f"a number for each member, [{members}]"
            raise UserError(f"{name}: expected {wanted}, found {shown}; mend the task")
    return dict(found)


def losses(
    task: Task, predictions: Float[Tensor, "*member batch readout output"], batch: Batch
) -> dict[str, Float[Tensor, " member"]]:
    """The task's parts and scores; of each group of the batch besides as `metric@group`, NaN of an empty one.

    Of a single model both lack the member axis; then there is one number.
    """
    if not batch.batch_axis:
        predictions, batch = predictions[None], batch.changed(lambda each: each[None])

    def measured(some: Tensor, of: Batch) -> dict[str, Tensor]:
        return by_member({**task.scores(some.detach(), of), **task.parts(some, of)}, len(some))

    whole = measured(predictions, batch)
    found = dict(whole)
    for group, here in batch.groups.items():
        values = list[dict[str, Tensor]]()
        for member, chosen in enumerate(here):
            # Members that answer the same are measured together.
            some = predictions if len(here) == 1 else predictions[member : member + 1]
            empty = dict.fromkeys(whole, some.new_full((len(some),), torch.nan))
            own = batch.member(member).take(chosen)
            values.append(measured(some[:, chosen], own) if chosen.any() else empty)
        found |= {f"{name}@{group}": torch.cat([each[name] for each in values]) for name in whole}
    return found


def _pairwise(holds: Callable[[Tensor, Tensor], bool], some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(holds, some, others))


def _alike(every: Tensor, these: Tensor) -> bool:
    # The samples 2 and 3 of the last step and member, with and without the others; an axis of weights may be 1.
    own = every.expand(2, 2 * _LOOKED_AT, *every.shape[2:])[1:, _LOOKED_AT + 2 : _LOOKED_AT + 4]
    return torch.allclose(own.double(), these.expand_as(own).double(), rtol=1e-4, atol=1e-5, equal_nan=True)


def _tensors(maker: str, batch: object, shape: Shape, draws: Draws | None = None) -> list[Tensor]:
    """All tensors of a batch, if they are what the task's shape says; functions are called here."""
    if not isinstance(batch, Batch):
        raise UserError(f"{maker}: expected an hs.Batch, found {type(batch).__name__}")
    device: Any = draws.device if draws else getattr(batch.inputs, "device", "cpu")
    # An exhaustive set may have any size but 0.
    size = draws.size if draws else (1, *(max(1, each) for each in getattr(batch.inputs, "shape", ())[1:2]))
    every, asked = (*size, shape.positions), (*size, len(shape.readout))
    last, large = shape.positions - 1, 1 << 63

    def numbers(kind: str, sizes: tuple[int, ...], count: int) -> tuple[tuple[int, ...], _End, _End]:
        return ((*sizes, count), -_MOST, _MOST) if kind == "vectors" else (sizes, 0, count - 1)

    # Field, tensor, its sizes, smallest and largest number; these are of the tensor's type.
    fields: list[tuple[str, Any, tuple[int, ...], _End, _End]] = [
        ("inputs", batch.inputs, *numbers(shape.inputs, every, shape.input_size)),
        ("targets", batch.targets, *numbers(shape.outputs, asked, shape.output_size)),
        *((f"groups[{name!r}]", each, size, False, True) for name, each in batch.groups.items()),
        *((f"roles[{name!r}]", each, every, -large, large - 1) for name, each in batch.roles.items()),
        *((f"relations[{name!r}]", key, every, NO_RELATION, last) for name, key in batch.relations.items()),
    ]
    if (weights := batch.weights) is not None:
        # An axis may be 1, and weights of vectors may leave out the axis of their dimensions.
        own = tuple(getattr(weights, "shape", ()))
        whole = asked if shape.outputs == "classes" or len(own) < 4 else (*asked, shape.output_size)
        fits = len(own) == len(whole) and all(one in (1, most) for one, most in zip(own, whole, strict=True))
        fields.append(("weights", weights, own if fits else whole, 0.0, _MOST))
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
