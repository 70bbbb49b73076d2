"""Reads what a run records, bit by bit, and gives it to a sink: each number once, also over several commands."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hopscope.claims import Ledger
from hopscope.errors import UserError
from hopscope.executors.tracking.sinks import Point, Sink, TrackedRun
from hopscope.runs import RunFolder, UnitFolder, content_hash
from hopscope.runs.files import is_file, read_json, write_json
from hopscope.runs.metrics import parts, read_parts_after
from hopscope.runs.units import SLIM

SENT = "sent.json"
"""Beside a tracker's files: what it has of a run."""


def tracking_folder(run: RunFolder, tracker: str) -> Path:
    """Folder of all that a tracker has on this machine: beside the studies' folders, never within a run."""
    path = run.path if len(run.path.parts) > 2 else run.path.resolve()
    return path.parent.parent / "trackers" / tracker


class Follower:
    """What a tracker has of a run, and what it lacks.

    Attributes:
        run: the run.
        folder: of the tracker's files of this run; `sent.json` in it says up to which step each unit was sent.
    """

    def __init__(self, run: RunFolder, folder: Path):
        self.run, self.folder = run, folder
        self._record = self._read()

    def send(self, sink: Sink) -> int:
        """Send what was recorded since the last call, and note it.

        Returns:
            How many numbers were sent.

        Raises:
            UserError: a file is damaged; so is one that was removed while it was read, which a later call may find.
            Exception: whatever the sink raises.
        """
        count = 0
        for unit, points in self._new():
            sink.write(points)
            count += len(points)
            self._record["sent"][unit] = max(point.step for point in points)
            write_json(self.folder / SENT, self._record)
        return count

    def conclude(self, sink: Sink) -> None:
        """Send the verdicts of a finished run, unless these were sent.

        Raises:
            UserError: the ledger is damaged.
            Exception: whatever the sink raises.
        """
        if not is_file(self.run.path / "claims.json") or not self.run.is_done:
            return
        verdicts = {claim.id: claim.verdict.value for claim in Ledger.read(self.run.path)}
        told = content_hash(verdicts)
        if self._record["verdicts"] != told:
            sink.conclude(verdicts)
            self._record["verdicts"] = told
            write_json(self.folder / SENT, self._record)

    def _read(self) -> dict[str, Any]:
        """What the tracker has; one that cannot be read is as none."""
        new = {"schema_version": 1, "sent": {}, "verdicts": None}
        try:
            record = read_json(self.folder / SENT) if is_file(self.folder / SENT) else new
        except UserError:
            return new
        whole = isinstance(record, dict) and record.keys() == new.keys() and isinstance(record["sent"], dict)
        return record if whole else new

    def _new(self) -> Iterator[tuple[str, list[Point]]]:
        """Unit → numbers that the tracker lacks, none of them empty."""
        if is_file(self.run.path / SLIM):
            yield from self._concluded()
            return
        for unit in self.run.units:
            known = self._known(unit)
            # The folder of a unit that has not begun is not there.
            if parts(unit.path) and (points := points_of(read_parts_after(unit.path, known))):
                yield unit.hash, points

    def _concluded(self) -> Iterator[tuple[str, list[Point]]]:
        """The same of a slim run folder, which has its evidence alone."""
        every = points_of(self.run.metrics())
        for unit in self.run.units:
            members = {record.member for record in self.run.members if record.unit == unit.hash}
            known = self._known(unit)
            points = [point for point in every if point.member in members and point.step > known]
            if points:
                yield unit.hash, points

    def _known(self, unit: UnitFolder) -> int:
        known = self._record["sent"].get(unit.hash, -1)
        return known if isinstance(known, int) else -1


def points_of(table: Any) -> list[Point]:
    """The rows of a training record as points; what is not finite is left out."""
    names = [name for name in ("part", "layer", "head") if name in table.schema.names]
    columns = ["member", "step", "split", "metric", "value", *names]
    found = []
    for member, step, split, metric, value, *places in zip(
        *(table[name].to_pylist() for name in columns), strict=True
    ):
        if value is None or not math.isfinite(value):
            continue
        where = [
            f"{kind}-{place}" if kind != "part" else str(place)
            for kind, place in zip(names, places, strict=True)
            if place is not None
        ]
        found.append(Point(int(member), int(step), "/".join([metric, split, *where]), float(value)))
    return found


def tracked_run(run: RunFolder) -> TrackedRun:
    """What a tracker is told of a run.

    Raises:
        UserError: a record of the run is damaged.
    """
    labels = {unit.hash: str(unit.record.get("label", unit.hash)) for unit in run.units if unit.is_recorded}
    members = {
        record.member: {
            "configuration": labels.get(record.unit, record.unit),
            "seed": record.seed,
            **record.overrides,
        }
        for record in run.members
    }
    return TrackedRun(study=run.study, hash=run.hash, config=run.config, members=members)
