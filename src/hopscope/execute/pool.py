"""The pending units of a run, on workers of this machine or wherever a `Place` starts them."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.execute.worker import work
from hopscope.runs import RunFolder, UnitFolder
from hopscope.study.load import Loaded

Message = Mapping[str, Any]
"""What a worker says (`hopscope.execute.worker`), and of the pool the kinds `found` and `done`."""

Listener = Callable[[UnitFolder, Message], object]

KEPT = "what is done is kept, the same command goes on"
_PATIENCE = 60.0  # seconds after the end of the time in which a job may go on waiting for a machine


class End(NamedTuple):
    """How a worker ended: its exit status, `None` where it died, and what to say unless it said so itself."""

    status: int | None
    words: str = ""


class Worker(Protocol):
    """A worker on one unit, wherever it is."""

    unit: UnitFolder

    def messages(self) -> list[Message]:
        """What it said since this was last asked."""

    def end(self) -> End | None:
        """How it ended; `None` while it is at work.  Its last words are among the next `messages`."""

    def close(self) -> None:
        """End it if it is at work."""


class Place(Protocol):
    """Somewhere that units are trained; `pause`: seconds between two looks at the workers."""

    pause: float

    def device(self, asked: str) -> str:
        """`"cpu"` or `"cuda"` for what the user asked; a `UserError` if it is not there."""

    def at_once(self, units: Sequence[UnitFolder], cores: int | None) -> int:
        """How many workers may be at work together, on so many cores if the user said so."""

    def start(self, unit: UnitFolder, until: float | None) -> Worker:
        """Start a worker that may go on until a time (seconds since 1970)."""

    def close(self) -> None:
        """End what waits for work; may be called again."""


def train_all(
    run: RunFolder,
    loaded: Loaded,
    place: Place,
    *,
    cores: int | None = None,
    seconds: float | None = None,
    listen: Listener = lambda unit, message: None,
) -> None:
    """Train and measure every unit of a run that is not whole or lacks a measure; the caller has locked the run.

    A study without a reference (of a notebook) is trained in this process, a unit after another.  `TimeBudgetReached`:
    what is done is kept; `UserError`: a worker found something to mend, or died.
    """
    from hopscope.study.measuring import is_measured
    from hopscope.training.train import TimeBudget

    budget, pending = TimeBudget(seconds), list[UnitFolder]()
    until = None if seconds is None else time.time() + seconds
    for unit in run.units:
        if unit.is_whole and is_measured(unit, loaded.study):
            listen(unit, {"kind": "found"})
        else:
            pending.append(unit)
    if loaded.reference is None:
        for unit in pending:
            work(unit, loaded, budget, partial(listen, unit))
            listen(unit, {"kind": "done"})
        return
    pending.sort(key=size_of, reverse=True)  # so that no core idles at the end
    _Pool(place, until, listen).work(pending, place.at_once(pending, cores))


def size_of(unit: UnitFolder) -> int:
    """What training a unit costs, in any unit: weights of the layers × samples."""
    model, training = unit.job["model"], unit.job["training"]
    weights = model["layers"] * model["width"] ** 2
    return int(weights * training["steps"] * training["batch_size"] * len(unit.members))


class _Pool:
    def __init__(self, place: Place, until: float | None, listen: Listener):
        self.place, self.until, self.listen = place, until, listen
        self.active, self.errors, self.late = list[Worker](), dict[str, str](), False
        self.begun, self.finished = set[str](), set[str]()  # names of units

    def work(self, pending: list[UnitFolder], most: int) -> None:
        try:
            while self.active or (pending and not self.late):
                while pending and len(self.active) < most and not self.late:
                    self.active.append(self.place.start(pending.pop(0), self.until))
                for worker in list(self.active):
                    self._look_at(worker)
                if self.active:
                    time.sleep(self.place.pause)
        finally:
            for worker in self.active:
                worker.close()
            self.place.close()
        if self.late:
            raise TimeBudgetReached(f"time budget reached; {KEPT}")

    def _look_at(self, worker: Worker) -> None:
        end, name = worker.end(), worker.unit.name
        for message in worker.messages():
            if message["kind"] == "error":
                self.errors[name] = str(message["message"])
            elif message["kind"] == "finished":
                self.finished.add(name)
            elif message["kind"] == "begun" and name in self.begun:
                words = f"unit {name}: its worker was lost, and another goes on at {message.get('node')}"
                self.listen(worker.unit, {"kind": "warning", "message": words})
            else:
                self.begun |= {name} if message["kind"] == "begun" else set()
                self.listen(worker.unit, message)
        if end is None:
            # A job that still waits for a machine some time after the end is withdrawn.
            if name in self.begun or self.until is None or time.time() < self.until + _PATIENCE:
                return
            worker.close()
        self.active.remove(worker)
        if end is None or end.status == TimeBudgetReached.exit_status:
            self.late = True
        elif end.status != 0 or name in self.errors:
            raise UserError(self.errors.get(name) or end.words)
        elif name not in self.finished:
            words = "found that it ended with status 0 before; look for a call of exit in the study and its packages"
            raise UserError(f"unit {name}: expected its worker to finish, {words}; {KEPT}")
        else:
            self.listen(worker.unit, {"kind": "done"})


def died(unit: UnitFolder, found: str) -> End:
    """The end of a worker that died."""
    return End(None, f"unit {unit.name}: expected its worker to finish, found {found}; {KEPT}")


def failed(unit: UnitFolder, last: str) -> End:
    """The end of a worker that failed in a way that nobody foresaw, with its last words."""
    words = f"its worker failed ({last}); this is a fault of Hopscope, please report it"
    return End(1, f"unit {unit.name}: {words}")
