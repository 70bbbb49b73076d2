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

from background import QUEUE, REPOSITORY
from packing import Limits, Packed, pack

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors.local import prepare, unit_engine, versions
from hopscope.runs import (
    RunFolder,
    UnitFolder,
    load_checkpoint,
    save_checkpoint,
    source_hash,
    strip_checkpoint,
    write_json,
)
from hopscope.runs.hashing import content_hash
from hopscope.runs.metrics import parts, read_table, write_table
from hopscope.studies import find_study
from hopscope.studies.program import Program
from hopscope.training import threads as arithmetic
from hopscope.training.budget import TimeBudget
from hopscope.training.config import job_of
from hopscope.training.engines import ENGINES
from hopscope.training.trainer import Progress, Trainer

TOGETHER = "together.json"
"""File of a unit whose members were trained with others: on what, by which program, and up to which step."""


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
    readings = json.loads(queue.read_text(encoding="utf-8"))["readings"]
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


def train_together(reading: Reading, device: str, budget: TimeBudget, commit: str | None) -> None:
    """Train members in one program, then put what each has into its own unit, also where the time was up.

    Args:
        reading: whose members are trained; no unit of theirs may have been begun.
        device, budget: where, and how long at most.
        commit: that is trained by, for the record.
    """
    jobs = [job_of(unit) for unit in reading.units.values()]
    job = jobs[0].model_copy(update={"members": tuple(each.members[0] for each in jobs)})
    engine = unit_engine(job, device, "auto")
    layout = {"device": device, "threads": 1, "engine": engine}
    made_by = {"versions": versions(), "source_hash": source_hash()}
    together = UnitFolder(reading.run.path / "units" / content_hash(job.model_dump(mode="json")))
    together.create({"label": job.label, "plan": job.model_dump(mode="json"), "layout": layout, **made_by})
    arithmetic.prepare(os.cpu_count() or 1)
    task = reading.study.task(job, device)
    evaluate = reading.study.evaluator(together, job, task)
    trainer = Trainer(job, task, together, evaluate, device, ENGINES[engine])
    with suppress(TimeBudgetReached):
        trainer.run(budget, _say_progress)
    split(together, list(reading.units.values()))
    note = {**layout, "device": _name_of(device), "members": list(reading.units), "commit": commit, **made_by}
    for unit in reading.units.values():
        write_json(unit.path / TOGETHER, note)
    rmtree(together.path)


def split(together: UnitFolder, units: Sequence[UnitFolder]) -> None:
    """Copy checkpoints and training record of a unit's members into units of one member each, in their order."""
    numbers = [job_of(unit).members[0].member for unit in units]

    def checkpoint(at: tuple[int, Path]) -> None:
        arrays, metadata = load_checkpoint(at[1])
        for index, unit in enumerate(units):
            own = {name: array[index : index + 1] for name, array in arrays.items()}
            of_one = {**metadata, "frozen_at": metadata["frozen_at"][index : index + 1]}
            save_checkpoint(unit.checkpoint_path(at[0]), own, of_one)

    def part(path: Path) -> None:
        import pyarrow.compute as pc

        table = read_table(path, "train again")
        for number, unit in zip(numbers, units, strict=True):
            own = table.filter(pc.equal(table["member"], number))
            write_table(unit.path / "metrics" / path.name, own)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(checkpoint, together.checkpoints()))
    # Each part notes a seal in every unit; one after another keeps these in order.
    for path in parts(together.path):
        part(path)


def read(reading: Reading, member: int, deadline: float) -> bool:
    """Read a trained member in processes of one thread, its two proofs at a time; returns whether all was done."""
    again = getattr(reading.study.recorded(reading.run), "read_again", 0)
    own = [sys.executable, str(Path(__file__)), "--read", str(reading.run.path), str(member)]
    for number in range(again + 1):
        if number == 1 and not _learned_all(reading, member):
            break
        if not _all_end([[*own, proof, str(number)] for proof in ("both", "rules")], deadline):
            return False
    worker = [sys.executable, "-m", "hopscope.executors.worker", str(reading.run.path)]
    return _all_end([[*worker, reading.units[member].hash]], deadline)


def _learned_all(reading: Reading, member: int) -> bool:
    """Whether a member learned its whole chain; others are not read again."""
    from hopscope.circuits.record import read_member
    from hopscope.studies.circuit_study.proof import reader_of

    config = reading.study.recorded(reading.run)
    found = read_member(
        reading.run, member, job_of(reading.units[member]).training.steps, reader_of(config, "both")
    )
    return len(found["learned"]) == config.steps


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
    readings = [
        reading_of(options.home, options.queue, name, [int(each) for each in members.split(",")])
        for name, _, members in (asked.partition(":") for asked in options.models)
    ]
    being_read: list[tuple[str, Future[bool]]] = []
    with ThreadPoolExecutor(sum(len(each.units) for each in readings)) as pool:
        for reading in readings:
            left = TimeBudget(max(1.0, deadline - time.monotonic()))
            train_together(reading, options.device, left, options.commit)
            _say({"kind": "trained", "reading": reading.name})
            for member, unit in reading.units.items():
                if job_of(unit).training.steps in dict(unit.checkpoints()):
                    name = f"{reading.name} seed {member}"
                    being_read.append((name, pool.submit(read, reading, member, deadline)))
        for name, each in being_read:
            _say({"kind": "read", "model": name, "whole": each.result()})
    for unit in (unit for reading in readings for unit in reading.units.values() if not unit.is_done):
        last = unit.checkpoint_path(job_of(unit).training.steps)
        if last.is_file():  # it needs no optimiser's state, and there may be no room for it
            strip_checkpoint(last)
    provenance = {"command": sys.argv[1:], "commit": options.commit, "device": _name_of(options.device)}
    return pack(options.home / "runs", options.pack, Limits(options.files), 1, provenance)


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
    import torch

    return str(torch.cuda.get_device_name()) if device == "cuda" else device


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command says; the exit status is 0, or 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="lent.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("models", nargs="*", metavar="READING:MEMBERS", help="as abc:2,3; in this order")
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
