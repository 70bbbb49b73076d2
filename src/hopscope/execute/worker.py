"""A worker process: trains and measures units, and says how it goes in lines of JSON.

Two processes of one thread use two cores better than one of two threads.
"""

import ctypes
import gc
import importlib.metadata
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
from typing import Any

from hopscope.errors import HopscopeError, UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.study.load import Loaded, load

Say = Callable[[Mapping[str, Any]], object]
"""Takes a message; its `kind` is `progress`, `phase`, `warning`, `error`, `begun` or `finished`."""

MESSAGE = b"\x1e"
"""Begins a message among what else is printed (RFC 7464)."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_NUMBERS_FROM = ("hopscope", "torch", "numpy", "numba", "scipy")


def work(unit: UnitFolder, loaded: Loaded, budget: Any, say: Say) -> None:
    """Train and measure a unit in this process, within a `training.TimeBudget`, going on where it stopped.

    `UserError`: the study has a fault, the unit does not fit into memory, or a file cannot be written.
    """
    from hopscope.study.measuring import measure_unit, take_sources, training_of
    from hopscope.training.train import Progress, train

    def tell(progress: Progress) -> None:
        losses = [loss if loss == loss else None for loss in progress.losses]
        rate = progress.samples_per_second
        say({"kind": "progress", **progress._asdict(), "losses": losses, "samples_per_second": rate})

    with unit.locked(), loaded.naming():
        take_sources(loaded.study)
        given = training_of(unit, loaded.study, budget)
        if given["after"] is None or given["after"][1]["step"] < given["training"].steps:
            train(**given, progress=tell)  # what is trained is measured on any machine
        measure_unit(unit, loaded.study, budget, lambda words: say({"kind": "phase", "name": words}))
        unit.seal(engine=given["engine"], device=given["device"], made_by=unit.made_by or installed())


def installed() -> dict[str, str]:
    """Versions of what decides the numbers of a unit, and the machine's processor."""
    found = {"python": platform.python_version(), "processor": platform.processor() or platform.machine()}
    for name in _NUMBERS_FROM:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main(given: str, to: int = 1) -> int:
    """Run one unit, and return the exit status; a cluster calls this in a process of its own.

    `given` is JSON: `run` and `unit`; and maybe `study` (a reference, by default that of the run's record), `until` (a
    time in seconds since 1970), `parent` (the process with which this one ends), `messages` (file for messages, in
    place of the file descriptor `to`), `like` (versions that must be installed).
    """
    asked = json.loads(given)
    parent, messages, until = (asked.get(name) for name in ("parent", "messages", "until"))
    say: Say = partial(_append, Path(messages)) if messages else partial(_print, to)
    if parent is not None:
        _follow(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends its workers

    def warn(message: Warning | str, *about: Any, **more: Any) -> None:
        say({"kind": "warning", "message": str(message)})

    warnings.showwarning = warn
    say({"kind": "begun", "node": platform.node(), "process": os.getpid()})
    try:
        _check_like(asked.get("like", {}))
        import torch

        from hopscope.study.jobs import fitted, of_run
        from hopscope.training.train import TimeBudget

        torch.set_num_threads(1)  # before the study's file is loaded, which may start torch's threads
        budget = TimeBudget(None if until is None else max(0.0, until - time.time()))
        run = RunFolder.opened(asked["run"])
        loaded = fitted(load(study), run) if (study := asked.get("study")) else of_run(run)
        torch.set_num_threads(1)  # for each unit, whatever the study has set
        work(run.unit(asked["unit"]), loaded, budget, say)
        say({"kind": "finished"})  # the status does not tell: a call of exit ends a process with 0 as well
        return 0
    except HopscopeError as error:
        words, status = str(error), error.exit_status
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"found that {place.filename}, line {place.lineno}, ends the process ({error.code}); mend it"
        words = f"unit {asked['unit']}: expected code that runs to its end, {words}; what is done is kept"
        status = 2
    except BrokenPipeError:
        return 1
    say({"kind": "error", "message": words, "status": status})
    return status


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


def _print(to: int, message: Mapping[str, Any]) -> None:
    text = MESSAGE + json.dumps(message).encode() + b"\n"
    while text:
        text = text[os.write(to, text) :]


def _append(path: Path, message: Mapping[str, Any]) -> None:
    with suppress(OSError), path.open("a", encoding="utf-8") as file:  # no number depends on a message
        file.write(json.dumps(message) + "\n")


def _serve() -> int:
    """Run one unit after another, each a line of standard input, until one does not finish."""
    # As they are now, whatever a study does to `sys.stdin` and `sys.stdout`.
    asked, out = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for given in asked:
        if status := main(given, out):
            return status
        gc.collect()  # few objects hold much memory: by itself Python would not look for them before the next unit
        if not gc.get_freeze_count():
            gc.freeze()  # what is imported stays, and need not be looked through again
    return 0


if __name__ == "__main__":
    sys.exit(_serve())
