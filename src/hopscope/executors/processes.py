"""This machine as a place to train units: worker processes, over its cores or its GPUs."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hopscope.executors.pool import End, Job, Message, chosen_device, died, failed
from hopscope.runs import UnitFolder
from hopscope.strict_json import parse_json


class Processes:
    """This machine, as a `Place`: each worker is a process.

    Attributes:
        devices: GPUs that the workers are spread over, as `CUDA_VISIBLE_DEVICES` names them.  Found by itself where
            units are trained on GPUs; none: workers see what this process sees.
    """

    here = True
    retries = 0
    poll_seconds = 0.1

    def __init__(self, devices: Sequence[str] = ()):
        self.devices = list(devices)
        self._started: list[_Process] = []

    def device(self, asked: str) -> str:
        """The device of new units: see `chosen_device`."""
        return chosen_device(asked)

    def at_a_time(self, layouts: Sequence[Mapping[str, Any]], cores: int | None, on_gpu: int) -> int:
        """`on_gpu` for each GPU, or as many as the recorded threads leave room for."""
        if any(each["device"] == "cuda" for each in layouts):
            self.devices = self.devices or visible_gpus()
        if self.devices:
            return on_gpu * len(self.devices)
        return workers_at_a_time(layouts, cores or available_cores())

    def start(self, unit: UnitFolder, left: float | None) -> Job:
        """Start a worker, on the device with the fewest of them."""
        self._started = [each for each in self._started if each.process.poll() is None]
        busy = [each.device for each in self._started]
        device = min(self.devices, key=busy.count) if self.devices else None
        self._started.append(_Process(unit, left, device))
        return self._started[-1]


class _Process:
    """A worker process of this machine.

    Attributes:
        device: the GPU that it may use; `None`: any.
    """

    waits = False

    def __init__(self, unit: UnitFolder, left: float | None, device: str | None):
        self.unit, self.device = unit, device
        command = worker_command(unit) + ([] if left is None else ["--time-budget", f"{left:.3f}"])
        own = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, env=environment() | own
        )
        self._said, self._complaints = _Lines(self.process.stdout), _Lines(self.process.stderr)
        self._last_words = b""

    def messages(self) -> list[Message]:
        """What it said since this was last asked."""
        self._listen()  # so that neither pipe fills up and holds the worker
        found = [message for line in self._said.new() if (message := message_of(line)) is not None]
        if self.process.returncode is not None:
            self._close_pipes()
        return found

    def end(self) -> End | None:
        """How it ended, once it has; what it said last is among the next `messages`."""
        status = self.process.poll()
        if status is None:
            return None
        if status < 0:
            return died(self.unit, f"it killed by signal {-status} (out of memory?)")
        self._listen()
        return End(status, failed(self.unit, self._last_words.decode(errors="replace") or "no message"))

    def _listen(self) -> None:
        for line in self._complaints.new():
            self._last_words = line.strip() or self._last_words

    def close(self) -> None:
        """End it if it is at work."""
        self.process.kill()
        self.process.wait()
        self._close_pipes()

    def _close_pipes(self) -> None:
        for lines in (self._said, self._complaints):
            lines.close()


class _Lines:
    """Lines of a pipe, read without waiting.

    Not by a thread: its start waits for ever in a process that has no memory left for it.
    """

    def __init__(self, pipe: IO[bytes] | None):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        self._pipe, self._begun = pipe, b""

    def new(self) -> list[bytes]:
        """Lines since this was last asked; at the end of the pipe also one that was cut short."""
        if self._pipe.closed:
            return []
        chunks = [self._begun]
        while chunk := self._pipe.read(2**16):
            chunks.append(chunk)
        *lines, self._begun = b"".join(chunks).split(b"\n")
        if chunk == b"":  # the end; None means that there is nothing yet
            self._pipe.close()
            lines.append(self._begun)
        return lines

    def close(self) -> None:
        """Read no more."""
        self._pipe.close()


def workers_at_a_time(layouts: Sequence[Mapping[str, Any]], cores: int, on_gpu: int = 1) -> int:
    """Number of units at work together: `on_gpu`, or as many as their recorded threads leave room for."""
    if any(each["device"] == "cuda" for each in layouts):
        return on_gpu
    return max(1, min(len(layouts), cores // max((each["threads"] for each in layouts), default=1)))


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return (named.split(",") if named else [str(number) for number in range(count)])[:count]


def worker_command(unit: UnitFolder) -> list[str]:
    """The command line of a worker for a unit, which ends when this process does."""
    command = [sys.executable, "-m", "hopscope.executors.worker", str(unit.run_path), unit.hash]
    return [*command, "--parent", str(os.getpid())]


def message_of(line: str | bytes) -> Message | None:
    """A worker's message; `None` for a line that a kill cut short, or that is none."""
    with suppress(ValueError):
        message = parse_json(line)
        if isinstance(message, dict) and "kind" in message:
            return message
    return None


KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
"""Of glibc's allocator: the arrays of a training step, which are freed, stay with the process for the next step.

By default, arrays above 32 MB go back to the system every time, and the system clears them page by page: half as much
time as the training itself takes, in a model of width 512.
"""


def environment() -> dict[str, str]:
    """The workers find this very package, also when it is used from a source tree, and keep their memory."""
    package_root = str(Path(__file__).resolve().parents[2])
    # A study may be of a package that only this process has on its path.
    python = (sys.prefix, sys.base_prefix)
    known = [place for place in sys.path if Path(place).is_dir() and place and not place.startswith(python)]
    return {**KEEP_MEMORY, **os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys([package_root, *known]))}


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
