"""A unit: members of one configuration that train as one ensemble, in a folder that is whole or can go on.

`checkpoints/STEP.safetensors`: weights, and the rows since the checkpoint before.  `checkpoints/STEP.optimiser.…`: the
rest of what training goes on from, of the newest checkpoint alone.  `measures/NAME@STEP.safetensors`: what a measure
found.  `unit.json`: the SHA-256 of all of them, written last.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hopscope.config import Config
from hopscope.runs import checkpoint as files
from hopscope.runs.checkpoint import Array, CheckpointDamaged, damaged, load_checkpoint, save_checkpoint

Row = Mapping[str, Any]
"""A number that was measured: keys are columns of the evidence table.  `member` and `value` may be lists of one length,
in which a member that has diverged has `None`; without `member`, a list is of all members of its unit."""

State = tuple[dict[str, Array], dict[str, Any]]
"""All that training goes on from: arrays `weights/…` `[member, …]` and `optimiser/…` `[member, size]`; `step`, and
`diverged_at`, the step at which each member was seen to have diverged, or `None`."""

TRAINING = "training"
"""The measure of rows that were recorded while a unit trained."""


class Member(Config):
    """One trained model of a run.

    Attributes:
        member, unit: its number in the run, and the name of the unit that it trains in.
        configuration, overrides: label of its configuration; dotted field → value, where that differs from the study.
        seed: of its samples and its weights, where `data_seed` and `init_seed` say nothing else.
    """

    member: int
    seed: int = 0
    configuration: str = ""
    overrides: dict[str, Any] = {}
    init_seed: int | None = None
    data_seed: int | None = None
    unit: str = ""


@dataclass(frozen=True)
class UnitFolder:
    """The folder `units/NAME` of a run, made by `RunFolder.unit`.

    Attributes:
        path, run_path: the folder, and that of the run.
        job: the unit's entry in the run's configuration.
        members: in the order of the ensemble's first axis, which is that of the run.
    """

    path: Path
    run_path: Path
    job: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    members: tuple[Member, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The unit's name, which is also the folder's."""
        return self.path.name

    @property
    def steps(self) -> list[int]:
        """Steps of the checkpoints that are there, ascending."""
        paths = self.path.glob("checkpoints/*.safetensors")
        return sorted(int(path.stem) for path in paths if path.stem.isdigit())

    def keep(self, rows: Iterable[Row], state: State) -> None:
        """Write a checkpoint: the rows since the one before, and the state, as `training.train` hands them on.

        A checkpoint of step 0 begins the unit: whatever else is in its folder is removed first.
        """
        arrays, metadata = state
        step = metadata["step"]
        if step == 0:
            # What checkpoints rest on goes after them.  What was measured over the whole run was of other weights.
            for name in ("checkpoints", "measures", "taken.json", "unit.json"):
                files.remove(self.path / name)
            files.remove(self.run_path / "measures")
        before = max((each for each in self.steps if each < step), default=None)
        weights = {name: array for name, array in arrays.items() if name.startswith("weights/")}
        rest = {name: array for name, array in arrays.items() if name not in weights}
        # The optimiser first: what has a checkpoint can go on from it, whenever the process is killed.
        save_checkpoint(self._checkpoint(step, "optimiser."), rest, {"step": step})
        own = {"step": step, "state": metadata, "after": before, "rows": list(rows)}
        save_checkpoint(self._checkpoint(step), weights, own)
        self._sweep()

    def take_over(self, rules: Callable[["UnitFolder"], Mapping[str, str] | None]) -> None:
        """Take the checkpoints of the unit from another run of the study that has trained it, unless it has begun.

        Units of one name are the same training: runs share them that differ in seeds, or in what they measure.  `rules`
        gives the registered ones that the unit brings along, or `None` where they are not known: it is left.
        """
        for path in () if 0 in self.steps else sorted(self.run_path.parent.glob(f"*/units/{self.name}")):
            other = replace(self, path=path, run_path=path.parents[1])
            if other.is_whole and (brought := rules(other)) is not None:
                taken = {"registration": dict(brought), "made_by": other.made_by}
                files.write_atomic(self.path / "taken.json", files.with_sum(taken))
                # Step 0 last: without it the unit has not begun.
                for file in sorted(path.glob("checkpoints/*"), reverse=True):
                    content = files.read_bytes(file, "try again")
                    files.write_atomic(self.path / "checkpoints" / file.name, content)
                return

    def latest(self) -> tuple[int, State] | None:
        """Step and state of the newest checkpoint; `None` where the unit must begin again.

        It must where nothing was kept, and, which a warning tells, where a file of any checkpoint is damaged or gone.
        """
        try:
            rules = self.path / "taken.json"
            if (rules.exists() or rules.name in self.record.get("files", {})) and not self.taken:
                raise damaged(rules, "an altered one" if rules.exists() else "none", "the rules of a unit")
            for step, arrays, metadata in self._chain():
                if step == self.steps[-1]:
                    rest, _ = _load(self._checkpoint(step, "optimiser."), step)
                    return step, (arrays | rest, metadata["state"])
        except CheckpointDamaged as error:
            warnings.warn(f"{str(error).rpartition(';')[0]}; the unit is trained again", stacklevel=2)
        return None

    def weights(self, step: int) -> dict[str, Array]:
        """Weights at a checkpoint, by name, `[member, …]`; `UserError`: it is damaged or gone."""
        arrays = _load(self._checkpoint(step), step)[0]
        return {name.removeprefix("weights/"): array for name, array in arrays.items()}

    def diverged_at(self, step: int) -> list[int | None]:
        """When each member was seen to have diverged, up to a checkpoint; `UserError`: it is damaged or gone."""
        return list(_load(self._checkpoint(step), step)[1]["state"]["diverged_at"])

    def rows(self, after: int = -1) -> Iterator[Row]:
        """Rows that were recorded in training, of checkpoints after a step; `UserError`: one is damaged or gone."""
        for step, _, metadata in self._chain() if max(self.steps, default=after) > after else ():
            yield from (self._spread(row, TRAINING) for row in metadata["rows"] if step > after)

    def keep_measure(
        self, name: str, source: str, step: int | None, rows: Iterable[Row], arrays: Mapping[str, Array] = {}
    ) -> list[Row]:
        """Write what a measure found, and return the rows as `measured` does.

        `source` is the hash of all that decides its numbers: with another, it is measured again.  Without a step it is
        of the unit as a whole.  In rows, a `file` that names one of the arrays becomes the path of the file with them.
        """
        path = self._measure(name, step)
        file = {"file": path.relative_to(self.run_path).as_posix()}
        named = [{**row, **(file if row.get("file") in arrays else {})} for row in rows]
        save_checkpoint(path, arrays, {"measure": name, "source": source, "rows": named})
        return self.measured(name, source, step) or []

    def measured(self, name: str, source: str, step: int | None) -> list[Row] | None:
        """Rows that a measure found; `None` where it was not asked, has changed since, or its file is damaged."""
        with contextlib.suppress(CheckpointDamaged):
            record = _load(self._measure(name, step))[1]
            if (record.get("measure"), record.get("source")) == (name, source):
                return [self._spread(row, name) for row in record["rows"]]
        return None

    def seal(self, **record: Any) -> None:
        """Write `unit.json`, with what else it is to say, such as the engine: the unit is whole."""
        self._sweep()
        found = {"unit": self.name, **record, "files": files.digests_in(self.path, ("unit.json",))}
        files.write_atomic(self.path / "unit.json", files.with_sum(found))

    @property
    def record(self) -> dict[str, Any]:
        """Content of `unit.json`; empty where it is missing or damaged."""
        return files.read_record(self.path / "unit.json")

    @property
    def taken(self) -> dict[str, Any]:
        """Of a unit that another run has trained: the rules that were registered for that, and `made_by`."""
        return files.read_record(self.path / "taken.json", "registration")

    @property
    def made_by(self) -> dict[str, str]:
        """Versions and processor by which it was trained; empty before."""
        return (self.record or self.taken).get("made_by", {})

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of all files that the unit was sealed with, by their path in the run's folder; empty before."""
        found, place = self.record.get("files", {}), self.path.relative_to(self.run_path).as_posix()
        if found:
            found["unit.json"] = files.sha256(files.read_bytes(self.path / "unit.json", "try again"))
        return {f"{place}/{name}": digest for name, digest in found.items()}

    @property
    def is_whole(self) -> bool:
        """Whether the unit was sealed and every file is as it was then; all of them are read."""
        sealed = [(self.run_path / name, digest) for name, digest in self.digests.items()]
        with contextlib.suppress(OSError):
            return bool(sealed) and all(files.sha256(path.read_bytes()) == digest for path, digest in sealed)
        return False

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other processes from working on the unit; `UserError`: one does, or the folder cannot be written."""
        return files.locked(self.path, "unit")

    def _checkpoint(self, step: int, what: str = "") -> Path:
        return self.path / "checkpoints" / f"{step:09d}.{what}safetensors"

    def _measure(self, name: str, step: int | None) -> Path:
        place = "" if step is None else f"@{step:09d}"
        return self.path / "measures" / f"{quote(name, safe=' ()')}{place}.safetensors"

    def _chain(self) -> Iterator[tuple[int, dict[str, Array], dict[str, Any]]]:
        before = None
        for step in self.steps:
            arrays, metadata = _load(self._checkpoint(step), step)
            if metadata["after"] != before:
                raise damaged(self._checkpoint(metadata["after"] or 0), "none")
            yield step, arrays, metadata
            before = step

    def _spread(self, row: Row, measure: str) -> Row:
        own = {"member": [member.member for member in self.members]} if isinstance(row["value"], list) else {}
        return {"measure": measure, **own, **row}

    def _sweep(self) -> None:
        files.sweep(self.path)
        newest = self._checkpoint(max(self.steps, default=0), "optimiser.")
        for path in self.path.glob("checkpoints/*.optimiser.*"):
            if path != newest:
                files.remove(path)


def _load(path: Path, step: int | None = None) -> State:
    if not path.exists():
        raise damaged(path, "none")
    arrays, metadata = load_checkpoint(path)
    if metadata.get("step") != step:
        raise damaged(path, f"one of step {metadata.get('step')}")
    return arrays, metadata
