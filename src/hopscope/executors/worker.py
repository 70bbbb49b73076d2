"""One worker process: trains and analyses one unit, and says what it does in JSON lines on standard output.

A process of its own keeps thread counts, subnormal flags and memory apart between units, and lets two one-thread
programs use two cores better than one two-thread program would.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from hopscope.errors import HopscopeError, UserError

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


def main(arguments: list[str] | None = None) -> int:
    """Run one unit; returns the exit status."""
    parser = argparse.ArgumentParser(prog="hopscope.executors.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("unit")
    parser.add_argument("--time-budget", type=float)
    parser.add_argument("--parent", type=int)
    options = parser.parse_args(arguments)
    if options.parent is not None:
        _follow(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means and ends its workers
    warnings.showwarning = lambda message, *_, **__: _say(kind="warning", message=str(message))
    try:
        run_unit(options.run, options.unit, options.time_budget)
    except HopscopeError as error:
        _say(kind="error", message=str(error), status=error.exit_status)
        return error.exit_status
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        message = (
            f"unit {options.unit}: expected optimiser and analyses to fit into the device's memory, found "
            f"{_first_line(error)}; use fewer members per unit, or --gpu-workers 1"
        )
        _say(kind="error", message=message, status=UserError.exit_status)
        return UserError.exit_status
    except BrokenPipeError:
        return 1
    return 0


def run_unit(path: Path, unit_hash: str, time_budget: float | None) -> None:
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
    train_unit(program_of(run), unit, budget, lambda message: _say(**message))


def _is_out_of_memory(error: RuntimeError) -> bool:
    from hopscope.training.steps import is_out_of_memory

    return is_out_of_memory(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:200]


def _follow(parent: int) -> None:
    """End when the parent ends: an orphan would go on writing into a folder that a new command works on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
