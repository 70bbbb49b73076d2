"""A unit's folder: members of equal shape that are trained as one program."""

import re
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope.errors import UserError
from hopscope.runs.arrays import Array, npz_bytes, read_arrays
from hopscope.runs.checkpoints import CheckpointDamaged, load_checkpoint
from hopscope.runs.events import EVENTS, append_event
from hopscope.runs.files import is_file, listed, read_json, remove, seal, write_atomic, write_json
from hopscope.runs.hashing import SCHEMA_VERSION, check_schema
from hopscope.runs.locks import folder_lock

if TYPE_CHECKING:
    from hopscope.runs.store import RunFolder

_CHECKPOINT = re.compile(r"step-(\d{9,})\.safetensors")
_AGAIN = "delete it and run the same command again"

THINNED = "thinned.json"
"""File of a unit that lost checkpoints on purpose (`hopscope.runs.thinning`)."""

SLIM = "units.json"
"""File of a slim run folder in place of `units/`: the content of every `unit.json`, by the unit's hash."""


class CheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over when a run was resumed."""


@dataclass(frozen=True)
class UnitFolder:
    """A folder `units/<hash>` of a run.

    Attributes:
        path: the folder.
    """

    path: Path

    @property
    def hash(self) -> str:
        """The unit's hash, which is the folder's name."""
        return self.path.name

    @property
    def run_path(self) -> Path:
        """The folder of the run that the unit belongs to."""
        return self.path.parent.parent

    @property
    def run(self) -> "RunFolder":
        """The run that the unit belongs to."""
        from hopscope.runs.store import RunFolder  # which knows its units

        return RunFolder(self.run_path)

    def event(self, kind: str, **fields: Any) -> None:
        """Note in the run's log that something happened; see `append_event`."""
        append_event(self.run_path / EVENTS, kind, fields)

    def create(self, unit_record: Mapping[str, Any]) -> "UnitFolder":
        """Records the unit's label, plan and layout, unless they are on record: a resumed unit keeps its own.

        Args:
            unit_record: label, plan, layout, versions, source hash; schema version and hash are added.

        Raises:
            UserError: the record cannot be written, or one that is there cannot be read.
        """
        path = self.path / "unit.json"
        if is_file(path):
            _ = self.record
        else:
            seal(self.path)
            write_json(path, {"schema_version": SCHEMA_VERSION, "unit": self.hash} | dict(unit_record))
        return self

    @property
    def record(self) -> dict[str, Any]:
        """Content of `unit.json`; in a slim run folder, the unit's entry in `units.json`.

        Raises:
            UserError: the file is missing, damaged, or made by a newer Hopscope.
        """
        path = self.path / "unit.json"
        remedy = f"delete the folder {self.path} and run the same command again"
        if self._is_slim and not is_file(path):
            path, remedy = self._slim_path, f"restore {self._slim_path}"
            units = check_schema(path, read_json(path, remedy), remedy).get("units")
            return check_schema(path, units.get(self.hash) if isinstance(units, dict) else None, remedy)
        return check_schema(path, read_json(path, remedy), remedy)

    @property
    def is_recorded(self) -> bool:
        """Whether there is a record of the unit: it was begun."""
        return is_file(self.path / "unit.json") or self._is_slim

    @property
    def _slim_path(self) -> Path:
        return self.run_path / SLIM

    @property
    def _is_slim(self) -> bool:
        return is_file(self._slim_path)

    def checkpoint_path(self, step: int) -> Path:
        """Path of the checkpoint of a step, whether or not it is there."""
        return self.path / "checkpoints" / f"step-{step:09d}.safetensors"

    def checkpoints(self) -> list[tuple[int, Path]]:
        """Steps and paths of the checkpoints, ascending."""
        files = (self.path / "checkpoints").glob("step-*.safetensors")
        matches = [(_CHECKPOINT.fullmatch(path.name), path) for path in files]
        return sorted((int(match[1]), path) for match, path in matches if match)

    def checkpoint(self, step: int | None = None) -> tuple[int, dict[str, Array], dict[str, Any]]:
        """A checkpoint's step, arrays and metadata.

        Args:
            step: its step; the last one by default.

        Raises:
            CheckpointDamaged: its content cannot be trusted.
            UserError: there is no checkpoint of that step.
        """
        found = dict(self.checkpoints())
        if not found and self._is_slim:
            raise UserError(
                f"{self.run_path}: expected a run with its checkpoints, found only what it concluded ({SLIM}): "
                "make the run again with the command that made it"
            )
        if not found:
            raise UserError(
                f"{self.path}: expected a checkpoint, found none: run the study until its first one"
            )
        step = self._last(found) if step is None else step
        if step not in found:
            steps = listed(found, limit=40)
            raise UserError(
                f"{self.path}: expected a checkpoint of step {step}, found steps {steps}: choose one"
            )
        return (step, *_load(step, found[step]))

    def _last(self, found: Mapping[int, Path]) -> int:
        """The last checkpoint's step; of a unit that is done, the last step of training.

        Raises:
            UserError: the unit is done and its last checkpoint is gone, and nobody left it out on purpose.
        """
        last = max(found)
        end = self.steps
        if self.is_done and end is not None and last < end and not is_file(self.path / THINNED):
            raise UserError(
                f"{self.path}: expected the checkpoint of the last step {end}, found it gone; name a step that is "
                f"there ({listed(found, limit=40)}), or run the same command again to train the unit to its end"
            )
        return last

    @property
    def steps(self) -> int | None:
        """Steps of the unit's training, if its record tells them."""
        plan = self.record.get("plan") if self.is_recorded else None
        training = plan.get("training") if isinstance(plan, dict) else None
        steps = training.get("steps") if isinstance(training, dict) else None
        return steps if isinstance(steps, int) else None

    def resume_point(self) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """The newest whole checkpoint that holds the optimiser's state: its step, arrays and metadata.

        Damaged ones after it are left in place, with a `CheckpointWarning` and an event for each; training
        that goes on from here overwrites them.

        Returns:
            None where training must start from the beginning.

        Raises:
            UserError: a file cannot be read.
        """
        damaged: list[CheckpointDamaged] = []
        point = None
        for step, path in reversed(self.checkpoints()):
            try:
                tensors, metadata = _load(step, path)
            except CheckpointDamaged as error:
                damaged.append(error)
                continue
            if any(name.startswith("optimiser/") for name in tensors):
                point = (step, tensors, metadata)
                break
        for passed_over in damaged:
            self._report(passed_over, self.checkpoint_path(point[0]).name if point else None)
        return point

    def has_record_of(self, step: int) -> bool:
        """Whether the training record is whole up to a step; a `CheckpointWarning` and an event if it is not.

        Training cannot go on from that step then: what was measured before it would be missing for good.
        """
        from hopscope.runs.metrics import check_parts  # which needs pyarrow

        try:
            check_parts(self.path, step)
        except UserError as error:
            found = str(error).partition(": delete the folder")[0]
            self.event("training_record_damaged", unit=self.hash, reason=found)
            warnings.warn(f"{found}: starting from the beginning instead", CheckpointWarning, stacklevel=3)
            return False
        return True

    def drop_checkpoints(self) -> None:
        """Remove every checkpoint: training begins anew.

        Raises:
            UserError: a file cannot be removed.
        """
        for _, path in self.checkpoints():
            remove(path)

    def _report(self, error: CheckpointDamaged, instead: str | None) -> None:
        file = error.path.relative_to(self.run_path).as_posix()
        self.event("checkpoint_damaged", file=file, reason=error.reason, instead=instead)
        goes_on = f"going on from {instead}" if instead else "starting from the beginning"
        message = f"{error.path}: expected a whole checkpoint, found {error.reason}: {goes_on} instead"
        warnings.warn(message, CheckpointWarning, stacklevel=3)

    def analysis_path(self, name: str, step: int, suffix: str = "json") -> Path:
        """Path of an analysis of a checkpoint, whether or not it is there; `suffix` is json or npz."""
        return self.path / "analysis" / f"{name}-step-{step:09d}.{suffix}"

    def file_of(self, name: str, step: int, suffix: str = "json") -> str:
        """Path of an analysis relative to the run, as rows of the evidence name it."""
        return self.analysis_path(name, step, suffix).relative_to(self.run_path).as_posix()

    def write_analysis(self, name: str, step: int, value: Mapping[str, Any]) -> Path:
        """Writes the findings of one analysis at one checkpoint.

        Args:
            name: the analysis.
            step: the checkpoint's step.
            value: JSON values, or NumPy arrays alone, which make an npz file.

        Returns:
            The file's path.

        Raises:
            UserError: the file cannot be written.
            ValueError: a JSON value holds a NaN or an infinity.
        """
        as_arrays = bool(value) and all(isinstance(item, np.ndarray) for item in value.values())
        path = self.analysis_path(name, step, "npz" if as_arrays else "json")
        if as_arrays:
            write_atomic(path, npz_bytes(value))
        else:
            write_json(path, dict(value))
        remove(self.analysis_path(name, step, "json" if as_arrays else "npz"))
        return path

    def read_analysis(self, name: str, step: int) -> dict[str, Any]:
        """The value that was given to `write_analysis`.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self.analysis_path(name, step, "npz")
        if not is_file(path):
            path = self.analysis_path(name, step)
            value = read_json(path, _AGAIN)
            if not isinstance(value, dict):
                raise UserError(f"{path}: expected findings by name, found another record: {_AGAIN}")
            return value
        return read_arrays(path, _AGAIN)

    @property
    def is_done(self) -> bool:
        """Whether training and analysis of the unit are complete."""
        return is_file(self.path / "DONE")

    def mark_done(self) -> None:
        """Records that the unit is complete.

        Raises:
            UserError: the file cannot be written.
        """
        write_atomic(self.path / "DONE", "")

    def lock(self, patience: float = 3.0) -> AbstractContextManager[None]:
        """Keeps other processes from working on the unit; waits `patience` seconds for them.

        Raises:
            UserError: another process is still working on it.
        """
        return folder_lock(self.path, "unit", patience)


def _load(step: int, path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    tensors, metadata = load_checkpoint(path)
    if metadata.get("step") != step:
        raise CheckpointDamaged(path, f"one of step {metadata.get('step')}")
    return tensors, metadata
