"""Train models of a campaign together on a GPU that is lent for minutes; each becomes a unit of its own.

`PYTHONPATH=src python campaigns/lent.py --home DIR --pack OUT --seconds 540 --device cuda abc:2,3,4,5,6,7`

Models of one reading are members of one program there, which keeps a GPU busy that a single small model would not.
Members do not touch each other, and their draws follow from their seeds, so each gets what it would get alone, to
rounding.  Then every member's weights and record are put into a unit of its own, exactly as the campaign names it; CPU
cores read their circuits; and all units are packed.  `background.py accept OUT` takes them into the campaign.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from background import QUEUE, REPOSITORY, TOGETHER
from packing import Limits, Packed, pack
from torch import Tensor

from hopscope.circuits.config import LEARNED
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors.local import prepare, unit_engine, unit_layout, versions
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    save_checkpoint,
    source_hash,
    write_json,
)
from hopscope.runs.files import read_json
from hopscope.runs.hashing import content_hash
from hopscope.runs.metrics import parts, read_parts, read_table, write_table
from hopscope.studies import find_study
from hopscope.studies.program import Program
from hopscope.training import threads as arithmetic
from hopscope.training.budget import TimeBudget
from hopscope.training.config import job_of
from hopscope.training.engines import ENGINES
from hopscope.training.trainer import Progress, Trainer

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


class TooSlow(Exception):
    """Training would not end in time."""


class SplittingTrainer(Trainer):
    """Trains members together, and writes the checkpoints of each into its own unit while training goes on.

    The optimiser's state is written once, when training ends: nothing here outlives the machine.
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

    def _save(self) -> None:
        self._write(whole=self.step == self.job.training.steps)

    def _write(self, whole: bool) -> None:
        """Hand the weights of this step to threads that write them; the whole state too, if need be."""
        flat = _copy(self.model.parameters.flat)
        arrays = {f"weights/{name}": view.numpy() for name, view in self.model.parameters.views(flat).items()}
        if whole:
            for name in ("first_moment", "second_moment"):
                arrays[f"optimiser/{name}"] = _copy(getattr(self.optimizer, name)).numpy()
        for index, unit in enumerate(self.units):
            own = {name: array[index : index + 1] for name, array in arrays.items()}
            metadata = {"step": self.step, "frozen_at": self.diverged_at[index : index + 1]}
            path = unit.checkpoint_path(self.step)
            self._written.append(self._pool.submit(save_checkpoint, path, own, metadata))


def _copy(tensor: Tensor) -> Tensor:
    """In the host's memory, where the next step does not change it."""
    return tensor.detach().to("cpu", copy=True)


def train_together(
    reading: Reading, device: str, budget: TimeBudget, within: float | None, commit: str | None
) -> None:
    """Train members in one program, each into its own unit.

    Args:
        reading: whose members are trained; no unit of theirs may have been begun.
        device, budget: where, and how long at most.
        within: seconds in which training should end, if it is to be broken off early where it would not.
        commit: that is trained by, for the record.

    Raises:
        TooSlow: it would not end in time; nothing is kept.
    """
    jobs, units = [job_of(unit) for unit in reading.units.values()], list(reading.units.values())
    job = jobs[0].model_copy(update={"members": tuple(each.members[0] for each in jobs)})
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
        raise
    finally:
        rmtree(together.path)
    made_by = {"commit": commit, "versions": versions(), "source_hash": source_hash()}
    note = {**layout, "device": _name_of(device), "members": list(reading.units), **made_by}
    for unit in units:
        write_json(unit.path / TOGETHER, note)


def split_record(together: UnitFolder, units: Sequence[UnitFolder]) -> None:
    """Copy the training record of a unit's members into units of one member each."""
    import pyarrow.compute as pc

    numbers = [job_of(unit).members[0].member for unit in units]
    for path in parts(together.path):
        table = read_table(path, "train again")
        for number, unit in zip(numbers, units, strict=True):
            own = table.filter(pc.equal(table["member"], number))
            write_table(unit.path / "metrics" / path.name, own)


def read(reading: Reading, member: int, deadline: float) -> bool:
    """Read a trained member, each of its readings in a process of one thread; returns whether all was done."""
    again = reading.study.recorded(reading.run).read_again if _seems_learned(reading.units[member]) else 0
    own = [sys.executable, str(Path(__file__)), "--read", str(reading.run.path), str(member)]
    readings = [(proof, str(number)) for number in range(again + 1) for proof in ("both", "rules")]
    if not _all_end([[*own, *each] for each in readings], deadline):
        return False
    worker = [sys.executable, "-m", "hopscope.executors.worker", str(reading.run.path)]
    return _all_end([[*worker, reading.units[member].hash]], deadline)


def _seems_learned(unit: UnitFolder) -> bool:
    """Whether every held-out loss is low at the end, so that the member will be read again."""
    rows = read_parts([unit.path]).to_pylist()
    last = max(row["step"] for row in rows)
    losses = {
        row["metric"]: row["value"]
        for row in rows
        if row["step"] == last and row["split"] == "held_out" and row["metric"].startswith("loss_step_")
    }
    return all(loss < LEARNED for loss in losses.values())


def _all_end(commands: Iterable[Sequence[str]], deadline: float) -> bool:
    """Run commands side by side; they are killed when the time is up.  Returns whether all of them succeeded."""
    source = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": source}
    running = [
        subprocess.Popen(each, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for each in commands
    ]
    ended = True
    for process in running:
        try:
            ended &= process.wait(max(0.0, deadline - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = False
    return ended


def read_one(path: Path, member: int, proof: str, number: int) -> None:
    """One reading of one member, which is kept in its unit."""
    from hopscope.circuits.record import read_member
    from hopscope.studies.circuit_study.proof import reader_of
    from hopscope.studies.record import program_of

    arithmetic.prepare(1)
    run = RunFolder.open(path)
    config = program_of(run).recorded(run)
    unit = next(run.unit(record.unit) for record in run.members if record.member == member)
    read_member(run, member, job_of(unit).training.steps, reader_of(config, proof, again=number))  # type: ignore[arg-type]


def work(options: argparse.Namespace) -> Packed:
    """Train all that was asked for, one reading after another, read each as soon as it is trained, and pack.

    Raises:
        UserError: something the user can mend.
    """
    deadline = time.monotonic() + options.seconds - options.reserve
    being_read: list[tuple[str, Future[bool]]] = []
    with ThreadPoolExecutor(64) as pool:
        for asked in options.models:
            reading = trained(asked, options, deadline)
            _say({"kind": "trained", "reading": reading.name})
            for member, unit in reading.units.items():
                if job_of(unit).training.steps in dict(unit.checkpoints()):
                    name = f"{reading.name} seed {member}"
                    being_read.append((name, pool.submit(read, reading, member, deadline)))
        for name, each in being_read:
            _say({"kind": "read", "model": name, "whole": each.result()})
    provenance = {"command": sys.argv[1:], "commit": options.commit, "device": _name_of(options.device)}
    return pack(options.home / "runs", options.pack, Limits(options.files), 1, provenance)


def trained(asked: str, options: argparse.Namespace, deadline: float) -> Reading:
    """Train the members that are asked for, or fewer of them where these would not be trained in time.

    Args:
        asked: name of the reading, a colon, and members; after a slash those to take where the first take too long.
        options, deadline: of the command, and its end.

    Raises:
        UserError: something the user can mend.
    """
    name, _, choices = asked.partition(":")
    *many, last = choices.split("/")
    for members in (*many, last):
        if not re.fullmatch(r"[0-9]+(,[0-9]+)*", members):
            raise UserError(f"{name}: expected members as {name}:0,1, found {members!r}")
        reading = reading_of(options.home, options.queue, name, list(map(int, members.split(","))))
        left = deadline - time.monotonic()
        within = None if members == last or options.reading is None else left - options.reading
        try:
            train_together(reading, options.device, TimeBudget(max(1.0, left)), within, options.commit)
            return reading
        except TooSlow as words:
            _say({"kind": "too slow", "members": members, "needs": str(words)})
    raise AssertionError("the last choice is trained however long it takes")


_STARTED = time.monotonic()


def _say(message: dict[str, Any]) -> None:
    """One thing that was done, as a line of JSON."""
    print(json.dumps({"seconds": round(time.monotonic() - _STARTED, 1), **message}), flush=True)


def _say_progress(progress: Progress) -> None:
    """Now and then."""
    if progress.step <= 100 or progress.step % 1_000 == 0 or progress.step == progress.steps:
        losses = [round(loss, 3) for loss in progress.losses]
        rate = round(progress.samples_per_second)
        _say({"kind": "progress", "step": progress.step, "losses": losses, "samples_per_second": rate})


def _name_of(device: str) -> str:
    return str(torch.cuda.get_device_name()) if device == "cuda" else device


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command says; the exit status is 0, or 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="lent.py", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "models", nargs="*", metavar="READING:MEMBERS[/FEWER]", help="as abc:2,3; in this order"
    )
    parser.add_argument(
        "--read", nargs=4, metavar=("RUN", "MEMBER", "PROOF", "NUMBER"), help=argparse.SUPPRESS
    )
    parser.add_argument("--home", type=Path, default=Path("lent"), help="folder to work in, best in memory")
    parser.add_argument("--queue", type=Path, default=REPOSITORY / QUEUE, help="file with what is trained")
    parser.add_argument("--pack", type=Path, default=Path("pack"), help="folder for what was found")
    parser.add_argument("--files", type=int, default=6, help="most files of the pack")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=540.0, help="that this command may take")
    parser.add_argument("--reserve", type=float, default=30.0, help="of them, for packing")
    parser.add_argument("--reading", type=float, help="seconds that reading takes; see READING:MEMBERS/FEWER")
    parser.add_argument("--commit", help="of this source tree, for the record")
    options = parser.parse_args(arguments)
    try:
        if options.read:
            path, member, proof, number = options.read
            read_one(Path(path), int(member), proof, int(number))
        else:
            packed = work(options)
            print(
                f"finished {len(packed.weights)}, to go on {len(packed.resumable)}, to begin {len(packed.restarting)}"
            )
    except (UserError, OSError) as error:
        print(f"campaign: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
