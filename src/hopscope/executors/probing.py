"""How long the training of a configuration takes on this machine, told from a few seconds of it.

Units that cost the same share a shape: equal models, batches and numbers of members.  Of each shape one unit is trained
by a worker, as in a run: the same process, engine, threads, evaluations and checkpoints, with as many workers side by
side as a run has.  What its first steps take gives seconds per step and per evaluation.  The folders are thrown away.

What is measured after training is no part of it: nobody can tell from a few steps how long a circuit will be read.
"""

import heapq
import math
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from hopscope.errors import UserError
from hopscope.executors import local, processes, timing
from hopscope.executors.processes import environment, message_of, worker_command
from hopscope.executors.timing import NotMeasured
from hopscope.runs import UnitFolder, content_hash
from hopscope.studies.program import Program
from hopscope.training.config import TrainJob

PROBE_SECONDS = 3.0
"""Seconds of training that a worker is given once it has said enough."""

ENOUGH = 3
"""Evaluations of a worker from which its pace can be told."""

LIMIT_SECONDS = 40.0
"""Seconds after which a worker is ended, imports included."""

MOST_SHAPES = 6
"""Shapes of a configuration that are trained, those with the most arithmetic; others are told from the nearest one."""

MOST_SECONDS = 1e5
"""Seconds of arithmetic, by `timing.expected_seconds`, above which nothing is trained: such a run is made for a GPU."""

_SAME = ("batch_size", "optimizer", "clip_norm", "precision", "examples")
"""Fields of the training that decide what a step costs."""

Mark = tuple[int, float]
"""A training step, and seconds from the start of the worker until it was done and evaluated."""


class Pace(NamedTuple):
    """What a unit costs, in seconds.

    Attributes:
        startup: from the start of the worker to its first step.
        step: of one training step.
        evaluation: of one evaluation, with its share of the checkpoints.
    """

    startup: float
    step: float
    evaluation: float


class Shape(NamedTuple):
    """What units that cost the same have in common.

    Attributes:
        key: hash of model, batch, members, held-out samples, engine and threads.
        layout: device, threads and engine, as `local.unit_layout` gives them.
    """

    key: str
    layout: Mapping[str, Any]


Train = Callable[[Sequence[tuple[TrainJob, Mapping[str, Any]]]], list[list[Mark]]]
"""Trains some units side by side, each with its layout; gives the marks of each."""


def pace_of(marks: Sequence[Mark]) -> Pace:
    """The pace of a unit: least squares of the relative errors over the intervals after the second mark.

    Args:
        marks: at least two, ascending.  The first interval holds the imports and what is compiled at the first step.

    Raises:
        NotMeasured: there are fewer than two.
    """
    if len(marks) < 2:
        raise NotMeasured(f"expected two evaluations within {LIMIT_SECONDS:g} s, found {len(marks)}")
    spans = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(marks)]
    step, evaluation = _fitted(spans[1:] or spans)
    first, seconds = marks[0]
    # Before the first mark stand the evaluation and the checkpoint of step 0 as well.
    return Pace(max(0.0, seconds - first * step - 2 * evaluation), step, evaluation)


def _fitted(spans: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Seconds per step and per span, neither below 0; spans are (steps, seconds)."""
    weights = [1.0 / steps for steps, _ in spans]
    total = sum(weights)
    x = sum(weight * steps for weight, (steps, _) in zip(weights, spans, strict=True)) / total
    y = sum(weight * seconds for weight, (_, seconds) in zip(weights, spans, strict=True)) / total
    spread = sum(w * (steps - x) ** 2 for w, (steps, _) in zip(weights, spans, strict=True))
    together = sum(
        w * (steps - x) * (seconds - y) for w, (steps, seconds) in zip(weights, spans, strict=True)
    )
    slope = together / spread if spread > 0 else math.inf
    if 0.0 <= slope <= y / x:
        return slope, y - slope * x
    if slope < 0.0:  # noise: nothing grew with the steps
        return 0.0, y
    return sum(seconds for _, seconds in spans) / sum(steps for steps, _ in spans), 0.0


def unit_seconds(job: TrainJob, pace: Pace) -> float:
    """Seconds of one worker for all of a unit's training."""
    training = job.training
    return pace.startup + training.steps * pace.step + len(training.evaluation_steps()) * pace.evaluation


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Seconds until all units are done, each given to the worker that is free first, in this order."""
    free = [0.0] * workers
    for each in seconds:
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


class Probe:
    """Estimates of a study's configurations; a shape that several of them have is trained once.

    Attributes:
        program: the study.
        cores: of this machine.
        paces: of the shapes that were trained, by their keys; the reason where that failed.
    """

    def __init__(self, program: Program, cores: int | None = None, train: Train | None = None):
        """`train` takes the place of real workers in tests."""
        self.program, self.cores = program, cores or processes.available_cores()
        self.paces: dict[str, Pace | str] = {}
        self._train = train

    def seconds(self, config: Any) -> float:
        """Estimated seconds of a configuration's training, on all cores.

        Raises:
            NotMeasured: it is too long for this machine, or no worker got far enough.
            UserError: the study cannot be planned.
        """
        jobs = self.program.jobs(config)
        expected = timing.expected_seconds(jobs, self.cores)
        if expected > MOST_SECONDS:
            raise NotMeasured(f"about {expected / 86400:,.0f} days of arithmetic on a CPU")
        shapes = [self._shape(config, job, len(jobs)) for job in jobs]
        workers = processes.workers_at_a_time([shape.layout for shape in shapes], self.cores)
        examples = dict(
            reversed([(shape.key, (job, shape.layout)) for job, shape in zip(jobs, shapes, strict=True)])
        )
        self._measure(config, _largest(jobs, shapes), examples, workers)
        # In the order of the executor: the longest first.
        order = sorted(zip(jobs, shapes, strict=True), key=lambda each: -timing.operations(each[0]))
        return makespan(
            [unit_seconds(job, self._pace(job, shape, examples)) for job, shape in order], workers
        )

    def _shape(self, config: Any, job: TrainJob, units: int) -> Shape:
        _, threads = local.layout(units, self.cores, "cpu")
        layout = local.unit_layout(local.unit_engine(job, "cpu", "auto"), "cpu", threads)
        training = job.training.model_dump(mode="json")
        same = {name: training.get(name) for name in _SAME}
        task = type(job.task).__name__
        held_out = getattr(config, "held_out", None)
        model = job.model.model_dump(mode="json")
        return Shape(content_hash([task, model, same, len(job.members), held_out, layout]), layout)

    def _measure(
        self, config: Any, keys: Sequence[str], examples: Mapping[str, tuple[TrainJob, Any]], workers: int
    ) -> None:
        """Train the shapes of these keys that were not trained yet, always as many side by side as a run has."""
        missing = [key for key in keys if key not in self.paces]
        for start in range(0, len(missing), workers):
            wave = missing[start : start + workers]
            # A lone worker would be quicker than those of a run, which share the memory: it is given company.
            company = [wave[number % len(wave)] for number in range(workers)]
            units = [examples[key] for key in company]
            marks = self._train(units) if self._train else trained(self.program, config, units)
            for key, found in zip(wave, marks, strict=False):
                try:
                    self.paces[key] = pace_of(found)
                except NotMeasured as reason:
                    self.paces[key] = str(reason)

    def _pace(self, job: TrainJob, shape: Shape, examples: Mapping[str, tuple[TrainJob, Any]]) -> Pace:
        """The pace of a unit, or that of the unit nearest in arithmetic, scaled by it.

        Raises:
            NotMeasured: its shape was trained without success, or none of this configuration was.
        """
        found = self.paces.get(shape.key)
        if isinstance(found, Pace):
            return found
        if isinstance(found, str):
            raise NotMeasured(found)
        work = _per_step(job)
        known = {
            key: _per_step(examples[key][0]) for key in examples if isinstance(self.paces.get(key), Pace)
        }
        if not known:
            raise NotMeasured("no shape of it was trained")
        nearest = min(known, key=lambda key: abs(math.log(known[key] / work)))
        pace = self.paces[nearest]
        assert isinstance(pace, Pace)
        ratio = work / known[nearest]
        return Pace(pace.startup, pace.step * ratio, pace.evaluation * ratio)


def _per_step(job: TrainJob) -> float:
    return timing.operations(job) / job.training.steps


def _largest(jobs: Sequence[TrainJob], shapes: Sequence[Shape]) -> list[str]:
    """Keys of the shapes with the most arithmetic."""
    work: dict[str, float] = {}
    for job, shape in zip(jobs, shapes, strict=True):
        work[shape.key] = work.get(shape.key, 0.0) + timing.operations(job)
    return sorted(work, key=lambda key: -work[key])[:MOST_SHAPES]


# Real workers.


def trained(
    program: Program, config: Any, units: Sequence[tuple[TrainJob, Mapping[str, Any]]]
) -> list[list[Mark]]:
    """Train units side by side for some seconds, each in a folder of its own that is thrown away; the marks of each."""
    with (
        tempfile.TemporaryDirectory(prefix="hopscope-probe-") as root,
        ThreadPoolExecutor(len(units)) as threads,
    ):
        folders = [
            local.prepare_unit(program, config, job, layout, out=Path(root) / str(number))
            for number, (job, layout) in enumerate(units)
        ]
        return list(threads.map(_marks, folders))


def _marks(unit: UnitFolder) -> list[Mark]:
    """Let a worker train a unit for some seconds, or to the end of its training; its marks so far.

    Raises:
        UserError: the worker found a fault that the user can mend.
    """
    found: list[Mark] = []
    started = time.perf_counter()
    process = subprocess.Popen(
        worker_command(unit), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    # The end of the process is the end of what it says.
    timers = [threading.Timer(LIMIT_SECONDS, process.kill)]
    timers[0].start()
    assert process.stdout is not None
    try:
        for line in process.stdout:
            message = message_of(line) or {}
            if message.get("kind") == "error":
                raise UserError(str(message["message"]))
            if message.get("kind") == "phase":  # what is measured after training is not probed
                break
            if message.get("kind") != "progress":
                continue
            found.append((int(message["step"]), time.perf_counter() - started))
            if len(found) == ENOUGH:
                timers.append(threading.Timer(PROBE_SECONDS, process.kill))
                timers[1].start()
    finally:
        for timer in timers:
            timer.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
    return found
