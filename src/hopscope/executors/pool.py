"""Worker processes over the units of a run, and the layout that each unit began with."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeGuard

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.training.engines import ENGINES

Listener = Callable[[UnitFolder, Mapping[str, Any]], None]
"""Hears every message of every worker; see `hopscope.executors.worker`."""

POLL_SECONDS = 0.1

DEVICES = ("auto", "cpu", "cuda")


@dataclass
class _Worker:
    unit: UnitFolder
    process: "subprocess.Popen[str]"
    readers: list[threading.Thread] = field(default_factory=list)
    error: Mapping[str, Any] | None = None
    stderr: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Wait for the end of the process, and of what it says."""
        self.process.wait()
        for reader in self.readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def layout_of(unit: UnitFolder) -> dict[str, Any]:
    """Device, threads and engine that a unit began with: they hold, because others round differently.

    Raises:
        UserError: they are not on record, or the device or the engine is absent.
    """
    recorded: Any = unit.record.get("layout")
    known = isinstance(recorded, dict) and recorded.get("device") in DEVICES
    if not known or not is_count(recorded.get("threads")) or recorded.get("engine") not in ENGINES:
        raise UserError(
            f"{unit.path / 'unit.json'}: expected device, threads and engine under layout, found {recorded!r}; "
            f"delete the folder {unit.path} and run the same command again"
        )
    if recorded["device"] == "cuda":
        chosen_device("cuda")
    ENGINES[recorded["engine"]].check(recorded["device"])
    return recorded


def is_count(threads: Any) -> TypeGuard[int]:
    """Whether a recorded value is a number of threads."""
    return isinstance(threads, int) and threads >= 1


def chosen_device(device: str) -> str:
    """`"cpu"` or `"cuda"` for what the user asked.

    Raises:
        UserError: CUDA was asked for and is absent.
    """
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise UserError("device: expected a CUDA device for --device cuda, found none; use --device cpu or auto")


class Pool:
    """Worker processes over the pending units, at most `size` at a time."""

    def __init__(
        self, run: RunFolder, pending: list[UnitFolder], size: int, deadline: float | None, listen: Listener
    ):
        self.run, self.pending, self.size = run, list(pending), size
        self.deadline, self.listen = deadline, listen
        self.active: list[_Worker] = []
        self.messages: Queue[tuple[_Worker, Mapping[str, Any]]] = Queue()
        self.late = False

    def work(self) -> None:
        """Run everything.

        Raises:
            TimeBudgetReached, UserError: after the workers have ended.
        """
        try:
            while self.active or (self.pending and not self.late):
                while self.pending and len(self.active) < self.size and not self.late:
                    self._start(self.pending.pop(0))
                self._hear()
                for worker in [worker for worker in self.active if worker.process.poll() is not None]:
                    self._ended(worker)
        finally:
            for worker in self.active:
                worker.process.kill()
                worker.close()
        if self.late:
            raise TimeBudgetReached("time budget reached; what is done is kept, the same command goes on")

    def _start(self, unit: UnitFolder) -> None:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        command = worker_command(unit)
        command += [] if left is None else ["--time-budget", f"{max(left, 0.0):.3f}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        worker = _Worker(unit, process)
        self.active.append(worker)
        for reader in (self._read, _collect):
            worker.readers.append(threading.Thread(target=reader, args=(worker,), daemon=True))
            worker.readers[-1].start()

    def _read(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            message = message_of(line)
            if message is not None:
                self.messages.put((worker, message))

    def _hear(self) -> None:
        try:
            worker, message = self.messages.get(timeout=POLL_SECONDS)
        except Empty:
            return
        if message["kind"] == "error":
            worker.error = message
        else:
            self.listen(worker.unit, message)

    def _ended(self, worker: _Worker) -> None:
        worker.close()  # its last words are in the queue then
        while not self.messages.empty():
            self._hear()
        self.active.remove(worker)
        status = worker.process.returncode
        if status == TimeBudgetReached.exit_status:
            self.late = True
        elif worker.error is not None:
            raise UserError(str(worker.error["message"]))
        elif status != 0:
            raise UserError(_death(worker, status))
        else:
            self.listen(worker.unit, {"kind": "done"})


def worker_command(unit: UnitFolder) -> list[str]:
    """The command line of a worker for a unit, which ends when this process does."""
    command = [sys.executable, "-m", "hopscope.executors.worker", str(unit.run_path), unit.hash]
    return [*command, "--parent", str(os.getpid())]


def message_of(line: str) -> Mapping[str, Any] | None:
    """A worker's message; `None` for a line that a kill cut short, or that a library or a task printed."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict) and "kind" in message:
            return message
    return None


def _collect(worker: _Worker) -> None:
    assert worker.process.stderr is not None
    worker.stderr.extend(worker.process.stderr)


def _death(worker: _Worker, status: int) -> str:
    if status < 0:
        return (
            f"unit {worker.unit.hash}: expected its worker to finish, found it killed by signal {-status} (out of "
            "memory?); what is done is kept, the same command goes on"
        )
    last = worker.stderr[-1].strip() if worker.stderr else "no message"
    return (
        f"unit {worker.unit.hash}: its worker failed ({last}); this is a fault of Hopscope, please report it"
    )


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
