"""Files that are whole or absent: every file of the record goes through `write_atomic`.

A process may be killed, or a disk may fill up, at any moment.  What was written before must survive that, and
what is being written must never be taken for a finished file; so data go to a hidden temporary name in the
same folder, are flushed to the disk, and only then renamed.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import tempfile
import threading
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from hopscope.errors import UserError
from hopscope.runs import seals
from hopscope.strict_json import parse_json

_HINTS = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some of your disk quota",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder that is not read-only",
    errno.ENOTDIR: "choose another folder, part of this path is a file",
    errno.EEXIST: "choose another folder, part of this path is a file",
    errno.EISDIR: "move away the folder that has this file's name",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def reason(error: OSError) -> str:
    """The system's words for an error, without the path that Python adds to them."""
    return error.strerror or type(error).__name__


def write_error(path: Path, error: OSError) -> UserError:
    """The one line that tells why `path` could not be written, and that nothing is lost by it."""
    hint = _HINTS.get(error.errno or 0, "mend this")
    return UserError(
        f"cannot write {path}: expected a writable folder with free space, found: {reason(error)}; "
        f"nothing written before is lost: {hint}, and the same command goes on"
    )


def listed(names: Iterable[object], limit: int = 10) -> str:
    """Names for an error line, at most `limit` of them: ``a, b and 3 more``."""
    words = [str(name) for name in names]
    rest = len(words) - limit
    return ", ".join(words[:limit]) + (f" and {rest} more" if rest > 0 else "")


def user_caches() -> Path:
    """The folder of Hopscope among the user's caches: below `XDG_CACHE_HOME`, or below `~/.cache`.

    A user without a home, as in some containers, has a folder of their own among the temporary files.
    """
    caches = os.environ.get("XDG_CACHE_HOME")
    if caches:
        return Path(caches) / "hopscope"
    try:
        return Path.home() / ".cache" / "hopscope"
    except RuntimeError:  # neither HOME nor an entry in the system's list of users
        return Path(tempfile.gettempdir()) / f"hopscope-{os.getuid()}"


_TEMPORARY = re.compile(r"\.(.+?)(?:\.\d+-\d+)?\.tmp")
"""Temporary names of a file; those from before had no numbers."""


def temporary_name(path: Path) -> Path:
    """Temporary path of a file before it is renamed: this thread's own, so that no other writes into it."""
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")


def _opened(temporary: Path) -> BinaryIO:
    """A temporary file, opened for writing and held, so that nobody takes it for what a killed process left."""
    while True:
        file = temporary.open("wb")
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():
            return file
        file.close()  # it was taken for a leftover before it was held


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of a file."""
    for leftover in _leftovers(path.parent).pop(path.name, ()):
        with contextlib.suppress(OSError), leftover.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while somebody writes it
            leftover.unlink()


@lru_cache(maxsize=256)
def _leftovers(folder: Path) -> dict[str, list[Path]]:
    """Name of each file → temporary files of it that were there when this process first wrote into the folder.

    They are looked for once, because a folder may have thousands of files.
    """
    found: dict[str, list[Path]] = {}
    for path in folder.glob(".*.tmp"):
        if match := _TEMPORARY.fullmatch(path.name):
            found.setdefault(match[1], []).append(path)
    return found


def make_folder(path: Path) -> None:
    """Makes a folder and those above it.

    Raises:
        UserError: the folder cannot be made.
    """
    try:
        _make_folder(path)
    except OSError as error:
        raise write_error(path, error) from error


def _make_folder(path: Path) -> None:
    """Makes a folder and those above it, and waits until the disk has their names: what is in them would be lost."""
    made = []
    while not path.is_dir():
        made.append(path)
        path = path.parent
    for folder in reversed(made):
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def seal(folder: Path) -> None:
    """Seals a folder, which is made if need be: see `hopscope.runs.seals`.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        _make_folder(folder)
        seals.begin(folder)
    except OSError as error:
        raise write_error(folder, error) from error


def write_atomic(path: Path, data: bytes | str) -> None:
    """Writes a whole file, or leaves what was there; folders above it are made.

    Args:
        path: the file.
        data: its bytes, or text that is stored as UTF-8.

    Raises:
        UserError: the system refused (full disk, no permission, read-only, a file in place of a folder …).
    """
    content = data.encode() if isinstance(data, str) else data
    temporary = temporary_name(path)
    try:
        _make_folder(path.parent)
        seals.note(path, content)
        _remove_leftovers(path)
        with _opened(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)  # noqa: PTH105 - called by this name so that tests can kill the process here
        _sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut: new ones, and that old ones are gone."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; the rename itself has happened.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Removes a file, if it is there, for good: a mark such as DONE must not come back after a power cut.

    Raises:
        UserError: the system refused.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            _sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def is_file(path: Path) -> bool:
    """Whether the path is a file that the system lets us see."""
    with contextlib.suppress(OSError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    """Whether the path is a folder that the system lets us see."""
    with contextlib.suppress(OSError):
        return path.is_dir()
    return False


class FileAltered(UserError):
    """A file of a sealed folder that does not hold what was written (`hopscope.runs.seals`)."""


def read_bytes(path: Path, remedy: str) -> bytes:
    """The bytes of a file, which are checked where it is sealed.

    Args:
        path: the file.
        remedy: what the user should do if it cannot be read, for the error line.

    Raises:
        FileAltered: it does not hold what was written.
        UserError: the file is missing or cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: expected a file, found none: {remedy}") from error
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, found: {reason(error)}: {remedy}") from error
    if not seals.is_as_noted(path, content):
        raise FileAltered(
            f"{path}: expected the content that was written (its checksum stands in {seals.SEALS}), found another: "
            f"{remedy}"
        )
    return content


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON, keys in the order given, indented by one space.

    Raises:
        UserError: the file cannot be written.
        ValueError: the value holds a NaN or an infinity; a missing number is `None`.
    """
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, remedy: str = "restore it, or delete it and run the same command again") -> Any:
    """The value in a JSON file.

    Args:
        path: the file.
        remedy: what the user should do if it is missing or damaged, for the error line.

    Raises:
        UserError: the file is missing, unreadable, cut short or not JSON.
    """
    content = read_bytes(path, remedy)
    try:
        return parse_json(content)
    except ValueError as error:
        found = f"{len(content)} bytes that are not ({error})" if content else "an empty file"
        raise UserError(f"{path}: expected whole JSON, found {found}: {remedy}") from error
