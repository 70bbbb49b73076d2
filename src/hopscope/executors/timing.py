"""Measure how many workers share the cores best, where that pays.

Whether many one-thread workers or one worker with all threads trains faster depends on the model, on torch and on the
machine.  So before a long run every layout trains a unit for a second, in as many fresh processes as it has workers,
all at once; nothing of that is kept but an event.

`python -m hopscope.executors.timing STUDY PLAN` is such a process: it builds the unit, warms up, says `ready`, waits
for the end of its standard input, trains, and says how much it did.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from hopscope.training.config import TrainJob
from hopscope.training.engines import ENGINES, EngineName

if TYPE_CHECKING:
    # Annotations only: a command that finds its run finished must not load torch.
    from torch import Tensor

    from hopscope.runs import RunFolder
    from hopscope.tasks.device import DeviceTask

REPAID_SECONDS = 120.0
"""A run that is expected to be shorter is not measured: starting the processes takes some ten seconds."""

WINDOW_SECONDS = 1.0
"""Training that is timed."""

LIMIT_SECONDS = 60.0
"""Seconds that one layout may take, imports included."""

_OPERATIONS_PER_SECOND = 2e10
"""One core's multiplications and additions; by a guess that is right to a factor of about three."""


class Layout(NamedTuple):
    """Workers at a time, and threads of each."""

    workers: int
    threads: int


Measure = Callable[[Layout], float]
"""Member-samples per second of all workers together; raises `NotMeasured`."""


class NotMeasured(Exception):
    """A measurement failed; the message is the reason."""


def candidates(by_rule: tuple[int, int], cores: int) -> list[Layout]:
    """Layouts worth a try, that of the rule first: its workers with one thread each, one worker with every core."""
    rule = Layout(*by_rule)
    return list(dict.fromkeys([rule, Layout(rule.workers, 1), Layout(1, cores)]))


def operations(job: TrainJob) -> float:
    """Multiplications and additions of a unit's training: 2 per weight and position, and twice as many backwards."""
    model, training = job.model, job.training
    attention = 4 * model.width * model.heads * model.head_size
    weights = model.layers * (attention + 2 * model.width * model.mlp_size)
    samples = training.steps * training.batch_size * len(job.members)
    return 6.0 * weights * model.length * samples


def expected_seconds(jobs: Collection[TrainJob], cores: int) -> float:
    """Estimated seconds of training, without measuring anything."""
    return sum(map(operations, jobs)) / (_OPERATIONS_PER_SECOND * cores)


def measured(run: "RunFolder", unit: str, choices: Sequence[Layout], measure: Measure) -> Layout:
    """The layout with the most member-samples per second; the first where a measurement fails.

    Args:
        run: an event is added to its log, with what was measured or why nothing was.
        unit: hash of the unit that is trained for it.
        choices: layouts; the first is the one to fall back on.
        measure: measures one.
    """
    try:
        speeds = [measure(choice) for choice in choices]
    except NotMeasured as reason:
        run.event("layout not measured", unit=unit, reason=str(reason), chosen=choices[0]._asdict())
        return choices[0]
    best = choices[speeds.index(max(speeds))]
    tried = [
        {**choice._asdict(), "samples_per_second": speed}
        for choice, speed in zip(choices, speeds, strict=True)
    ]
    run.event("layout measured", unit=unit, tried=tried, chosen=best._asdict())
    return best


def speed(
    study: str,
    job: TrainJob,
    engine: EngineName,
    environment: Mapping[str, str],
    layout: Layout,
    *,
    seconds: float = WINDOW_SECONDS,
    limit: float = LIMIT_SECONDS,
) -> float:
    """Member-samples per second of a layout whose workers all train this unit at the same time.

    Args:
        study: name of the study that knows the unit's task.
        job, engine: what is trained, and how.
        environment: of the processes.
        layout: how many of them, and threads of each.
        seconds: training that is timed.
        limit: seconds after which the processes are ended.

    Raises:
        NotMeasured: a process failed or the limit was reached.
    """
    command = [sys.executable, "-m", "hopscope.executors.timing", study, job.model_dump_json()]
    command += ["--threads", str(layout.threads), "--engine", engine, "--seconds", str(seconds)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints, ExitStack() as stack:
        try:
            runners = [_Runner.start(stack, command, environment, complaints) for _ in range(layout.workers)]
        except OSError as error:
            raise NotMeasured(f"expected a process to start, found {error}") from None
        for runner in runners:
            # Its end is the end of what it says, so no reading below can wait longer than this.
            timer = threading.Timer(limit, runner.process.kill)
            stack.callback(timer.cancel)
            timer.start()
        for runner in runners:
            runner.hear()
        for runner in runners:
            runner.release()
        return sum(_rate(runner.hear()) for runner in runners)


def _rate(message: Any) -> float:
    try:
        return float(message["samples"]) / float(message["seconds"])
    except (TypeError, KeyError, ValueError, ZeroDivisionError):
        raise NotMeasured(f"expected samples and seconds, found {message!r}") from None


class _Runner(NamedTuple):
    """A process that trains for the clock, and the file in which it complains."""

    process: "subprocess.Popen[str]"
    complaints: IO[str]

    @classmethod
    def start(
        cls, stack: ExitStack, command: list[str], environment: Mapping[str, str], complaints: IO[str]
    ) -> "_Runner":
        """Start a process; leaving the stack ends it."""
        pipe = subprocess.PIPE
        process = stack.enter_context(
            subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=complaints, text=True, env=dict(environment)
            )
        )
        stack.callback(process.kill)
        return cls(process, complaints)

    def hear(self) -> Any:
        """Its next message.

        Raises:
            NotMeasured: it has ended, or says something else.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError:
            raise NotMeasured(f"expected a message of a process, found {line or self._end()!r}") from None

    def release(self) -> None:
        """Let the process begin to train."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _end(self) -> str:
        status = self.process.wait()
        self.complaints.seek(0)
        last = self.complaints.read().strip().rpartition("\n")[2]
        return last or (f"its end by signal {-status}" if status < 0 else f"its end with status {status}")


class Steps:
    """A unit's training steps, one after another as the trainer takes them, without its record.

    Attributes:
        job, task: what is trained.
        model, optimizer: the members, and what moves them.
        step: steps taken so far.
    """

    def __init__(self, job: TrainJob, task: "DeviceTask", engine: EngineName, device: str = "cpu"):
        import torch

        from hopscope.models.transformer import Transformer
        from hopscope.training.optimizer import Optimizer
        from hopscope.training.steps import TrainingSteps

        initial, data = (
            torch.tensor([getattr(member, name) for member in job.members], device=device)
            for name in ("init_seed", "data_seed")
        )
        self.job, self.task, self.step = job, task, 0
        self.model = Transformer.initial(job.model, initial, device)
        self.optimizer = Optimizer(self.model.parameters, job.training)
        self._steps = TrainingSteps(ENGINES[engine], self.model, task, job.training, data, self.optimizer)

    def take(self) -> "Tensor":
        """Take a step; returns each member's loss before it `[member]`."""
        loss = self._steps.take(self.step)["loss"]
        self.step += 1
        return loss

    def take_for(self, seconds: float) -> tuple[int, float]:
        """Take steps, at least one, until the time is up; returns member-samples and seconds."""
        started, first = time.perf_counter(), self.step
        while True:
            self.take()
            elapsed = time.perf_counter() - started
            if elapsed >= seconds:
                samples = (self.step - first) * self.job.training.batch_size * len(self.job.members)
                return samples, elapsed


def main(arguments: list[str] | None = None) -> int:
    """Train one unit for the clock; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hopscope.executors.timing")
    parser.add_argument("study")
    parser.add_argument("job")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", default="general", choices=ENGINES)
    parser.add_argument("--seconds", type=float, default=WINDOW_SECONDS)
    options = parser.parse_args(arguments)

    from hopscope.studies import find_study
    from hopscope.training import threads as arithmetic

    arithmetic.prepare(options.threads)
    job = TrainJob.model_validate_json(options.job)
    steps = Steps(job, find_study(options.study).task(job, "cpu"), options.engine)
    steps.take_for(options.seconds / 4)
    print(json.dumps("ready"), flush=True)
    sys.stdin.read()
    samples, seconds = steps.take_for(options.seconds)
    print(json.dumps({"samples": samples, "seconds": seconds}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
