"""A root of runs in a few files of bounded size, and back.

What tells what was asked and found comes first and must fit: configurations, members, metrics, analyses, figures' data,
claims, story.  Then, as long as there is room, what lets an unfinished unit go on (its newest checkpoint with the
optimiser's state), and last the weights of finished units, rounded to float16.  A unit says in `thinned.json` what it
lost.  What can be made again from the rest stays behind: drawings, the page, locks.
"""

import gzip
import hashlib
import io
import json
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    frozen_members,
    note_thinned,
    save_rounded,
    seals,
    steps_left_out,
)
from hopscope.strict_json import parse_json

MIB = 1 << 20
PROVENANCE = "provenance.json"
ARCHIVE = "pack.tar.gz"
_BEHIND = (".svg", ".png", "report.html", ".lock")
_LEVEL = 6
_PART = re.compile(r"pack\.tar\.gz\.[0-9]{1,4}")
MOST_UNPACKED = 16 << 30
"""Bytes of all files of a pack together."""


@dataclass(frozen=True)
class Limits:
    """What a pack may be.

    Attributes:
        files: most files, the provenance among them.
        file_mib: most MiB of one file.
        total_mib: most MiB of all.
    """

    files: int = 8
    file_mib: float = 16.0
    total_mib: float = 60.0

    @property
    def room(self) -> int:
        """Bytes of archive that fit; a MiB is left for the provenance and the archive's own structure."""
        parts = (self.files - 1) * int(self.file_mib * MIB)
        return min(parts, int((self.total_mib - 1.0) * MIB))


@dataclass(frozen=True)
class Packed:
    """What a pack holds.

    Attributes:
        names: files, relative to the root of the runs.
        resumable: unfinished units that can go on where they stopped.
        restarting: unfinished units whose state did not fit, or that had none: they begin again.
        weights: finished units whose last weights are there.
        left_out: number of checkpoints of finished units that are not there.
    """

    names: list[str]
    resumable: list[str]
    restarting: list[str]
    weights: list[str]
    left_out: int


def pack(root: Path, to: Path, limits: Limits, checkpoints: int, provenance: Mapping[str, Any]) -> Packed:
    """Write a pack of all runs under a root.

    Args:
        root: of the runs.
        to: folder of the pack, which must hold no other.
        limits: what it may be.
        checkpoints: of each finished unit, as far as there is room: the last, then others spread over training.
        provenance: where the runs come from, for the record.

    Raises:
        UserError: the records alone do not fit, there is no run, or a file cannot be read or written.
    """
    to.mkdir(parents=True, exist_ok=True)
    if any(to.glob(f"{ARCHIVE}*")):
        raise UserError(f"{to}: expected a folder without a pack, found one; choose another folder")
    runs = [RunFolder.open(path.parent) for path in sorted(root.glob("*/*/config.json"))]
    if not runs:
        raise UserError(f"{root}: expected runs, found none; run a study first")
    with tempfile.TemporaryDirectory() as scratch:
        filled = _Filled(root, Path(scratch), limits.room)
        for run in runs:
            for path in _records(run):
                filled.add(path)
        if filled.used > limits.room:
            raise UserError(
                f"{root}: expected records of at most {limits.room / MIB:.1f} MiB, found "
                f"{filled.used / MIB:.1f} MiB; pack fewer runs, or raise --files, --file-mib or --total-mib"
            )
        packed = _fill(filled, runs, checkpoints)
        _write(filled, to, limits, {**provenance, "contents": vars(packed)})
    return packed


def unpack(pack: Path, root: Path) -> list[str]:
    """Put the runs of a pack under a root; returns their folders, relative to it.

    Raises:
        UserError: the pack is missing or damaged, or one of its runs is there already.
    """
    try:
        provenance = parse_json((pack / PROVENANCE).read_bytes())
        expected, names = str(provenance["sha256"]), list(provenance["parts"])
        if not all(isinstance(name, str) and _PART.fullmatch(name) for name in names):
            raise ValueError(f"parts of other names than {ARCHIVE}.0")
        data = b"".join((pack / part).read_bytes() for part in names)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{pack}: expected a pack, found {error}; choose the folder of one") from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != expected:
        raise UserError(f"{pack}: expected parts with SHA-256 {expected[:64]}, found {digest}; copy it again")
    try:
        with tarfile.open(fileobj=_Unzipped(fileobj=io.BytesIO(data)), mode="r:") as archive:
            return _extract(archive, pack, root)
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OSError) as error:
        found = " ".join(str(error).split())
        raise UserError(f"{pack}: expected an archive of runs, found {found}; copy it again") from None


class _Unzipped(gzip.GzipFile):
    """Read in small pieces: a header of a tar file may claim any length, and zeros take no room in the archive."""

    def read(self, size: int | None = -1) -> bytes:
        """At most a MiB, which no header of a pack of ours needs."""
        if size is None or not 0 <= size <= MIB:
            raise tarfile.ReadError(f"a part of {size} bytes where a MiB is the most")
        return super().read(size)


def _extract(archive: tarfile.TarFile, pack: Path, root: Path) -> list[str]:
    size = 0
    for entry in archive:
        size += entry.size
        place = entry.name.split("/")
        inside = len(place) > 2 and not {"", ".", ".."} & set(place)  # study, run, and a file in it
        if not (entry.isfile() and inside) or size > MOST_UNPACKED:
            raise UserError(
                f"{pack}: expected files of runs, {MOST_UNPACKED >> 30} GiB at most, found {entry.name[:80]!r}; "
                "use a pack that `campaigns/run.py` made"
            )
    runs = sorted({"/".join(name.split("/")[:2]) for name in archive.getnames()})
    there = [run for run in runs if (root / run / "config.json").is_file()]
    if there:
        raise UserError(f"{root / there[0]}: expected no run there yet, found one; choose another --out")
    archive.extractall(root, filter="data")
    for name in archive.getnames():
        if name.endswith("/thinned.json"):  # written for the pack, beside the unit's own seal
            seals.note(root / name, (root / name).read_bytes())
    return runs


class _Filled:
    """Files for an archive, and how large it will be."""

    def __init__(self, root: Path, scratch: Path, room: int):
        self.root, self.scratch, self.room, self.used = root, scratch, room, 0
        self.files: dict[str, Path] = {}

    def add(self, path: Path, name: str | None = None) -> None:
        """Take a file, under its own name or another's."""
        name = name or path.relative_to(self.root).as_posix()
        # An entry of a tar file has a header of 512 bytes, which compresses well.
        self.used += len(zlib.compress(path.read_bytes(), _LEVEL)) + 128
        self.files[name] = path

    def add_if_it_fits(self, path: Path, name: str) -> bool:
        """Take a file if there is room; returns whether there was."""
        used = self.used
        self.add(path, name)
        if self.used <= self.room:
            return True
        self.used = used
        del self.files[name]
        return False


def _records(run: RunFolder) -> Iterator[Path]:
    """Everything but checkpoints and what can be made again."""
    for path in sorted(run.path.rglob("*")):
        if not path.is_file() or path.name.endswith(_BEHIND) or "checkpoints" in path.parts:
            continue
        # A finished run's parts are in metrics.parquet.
        if run.is_done and path.parent.name == "metrics":
            continue
        yield path


def _fill(filled: _Filled, runs: list[RunFolder], checkpoints: int) -> Packed:
    units = [unit for run in runs for unit in run.units if (unit.path / "unit.json").is_file()]
    finished = [unit for unit in units if unit.is_done]
    resumable: list[str] = []
    restarting: list[str] = []
    for unit in (unit for unit in units if not unit.is_done):
        # The newest checkpoint is the one that training goes on from.
        *older, (_, newest) = unit.checkpoints() or [(0, None)]
        if newest is not None and filled.add_if_it_fits(newest, _name(filled, newest)):
            resumable.append(unit.hash)
            _note(filled, unit, [], [step for step, _ in older])
        else:
            restarting.append(unit.hash)
    kept: dict[str, list[int]] = {unit.hash: [] for unit in finished}
    for rank in range(checkpoints):
        for unit in finished:
            steps = [step for step, _ in unit.checkpoints()]
            wanted = _spread(steps, checkpoints)[rank : rank + 1]
            kept[unit.hash] += [step for step in wanted if _add_rounded(filled, unit, step)]
    left_out = 0
    for unit in finished:
        lost = [step for step, _ in unit.checkpoints() if step not in kept[unit.hash]]
        left_out += len(lost)
        _note(filled, unit, kept[unit.hash], lost)
    weights = [unit for unit, steps in kept.items() if steps]
    return Packed(sorted(filled.files), resumable, restarting, weights, left_out)


def _note(filled: _Filled, unit: UnitFolder, rounded: list[int], lost: list[int]) -> None:
    folder = filled.scratch / unit.hash
    left_out = {*lost, *steps_left_out(unit)}
    newest = max((*(step for step, _ in unit.checkpoints()), *left_out))
    note_thinned(folder, rounded, left_out, frozen_members(unit, newest))
    filled.add(folder / "thinned.json", _name(filled, unit.path / "thinned.json"))


def _name(filled: _Filled, path: Path) -> str:
    return path.relative_to(filled.root).as_posix()


def _spread(steps: list[int], count: int) -> list[int]:
    """The last step, then others as evenly spread over the list as may be."""
    if not steps:
        return []
    last = len(steps) - 1
    places = {last, *(round(n * last / (count - 1)) for n in range(count - 1))}
    return [steps[place] for place in sorted(places, reverse=True)]


def _add_rounded(filled: _Filled, unit: UnitFolder, step: int) -> bool:
    path = unit.checkpoint_path(step)
    rounded = filled.scratch / unit.hash / path.name
    rounded.parent.mkdir(parents=True, exist_ok=True)
    save_rounded(path, rounded)
    fits = filled.add_if_it_fits(rounded, _name(filled, path))
    if not fits:
        rounded.unlink()
    return fits


def _write(filled: _Filled, to: Path, limits: Limits, provenance: Mapping[str, Any]) -> None:
    data = _archive(filled.files)
    if len(data) > limits.room:
        raise UserError(f"{to}: expected an archive of at most {limits.room} bytes, found {len(data)}")
    size = int(limits.file_mib * MIB)
    parts = {
        f"{ARCHIVE}.{n}": data[start : start + size] for n, start in enumerate(range(0, len(data), size))
    }
    for name, part in parts.items():
        (to / name).write_bytes(part)
    note = {
        **provenance,
        "parts": list(parts),
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
    }
    (to / PROVENANCE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _archive(files: Mapping[str, Path]) -> bytes:
    """A compressed tar file; equal files give equal bytes."""
    out = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name in sorted(files):
            content = files[name].read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()
