"""Samples of a task, and what a model is worth on them: what training and measuring need of any task."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from hopscope_next.errors import UserError
from hopscope_next.tasks.batch import Batch
from hopscope_next.tasks.draws import STREAMS, Draws
from hopscope_next.tasks.loss import Predictions
from hopscope_next.tasks.task import Shape, Task

GROUP = "@"
"""Separator between the name of a metric and the name of a group of samples."""


def draw(
    task: Task,
    seeds: Int[Tensor, " member"],
    use: str,
    step: int | range | Int64[Tensor, ""],
    batch: int,
    *,
    start: int = 0,
    examples: int | None = None,
    annotate: bool = True,
) -> Batch:
    """Samples of a task on the device of the seeds; arguments as of `Draws`.

    Args:
        task: one that `check_task` has looked at, if it is a user's.
        annotate: whether groups, roles and relations are kept.
    """
    drawn = task.sample(Draws(seeds, use, step, batch, start=start, examples=examples))
    return drawn if annotate else drawn.plain()


def held_out(task: Task, count: int, device: torch.device | str = "cpu", *, annotate: bool = True) -> Batch:
    """Held-out samples with a member axis of 1: all members answer the same.

    The task's exhaustive set, where it has one (then of another size than `count`); else `count` samples.

    Raises:
        UserError: what the task returns does not have the task's shape.
    """
    found = task.cases("held-out")
    if found is None:
        seeds = torch.tensor([task.held_out_seed], device=device)
        return draw(task, seeds, "held-out", 0, count, annotate=annotate)
    found = _checked(found, f"{type(task).__name__}.cases('held-out')", task.shape()).to(device)
    return found if annotate else found.plain()


def has_standard_loss(task: Task) -> bool:
    """Whether a task's loss is the default one, whose derivative is known without autograd."""
    return type(task).parts is Task.parts or task.standard_loss


def losses(task: Task, predictions: Predictions, batch: Batch) -> dict[str, Float[Tensor, " member"]]:
    """The task's parts and scores; of each group of the batch besides as `metric@group`, NaN of an empty one."""
    found = _measured(task, predictions, batch)
    names = list(found)
    for group in batch.groups:
        here = batch.groups[group]
        if len(here) == 1 < len(predictions):
            of_group = _on_some(task, predictions, batch, here[0], names)
        else:
            each = [
                _on_some(task, predictions[one : one + 1], batch.member(one), chosen, names)
                for one, chosen in enumerate(here)
            ]
            of_group = {name: torch.cat([values[name] for values in each]) for name in names}
        found |= {f"{name}{GROUP}{group}": values for name, values in of_group.items()}
    return found


def _measured(task: Task, predictions: Tensor, batch: Batch) -> dict[str, Tensor]:
    return {**task.scores(predictions.detach(), batch), **task.parts(predictions, batch)}


def _on_some(
    task: Task, predictions: Tensor, batch: Batch, here: Bool[Tensor, " batch"], names: list[str]
) -> dict[str, Tensor]:
    if not here.any():
        return {name: predictions.new_full((len(predictions),), torch.nan) for name in names}
    return _measured(task, predictions[:, here], batch.take(here))


# The contract.


def check_task(task: Task, device: torch.device | str = "cpu") -> None:
    """Draw a few samples of every use, twice, and refuse a task that breaks its promises.

    Raises:
        UserError: a batch does not have the task's shape, or samples depend on a generator that is not `draws`.
    """
    shape = task.shape()
    if not isinstance(shape, Shape):
        raise UserError(f"{type(task).__name__}.shape: expected an hs.Shape, found {type(shape).__name__}")
    seeds = torch.tensor([3, 7], device=device)
    for use in STREAMS:
        maker = f"{type(task).__name__}.sample"
        pair = []
        for seed in (11, 13):
            with _global_generators(seed):
                drawn = task.sample(Draws(seeds, use, 1, 5))
                pair.append(_checked(drawn, maker, shape, (2, 5), torch.device(device)))
        first, second = pair
        if not (torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets)):
            raise UserError(
                f"{maker}: expected the same samples for the same draws, found others the second time; take all random "
                "numbers from `draws`, none from torch or numpy"
            )


@contextmanager
def _global_generators(seed: int) -> Iterator[None]:
    """Other states of torch's and numpy's global generators, which are put back."""
    before = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002


def _checked(
    batch: object,
    maker: str,
    shape: Shape,
    size: tuple[int, int] | None = None,
    device: torch.device | None = None,
) -> Batch:
    """A batch that has the shape of its task; functions of groups, roles and relations are called here."""
    if not isinstance(batch, Batch):
        raise UserError(f"{maker}: expected an hs.Batch, found {type(batch).__name__}")
    vectors, classes, position = shape.inputs == "vectors", shape.outputs == "classes", (shape.positions,)
    size = size or (1, batch.inputs.shape[1] if batch.inputs.ndim > 1 else 0)
    targets = (len(shape.readout), *(() if classes else (shape.output_size,)))
    wanted: dict[str, tuple[object, tuple[int, ...], torch.dtype, int | None]] = {
        "inputs": (
            batch.inputs,
            (*position, shape.input_size)[: 1 + vectors],
            *_kind(vectors, shape.input_size),
        ),
        "targets": (batch.targets, targets, *_kind(not classes, shape.output_size)),
    }
    for kind, named in (("roles", batch.roles), ("relations", batch.relations)):
        wanted |= {f"{kind}[{name!r}]": (named[name], position, torch.int64, None) for name in named}
    wanted |= {f"groups[{name!r}]": (batch.groups[name], (), torch.bool, None) for name in batch.groups}
    if batch.weights is not None:
        # An axis may be 1, and weights of vectors may leave out the axis of their dimensions.
        free = tuple(batch.weights.shape)
        fits = len(free) in (3, 2 + len(targets)) and all(
            one in (1, whole) for one, whole in zip(free, (*size, *targets), strict=False)
        )
        _check(fits, maker, "weights", f"weights that broadcast to {[*size, *targets]}", f"shape {[*free]}")
        _check(bool((batch.weights >= 0.0).all()), maker, "weights", "numbers from 0", "some below, or NaN")
        wanted["weights"] = batch.weights, free[2:], torch.float32, None
    for field, (value, trailing, dtype, limit) in wanted.items():
        lead = (
            tuple(batch.weights.shape[:2]) if batch.weights is not None and value is batch.weights else size
        )
        _check_tensor(maker, field, value, (*lead, *trailing), dtype, limit, device)
    return batch


def _kind(floating: bool, size: int) -> tuple[torch.dtype, int | None]:
    return (torch.float32, None) if floating else (torch.int64, size)


def _check_tensor(
    maker: str,
    field: str,
    value: object,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    limit: int | None,
    device: torch.device | None,
) -> None:
    if not isinstance(value, Tensor):
        raise UserError(
            f"{maker}: {field}: expected a tensor of shape {[*shape]}, found {type(value).__name__}"
        )
    _check(tuple(value.shape) == shape, maker, field, f"shape {[*shape]}", f"{[*value.shape]}")
    _check(value.dtype == dtype, maker, field, str(dtype), str(value.dtype))
    here = device is None or (value.device.type == device.type and device.index in (None, value.device.index))
    _check(here, maker, field, f"it on {device} (see draws.device)", f"it on {value.device}")
    if value.is_floating_point():
        _check(bool(value.isfinite().all()), maker, field, "finite numbers", "NaN or infinity")
    elif limit is not None and value.numel():
        low, high = (int(end) for end in value.aminmax())
        _check(low >= 0 and high < limit, maker, field, f"ids from 0 to {limit - 1}", f"{low} to {high}")


def _check(fine: bool, maker: str, field: str, expected: str, found: str) -> None:
    if not fine:
        raise UserError(f"{maker}: {field}: expected {expected}, found {found}")
