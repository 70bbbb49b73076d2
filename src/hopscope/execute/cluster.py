"""What workers beyond this machine have in common: how they are called, and how they are heard.

A cluster gets one function of this package and a plain string, nothing else.  The run folder lies on storage that all
machines share; a worker writes its messages into a file beside it, because every cluster has that way and no other.
"""

import json
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.execute.local import KEEP_MEMORY, environment, message_of
from hopscope.execute.pool import End, Message
from hopscope.execute.worker import installed
from hopscope.runs import UnitFolder

_FOLDER = ".jobs"  # of a root: messages and logs of runs at work, which are part of no run
_STORAGE = 90.0  # seconds in which network storage shows here what another machine has written


class Cluster(ABC):
    """A place beyond this machine, with a folder for the messages of one command's workers; `kept` if a job failed."""

    pause = 0.5

    def __init__(self, study: str):
        self._path: Path | None = None
        self.study, self.kept = study, False

    def at_once(self, units: Sequence[UnitFolder], cores: int | None) -> int:
        """All units, unless the user gave a number of cores: a cluster lets them wait until there is room."""
        return max(1, len(units) if cores is None else cores)

    def start(self, unit: UnitFolder, until: float | None) -> "RemoteWorker":
        """Hand in a job for a unit; a `UserError` if the cluster does not take it."""
        return RemoteWorker(self, unit, until)

    @abstractmethod
    def submit(self, unit: UnitFolder, given: str) -> Any:
        """Hand in a call of `hopscope.execute.worker.main` with a string; returns the cluster's own job."""

    @abstractmethod
    def end_of(self, worker: "RemoteWorker") -> End | None:
        """How a worker's job ended, once it has."""

    @abstractmethod
    def cancel(self, job: Any) -> None:
        """End a job, or do not let it begin."""

    def folder(self, unit: UnitFolder) -> Path:
        """The folder, made when it is first needed, beside the runs; a `UserError` if it cannot be."""
        if self._path is None:
            run = unit.run_path.resolve()
            parent = run.parents[1] / _FOLDER
            try:
                parent.mkdir(exist_ok=True)
                self._path = Path(tempfile.mkdtemp(prefix=f"{run.parent.name}-{run.name}-", dir=parent))
            except OSError as error:
                words = f"expected a folder that can be written, found {error.strerror}; choose another --out"
                raise UserError(f"{parent}: {words}") from error
        return self._path

    def close(self) -> None:
        """Remove the folder, unless it is kept."""
        if self._path is not None and not self.kept:
            shutil.rmtree(self._path, ignore_errors=True)
            with suppress(OSError):  # other commands may have theirs in it
                self._path.parent.rmdir()


class RemoteWorker:
    """A worker beyond this machine, heard through a file; how it ends, its cluster knows."""

    def __init__(self, cluster: Cluster, unit: UnitFolder, until: float | None):
        self.unit, self._cluster, self._read = unit, cluster, 0
        self._path = cluster.folder(unit) / f"{unit.name}.jsonl"
        run = str(unit.run_path.resolve())
        given = {"run": run, "unit": unit.name, "study": cluster.study, "until": until}
        self._given = json.dumps({**given, "messages": str(self._path), "like": installed()})
        self.deaths, self.furthest = 0, -1  # jobs that died one after another, and their last checkpoint
        self.submit()

    def submit(self) -> None:
        """Hand in its job, the first one or the next."""
        self.job = self._cluster.submit(self.unit, self._given)

    def messages(self) -> list[Message]:
        """See `Worker`."""
        try:
            with self._path.open("rb") as file:  # opened anew: that is when network storage looks for news
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + 1 if whole else 0
        return [each for each in map(message_of, whole.splitlines()) if each is not None]

    def end(self) -> End | None:
        """See `Worker`."""
        return self._cluster.end_of(self)

    def close(self) -> None:
        """See `Worker`."""
        with suppress(Exception):  # the job may have ended, or the cluster may be gone
            self._cluster.cancel(self.job)

    def ended(self, status: int) -> End:
        """Its end with a status.  Storage may be late to show that it has finished."""
        until = time.monotonic() + _STORAGE
        while status == 0 and not self.unit.record and time.monotonic() < until:
            time.sleep(0.5)
        words = f"expected to hear from its worker in {self._path}, found it ended with status {status} without a word"
        return End(status, f"unit {self.unit.name}: {words}; put --out on storage that all machines share")


def worker_environment() -> dict[str, str]:
    """What a worker's environment has beside that of its machine."""
    own = environment()
    return {name: own[name] for name in (*KEEP_MEMORY, "PYTHONPATH")}


def last_line(text: object) -> str:
    """The last words of an error of a cluster."""
    return (str(text).strip().splitlines() or ["no message"])[-1][:200]
