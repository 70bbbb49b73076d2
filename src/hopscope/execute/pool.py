"""The pending units of a run, each in a worker of its own, on this machine or wherever a `Place` starts them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """A worker on one unit, wherever it is; `waits` while no machine was free for it."""

    unit: UnitFolder
    waits: bool

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

    def start(self, unit: UnitFolder, seconds: float | None) -> Worker:
        """Start a worker that may take so many seconds."""


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

    A study without a reference (of a notebook) is trained in this process, a unit after another.

    Raises:
        TimeBudgetReached: what is done is kept.
        UserError: a worker found something to mend, or died.
    """
    from hopscope.study.measuring import is_measured
    from hopscope.training.train import TimeBudget

    budget, pending = TimeBudget(seconds), list[UnitFolder]()
    deadline = None if seconds is None else time.monotonic() + seconds
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
    _Pool(pending, place.at_once(pending, cores), place, deadline, listen).work()


def size_of(unit: UnitFolder) -> int:
    """What training a unit costs, in any unit: weights of the layers × samples."""
    model, training = unit.job["model"], unit.job["training"]
    weights = model["layers"] * model["width"] ** 2
    return int(weights * training["steps"] * training["batch_size"] * len(unit.members))


@dataclass
class _Pool:
    pending: list[UnitFolder]
    size: int
    place: Place
    deadline: float | None
    listen: Listener

    def __post_init__(self) -> None:
        self.active, self.errors = list[Worker](), dict[str, str]()
        self.finished, self.late = set[str](), False

    def work(self) -> None:
        try:
            while self.active or (self.pending and not self.late):
                while self.pending and len(self.active) < self.size and not self.late:
                    self.active.append(self.place.start(self.pending.pop(0), self._left()))
                for worker in list(self.active):
                    self._look_at(worker)
                self._withdraw()
                if self.active:
                    time.sleep(self.place.pause)
        finally:
            for worker in self.active:
                worker.close()
        if self.late:
            raise TimeBudgetReached(f"time budget reached; {KEPT}")

    def _left(self) -> float | None:
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)

    def _look_at(self, worker: Worker) -> None:
        end, name = worker.end(), worker.unit.name
        for message in worker.messages():
            if message["kind"] == "error":
                self.errors[name] = str(message["message"])
            elif message["kind"] == "finished":
                self.finished.add(name)
            else:
                self.listen(worker.unit, message)
        if end is None:
            return
        self.active.remove(worker)
        if end.status == TimeBudgetReached.exit_status:
            self.late = True
        elif end.status != 0 or name in self.errors:
            raise UserError(self.errors.get(name) or end.words)
        elif name not in self.finished:
            words = "found that it ended with status 0 before; look for a call of exit in the study and its packages"
            raise UserError(f"unit {name}: expected its worker to finish, {words}; {KEPT}")
        else:
            self.listen(worker.unit, {"kind": "done"})

    def _withdraw(self) -> None:
        # Jobs that still wait for a machine some time after the end.
        if self.deadline is None or time.monotonic() < self.deadline + _PATIENCE:
            return
        for worker in [worker for worker in self.active if worker.waits]:
            worker.close()
            self.active.remove(worker)
            self.late = True


def died(unit: UnitFolder, found: str) -> End:
    """The end of a worker that died."""
    return End(None, f"unit {unit.name}: expected its worker to finish, found {found}; {KEPT}")


def failed(unit: UnitFolder, last: str) -> End:
    """The end of a worker that failed in a way that nobody foresaw, with its last words."""
    words = f"its worker failed ({last}); this is a fault of Hopscope, please report it"
    return End(1, f"unit {unit.name}: {words}")
