"""Models of one reading that are trained as members of one program, each into the unit that it would be alone.

Members do not touch each other, and their draws follow from their seeds, so each gets what it would get alone, to
rounding.  Training that was stopped in time goes on from the units' last checkpoints.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from background import TOGETHER
from torch import Tensor

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors.local import prepare, unit_engine, unit_layout, versions
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    drop_parts_after,
    save_checkpoint,
    source_hash,
    write_json,
)
from hopscope.runs.files import read_json
from hopscope.runs.hashing import content_hash
from hopscope.runs.metrics import parts, read_table, write_table
from hopscope.studies import find_study
from hopscope.studies.program import Program
from hopscope.training import threads as arithmetic
from hopscope.training.budget import TimeBudget
from hopscope.training.config import TrainJob, job_of
from hopscope.training.engines import ENGINES
from hopscope.training.trainer import HEALTHY, Progress, Trainer

WARM_STEPS = 100
"""After which steps are timed."""


@dataclass(frozen=True)
class Reading:
    """Models of one reading of the queue.

    Attributes:
        name: of the reading.
        study: that trains and reads it.
        run: whose members they are.
        units: number of each member that is asked for → its unit.
    """

    name: str
    study: Program
    run: RunFolder
    units: dict[int, UnitFolder]

    def job(self) -> TrainJob:
        """One training of all of them."""
        jobs = [job_of(unit) for unit in self.units.values()]
        return jobs[0].model_copy(update={"members": tuple(each.members[0] for each in jobs)})

    @property
    def begun(self) -> bool:
        """Whether training goes on where it stopped."""
        return any(_resumes_at(unit) for unit in self.units.values())

    def trained(self) -> dict[int, UnitFolder]:
        """Units that are trained to their end."""
        return {
            number: unit
            for number, unit in self.units.items()
            if job_of(unit).training.steps in dict(unit.checkpoints())
        }

    def begun_alike(self) -> Iterator["Reading"]:
        """Those that are not trained to their end, in groups that go on from the same step; the furthest first."""
        steps = {number: _resumes_at(unit) for number, unit in self.units.items()}
        left = {number: step for number, step in steps.items() if number not in self.trained()}
        for step in sorted(set(left.values()), reverse=True):
            yield replace(self, units={n: self.units[n] for n, at in left.items() if at == step})


def reading_of(home: Path, queue: Path, name: str, members: Sequence[int]) -> Reading:
    """The run of a reading, made where there is none, and the units of some of its members.

    Raises:
        UserError: the queue has no such reading, or the reading no such member, or one in a unit with others.
    """
    readings = read_json(queue)["readings"]
    if name not in readings:
        raise UserError(f"expected a reading of the queue ({', '.join(readings)}), found {name!r}")
    asked = readings[name]
    study = find_study(asked["study"])
    run = prepare(
        study, study.configured(asked["preset"], asked["fields"]), out=home / "runs", preset=asked["preset"]
    )
    known = {record.member: run.unit(record.unit) for record in run.members}
    wrong = [member for member in members if member not in known or len(job_of(known[member]).members) != 1]
    if wrong:
        raise UserError(f"{name}: expected members 0 to {len(known) - 1}, each a unit, found {wrong[0]}")
    return Reading(name, study, run, {member: known[member] for member in members})


def _resumes_at(unit: UnitFolder) -> int:
    """Step that training goes on from; 0 where it begins."""
    point = unit.resume_point()
    return point[0] if point is not None and unit.has_record_of(point[0]) else 0


class TooSlow(Exception):
    """Training would not end in time."""


class SplittingTrainer(Trainer):
    """Trains members together, and writes the checkpoints of each into its own unit while training goes on.

    The optimiser's state is written once, when training breaks off: what is killed before begins again.
    """

    def __init__(self, units: Sequence[UnitFolder], within: float | None, *what: Any):
        """`within`: seconds from now in which training should end; other arguments as of `Trainer`."""
        super().__init__(*what)
        self.units, self._within = units, within
        self._pool, self._written = ThreadPoolExecutor(os.cpu_count()), list[Future[None]]()
        self._begun: tuple[float, int] | None = None
        self._started = time.monotonic()

    def report(self, progress: Progress) -> None:
        """Say how it goes, and break off early where it goes too slowly.

        Raises:
            TooSlow: it would not end in time.
        """
        _say_progress(progress)
        if self._begun is None and progress.step >= WARM_STEPS:
            self._begun = time.monotonic(), progress.step
        elif self._begun is not None and progress.step >= 3 * WARM_STEPS and self._within is not None:
            now, (since, first) = time.monotonic(), self._begun
            left = (now - since) / (progress.step - first) * (progress.steps - progress.step)
            if now - self._started + left > self._within:
                raise TooSlow(f"{now - self._started + left:.0f} s, {self._within:.0f} s are there")
            self._within = None

    def finish(self) -> None:
        """Wait until everything is written, the optimiser's state too where training broke off."""
        self._wait()
        if self.step < self.job.training.steps:
            self._write(whole=True)
            self._wait()
        self._pool.shutdown()

    def _wait(self) -> None:
        for each in self._written:
            each.result()

    def _resume(self) -> None:
        points = [unit.resume_point() for unit in self.units]
        found = [point for point in points if point is not None and point[0]]
        if len(found) < len(self.units):
            super()._resume()
            return
        (self.step,) = {step for step, _, _ in found}
        for unit in self.units:
            drop_parts_after(unit.path, self.step)
        arrays = {
            name: torch.from_numpy(np.concatenate([tensors[name] for _, tensors, _ in found]))
            for name in found[0][1]
        }
        weights = {name.removeprefix("weights/"): each for name, each in arrays.items() if "weights/" in name}
        with torch.no_grad():
            self.model.parameters.load(weights)
            self.optimizer.first_moment.copy_(arrays["optimiser/first_moment"])
            self.optimizer.second_moment.copy_(arrays["optimiser/second_moment"])
        self.diverged_at = [int(step) for _, _, metadata in found for step in metadata["frozen_at"]]
        self.optimizer.alive.copy_(torch.tensor(self.diverged_at) == HEALTHY)

    def _save(self) -> None:
        self._write(whole=self.step == self.job.training.steps)

    def _write(self, whole: bool) -> None:
        """Hand the weights of this step to threads that write them; the whole state too, if need be.

        A model that is trained to its end needs no moments, and a pack has no room for them; zeros stand for them, so
        that the checkpoint is taken for the end of a training that can be read.
        """
        flat = _copy(self.model.parameters.flat)
        arrays = {f"weights/{name}": view.numpy() for name, view in self.model.parameters.views(flat).items()}
        if whole:
            for name in ("first_moment", "second_moment"):
                moment = _copy(getattr(self.optimizer, name))
                at_the_end = self.step == self.job.training.steps
                arrays[f"optimiser/{name}"] = (torch.zeros_like(moment) if at_the_end else moment).numpy()
        for index, unit in enumerate(self.units):
            own = {name: array[index : index + 1] for name, array in arrays.items()}
            metadata = {"step": self.step, "frozen_at": self.diverged_at[index : index + 1]}
            path = unit.checkpoint_path(self.step)
            self._written.append(self._pool.submit(save_checkpoint, path, own, metadata))


_STARTED = time.monotonic()


def say(message: dict[str, Any]) -> None:
    """One thing that was done, as a line of JSON."""
    print(json.dumps({"seconds": round(time.monotonic() - _STARTED, 1), **message}), flush=True)


def _say_progress(progress: Progress) -> None:
    """Now and then."""
    if progress.step <= 100 or progress.step % 1_000 == 0 or progress.step == progress.steps:
        losses = [round(loss, 3) for loss in progress.losses]
        rate = round(progress.samples_per_second)
        say({"kind": "progress", "step": progress.step, "losses": losses, "samples_per_second": rate})


def _copy(tensor: Tensor) -> Tensor:
    """In the host's memory, where the next step does not change it."""
    return tensor.detach().to("cpu", copy=True)


def train_together(
    reading: Reading, device: str, budget: TimeBudget, within: float | None, commit: str | None
) -> None:
    """Train members in one program, each into its own unit.

    Args:
        reading: whose members are trained; all units go on from the same step, or begin.
        device, budget: where, and how long at most.
        within: seconds in which training should end, if it is to be broken off early where it would not.
        commit: that is trained by, for the record.

    Raises:
        TooSlow: it would not end in time; nothing is kept.
    """
    job, units = reading.job(), list(reading.units.values())
    engine = unit_engine(job, device, "auto")
    threads = os.cpu_count() or 1
    layout = unit_layout(engine, device, threads)
    # Not by its hash alone: that of a single member is its own unit's.
    name = f"together-{content_hash(job.model_dump(mode='json'))}"
    together = UnitFolder(reading.run.path / "units" / name)
    together.create({"label": job.label, "plan": job.model_dump(mode="json"), "layout": layout})
    arithmetic.prepare(threads)
    task = reading.study.task(job, device)
    evaluate = reading.study.evaluator(together, job, task)
    trainer = SplittingTrainer(units, within, job, task, together, evaluate, device, ENGINES[engine])
    try:
        with suppress(TimeBudgetReached):
            trainer.run(budget, trainer.report)
        trainer.finish()
        split_record(together, units)
    except TooSlow:
        trainer.finish()
        for unit in units:
            unit.drop_checkpoints()
            drop_parts_after(unit.path, -1)
        raise
    finally:
        rmtree(together.path)
    made_by = {"commit": commit, "versions": versions(), "source_hash": source_hash()}
    note = {**layout, "device": name_of(device), "members": list(reading.units), **made_by}
    for unit in units:
        write_json(unit.path / TOGETHER, note)


def name_of(device: str) -> str:
    """The device's name, for the record."""
    return str(torch.cuda.get_device_name()) if device == "cuda" else device


def split_record(together: UnitFolder, units: Sequence[UnitFolder]) -> None:
    """Copy the training record of a unit's members into units of one member each."""
    import pyarrow.compute as pc

    numbers = [job_of(unit).members[0].member for unit in units]
    for path in parts(together.path):
        table = read_table(path, "train again")
        for number, unit in zip(numbers, units, strict=True):
            own = table.filter(pc.equal(table["member"], number))
            write_table(unit.path / "metrics" / path.name, own)
