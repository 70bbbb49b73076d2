"""Locks: one command at a time works on a run."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hopscope.errors import UserError
from hopscope.runs.files import make_folder, write_error


class Locked(UserError):
    """Another process holds the lock."""


_PAUSE = 0.05
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


@contextlib.contextmanager
def folder_lock(folder: Path, what: str, patience: float) -> Iterator[None]:
    """Holds `folder`'s lock; the system lets it go when the process ends, however it ends.

    Args:
        folder: what is worked on; it is made if it is missing.
        what: its noun, for the error line.
        patience: seconds to wait for another process to finish.

    Raises:
        Locked: another process holds the lock.
        UserError: the folder cannot be written.
    """
    make_folder(folder)
    path = folder / ".lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        _acquire(descriptor, path, what, time.monotonic() + patience)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, what: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in _TAKEN:
                raise write_error(path, error) from error
            if time.monotonic() >= deadline:
                found = f"another hopscope command is working on this {what}"
                raise Locked(f"{path.parent}: {found}: wait or stop it") from error
        time.sleep(_PAUSE)
