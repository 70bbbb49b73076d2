"""One worker process: trains and measures a unit, and says how it goes in lines of JSON.

A process of its own keeps threads, flags of arithmetic and memory apart between units, and two processes of one thread
use two cores better than one of two threads.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from hopscope.errors import HopscopeError, UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.study.load import Loaded

Say = Callable[[Mapping[str, Any]], object]
"""Takes a message; its `kind` is `progress`, `phase`, `warning`, `error`, `begun` or `finished`."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_NUMBERS_FROM = ("hopscope", "torch", "numpy", "numba", "scipy")


def work(unit: UnitFolder, loaded: Loaded, budget: Any, say: Say) -> None:
    """Train and measure a unit in this process, within a `training.TimeBudget`, going on where it stopped.

    `UserError`: the study has a fault, the unit does not fit into memory, or a file cannot be written.
    """
    from hopscope.study.measuring import measure_unit, training_of
    from hopscope.training.train import Progress, train

    def tell(progress: Progress) -> None:
        losses = [loss if loss == loss else None for loss in progress.losses]
        rate = progress.samples_per_second
        say({"kind": "progress", **progress._asdict(), "losses": losses, "samples_per_second": rate})

    with unit.locked(), loaded.naming():
        given = training_of(unit, loaded.study, budget)
        train(**given, progress=tell)
        measure_unit(unit, loaded.study, budget, lambda words: say({"kind": "phase", "name": words}))
        unit.seal(engine=given["engine"], device=given["device"], made_by=installed())


def installed() -> dict[str, str]:
    """Versions of what decides the numbers of a unit, and the machine's processor."""
    found = {"python": platform.python_version(), "processor": platform.processor() or platform.machine()}
    for name in _NUMBERS_FROM:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one unit, and return the exit status; a cluster calls this with plain strings in a process of its own."""
    parser = argparse.ArgumentParser(prog="hopscope-worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("unit")
    parser.add_argument("--seconds", type=float, help="that it may take from now on")
    parser.add_argument("--until", type=float, help="the same as a time, in seconds since 1970")
    parser.add_argument("--parent", type=int, help="process with which this one ends")
    parser.add_argument("--messages", type=Path, help="file for messages, in place of standard output")
    parser.add_argument("--like", type=json.loads, help="versions that must be installed, as JSON")
    given = parser.parse_args(arguments)
    say: Say = partial(_append, given.messages) if given.messages else partial(_print, _messages_alone())
    if given.parent is not None:
        _follow(given.parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends its workers
    warnings.showwarning = partial(_warn, say)
    say({"kind": "begun", "node": platform.node(), "process": os.getpid()})
    try:
        _check_like(given.like or {})
        seconds = given.seconds if given.until is None else max(0.0, given.until - time.time())
        _run(given.run, given.unit, seconds, say)
        say({"kind": "finished"})  # the status does not tell: a call of exit ends a process with 0 as well
    except HopscopeError as error:
        return _fail(say, str(error), error.exit_status)
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"found that {place.filename}, line {place.lineno}, ends the process ({error.code}); mend it"
        words = f"unit {given.unit}: expected code that runs to its end, {words}; what is done is kept"
        return _fail(say, words, 2)
    except BrokenPipeError:
        return 1
    return 0


def _run(path: Path, name: str, seconds: float | None, say: Say) -> None:
    import torch

    from hopscope.study.jobs import of_run
    from hopscope.training.train import TimeBudget

    torch.set_num_threads(1)  # before the study's file is loaded: it may start torch's threads
    budget, run = TimeBudget(seconds), RunFolder.opened(path)
    work(run.unit(name), of_run(run), budget, say)


def _fail(say: Say, words: str, status: int) -> int:
    say({"kind": "error", "message": words, "status": status})
    return status


def _warn(say: Say, message: Warning | str, *about: Any, **more: Any) -> None:
    say({"kind": "warning", "message": str(message)})


def _check_like(expected: Mapping[str, str]) -> None:
    here = installed()
    for name in (name for name in expected if name != "processor"):
        if (found := here.get(name, "none")) != expected[name]:
            wanted = f"{name} {expected[name]} as where the command was given, found {found}"
            raise UserError(f"{platform.node()}: expected {wanted}; install the same on all machines")


def _follow(parent: int) -> None:
    """End when the parent ends: an orphan would go on writing into a folder that a new command works on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _messages_alone() -> TextIO:
    """Standard output for messages alone: from now on, what a study or a library prints goes to standard error."""
    sys.stdout.flush()
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # for programs that a study calls, and for libraries in C
    sys.stdout = sys.stderr
    return messages


def _print(to: TextIO, message: Mapping[str, Any]) -> None:
    print(json.dumps(message), file=to, flush=True)


def _append(path: Path, message: Mapping[str, Any]) -> None:
    with suppress(OSError), path.open("a", encoding="utf-8") as file:  # no number depends on a message
        file.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
