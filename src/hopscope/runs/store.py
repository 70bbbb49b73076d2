"""The run folder: everything that is known about a run is read from it, and nothing from memory."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from hopscope.errors import UserError
from hopscope.runs.events import EVENTS, append_event, read_events
from hopscope.runs.evidence_write import training_rows
from hopscope.runs.files import (
    is_file,
    listed,
    read_json,
    remove,
    seal,
    write_atomic,
    write_json,
)
from hopscope.runs.hashing import RESULTS_VERSION, SCHEMA_VERSION, check_schema, config_hash
from hopscope.runs.locks import folder_lock
from hopscope.runs.members import MemberRecord, read_members
from hopscope.runs.metrics import GATHERED, read_metrics
from hopscope.runs.units import SLIM, UnitFolder
from hopscope.strict_json import canonical_json

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "study": str,
    "preset": (str, type(None)),
    "hash": str,
    "config": dict,
}


@dataclass(frozen=True)
class RunFolder:
    """A folder `ROOT/<study>/<hash>`.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(
        cls,
        out: Path,
        study: str,
        config: Mapping[str, Any],
        members: Sequence[Mapping[str, Any]],
        preset: str | None,
    ) -> "RunFolder":
        """Finds the run of a configuration under the root `out`, or makes it.

        Args:
            out: the root.
            study: the study's name.
            config: the whole configuration, as JSON values; with the study it decides which run this is.
            members: fields of `MemberRecord`, in run-global order.
            preset: the preset's name, for the record; a run that is found keeps its own.

        Raises:
            UserError: the root is not a folder that can be written, or the run that is there is damaged, was
                made by a newer Hopscope, or holds another configuration.
        """
        name = config_hash(study, dict(config))
        if is_file(out):
            raise UserError(f"{out}: expected a folder for the runs, found a file: choose another folder")
        run = cls(out / study / name)
        with run.lock():
            if is_file(run._config_path):
                run._check_same(config, members)
                return run
            seal(run.path)
            # The configuration comes last: where it is, the members are.
            write_json(run._members_path, [MemberRecord(**member).model_dump() for member in members])
            versions = {"schema_version": SCHEMA_VERSION, "results_version": RESULTS_VERSION}
            write_json(
                run._config_path,
                versions | {"study": study, "preset": preset, "hash": name, "config": dict(config)},
            )
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in a folder.

        Raises:
            UserError: its records are missing, damaged, or made by a newer Hopscope.
        """
        run = cls(path)
        _ = run._record, run.members
        return run

    @property
    def study(self) -> str:
        """Name of the run's study."""
        return str(self._record["study"])

    @property
    def preset(self) -> str | None:
        """The preset that the run was first asked for with."""
        preset: str | None = self._record["preset"]
        return preset

    @property
    def asked_for(self) -> tuple[str, str]:
        """Name of the study, and of the preset or nothing, from one look at the record."""
        record = self._record
        return str(record["study"]), str(record["preset"] or "")

    @property
    def hash(self) -> str:
        """The hash of study and configuration."""
        return str(self._record["hash"])

    @property
    def config(self) -> dict[str, Any]:
        """The run's whole configuration, as JSON values."""
        return dict(self._record["config"])

    @property
    def members(self) -> list[MemberRecord]:
        """The members, in run-global order."""
        return read_members(self._members_path, self._remedy)

    @property
    def units(self) -> list[UnitFolder]:
        """The units, in the order of their first members, whether or not they have been started."""
        return [UnitFolder(self.path / "units" / unit) for unit in self._unit_hashes()]

    def unit(self, hash: str) -> UnitFolder:
        """One unit.

        Raises:
            UserError: the run has no such unit.
        """
        known = self._unit_hashes()
        if hash not in known:
            raise UserError(
                f"{self.path}: expected one of the units {listed(known)}, found {hash}: choose one"
            )
        return UnitFolder(self.path / "units" / hash)

    def _unit_hashes(self) -> Mapping[str, None]:
        """The units' hashes, in order.

        Kept while the file of the members is the same: whoever asks for each of many units would read it as often.
        """
        try:
            state = self._members_path.stat()
        except OSError:
            return _hashes.__wrapped__(self, ())  # which says what is wrong
        return _hashes(self, (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size))

    @property
    def is_done(self) -> bool:
        """Whether everything from training to report is complete."""
        return is_file(self.path / "DONE")

    def mark_done(self) -> None:
        """Records that the run is complete.

        Raises:
            UserError: the file cannot be written.
        """
        write_atomic(self.path / "DONE", "")

    def clear_done(self) -> None:
        """Records that the run is not complete.

        Raises:
            UserError: the file cannot be removed.
        """
        remove(self.path / "DONE")

    def event(self, kind: str, **fields: Any) -> None:
        """Appends to `events.jsonl`, with the time; best effort, see `hopscope.runs.events`.

        Raises:
            ValueError: a field holds a NaN or an infinity.
        """
        append_event(self.path / EVENTS, kind, fields)

    def events(self) -> list[dict[str, Any]]:
        """The events so far, each with `time` (ISO 8601, UTC), `kind` and its own fields.

        Raises:
            UserError: the file cannot be read.
        """
        return read_events(self.path / EVENTS)

    def metrics(self) -> pa.Table:
        """The training record of all members so far; columns as `read_metrics` says.

        Raises:
            UserError: a file is damaged.
        """
        if is_file(self.path / SLIM) and not is_file(self.path / GATHERED):
            return training_rows(self.path)
        return read_metrics(self.path)

    def write_json(self, name: str, value: object) -> None:
        """Writes a file of the run, such as `claims.json`.

        Raises:
            UserError: the file cannot be written.
            ValueError: the value holds a NaN or an infinity.
        """
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        """Reads a file of the run.

        Raises:
            UserError: the file is missing or damaged.
        """
        return read_json(self.path / name, "run the same command again to make it anew")

    def lock(self, patience: float = 3.0) -> AbstractContextManager[None]:
        """Keeps other processes from working on the run; waits `patience` seconds for them.

        A process that holds the lock must not ask for it again.

        Raises:
            UserError: another process is still working on it.
        """
        return folder_lock(self.path, "run", patience)

    @property
    def _config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def _members_path(self) -> Path:
        return self.path / "members.json"

    @property
    def _remedy(self) -> str:
        return f"restore it, or move {self.path} away and run the same command again"

    @property
    def _record(self) -> dict[str, Any]:
        path = self._config_path
        record = check_schema(path, read_json(path, self._remedy), self._remedy)
        wrong = [name for name, kind in _FIELDS.items() if not isinstance(record.get(name, ...), kind)]
        wrong += [name for name in ("study", "hash") if name not in wrong and not record[name].isprintable()]
        if wrong:
            raise UserError(
                f"{path}: expected {listed(_FIELDS)}, found no valid {listed(wrong)}: {self._remedy}"
            )
        version = record.get("results_version", RESULTS_VERSION)
        if config_hash(record["study"], record["config"], version) != record["hash"]:
            raise UserError(
                f"{path}: expected the configuration that the run is named after ({record['hash']}), found "
                f"another: {self._remedy}"
            )
        return record

    def _check_same(self, config: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> None:
        expected = [MemberRecord(**member).model_dump() for member in members]
        found = [member.model_dump() for member in self.members]
        for what, ours, theirs in (
            ("configuration", dict(config), self.config),
            ("members", expected, found),
        ):
            if canonical_json(ours) != canonical_json(theirs):
                found_other = f"expected the {what} that this command asks for, found another"
                raise UserError(f"{self.path}: {found_other}: {self._remedy}")


@lru_cache(maxsize=16)
def _hashes(run: RunFolder, state: tuple[int, ...]) -> Mapping[str, None]:
    return MappingProxyType(dict.fromkeys(member.unit for member in run.members))
