"""Seals: checksums of all records of a folder, so that an altered byte never changes a number without a word.

A folder with a file `seals.jsonl` is sealed.  Whatever `write_atomic` is about to write at or below it is noted there
first, with its SHA-256; `read_bytes` refuses a file whose content was never noted.  The note comes first, because a
process may be killed between the two: then the old content stands, which was noted before.

Runs and units are sealed from their first file on.  Folders from before there were seals have none, and are read
unchecked.  This guards against accidents, not against somebody who alters file and seal together.
"""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hopscope.runs.lines import append_line
from hopscope.strict_json import parse_json

SEALS = "seals.jsonl"
"""Name of the file of a sealed folder: a JSON object with `file` and `sha256` in each line."""

_DEPTH = 3
"""Folders above a file in which its seal may be."""

_UNSEALED = (".safetensors", ".svg", ".png", ".html")
"""Checkpoints carry checksums of their own, and so do drawings and pages, from which no number is read
(`hopscope.runs.proofs`): to make these again does not change the record."""

_LOGS = frozenset({SEALS, "events.jsonl"})
"""Files that grow line by line: no number depends on them."""


def begin(folder: Path) -> None:
    """Seal a folder, which is made if need be: whatever is written into it from now on is noted.

    Raises:
        OSError: the system refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.close(os.open(folder / SEALS, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666))


def note(path: Path, content: bytes) -> None:
    """Note what a file is about to hold, if it belongs to a sealed folder.

    Raises:
        OSError: the system refused; the file must not be written then.
    """
    home = _home(path)
    if home is None:
        return
    digest = hashlib.sha256(content).hexdigest()
    name = path.relative_to(home).as_posix()
    if _noted(home).get(name, ("",))[-1] != digest:
        append_line(home / SEALS, json.dumps({"file": name, "sha256": digest}).encode(), sync=True)


def is_as_noted(path: Path, content: bytes) -> bool:
    """Whether a file's content is one that was noted for it; true where nothing is sealed."""
    home = _home(path)
    if home is None:
        return True
    noted = _noted(home).get(path.relative_to(home).as_posix(), ())
    return hashlib.sha256(content).hexdigest() in noted


def altered(folder: Path, among: Callable[[str], bool] = lambda name: True) -> list[Path]:
    """Files of a sealed folder whose content is not what was noted; a file that is gone is not among them.

    Args:
        folder: the sealed folder.
        among: function of a file's name in the folder that says whether to look at it; others are not read.
    """
    found = []
    for name in filter(among, list(_noted(folder))):
        path = folder / name
        if _home(path) is None:
            continue
        with contextlib.suppress(OSError):  # gone, or a name that no file can have
            if not is_as_noted(path, path.read_bytes()) and _lies_in(folder, path):
                found.append(path)
    return found


def missing(folder: Path) -> list[Path]:
    """Files of a sealed folder that were noted and are gone, by anybody's hand, or were never finished."""
    return [path for path in (folder / name for name in list(_noted(folder))) if _is_gone(path)]


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # a name that no file can have, or a folder that may not be looked into
        return False
    return False


def _lies_in(folder: Path, path: Path) -> bool:
    """Whether a file is in a folder, and does not only seem so by a link: who takes it away shall take no other."""
    return path.parent.resolve().is_relative_to(folder.resolve())


def _home(path: Path) -> Path | None:
    """The sealed folder that a file belongs to: the nearest one above it, for files of a unit the unit's."""
    if path.name in _LOGS or path.suffix in _UNSEALED:
        return None
    for folder in list(path.parents)[:_DEPTH]:
        with contextlib.suppress(OSError):
            if (folder / SEALS).is_file():
                return folder
        if folder.parent.name == "units":
            break  # a unit's files are noted by the unit, or by nobody
    return None


_Noted: TypeAlias = dict[str, tuple[str, ...]]


@dataclass
class _Read:
    """What was read of a seal so far: it only grows, and a unit may have thousands of lines.

    Attributes:
        state: device, inode, time of change and size of the file when it was read.
        end: bytes of its whole lines.
        tail: the last of these bytes, by which a file that was written anew is told from one that grew.
        noted: name of each file → digests that were noted for it, oldest first, in whole lines.
        all: the same, with a last line that has no end.
    """

    state: tuple[int, int, int, int] = (0, 0, 0, 0)
    end: int = 0
    tail: bytes = b""
    noted: _Noted = field(default_factory=dict)
    all: _Noted = field(default_factory=dict)


_TAIL = 256
_MOST = 256
_read: dict[Path, _Read] = {}
"""Seals that were read last, at most `_MOST`."""
_lock = threading.Lock()


def _noted(folder: Path) -> _Noted:
    """Name of each file of a folder → digests that were noted for it, oldest first."""
    path = folder / SEALS
    try:
        found = path.stat()
    except OSError:
        return {}
    state = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    with _lock:
        known = _read.pop(path, _Read())
        if known.state != state:
            known = _grown(path, known, state)
        _read[path] = known
        if len(_read) > _MOST:
            del _read[next(iter(_read))]
        return known.all


def _grown(path: Path, known: _Read, state: tuple[int, int, int, int]) -> _Read:
    """A seal with the lines that were appended since; read from its beginning where it did not only grow."""
    with path.open("rb") as file:
        if known.state[:2] != state[:2] or known.state[3] >= state[3]:
            known = _Read()
        file.seek(known.end - len(known.tail))
        if file.read(len(known.tail)) != known.tail:
            known = _Read()
            file.seek(0)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    noted = _with(known.noted, whole)
    # A last line without an end is being written, or was cut short by a kill: it is read again when there is more.
    both = noted if len(whole) == len(content) else _with(dict(noted), content[len(whole) :])
    return _Read(state, known.end + len(whole), (known.tail + whole)[-_TAIL:], noted, both)


def _with(noted: _Noted, lines: bytes) -> _Noted:
    """The same dictionary, with what is noted in these lines."""
    for entry in _entries(lines.splitlines()):
        with contextlib.suppress(KeyError, TypeError):
            name, digest = entry["file"], entry["sha256"]
            if isinstance(name, str) and isinstance(digest, str) and _leads_in(name):
                noted[name] = (*noted.get(name, ()), digest)
    return noted


def _leads_in(name: str) -> bool:
    """Whether a name is that of a file in the folder: a seal that was edited may name anything."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def _entries(lines: list[bytes]) -> list[Any]:
    """The values of all lines that are JSON: a line that a kill cut short, or that was damaged, seals nothing."""
    # All lines at once is several times as quick, and of a list of many runs this was a sixth of the time.
    with contextlib.suppress(ValueError):
        entries: list[Any] = parse_json(b"[" + b",".join(lines) + b"]")
        if len(entries) == len(lines):
            return entries
    entries = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entries.append(parse_json(line))
    return entries
