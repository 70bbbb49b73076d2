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

import torch
from torch import Tensor

from hopscope.config import check_seeds
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.runs.unit import Row, State
from hopscope.tasks import Task, draw
from hopscope.tasks.draws import Draws
from hopscope.tasks.samples import by_member, checked
from hopscope.training import engines
from hopscope.training.config import Training
from hopscope.training.optimiser import Optimiser

Evaluate = Callable[[Transformer], Iterable[Row]]

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

    @property
    def left(self) -> float | None:
        """Seconds that are left, 0 at least; `None` where any number may be taken."""
        return None if self.seconds is None else max(0.0, self.started + self.seconds - time.monotonic())

    def check(self, needed: float = 0.0) -> None:
        """A `TimeBudgetReached` if less than `needed` seconds are left: the same command goes on from what is done."""
        if (left := self.left) is not None and left <= needed:
            kept = "what is done is kept, the same command goes on"
            raise TimeBudgetReached(f"time budget of {self.seconds:g} s reached; {kept}")


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
    after: State | None = None,
    evaluate: Evaluate = lambda ensemble: (),
    progress: Callable[[Progress], object] = lambda progress: None,
    budget: TimeBudget | None = None,
    keep: Callable[[list[Row], State], object] = lambda rows, state: None,
) -> Transformer:
    """Train members in this process.  `UserError`: task, model, engine or memory of the device do not fit.

    Args:
        task, model, training, device: as in a study.
        seeds: how many seeds, or which: of samples, and of weights where `init_seeds` says nothing else.
        start: weights to begin from, by name, `[member, …]`; by default they are drawn.
        engine: the name of one, or a module like one; by default the fastest.
        after: a state to go on from, whose own checkpoint is not repeated.
        evaluate: measures the members at `Training.evaluation_steps`, each number `[member]`, without `step` and
            `samples`; `progress` is told after each of these.
        budget: checked before every interval between checkpoints but the first; a `TimeBudgetReached` ends it.
        keep: given, at every checkpoint, the first at step 0, the rows since the one before, and the state.

    Returns:
        The members after the last step, with their task and seeds; a diverged one has the last weights that it had.
    """
    seeds = seeds.tolist() if hasattr(seeds, "tolist") else seeds
    if not isinstance(seeds, int | Sequence):
        raise UserError(f"seeds: expected how many, or a list of them, found {seeds!r}")
    check_seeds("seeds", seeds if isinstance(seeds, int) else len(seeds))
    numbers = [*range(seeds)] if isinstance(seeds, int) else [*seeds]
    drawn, config = numbers if init_seeds is None else [*init_seeds], model.for_task(task.shape())
    if not 0 < len(numbers) == len(drawn):
        wanted = "at least one seed, and as many init_seeds where these are given"
        raise UserError(f"seeds: expected {wanted}, found {len(numbers)} and {len(drawn)}")
    if odd := [each for each in (*numbers, *drawn) if type(each) is not int or not 0 <= each < 1 << 63]:
        raise UserError(f"seeds: expected whole numbers from 0, below 2**63, found {odd[0]!r}")
    where = config, torch.device(device).type
    engine = engine or engines.choose(task, *where)
    module = engines.load(engine, task, *where) if isinstance(engine, str) else engine
    # Between the loops of such an engine other threads would wait, and take the time of whatever else runs.
    threads = 1 if engine in engines.ONE_THREAD else None
    with arithmetic(threads, training.precision), _fitting(f"{len(drawn)} members", "model.width"):
        ensemble = Transformer.initial(config, torch.tensor(drawn), device).knowing(
            task, numbers, 0, training.examples
        )
        if start is not None:
            ensemble.load(start)
        loop, per_step = _Loop(ensemble, task, training, module, evaluate), 0.0
        stops = training.evaluation_steps()
        if after is None:
            loop.measure()
            keep(*loop.kept())
        else:
            loop.go_on(after)
        for target in (each for each in training.checkpoint_steps() if each > loop.step):
            if per_step and budget is not None:
                budget.check(needed=per_step * (target - loop.step))
            first, began = loop.step, time.monotonic()
            for stop in (each for each in stops if first < each <= target):
                progress(loop.until(stop))
            keep(*loop.kept())
            per_step = (time.monotonic() - began) / (target - first)
        return ensemble.select(range(len(ensemble)))  # with weights of their own, not views of one buffer


class _Loop:
    """Members in training: weights, optimiser, and what was recorded since the last checkpoint."""

    def __init__(
        self, ensemble: Transformer, task: Task, training: Training, engine: Any, evaluate: Evaluate
    ):
        self.ensemble, self.task, self.training, self.evaluate = ensemble, task, training, evaluate
        self.seeds = torch.tensor(ensemble.seeds, device=ensemble.readout.weight.device)
        self.optimiser = optimiser = Optimiser(ensemble.flatten(), ensemble.decay_mask(), training)
        products = ensemble.at_precision("bfloat16" if training.precision == "bfloat16" else "float32")
        self.gradient = engine.gradient(products, task, training, self.seeds, optimiser.gradient)
        self.update = engine.update(optimiser) if hasattr(engine, "update") else optimiser.step
        self.step, self.rows = 0, list[Row]()
        self.diverged_at: list[int | None] = [None] * len(ensemble)

    def go_on(self, after: State) -> None:
        arrays, metadata = after
        names = self.ensemble.weights()
        self.ensemble.load({name: torch.from_numpy(arrays[f"weights/{name}"]) for name in names})
        self.ensemble.step = self.step = metadata["step"]
        self.diverged_at[:] = metadata["diverged_at"]
        for name in _MOMENTS:
            getattr(self.optimiser, name).copy_(torch.from_numpy(arrays[f"optimiser/{name}"]))
        self.optimiser.alive.copy_(torch.tensor([gone is None for gone in self.diverged_at]))

    def kept(self) -> tuple[list[Row], State]:
        """The rows since the last checkpoint, and the state, both the caller's own."""
        tensors = {f"weights/{name}": weight for name, weight in self.ensemble.weights().items()}
        tensors |= {f"optimiser/{name}": getattr(self.optimiser, name) for name in _MOMENTS}
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        rows, self.rows = self.rows, []
        return rows, (arrays, {"step": self.step, "diverged_at": [*self.diverged_at]})

    def measure(self) -> None:
        with torch.no_grad(), _fitting(f"{len(self.ensemble)} members on all held-out samples", "held_out"):
            self._record(self.evaluate(self.ensemble))

    def _record(self, found: Iterable[Row]) -> None:
        for row in found:
            metric, _, part = row["metric"].partition("@")
            values = zip(row["value"].tolist(), self.diverged_at, strict=True)
            own = {"metric": metric, "value": [None if gone else number for number, gone in values]}
            at = {"step": self.step, "samples": self.step * self.training.batch_size}
            self.rows.append({**at, **row, **own, **({"part": part} if part else {})})

    def until(self, stop: int) -> Progress:
        training, optimiser, count = self.training, self.optimiser, len(self.ensemble)
        size = training.batch_size
        began, first, total = time.monotonic(), self.step, dict[str, Tensor]()
        with _fitting(f"a step of {count} members with {size} samples each", "training.batch_size"):
            for number in range(first, stop):
                try:
                    losses = self.gradient(number)
                except (IndexError, RuntimeError):  # samples that are no samples of the task, where they are
                    checked(self.task, Draws(self.seeds, "train", number, size, examples=training.examples))
                    raise
                for name, value in losses.items():
                    total[name] = total[name] + value if name in total else value
                self.update(number, losses["loss"])
        self.ensemble.step = self.step = stop
        # The last step may have overflowed weights from a loss that was still finite.
        optimiser.alive &= optimiser.flat.isfinite().all(1)
        alive = zip(optimiser.alive.tolist(), self.diverged_at, strict=True)
        self.diverged_at[:] = [gone or (None if each else stop) for each, gone in alive]
        means = {name: value / (stop - first) for name, value in total.items()}
        with torch.no_grad():  # scores of the last batch
            batch = draw(self.task, self.seeds, "train", stop - 1, size, examples=training.examples)
            scores = by_member(self.task.scores(self.ensemble(batch.inputs), batch), count)
        found = {**means, **scores}.items()
        self._record({"split": "train", "metric": name, "value": value} for name, value in found)
        self.measure()
        rate = (stop - first) * size * count / max(time.monotonic() - began, 1e-9)
        diverged = [index for index, gone in enumerate(self.diverged_at) if gone]
        return Progress(stop, training.steps, means["loss"].tolist(), rate, diverged)


@contextmanager
def arithmetic(threads: int | None = None, precision: str = "float32") -> Iterator[None]:
    """Settings of this process, put back afterwards: threads, no subnormals, gradients, float32 and nothing shorter.

    Weights without a gradient decay into subnormals, on which CPUs are many times slower.  The flag that flushes them
    belongs to a thread and is inherited by threads that it starts: a worker enters this before torch starts its pool.
    float32 means float32, but on a GPU where `precision` is `"tf32"`, and sums of bfloat16 products are float32.
    """
    cuda, flushes = torch.backends.cuda.matmul, bool((torch.tensor([1e-30]) * 1e-10 == 0.0).all())
    before = flushes, torch.get_num_threads(), cuda.allow_bf16_reduced_precision_reduction
    after = torch.get_float32_matmul_precision(), torch.get_default_dtype()

    def use(flush: bool, threads: int, reduced: bool, products: str, dtype: torch.dtype) -> None:
        torch.set_default_dtype(dtype)
        torch.set_flush_denormal(flush)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
        cuda.allow_bf16_reduced_precision_reduction = reduced

    use(True, threads or before[1], False, "highest", torch.float32)
    cuda.allow_tf32 = precision == "tf32"
    try:
        with torch.inference_mode(False):  # with gradients, though a notebook may do without
            yield
    finally:
        use(*before, *after)


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
