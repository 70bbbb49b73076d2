"""The folder of a run, `ROOT/<study>/<hash>`: everything that is known about a run is read from it.

config.json: what was asked for, and who the members are, with a checksum of its own.  units/NAME/: what was trained and
measured.  measures/: what was measured over the whole run.  manifest.json: the SHA-256 of every file, written last.
"""

import contextlib
import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs import checkpoint as files
from hopscope.runs.checkpoint import canonical_json, sha256
from hopscope.runs.unit import Member, UnitFolder

_FORMAT = 2  # of the folder; a reader refuses every other
_CONFIG, _MANIFEST, _DIGITS = "config.json", "manifest.json", 12


class EarlierVersion(UserError):
    """A run that an earlier version made."""


@dataclass(frozen=True)
class RunFolder:
    """A run, as the folder at `path` tells of it."""

    path: Path

    @staticmethod
    def named(root: Path, study: str, identity: Mapping[str, Any]) -> "RunFolder":
        """The run of a study under a root, there or not; `identity`: JSON values of all that decides its numbers."""
        return RunFolder(root / study / sha256(canonical_json(identity).encode())[:_DIGITS])

    @staticmethod
    def opened(path: Path | str) -> "RunFolder":
        """The run in a folder, or the only one under a root; `UserError`: there is none, several, or an earlier one."""
        run, *more = runs_in(path)
        if more:
            names = listed([run.path, *(each.path for each in more)])
            raise UserError(f"{path}: expected exactly one run, found {len(more) + 1}; give one of {names}")
        run.config  # noqa: B018 - which refuses what is no run
        return run

    def create(self, config: Mapping[str, Any]) -> "RunFolder":
        """Write the configuration of a new run; one that is there keeps its own (`UserError`: it is another run).

        JSON values: `study`, `identity`, `members` (fields of `Member`), `units` (each with its `name`) and more.
        """
        path, text = self.path / _CONFIG, canonical_json(config)
        if not path.exists():
            with self.locked():
                if not path.exists():
                    if any(self.path.glob("units/*/checkpoints/*")):
                        words = f"found none beside its units; restore it, or move {self.path} away"
                        raise UserError(f"{path}: expected the record of a run, with its rules, {words}")
                    record = {"format": _FORMAT, "sha256": sha256(text.encode()), **json.loads(text)}
                    files.write_atomic(path, files.indented(record))
        if canonical_json(self.config.get("identity")) != canonical_json(config.get("identity")):
            raise UserError(f"{self.path}: expected the run that is asked for, found another; move it away")
        return self

    @property
    def config(self) -> dict[str, Any]:
        """What `create` was given, not to be changed; `UserError`: it is missing, damaged, or of another version."""
        again = f"restore it, or move {self.path} away and run the same command again"
        return _checked(self.path, files.read_bytes(self.path / _CONFIG, again), again)

    @property
    def members(self) -> list[Member]:
        """All members, in the order of the run."""
        return [Member(**member) for member in self.config.get("members", [])]

    @property
    def units(self) -> list[UnitFolder]:
        """All units, in the order of the run, whether or not anything of them is there."""
        own, folder = defaultdict[str, list[Member]](list), self.path / "units"
        for member in self.members:
            own[member.unit].append(member)
        jobs = {job["name"]: job for job in self.config.get("units", [])}
        return [UnitFolder(folder / name, self.path, job, tuple(own[name])) for name, job in jobs.items()]

    @property
    def whole(self) -> UnitFolder:
        """All members as one unit, which keeps what was measured over the whole run: `run.whole.keep_measure(…)`."""
        return UnitFolder(self.path, self.path, {}, tuple(self.members))

    def unit(self, name: str) -> UnitFolder:
        """One unit; `UserError`: the run has no such."""
        units = {unit.name: unit for unit in self.units}
        if name not in units:
            raise UserError(f"{self.path}: expected one of the units {listed(units)}, found {name}; take one")
        return units[name]

    def take_over(self) -> None:
        """Take over units that other runs have trained, with the rules that were registered there."""
        for unit in self.units:
            unit.take_over(self._rules_of)

    def _rules_of(self, other: UnitFolder) -> Mapping[str, str] | None:
        # None: they are not known.  Of a run that differs in more than its grid they are about other parts, and say
        # nothing of these.
        try:
            here, there = self.config, RunFolder(other.run_path).config
        except UserError:
            return None
        same = {**here["identity"], "grid": 0} == {**there.get("identity", {}), "grid": 0}
        rules: Mapping[str, str] = ((other.taken or there) if same else here).get("registration", {})
        return rules

    @property
    def registration(self) -> dict[str, str]:
        """Hashes of the rules as they were before any unit was trained, in this run or in one that it is taken from."""
        taken = [unit.taken["registration"] for unit in self.units if unit.taken]
        found = {
            name: next((rules.get(name) for rules in taken if rules.get(name) != own), own)
            for name, own in self.config["registration"].items()
        }
        return {name: own for name, own in found.items() if own is not None}

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other commands from working on the run; `UserError`: one does, or the folder cannot be written."""
        return files.locked(self.path, "run")

    def write(self, name: str, content: bytes | str) -> None:
        """Write a whole file, or leave what was there (`UserError`); the manifest of a finished run follows."""
        data, known = content.encode() if isinstance(content, str) else content, self._manifest
        with files.staged(self.path / name, data) as place:
            if not known:
                place()
            else:
                with files.staged(self.path / _MANIFEST, _listing({**known, name: sha256(data)})) as finish:
                    self.reopen()  # until both are in their places, the run is not done
                    place()
                    finish()

    def read(self, name: str) -> bytes:
        """The content of a file; `UserError`: it cannot be read, or, in a finished run, is not what was written."""
        begun = not self._manifest and (self.path / _CONFIG).is_file()
        if begun and not (self.path / name).exists():
            found = "found one that is not; run the same study again"
            raise UserError(f"{self.path / name}: expected a finished run, {found}")
        again = "delete it and run the same command again to make it anew"
        content = files.read_bytes(self.path / name, again)
        if self._manifest.get(name) not in (None, sha256(content)):
            found = f"found another (its SHA-256 stands in {_MANIFEST})"
            raise UserError(f"{self.path / name}: expected the content that was written, {found}; {again}")
        return content

    def reopen(self) -> None:
        """Count a finished run as unfinished until `finish`, as files that belong together are written anew."""
        files.remove(self.path / _MANIFEST)

    def finish(self) -> None:
        """Write the manifest, with the digests that units were sealed with; `UserError`: a unit is not whole."""
        files.sweep(self.path)
        found = files.digests_in(self.path, ("units/", _MANIFEST))
        for unit in self.units:
            if not unit.digests:
                raise UserError(f"{unit.path}: expected a whole unit, found none; run the same command again")
            found |= unit.digests
        files.write_atomic(self.path / _MANIFEST, _listing(found))

    @property
    def is_done(self) -> bool:
        """Whether the run was finished and no file is gone since; none is read."""
        known = self._manifest
        return bool(known) and all((self.path / name).is_file() for name in known)

    @property
    def is_concluded(self) -> bool:
        """Whether it has verdicts that are of its evidence: it is done, or a committed result, which names no study."""
        return (self.path / "claims.json").is_file() and (self.is_done or "source" not in self.config)

    @property
    def _manifest(self) -> dict[str, str]:
        return files.read_record(self.path / _MANIFEST).get("files", {})


def _listing(found: Mapping[str, str]) -> bytes:
    return files.indented({"files": dict(sorted(found.items()))})


def runs_in(root: Path | str) -> list[RunFolder]:
    """The runs at or under a path: itself, or those in it, `<study>/<hash>`; `UserError`: none is there."""
    root = Path(root)
    below = [path for depth in ("*", "*/*") for path in root.glob(depth) if not path.name.startswith(".")]
    found = [path for path in ([root] if _is_run(root) else sorted(below)) if _is_run(path)]
    if not found:
        what = "no run" if root.is_dir() else "a file" if root.exists() else "nothing there"
        raise UserError(f"{root}: expected a run, or a root of runs, found {what}; check the path")
    return [RunFolder(path) for path in found]


def listed(names: Iterable[object], limit: int = 10) -> str:
    """Names for an error line, at most so many of them."""
    words = [str(name) for name in names]
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more


@functools.lru_cache(maxsize=16)
def _checked(path: Path, content: bytes, again: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        record = json.loads(content)
        if "schema_version" in record or record.pop("format") != _FORMAT:
            raise EarlierVersion(f"{path}: made by an earlier version; run it again")
        if record.pop("sha256") == sha256(canonical_json(record).encode()):
            return record
    raise UserError(f"{path / _CONFIG}: expected the record of a run, found one that was altered; {again}")


def _is_run(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # other programs write files of that name
        named = re.fullmatch(rf"[0-9a-f]{{{_DIGITS}}}", folder.name) and (folder / _CONFIG).is_file()
        return bool(named or re.search(rb'"(format|study)"', (folder / _CONFIG).read_bytes()[:200]))
    return False
