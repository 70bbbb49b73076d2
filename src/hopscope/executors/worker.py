"""One worker process: trains and analyses a unit, and says what it does in JSON lines on standard output or in a file.

A process of its own keeps thread counts, subnormal flags and memory apart between units, and lets two one-thread
programs use two cores better than one two-thread program would.
"""

import argparse
import ctypes
import json
import os
import platform
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from hopscope.errors import HopscopeError, UserError

Say: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Takes a message."""

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def main(arguments: list[str] | None = None) -> int:
    """Run one unit; returns the exit status.  A cluster calls this with plain strings, in a process of its own."""
    options = _parser().parse_args(arguments)
    say = _print if options.messages is None else partial(_write, options.messages)
    if options.parent is not None:
        say = partial(_print, to=_messages_alone())
        _follow(options.parent)
        # The parent decides what Ctrl-C means and ends its workers.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = lambda message, *_, **__: say({"kind": "warning", "message": str(message)})
    try:
        if options.messages is not None:
            say({"kind": "begun", "unit": options.unit, "node": platform.node(), "process": os.getpid()})
            _check_far(options.run, options.same_as)
        run_unit(options.run, options.unit, _seconds(options), say, options.patience)
        # The status does not tell: whoever calls exit ends this process with the same one.
        say({"kind": "finished"})
    except HopscopeError as error:
        say({"kind": "error", "message": str(error), "status": error.exit_status})
        return error.exit_status
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        message = (
            f"unit {options.unit}: expected optimiser and analyses to fit into the device's memory, found "
            f"{_first_line(error)}; use fewer members per unit, or --gpu-workers 1; what is done is kept"
        )
        say({"kind": "error", "message": message, "status": UserError.exit_status})
        return UserError.exit_status
    except SystemExit as error:
        message = f"unit {options.unit}: expected code that runs to its end, found {_exit_in_words(error)}"
        say({"kind": "error", "message": message, "status": UserError.exit_status})
        return UserError.exit_status
    except BrokenPipeError:
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hopscope.executors.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("unit")
    parser.add_argument("--time-budget", type=float, help="seconds from now")
    parser.add_argument("--parent", type=int, help="process with which this one ends")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds to wait for another worker")
    far = parser.add_argument_group("on another machine than the command's")
    far.add_argument("--messages", type=Path, help="file for messages, in place of standard output")
    far.add_argument("--until", type=float, help="end of the time, in seconds since 1970")
    far.add_argument("--same-as", type=json.loads, default={}, help="what must be installed, as JSON")
    return parser


def _seconds(options: argparse.Namespace) -> float | None:
    """Seconds that the unit may take from now on."""
    return options.time_budget if options.until is None else max(0.0, options.until - time.time())


def run_unit(path: Path, unit_hash: str, time_budget: float | None, say: Say, patience: float) -> None:
    """Train one unit of a run and analyse it, going on where it stopped.

    Raises:
        TimeBudgetReached, UserError: see `Trainer.run`.
    """
    from hopscope.executors.pool import layout_of
    from hopscope.executors.unit import train_unit
    from hopscope.runs import RunFolder
    from hopscope.studies.record import program_of
    from hopscope.training import threads
    from hopscope.training.budget import TimeBudget

    budget = TimeBudget(time_budget)
    run = RunFolder.open(path)
    unit = run.unit(unit_hash)
    threads.prepare(
        layout_of(unit)["threads"]
    )  # before the study's file is loaded: it may start torch's threads
    train_unit(program_of(run), unit, budget, say, patience)


def _check_far(path: Path, same_as: Mapping[str, str]) -> None:
    """Refuse a machine that would give other numbers, or whose locks other machines do not see.

    Raises:
        UserError: something else is installed here; or the command's lock on the run is not to be seen.
    """
    from hopscope.executors.remote import installed
    from hopscope.runs import RunFolder
    from hopscope.runs.locks import Locked

    found = installed() if same_as else {}
    for name in sorted(same_as.keys() | found.keys()):
        expected, here = same_as.get(name, "none"), found.get(name, "none")
        if expected != here:
            raise UserError(
                f"{platform.node()}: expected {name} as where the command was given ({expected}), found {here}; "
                "install the same on all machines"
            )
    with suppress(Locked), RunFolder.open(path).lock(patience=0.0):
        raise UserError(
            f"{path}: expected the command that started this worker to hold the run's lock, found nobody on "
            f"{platform.node()}: it has ended, or locks of this storage do not reach other machines; choose storage "
            "whose locks do (NFS 4, or Lustre mounted with flock)"
        )


_MEMORY_WORDS = ("can't allocate memory", "could not create a primitive")
"""Of torch and oneDNN, where this machine has no more memory to give."""


def _is_out_of_memory(error: Exception) -> bool:
    from hopscope.training.steps import is_out_of_memory

    said = isinstance(error, MemoryError) or any(words in str(error) for words in _MEMORY_WORDS)
    return said or is_out_of_memory(error)


def _exit_in_words(error: SystemExit) -> str:
    """What called exit, and where: the study, or a package that it uses."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{place.filename}, line {place.lineno}, ends the process (SystemExit: {error.code}); mend what calls it; what "
        "is done is kept"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def _follow(parent: int) -> None:
    """End when the parent ends: an orphan would go on writing into a folder that a new command works on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _messages_alone() -> TextIO:
    """Standard output for messages alone: from now on, what a study or a package prints goes to standard error.

    Words without an end of line would hide the message after them, and a log in JSON would pass for messages.
    """
    sys.stdout.flush()
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # for programs that a study calls, and for libraries in C
    sys.stdout = sys.stderr
    return messages


def _print(message: Mapping[str, Any], to: TextIO | None = None) -> None:
    print(json.dumps(message), file=to, flush=True)


def _write(path: Path, message: Mapping[str, Any]) -> None:
    """Append a message to a file; what cannot be written is lost, as no number depends on it."""
    from hopscope.runs.lines import append_line

    with suppress(OSError):
        append_line(path, json.dumps(message).encode(), sync=False)


if __name__ == "__main__":
    sys.exit(main())
