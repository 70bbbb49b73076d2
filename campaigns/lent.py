"""Train models of a campaign together on a GPU that is lent for minutes; each becomes a unit of its own.

`PYTHONPATH=src python campaigns/lent.py --home DIR --pack OUT --seconds 540 --device cuda abc:2,3,4,5,6,7`

Models of one reading are members of one program there, which keeps a GPU busy that a single small model would not.
Members do not touch each other, and their draws follow from their seeds, so each gets what it would get alone, to
rounding.  Every member's weights and record are put into a unit of its own, exactly as the campaign names it; CPU cores
read their circuits while the next reading is trained; and all units are packed.  The same command with another --pack
goes on with what is left in --home.  `background.py accept OUT` takes them into the campaign.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore

sys.path.insert(0, str(Path(__file__).resolve().parent))

from background import QUEUE, REPOSITORY
from packing import Limits, Packed, pack
from together import Reading, SplittingTrainer, TooSlow, name_of, reading_of, say, train_together

from hopscope.circuits.config import LEARNED
from hopscope.errors import UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.runs.metrics import read_parts
from hopscope.training import threads as arithmetic
from hopscope.training.budget import TimeBudget
from hopscope.training.config import job_of

__all__ = ["SplittingTrainer", "TooSlow"]

_CORES = BoundedSemaphore(max(1, (os.cpu_count() or 2) - 1))
"""Of the processes that read; one core is left to the training."""


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


def _all_end(commands: Sequence[Sequence[str]], deadline: float) -> bool:
    """Run commands side by side, as cores are free, until the time is up.  Returns whether all of them succeeded."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return all(list(pool.map(lambda command: _ends(command, deadline), commands)))


def _ends(command: Sequence[str], deadline: float) -> bool:
    """Run a command on a core of its own, less urgent than training; it is killed when the time is up."""
    source = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": source}
    if not _CORES.acquire(timeout=max(0.0, deadline - time.monotonic())):
        return False
    try:
        with subprocess.Popen(
            ["nice", *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as process:
            try:
                return process.wait(max(0.0, deadline - time.monotonic())) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                return False
    finally:
        _CORES.release()


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
    being_read: dict[str, Future[bool]] = {}
    with ThreadPoolExecutor(64) as pool:

        def begin_to_read(reading: Reading) -> None:
            for member, unit in reading.trained().items():
                name = f"{reading.name} seed {member}"
                if name not in being_read and not unit.is_done:
                    being_read[name] = pool.submit(read, reading, member, deadline)

        # What an earlier call left unread is read while the rest is trained.
        for asked in options.models:
            begin_to_read(_first_choice(asked, options))
        for asked in options.models:
            reading = trained(asked, options, deadline)
            say({"kind": "trained", "reading": reading.name, "members": list(reading.trained())})
            begin_to_read(reading)
        for name, each in being_read.items():
            say({"kind": "read", "model": name, "whole": each.result()})
    provenance = {"command": sys.argv[1:], "commit": options.commit, "device": name_of(options.device)}
    return pack(options.home / "runs", options.pack, Limits(options.files), 1, provenance)


def _choices(asked: str, options: argparse.Namespace) -> list[Reading]:
    """What is asked for, and what to take where that would not be trained in time.

    Raises:
        UserError: something the user can mend.
    """
    name, _, choices = asked.partition(":")
    for members in choices.split("/"):
        if not re.fullmatch(r"[0-9]+(,[0-9]+)*", members):
            raise UserError(f"{name}: expected members as {name}:0,1, found {members!r}")
    return [
        reading_of(options.home, options.queue, name, list(map(int, members.split(","))))
        for members in choices.split("/")
    ]


def _first_choice(asked: str, options: argparse.Namespace) -> Reading:
    return _choices(asked, options)[0]


def trained(asked: str, options: argparse.Namespace, deadline: float) -> Reading:
    """Train the members that are asked for, or fewer of them where these would not be trained in time.

    Those that are trained are left alone, and those that were begun go on.

    Args:
        asked: name of the reading, a colon, and members; after a slash those to take where the first take too long.
        options, deadline: of the command, and its end.

    Raises:
        UserError: something the user can mend.
    """
    choices = _choices(asked, options)
    for reading in choices:
        try:
            for group in reading.begun_alike():
                left = deadline - time.monotonic()
                may_be_fewer = reading is not choices[-1] and options.reading is not None and not group.begun
                within = left - options.reading if may_be_fewer else None
                if left > 0.0:
                    train_together(group, options.device, TimeBudget(left), within, options.commit)
            return reading
        except TooSlow as words:
            say({"kind": "too slow", "members": list(reading.units), "needs": str(words)})
    raise AssertionError("the last choice is trained however long it takes")


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
