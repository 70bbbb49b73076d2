"""What workers beyond this machine have in common: how they are called, and how they are heard.

A cluster gets a function of this package and plain strings, nothing else.  The run folder lies on storage that all
machines share; a worker writes its messages into a file beside it, because every cluster has that way and no other.
"""

import json
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from hopscope.executors.pool import End, Message
from hopscope.executors.processes import KEEP_MEMORY, environment, message_of
from hopscope.runs import UnitFolder
from hopscope.runs.files import make_folder, write_error

FOLDER = ".jobs"
"""Folder of a root that holds the messages and logs of runs at work.  It is no part of any run."""

LOCK_SECONDS = 300.0
"""How long a worker waits for another one on the same unit: storage lets go of a dead machine's lock after a while."""

_KEPT = (*KEEP_MEMORY, "PYTHONPATH")


class Exchange:
    """A folder for the messages, and whatever else a cluster keeps, of one command.

    Attributes:
        keep: whether it stays when it is closed, because somebody may want to read why a job failed.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self.keep = False

    def folder(self, unit: UnitFolder) -> Path:
        """The folder, which is made when it is first needed, beside the runs of the unit's root.

        Raises:
            UserError: it cannot be made.
        """
        if self._path is None:
            run = unit.run_path.resolve()
            parent = run.parents[1] / FOLDER
            make_folder(parent)
            try:
                self._path = Path(tempfile.mkdtemp(prefix=f"{run.parent.name}-{run.name}-", dir=parent))
            except OSError as error:
                raise write_error(parent, error) from error
        return self._path

    def close(self) -> None:
        """Remove the folder, unless it is kept."""
        if self._path is None or self.keep:
            return
        shutil.rmtree(self._path, ignore_errors=True)
        with suppress(OSError):  # other commands may have theirs in it
            self._path.parent.rmdir()


class Mailbox:
    """The messages of one worker, in a file.

    Attributes:
        path: the file.
        beginnings: how many workers have begun so far; after the first, each took up what one before it lost.
    """

    def __init__(self, path: Path):
        self.path, self.beginnings, self._read = path, 0, 0

    def messages(self) -> list[Message]:
        """What was written since this was last asked."""
        try:
            with self.path.open("rb") as file:  # opened anew: that is when network storage looks for news
                file.seek(self._read)
                whole, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._read += len(whole) + 1 if whole else 0
        return [self._told(each) for each in map(message_of, whole.splitlines()) if each is not None]

    def _told(self, message: Message) -> Message:
        """A message as the listener hears it: a second beginning is worth a warning."""
        if message["kind"] != "begun":
            return message
        self.beginnings += 1
        if self.beginnings == 1:
            return message
        words = (
            f"unit {message.get('unit')}: its worker was lost, and another goes on at {message.get('node')}"
        )
        return {"kind": "warning", "message": words}


class RemoteJob:
    """What a worker beyond this machine says; how it ends, its cluster knows.

    Attributes:
        unit: what it works on.
        mailbox: its messages.
    """

    def __init__(self, unit: UnitFolder, mailbox: Mailbox):
        self.unit, self.mailbox = unit, mailbox

    @property
    def waits(self) -> bool:
        """Whether its worker has not begun."""
        return not self.mailbox.beginnings

    def messages(self) -> list[Message]:
        """What its worker said since this was last asked."""
        return self.mailbox.messages()


def last_line(text: object) -> str:
    """The last words of an error of a cluster, in one line."""
    return (str(text).strip().splitlines() or ["no message"])[-1][:200]


def ended(unit: UnitFolder, status: int, mailbox: Mailbox) -> End:
    """The end of a worker with a status; what it was heard to say tells more, if it was heard."""
    heard = (
        f"unit {unit.hash}: expected to hear from its worker in {mailbox.path}, found it ended with status {status} "
        "without a word; put --out on storage that all machines share"
    )
    return End(status, heard)


def worker_arguments(unit: UnitFolder, left: float | None, mailbox: Path) -> list[str]:
    """Arguments of `hopscope.executors.worker.main` on another machine.

    Args:
        unit: what it works on.
        left: seconds that it may take, the time in which it waits for a machine included.
        mailbox: file for its messages.
    """
    arguments = [str(unit.run_path.resolve()), unit.hash, "--messages", str(mailbox)]
    arguments += ["--patience", str(LOCK_SECONDS), "--same-as", json.dumps(installed())]
    return arguments if left is None else [*arguments, "--until", f"{time.time() + left:.3f}"]


def worker_environment() -> dict[str, str]:
    """What a worker's environment has beside that of its machine."""
    known = environment()
    return {name: known[name] for name in _KEPT}


def installed() -> dict[str, Any]:
    """What must be the same on all machines, or numbers of one run would come from different programs."""
    from hopscope.executors.local import versions
    from hopscope.runs import source_hash

    found = versions()
    return {"hopscope": source_hash(), **{name: found[name] for name in found if name != "python"}}
