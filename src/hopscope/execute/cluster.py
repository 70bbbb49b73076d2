"""What workers beyond this machine have in common: how they are called, and how they are heard.

A cluster gets one function of this package and plain strings, nothing else.  The run folder lies on storage that all
machines share; a worker writes its messages into a file beside it, because every cluster has that way and no other.
"""

import json
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from hopscope.errors import UserError
from hopscope.execute.local import KEEP_MEMORY, environment, message_of
from hopscope.execute.pool import End, Message
from hopscope.execute.worker import installed
from hopscope.runs import UnitFolder

_FOLDER = ".jobs"  # of a root: messages and logs of runs at work, which are part of no run
_STORAGE = 90.0  # seconds in which network storage shows here what another machine has written


class Exchange:
    """A folder for the messages of one command's workers, and whatever else a cluster keeps; `kept` if a job failed."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self.kept = False

    def folder(self, unit: UnitFolder) -> Path:
        """The folder, made when it is first needed, beside the runs; a `UserError` if it cannot be."""
        if self._path is None:
            run = unit.path.parent.parent.resolve()
            parent = run.parents[1] / _FOLDER
            try:
                parent.mkdir(exist_ok=True)
                self._path = Path(tempfile.mkdtemp(prefix=f"{run.parent.name}-{run.name}-", dir=parent))
            except OSError as error:
                raise UserError(
                    f"{parent}: expected a folder that can be written, found {error.strerror}; choose another --out"
                ) from error
        return self._path

    def close(self) -> None:
        """Remove the folder, unless it is kept."""
        if self._path is not None and not self.kept:
            shutil.rmtree(self._path, ignore_errors=True)
            with suppress(OSError):  # other commands may have theirs in it
                self._path.parent.rmdir()


class RemoteWorker:
    """A worker beyond this machine, heard through a file; how it ends, its cluster knows.

    Attributes:
        unit: what it works on.
        waits: whether it has not begun.
    """

    def __init__(self, unit: UnitFolder, messages: Path):
        self.unit, self.waits, self._path, self._read = unit, True, messages, 0

    def arguments(self, seconds: float | None) -> list[str]:
        """Arguments of `hopscope.execute.worker.main` there; the time includes that in which it waits for a machine."""
        run = str(self.unit.path.parent.parent.resolve())
        given = [run, self.unit.name, "--messages", str(self._path), "--like", json.dumps(installed())]
        return given if seconds is None else [*given, "--until", f"{time.time() + seconds:.3f}"]

    def messages(self) -> list[Message]:
        """What it said since this was last asked; that another worker began is a warning."""
        try:
            with self._path.open("rb") as file:  # opened anew: that is when network storage looks for news
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + 1 if whole else 0
        return [self._told(each) for each in map(message_of, whole.splitlines()) if each is not None]

    def _told(self, message: Message) -> Message:
        if message["kind"] != "begun" or self.waits:
            self.waits = False
            return message
        words = f"unit {self.unit.name}: its worker was lost, and another goes on at {message.get('node')}"
        return {"kind": "warning", "message": words}

    def ended(self, status: int) -> End:
        """Its end with a status.  Storage may be late to show that it has finished."""
        until = time.monotonic() + _STORAGE
        while status == 0 and not self.unit.record and time.monotonic() < until:
            time.sleep(0.5)
        where = f"found it ended with status {status} without a word; put --out on storage that all machines share"
        return End(
            status, f"unit {self.unit.name}: expected to hear from its worker in {self._path}, {where}"
        )


def worker_environment() -> dict[str, str]:
    """What a worker's environment has beside that of its machine."""
    own = environment()
    return {name: own[name] for name in (*KEEP_MEMORY, "PYTHONPATH")}


def last_line(text: object) -> str:
    """The last words of an error of a cluster, in one line."""
    return (str(text).strip().splitlines() or ["no message"])[-1][:200]
