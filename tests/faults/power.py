"""A power cut, simulated: what a file system may leave of the operations of a run.

Whatever was flushed is there: the content of a file by `fsync` of the file, its name (and that it was renamed or
removed) by `fsync` of its folder.  Of everything else the disk may have some and lack some, and the end of a file that
was not flushed may be torn or zeros.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WAYS = {"nothing": "nothing that was not flushed", "order": "a part of it, in order", "any": "any part of it"}
"""What may be left of what was not flushed."""


@dataclass
class _File:
    """Content of a file: as it is on the disk, and what was written since."""

    flushed: bytes = b""
    since: bytes = b""

    def left(self, way: str, draw: random.Random) -> bytes:
        if way == "nothing" or not self.since:
            return self.flushed
        kept = draw.randrange(len(self.since) + 1)
        if way == "any" and draw.random() < 0.3:
            return self.flushed + self.since[:kept] + bytes(len(self.since) - kept)
        return self.flushed + self.since[:kept]


@dataclass
class Disk:
    """A file system that may lose its power.

    Attributes:
        names: what a process sees: path → a file, or `None` for a folder.
        flushed: names that are on the disk.
        since: changes of names since: the folder, path and what is there now (a missing file is `...`).
    """

    names: dict[str, _File | None] = field(default_factory=dict)
    flushed: dict[str, _File | None] = field(default_factory=dict)
    since: list[list[tuple[str, Any]]] = field(default_factory=list)

    def happen(self, operation: Mapping[str, Any]) -> None:
        """An operation of a trace (`injected.Trace`)."""
        name, path = operation["name"], operation["path"]
        if name == "mkdir":
            self._change([(path, None)])
        elif name == "create":
            self._change([(path, _File())])
        elif name in ("unlink", "rmdir"):
            self._change([(path, ...)])
        elif name == "replace":
            self._change([(path, self.names[operation["source"]]), (operation["source"], ...)])
        elif name == "write":
            self._file(path).since += bytes.fromhex(operation["content"])
        elif name == "fsync" and "content" in operation:
            found = self._file(path)
            found.flushed, found.since = bytes.fromhex(operation["content"]), b""
        elif name == "fsync":
            self._flush(path)

    def _file(self, path: str) -> _File:
        found = self.names.get(path)
        if found is None:  # made by `open`, which the trace does not see
            found = _File()
            self._change([(path, found)])
        return found

    def _change(self, changes: list[tuple[str, Any]]) -> None:
        self.since.append(changes)
        _apply(self.names, changes)

    def _flush(self, folder: str) -> None:
        kept = []
        for changes in self.since:
            if all(path.rpartition("/")[0] == folder for path, _ in changes):
                _apply(self.flushed, changes)
            else:
                kept.append(changes)
        self.since = kept

    def left(self, way: str, draw: random.Random) -> dict[str, bytes | None]:
        """What is there after a power cut: path → content, `None` for a folder; ways as in `WAYS`."""
        names = dict(self.flushed)
        first = {"nothing": 0, "all": len(self.since)}.get(way, draw.randrange(len(self.since) + 1))
        for number, changes in enumerate(self.since):
            if draw.random() < 0.5 if way == "any" else number < first:
                _apply(names, changes)
        reached: dict[str, bytes | None] = {}
        for path in sorted(names):
            folder = path.rpartition("/")[0]
            if folder and reached.get(folder, b"") is not None:
                continue  # the folder's own name was lost
            found = names[path]
            whole = None if found is None else found.flushed + found.since
            reached[path] = whole if found is None or way == "all" else found.left(way, draw)
        return reached


def _apply(names: dict[str, Any], changes: Sequence[tuple[str, Any]]) -> None:
    for path, there in changes:
        if there is ...:
            names.pop(path, None)
        else:
            names[path] = there


def cut(operations: Sequence[Mapping[str, Any]], after: int, way: str, seed: int) -> dict[str, bytes | None]:
    """What a power cut after some operations leaves; arguments as of `Disk.left`."""
    disk = Disk()
    for operation in operations[:after]:
        disk.happen(operation)
    return disk.left(way, random.Random(seed))


def lay(root: Path, left: Mapping[str, bytes | None]) -> None:
    """Make the folders and files that a power cut left."""
    root.mkdir(parents=True, exist_ok=True)
    for path, content in left.items():
        if content is None:
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).write_bytes(content)
