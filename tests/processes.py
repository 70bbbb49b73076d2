"""Hopscope as a real process, from a copy of the source that nobody edits, killed at a write that a test names.

Many folders share this module and the runs that it makes.
"""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import hopscope.errors

LIMIT = 480.0
"""Seconds after which a process counts as hanging; a run with every measurement takes a minute or two."""

KILLER = '''
"""Python imports this module when it starts; see `Kill` in the tests."""
import fnmatch, os, signal

# What a shell starts in the background ignores interrupts, and so does everything below it: tests send them.
signal.signal(signal.SIGINT, signal.default_int_handler)

if "KILL_AT" in os.environ:
    _pattern, _count, _moment, _whom = os.environ["KILL_AT"].split("|")
    _replace, _seen = os.replace, [0]

    def _end():
        if _whom == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _killing_replace(source, target, **options):
        if fnmatch.fnmatch(str(target), _pattern):
            _seen[0] += 1
            if _seen[0] == int(_count):
                if _moment == "torn":
                    os.truncate(source, os.path.getsize(source) // 2)
                elif _moment == "after":
                    _replace(source, target, **options)
                _end()
        return _replace(source, target, **options)

    os.replace = _killing_replace
'''


@dataclass(frozen=True)
class Kill:
    """Ends a process at a write.

    Attributes:
        pattern: glob of the written file's path.
        count: which matching write of the process.
        moment: `before` its rename, `torn` (half written), or `after` it.
        whom: `self`, the process that writes, or the whole `group`.
    """

    pattern: str
    count: int = 1
    moment: str = "before"
    whom: str = "group"

    def __str__(self) -> str:
        return "|".join((self.pattern, str(self.count), self.moment, self.whom))


@dataclass(frozen=True)
class Ended:
    """Status and output of a process that has ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        """Last line of standard output."""
        return self.stdout.rstrip("\n").rpartition("\n")[2]

    @property
    def complaint(self) -> str:
        """The one line that tells of an error; progress and warnings do not count."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("hopscope: ")]
        (line,) = [line for line in lines if not line.startswith("hopscope: warning: ")]
        assert "Traceback" not in self.stderr
        return line


def _share_compiled(package: Path, copy: Path) -> None:
    """Loops that numba compiled for the source serve its copy too, and the other way round: they take half a minute.

    Numba keeps them beside the bytecode and looks at time and size of the source, which the copy has too.  Pages keep
    the script of their charts there.
    """
    engines = (path.parent for path in (package / "training" / "engines").rglob("__init__.py"))
    for folder in (package / "report", *engines):
        compiled = folder / "__pycache__"
        compiled.mkdir(exist_ok=True)
        (copy / folder.relative_to(package) / "__pycache__").symlink_to(compiled)


@dataclass
class Processes:
    """Starts Hopscope, from a copy of its source.

    Attributes:
        home: folder of the copy and of shared runs.
    """

    home: Path
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @classmethod
    def make(cls, home: Path) -> "Processes":
        """Copies the source; processes of one test session that work in parallel share the copy."""
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / "source").exists():
                package = Path(hopscope.errors.__file__).parent
                shutil.copytree(
                    package, home / "copying" / "hopscope", ignore=shutil.ignore_patterns("__pycache__")
                )
                _share_compiled(package, home / "copying" / "hopscope")
                (home / "killer").mkdir()
                (home / "killer" / "sitecustomize.py").write_text(KILLER)
                (home / "copying").rename(home / "source")
        return cls(home)

    def environment(self, kill: Kill | None = None) -> dict[str, str]:
        """Where Python finds the copy, and whether it is to be killed."""
        paths = os.pathsep.join(str(self.home / name) for name in ("killer", "source"))
        known = {name: value for name, value in os.environ.items() if name != "KILL_AT"}
        return known | {"PYTHONPATH": paths} | ({"KILL_AT": str(kill)} if kill else {})

    def start(
        self, *arguments: object, kill: Kill | None = None, cwd: Path | None = None
    ) -> "subprocess.Popen[str]":
        """`hopscope` with these arguments, leader of a process group of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "hopscope", *map(str, arguments)],
            env=self.environment(kill),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self, process: "subprocess.Popen[str]") -> Ended:
        """Wait for a process."""
        stdout, stderr = process.communicate(timeout=LIMIT)
        return Ended(process.returncode, stdout, stderr)

    def run(self, *arguments: object, kill: Kill | None = None, cwd: Path | None = None) -> Ended:
        """Run `hopscope` to its end."""
        return self.end(self.start(*arguments, kill=kill, cwd=cwd))

    def shared_run(self, name: str, arguments: list[object]) -> Path:
        """The folder of a finished run that the whole session shares and no test may change."""
        out = self.home / f"{name} runs"
        with (self.home / f"{name} lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not out.exists():
                working = self.home / f"{name} working"
                ended = self.run("run", *arguments, "--out", working)
                assert ended.status == 0, ended.stderr
                working.rename(out)
        (found,) = (path for path in out.glob("*/*") if path.is_dir())
        return found

    def close(self) -> None:
        """End what still runs."""
        for process in self.started:
            if process.poll() is None:  # the number of one that has ended may be another's by now
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def record(run: Path) -> Mapping[str, str]:
    """Digest of every file of a run; events, locks and the order of notes on files are not part of the record."""
    return {
        path.relative_to(run).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("events.jsonl", "seals.jsonl", ".lock")
    }


SMALL = [
    "permutation", "--preset", "smoke", "--configurations", "d32/2 repeats", "--seeds", 2, "--threads", 1,
    "--samples-per-epoch", 512, "--epochs-repeats", 1, "--batch-size", 64, "--checkpoint-every", 4,
    "--evaluate-every", 2, "--evaluation-limit", 300, "--measurements", "basic", "--device", "cpu",
]  # fmt: skip
"""One unit, two members, eight steps, checkpoints after 0, 1, 2, 4 and 8."""

WHOLE = [
    "permutation", "--preset", "smoke", "--seeds", 3, "--samples-per-epoch", 1024, "--epochs-plain", 1,
    "--epochs-repeats", 1.5, "--batch-size", 64, "--checkpoint-every", 10, "--evaluate-every", 5, "--device", "cpu",
    "--engine", "general",
]  # fmt: skip
"""Both published configurations, two units each, every held-out sequence evaluated; nothing is compiled for it."""

DEPTH = [
    "depth", "--preset", "smoke", "--layers", 1, 2, "--layers-last", 2, "--width", 8, "--threads", 2,
    "--training-steps", 12, "--batch-size", 8, "--checkpoint-every", 6, "--evaluate-every", 3, "--final-window", 4,
    "--final-every", 2, "--evaluation-samples", 16, "--analysis-samples", 32, "--device", "cpu",
    "--engine", "general",
]  # fmt: skip
"""Three units of the depth study, two members each, twelve steps; nothing is compiled for it."""

EMERGENCE = [
    "emergence", "--preset", "smoke", "--chains", 2, "--layers", 3, "--learning-rate", 3e-3, "--training-steps", 200,
    "--completion", "gpt2-base", "--beta2", 0.95, "--checkpoint-every", 50, "--evaluate-every", 25,
    "--evaluation-samples", 64, "--analysis-samples", 128, "--orders", 0, "--random-circuits", 3, "--threads", 2,
    "--device", "cpu", "--engine", "general",
]  # fmt: skip
"""Two seeds and their crossings, trained until they follow a chain of one step; nothing is compiled for it."""
