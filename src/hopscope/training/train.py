"""Training: members of one shape in one loop, any task, resumable at any checkpoint.

Between two checkpoints nothing is carried but the weights, the optimiser's state and the step number, and every random
draw is addressed by the step.  So a run that was killed repeats from its last checkpoint exactly what an undisturbed
run would have done.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hopscope.config import check_seeds
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Task, draw
from hopscope.training import engines
from hopscope.training.config import Training
from hopscope.training.optimiser import Optimiser

Row = Mapping[str, Any]
"""A number of each member: `split`, `metric`, perhaps `part` and more, and `value`, `[member]`.  As it is recorded it
has `step` and `samples` besides, and `value` is a list in which a member that has diverged has `None`."""

State = tuple[dict[str, np.ndarray], dict[str, Any]]
"""All that training goes on from, as a checkpoint holds it: `weights/…` `[member, …]`, `optimiser/…` `[member, size]`;
`step`, and `diverged_at`, the step at which each member was seen to have diverged, or `None`."""

_NO_MEMORY = ("out of memory", "STATUS_ALLOC_FAILED", "can't allocate memory", "could not create a primitive")
_MOMENTS = ("first_moment", "second_moment")


class Progress(NamedTuple):
    """Steps done and to do in all; since the last evaluation each member's mean training loss, and member-samples per
    second; numbers of the members that have diverged."""

    step: int
    steps: int
    losses: list[float]
    samples_per_second: float
    diverged: list[int]


@dataclass
class TimeBudget:
    """Seconds that work may take (`None`: any), checked where work can be taken up again."""

    seconds: float | None = None
    started: float = field(default_factory=time.monotonic)

    def check(self, needed: float = 0.0) -> None:
        """Raise if less than `needed` seconds are left.

        Raises:
            TimeBudgetReached: the work so far is safe, and the same command goes on.
        """
        if self.seconds is not None and self.started + self.seconds - time.monotonic() < needed:
            raise TimeBudgetReached(
                f"time budget of {self.seconds:g} s reached; what is done is kept, the same command goes on"
            )


def train(
    task: Task,
    model: Model,
    training: Training,
    seeds: int | Sequence[int] = 1,
    *,
    init_seeds: Sequence[int] | None = None,
    start: Mapping[str, Tensor] | None = None,
    device: str = "cpu",
    engine: Any = None,
    keep: Callable[[list[Row], State], object] = lambda rows, state: None,
    **options: Any,
) -> Transformer:
    """Train members in this process.

    Args:
        task, model, training: as in a study.
        seeds: how many seeds, or which: of samples, and of weights where `init_seeds` says nothing else.
        start: weights to begin from, by name, `[member, …]`; by default they are drawn.
        device: where.
        engine: the name of one, or a module like one; by default the fastest.  Where it computes on one thread, this
            process does so meanwhile.
        keep: given, at every checkpoint, the rows since the one before, and the state.
        options: `after`, `evaluate`, `progress` and `budget`, as of `intervals`.

    Returns:
        The members after the last step, with their task and seeds; a diverged one keeps its weights from before.

    Raises:
        UserError: task, model, engine or memory of the device do not fit.
        TimeBudgetReached: the next interval would not fit; at least one interval was trained.
    """
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    check_seeds("seeds", len(numbers))
    drawn, config = list(init_seeds or numbers), model.for_task(task.shape())
    if not 0 < len(numbers) == len(drawn):
        wanted = "at least one seed, and as many init_seeds where these are given"
        raise UserError(f"seeds: expected {wanted}, found {len(numbers)} and {len(drawn)}")
    where = config, training, torch.device(device).type
    engine = engine or engines.choose(task, *where)
    module = engines.load(engine, task, *where) if isinstance(engine, str) else engine
    # Between the loops of such an engine other threads would wait, and take the time of whatever else runs.
    threads = 1 if engine in engines.ONE_THREAD else None
    with arithmetic(threads, training.precision), _fitting(f"{len(drawn)} members", "model.width"):
        ensemble = Transformer.initial(config, torch.tensor(drawn), device).knowing(task, numbers, 0)
        if start is not None:
            ensemble.load(start)
        for rows, state in intervals(ensemble, training, engine=module, **options):
            keep(rows, state)
    return ensemble


def intervals(
    ensemble: Transformer,
    training: Training,
    *,
    engine: Any,
    after: State | None = None,
    evaluate: Callable[[Transformer], Iterable[Row]] = lambda ensemble: (),
    progress: Callable[[Progress], object] = lambda progress: None,
    budget: TimeBudget | None = None,
) -> Iterator[tuple[list[Row], State]]:
    """Train the members of an ensemble, which knows its task and seeds, from checkpoint to checkpoint.

    To be used within `arithmetic`.  At every checkpoint, the first at step 0, it hands on the rows since the one before
    and the state, both the caller's own.

    Args:
        ensemble: the members; their weights change.
        training: as in a study.
        engine: a module with a function `gradient`, as `engines.load` gives it.
        after: a state to go on from, whose own checkpoint is not repeated.
        evaluate: measures the members at `Training.evaluation_steps`.
        progress: told after each of these.
        budget: checked before every interval but the first.
    """
    task, device, count = ensemble.task, ensemble.readout.weight.device, len(ensemble)
    assert task is not None and ensemble.seeds is not None
    seeds, size, step = torch.tensor(ensemble.seeds, device=device), training.batch_size, 0
    optimiser = Optimiser(ensemble.flatten(), ensemble.decay_mask(), training)
    products = ensemble.at_precision("bfloat16" if training.precision == "bfloat16" else "float32")
    gradient = engine.gradient(products, task, training, seeds, optimiser.gradient)
    update = engine.update(optimiser) if hasattr(engine, "update") else optimiser.step
    diverged_at: list[int | None] = [None] * count
    rows: list[Row] = []

    def record(found: Iterable[Row]) -> None:
        for row in found:
            metric, _, part = row["metric"].partition("@")
            values = zip(row["value"].tolist(), diverged_at, strict=True)
            value = [number if gone is None else None for number, gone in values]
            whole = {"step": step, "samples": step * size, **row, "metric": metric, "value": value}
            rows.append({**whole, "part": part} if part else whole)

    def measure() -> None:
        with torch.no_grad(), _fitting(f"{count} members on all held-out samples", "held_out"):
            record(evaluate(ensemble))

    def train_until(stop: int) -> None:
        nonlocal step
        began, first, total = time.monotonic(), step, dict[str, Tensor]()
        with _fitting(f"a step of {count} members with {size} samples each", "training.batch_size"):
            for number in range(first, stop):
                losses = gradient(number)
                for name, value in losses.items():
                    total[name] = total[name] + value if name in total else value
                update(number, losses["loss"])
        ensemble.step = step = stop
        # The last step may have overflowed weights from a loss that was still finite.
        optimiser.alive &= optimiser.flat.isfinite().all(1)
        for index, alive in enumerate(optimiser.alive.tolist()):
            if not alive and diverged_at[index] is None:
                diverged_at[index] = stop
        means = {name: value / (stop - first) for name, value in total.items()}
        with torch.no_grad():  # scores of the last batch
            batch = draw(task, seeds, "train", stop - 1, size, examples=training.examples)
            scores = task.scores(ensemble(batch.inputs), batch)
        found = {**means, **scores}
        record({"split": "train", "metric": name, "value": value} for name, value in found.items())
        measure()
        rate = (stop - first) * size * count / max(time.monotonic() - began, 1e-9)
        diverged = [index for index, gone in enumerate(diverged_at) if gone is not None]
        progress(Progress(stop, training.steps, means["loss"].tolist(), rate, diverged))

    def state() -> State:
        tensors = {f"weights/{name}": weight for name, weight in ensemble.weights().items()}
        tensors |= {f"optimiser/{name}": getattr(optimiser, name) for name in _MOMENTS}
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        return arrays, {"step": step, "diverged_at": list(diverged_at)}

    if after is None:
        measure()
        yield rows, state()
    else:
        arrays, metadata = after
        weights = (name for name in arrays if name.startswith("weights/"))
        ensemble.load({name.removeprefix("weights/"): torch.from_numpy(arrays[name]) for name in weights})
        ensemble.step = step = metadata["step"]
        diverged_at[:] = metadata["diverged_at"]
        for name in _MOMENTS:
            getattr(optimiser, name).copy_(torch.from_numpy(arrays[f"optimiser/{name}"]))
        optimiser.alive.copy_(torch.tensor([gone is None for gone in diverged_at]))
    per_step, evaluations = 0.0, training.evaluation_steps()
    for target in (each for each in training.checkpoint_steps() if each > step):
        if per_step and budget is not None:
            budget.check(needed=per_step * (target - step))
        first, began, rows = step, time.monotonic(), []
        for stop in (each for each in evaluations if first < each <= target):
            train_until(stop)
        yield rows, state()
        per_step = (time.monotonic() - began) / (target - first)


@contextmanager
def arithmetic(threads: int | None = None, precision: str = "float32") -> Iterator[None]:
    """Settings of this process, put back afterwards: threads, no subnormal numbers, no shorter products than asked for.

    Weights without a gradient decay into subnormals, on which CPUs are many times slower.  The flag that flushes them
    belongs to a thread and is inherited by threads that it starts: a worker enters this before torch starts its pool.
    float32 means float32, but on a GPU where `precision` is `"tf32"`, and sums of bfloat16 products are float32.
    """
    cuda, flushes = torch.backends.cuda.matmul, bool((torch.tensor([1e-30]) * 1e-10 == 0.0).all())
    before = flushes, torch.get_num_threads(), torch.get_float32_matmul_precision()
    reduced = cuda.allow_bf16_reduced_precision_reduction

    def use(flush: bool, threads: int, products: str) -> None:
        torch.set_flush_denormal(flush)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)

    use(True, threads or before[1], "highest")
    cuda.allow_tf32, cuda.allow_bf16_reduced_precision_reduction = precision == "tf32", False
    try:
        yield
    finally:
        use(*before)
        cuda.allow_bf16_reduced_precision_reduction = reduced


@contextmanager
def _fitting(work: str, lower: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        raise UserError(
            f"{lower}: expected {work} to fit into the device's memory, found that it needs more; lower {lower}, take "
            "fewer seeds or a smaller model; what is done is kept"
        ) from error
