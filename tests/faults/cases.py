"""The cases of the soak: which fault strikes which state of a run, and what came of it.

Verdicts: `healed`, the same command gave the record of an undisturbed run (after damage: with a word about it);
`refused`, one line and status 2; `harmless`, the record was that of an undisturbed run all the same; `lost`, the same
command did not give that record; `wrong`, a number that is not that of the undisturbed run, a traceback, or anything
else that is not told beforehand.
"""

import errno
import itertools
import random
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import damage
import injected
import power
import warm

VERDICTS = ("healed", "refused", "harmless", "lost", "wrong")
PHASES = ("training", "analysis", "writing")
WHOM = {"self": "worker", "driver": "command", "all": "command and worker"}
UNFINISHED = 8
"""States between the first file of a run and its end that are damaged."""

REFUSALS = {
    errno.ENOSPC: "full disk", errno.EDQUOT: "full quota", errno.EIO: "failing disk", errno.EROFS: "read-only disk"
}  # fmt: skip
YEARS = 365 * 86400.0


@dataclass(frozen=True)
class Came:
    """What came of a case.

    Attributes:
        verdict: one of `VERDICTS`, or `None` where nothing was struck.
        words: what was said, or what is wrong.
        what: the kind of file that was struck, if it was one.
    """

    verdict: str | None
    words: str = ""
    what: str = ""


class Laboratory:
    """An undisturbed run, the states on its way, and everything that is done to copies of them."""

    def __init__(self, root: Path):
        self.root = root
        warm.warm(root)
        (root / "whole").mkdir()
        journal = root / "journal"
        ended = self._run(root / "whole", injected.Trace(journal))
        assert ended.status == 0, ended.stderr
        self.operations = injected.operations(journal)
        self.expected = self._record(root / "whole")
        assert self.expected == self._record(root / "first"), (
            "the run does not depend on where and how it is started"
        )
        whole = power.Disk()
        for operation in self.operations:
            whole.happen(operation)
        left = whole.left("all", random.Random(0))
        there = {path.relative_to(root / "whole").as_posix() for path in (root / "whole").rglob("*")}
        assert left.keys() == there, f"the trace lacks {sorted(there ^ left.keys())}"
        reading = self._reading(root / "whole")
        assert reading.status == 0, reading.stderr
        self.said = reading.stdout
        self._strikes = [each for each in self.operations if each["name"] not in ("create", "rmdir")]
        for number in range(UNFINISHED):
            place = round((number + 0.5) * len(self._strikes) / UNFINISHED)
            self._killed(root / f"state{number}", self._strikes[place], "before", "all")

    @cached_property
    def may_mount(self) -> bool:
        """Whether this machine lets us have a file system of our own."""
        try:
            with small_disk(self.root / "disk"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False

    # Runs.

    def _run(self, out: Path, fault: injected.Fault | None = None) -> Any:
        out.mkdir(exist_ok=True)
        return warm.command([*warm.RUN, "--out", str(out)], fault, out)

    def _killed(self, out: Path, operation: Mapping[str, Any], moment: str, whom: str) -> Any:
        return self._run(out, injected.Kill(operation["role"], operation["index"], moment, whom))

    @staticmethod
    def run_of(out: Path) -> Path:
        (found,) = (path for path in (out / "tiny").iterdir() if path.is_dir())
        return found

    def _record(self, out: Path) -> Mapping[str, str]:
        import processes

        with suppress(ValueError, FileNotFoundError):
            return processes.record(self.run_of(out))
        return {}

    def _reading(self, out: Path) -> Any:
        """What a reader of a finished run is told: its claims, and every number of its evidence."""
        run = str(self.run_of(out))

        def main() -> int:
            import hopscope
            from hopscope.cli.main import main
            from hopscope.errors import UserError

            if (status := main(["claims", run, "--json"])) != 0:
                return status
            try:
                print(hopscope.open_run(run).evidence.to_pandas().to_csv())
            except UserError as error:
                import sys

                print(f"hopscope: {error}", file=sys.stderr)
                return 2
            return 0

        return warm.forked(main)

    @contextmanager
    def _copy(self, source: Path | None = None) -> Iterator[Path]:
        """A root of runs to do harm to."""
        out = self.root / "struck"
        shutil.rmtree(out, ignore_errors=True)
        if source is None:
            out.mkdir()
        else:
            shutil.copytree(source, out)
        yield out
        shutil.rmtree(out)

    # Verdicts.

    def _same_command(self, out: Path) -> Came:
        """After a process or a machine died: the same command must give the whole record."""
        ended = self._run(out)
        if ended.status != 0:
            return Came("lost", f"status {ended.status}: {ended.stderr[-300:]}")
        if self._record(out) != self.expected:
            return Came("wrong", f"another record: {self._differing(out)}")
        return Came("healed", _words(ended))

    def _differing(self, out: Path) -> list[str]:
        found = self._record(out)
        names = self.expected.keys() | found.keys()
        return sorted(name for name in names if self.expected.get(name) != found.get(name))

    def kill(self, spec: Mapping[str, Any]) -> Came:
        with self._copy() as out:
            operation = self.operations[spec["operation"]]
            ended = self._killed(out, operation, spec["moment"], spec["whom"])
            if ended.status == 0:
                return Came(None, "it was over before")
            fault = _unclear(ended) if spec["whom"] == "self" and operation["role"] == "worker" else ""
            if ended.status != (
                2 if fault is not None and spec["whom"] == "self" and operation["role"] == "worker" else -9
            ):
                fault = f"status {ended.status}: {ended.stderr[-300:]}"
            return Came("wrong", fault) if fault else self._same_command(out)

    def refusal(self, spec: Mapping[str, Any]) -> Came:
        """The system says no, in a process of the run."""
        operation = self.operations[spec["operation"]]
        with self._copy() as out:
            struck = injected.Refused(operation["role"], operation["index"], spec["number"], spec["once"])
            return self._after_refusal(out, self._run(out, struck))

    def memory(self, spec: Mapping[str, Any]) -> Came:
        operation = self.operations[spec["operation"]]
        with self._copy() as out:
            struck = injected.Memory(operation["role"], operation["index"], spec["mib"])
            return self._after_refusal(out, self._run(out, struck), may_die=True)

    def _after_refusal(self, out: Path, ended: Any, may_die: bool = False) -> Came:
        if ended.status == 0:
            same = self._record(out) == self.expected
            return Came("harmless") if same else Came("wrong", f"status 0, but {self._differing(out)}")
        died = may_die and ended.status < 0
        if not died and (fault := _unclear(ended)):
            return Came("wrong", fault)
        came = self._same_command(out)
        return Came(came.verdict, came.words if came.verdict != "healed" else _words(ended))

    def clock(self, spec: Mapping[str, Any]) -> Came:
        operation = self.operations[spec["operation"]]
        with self._copy() as out:
            ended = self._run(out, injected.Clock(operation["role"], operation["index"], spec["seconds"]))
            if ended.status != 0 or self._record(out) != self.expected:
                return Came("wrong", f"status {ended.status}: {ended.stderr[-300:]} {self._differing(out)}")
            again = self._same_command(out)
            return Came("harmless") if again.verdict == "healed" else again

    def disk(self, spec: Mapping[str, Any]) -> Came:
        """A real file system, full or read-only."""
        out = self.root / "disk"
        with small_disk(out):
            if spec["read_only"]:
                shutil.copytree(self._state(spec["state"]), out, dirs_exist_ok=True)
                before = self._record(out)
                subprocess.run(["mount", "-o", "remount,ro", out], check=True)
                ended = self._run(out)
                same = self._record(out) == before
                subprocess.run(["mount", "-o", "remount,rw", out], check=True)
                if not same:
                    return Came("wrong", "something was written")
            else:
                (out / "ballast").write_bytes(bytes(shutil.disk_usage(out).free - spec["free"]))
                ended = self._run(out)
                (out / "ballast").unlink()
            return self._after_refusal(out, ended)

    def _state(self, number: int) -> Path:
        return self.root / ("whole" if number < 0 else f"state{number}")

    def power(self, spec: Mapping[str, Any]) -> Came:
        with self._copy() as out:
            power.lay(out, power.cut(self.operations, spec["operation"], spec["way"], spec["seed"]))
            over = spec["operation"] == len(self.operations)
            if over and self._record(out) != self.expected:
                return Came("lost", f"of a run that was done: {self._differing(out)}")
            if any(out.glob("tiny/*/claims.json")) and (fault := self._misread(self._reading(out))):
                return Came("wrong", fault)
            return self._same_command(out)

    def _misread(self, reading: Any) -> str:
        if reading.status == 0:
            return "" if reading.stdout == self.said else f"other numbers: {reading.stdout[:200]}"
        return _unclear(reading)

    def corruption(self, spec: Mapping[str, Any]) -> Came:
        """One file of a run altered or deleted; read, and then made again by the same command."""
        finished = spec["state"] < 0
        with self._copy(self._state(spec["state"])) as out:
            struck = damage.struck(self.run_of(out), spec["damage"], spec["seed"])
            if struck is None:
                return Came(None)
            name, how = struck
            what = damage.kind(name)
            said = ""
            if finished:
                reading = self._reading(out)
                if fault := self._misread(reading):
                    return Came("wrong", f"{how} {name}: {fault}", what)
                said = _words(reading) if reading.status == 0 else ""
            before = self._record(out)
            ended = self._run(out)
            if ended.status != 0:
                fault = _unclear(ended) or self._written_otherwise(out, before)
                return (
                    Came("wrong", f"{how} {name}: {fault}", what)
                    if fault
                    else Came("refused", _words(ended), what)
                )
            said = said or _words(ended)
            differing = self._differing(out)
            if not differing:
                return Came("healed" if said else "harmless", said, what)
            if f"{Path(name).parent}: expected the checkpoints of every interval" in said:
                differing = [each for each in differing if each not in ("report.html", "story.json")]
            if name == "registration.json" and "every claim will say so" in said:
                return Came("refused", said, what)
            if fault := self._read_as_it_was(out, differing):
                return Came("wrong", f"{how} {name}: {fault}", what)
            return Came("refused", f"{differing} is refused where it is read", what)

    def _written_otherwise(self, out: Path, before: Mapping[str, str]) -> str:
        """Which records a refused command has left that are not those of the undisturbed run; none: nothing."""
        now = self._record(out)
        # Checkpoints lose the optimiser's state later on, and the rules get their verdicts.
        other = [name for name in now.keys() - {"registration.json"} if not name.endswith(".safetensors")
                 and now[name] not in (before.get(name), self.expected.get(name))]  # fmt: skip
        return f"refused, but it left {other}" if other else ""

    def _read_as_it_was(self, out: Path, names: list[str]) -> str:
        """Which of the files that still differ can be read, though they hold something else; none: nothing."""
        run, whole = self.run_of(out), self.run_of(self.root / "whole")

        def main() -> int:
            import numpy as np

            from hopscope.errors import UserError
            from hopscope.runs import UnitFolder, load_checkpoint
            from hopscope.runs.files import read_bytes

            for name in names:
                with suppress(UserError):
                    if name.endswith(".safetensors"):
                        step = int(Path(name).stem.partition("-")[2])
                        arrays = UnitFolder((run / name).parents[1]).checkpoint(step)[1]
                        truth = load_checkpoint(whole / name)[0]
                        if all(np.array_equal(arrays[each], truth[each]) for each in truth):
                            continue
                    else:
                        read_bytes(run / name, "")
                    print(f"{name} is read")
            return 0

        return warm.forked(main).stdout


def _words(ended: Any) -> str:
    """What a command said of what is not as it should be."""
    return " ".join(line for line in ended.stderr.splitlines() if line.startswith("hopscope: "))[:400]


def _unclear(ended: Any) -> str:
    """What is wrong with the way in which a command refuses: it must be one line, and status 2."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("hopscope: ")]
    lines = [line for line in lines if not line.startswith("hopscope: warning: ")]
    clear = ended.status == 2 and len(lines) == 1 and "Traceback" not in ended.stderr
    if clear and "a fault of Hopscope" not in ended.stderr:
        return ""
    return f"status {ended.status}: {ended.stderr[-400:]}"


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 8 MiB.

    Raises:
        CalledProcessError: this machine does not let us have one.
    """
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True, capture_output=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def planned(laboratory: Laboratory, kills: int, corruptions: int, seed: int) -> list[dict[str, Any]]:
    """The cases of a soak, in an order that has a little of everything from the beginning.

    Args:
        laboratory: knows where a run can be struck.
        kills: how often a process is killed; other faults follow from it.
        corruptions: how many files are damaged.
        seed: another one gives other cases.
    """
    draw = random.Random(seed)
    operations = laboratory.operations
    numbers = range(len(operations))
    in_phase = {phase: [n for n in numbers if injected.phase_of(operations[n]) == phase] for phase in PHASES}
    by_worker = {
        phase: [n for n in among if operations[n]["role"] == "worker"] for phase, among in in_phase.items()
    }
    found: list[dict[str, Any]] = []

    def pick(among: Sequence[int]) -> int:
        """The same place of the run in every version of it, and as much of the random numbers: a soak can go on."""
        return among[int(draw.random() * len(among))]

    def add(do: str, fault: str, **spec: Any) -> None:
        found.append({"do": do, "fault": fault, **spec})

    for whom, phase in itertools.islice(itertools.cycle(itertools.product(WHOM, PHASES)), kills):
        among = (by_worker if whom == "self" else in_phase)[phase]
        moment = draw.choice(("before", "torn", "after"))
        add(
            "kill",
            f"SIGKILL of the {WHOM[whom]}, {phase}",
            operation=pick(among),
            moment=moment,
            whom=whom,
        )
    for number, _ in zip(itertools.cycle(REFUSALS), range(max(2, kills // 4)), strict=False):
        row = f"{REFUSALS[number]}, said by the system"
        add("refusal", row, operation=pick(numbers), number=number, once=draw.random() < 0.3)
    for _ in range(max(2, kills // 10)):
        add("memory", "out of memory", operation=pick(numbers), mib=draw.choice((0, 1, 4, 16)))
    for sign, _ in zip(itertools.cycle((1, -1)), range(max(2, kills // 10)), strict=False):
        seconds = sign * draw.choice((2.0, 3600.0, YEARS, 20 * YEARS))
        row = f"clock jumps {'forwards' if sign > 0 else 'backwards'}"
        add("clock", row, operation=pick(numbers), seconds=seconds)
    whole = sum(path.stat().st_size for path in (laboratory.root / "whole").rglob("*") if path.is_file())
    for _ in range(max(2, kills // 10) if laboratory.may_mount else 0):
        add("disk", "full disk, a real one", read_only=False, free=8192 + int(draw.random() * (whole - 8192)))
    for state in () if not laboratory.may_mount else (-1, 2, 6) if kills < 50 else range(-1, UNFINISHED):
        add("disk", "read-only folder", read_only=True, state=state)
    for way, _ in zip(itertools.cycle(power.WAYS), range(max(3, kills * 3 // 5)), strict=False):
        row = f"power cut that leaves {power.WAYS[way]}"
        add("power", row, operation=1 + pick(numbers), way=way, seed=draw.randrange(2**32))
    for way in power.WAYS:
        row = f"power cut that leaves {power.WAYS[way]}"
        add("power", row, operation=len(operations), way=way, seed=draw.randrange(2**32))
    states = [-1, *range(1, UNFINISHED)]
    weights = [UNFINISHED, *([1] * (UNFINISHED - 1))]
    for row, _ in zip(itertools.cycle(damage.ALTERED), range(corruptions), strict=False):
        (state,) = draw.choices(states, weights)
        name = f"{row}, {'finished' if state < 0 else 'unfinished'} run"
        add("corruption", name, state=state, damage=row, seed=draw.randrange(2**32))
    draw.shuffle(found)
    return [{"number": number, **case} for number, case in enumerate(found)]
