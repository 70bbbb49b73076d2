"""Workers over the units of a run, on this machine or elsewhere, and the layout that each unit began with.

A `Place` starts workers; a `Job` is one of them, which says what it does and how it ended.  The `Pool` is the same for
every place: which unit is next, who hears the workers, what follows from the end of one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

from hopscope.errors import TimeBudgetReached, UserError
from hopscope.runs import RunFolder, UnitFolder
from hopscope.training.engines import ENGINES

Message = Mapping[str, Any]
"""What a worker says, with a `kind`; see `hopscope.executors.worker`."""

Listener = Callable[[UnitFolder, Message], None]
"""Hears every message of every worker."""

DEVICES = ("auto", "cpu", "cuda")

PATIENCE_SECONDS = 60.0
"""How long after the end of the time a job may go on waiting for a machine; then it is withdrawn."""

STORAGE_SECONDS = 90.0
"""How long shared storage may take to show here what another machine has written: network file systems remember for
about a minute that a file was not there."""


class End(NamedTuple):
    """How a worker ended.

    Attributes:
        status: exit status; `None` where it died, so that another one may go on.  A status of 0 alone does not mean
            that the unit is finished: whatever calls `exit` in the worker ends it so.
        error: what was expected and found, in one line, unless the worker said it itself.
    """

    status: int | None
    error: str = ""


class Job(Protocol):
    """A worker on one unit, wherever it is."""

    unit: UnitFolder

    @property
    def waits(self) -> bool:
        """Whether it has not begun: no machine was free for it so far."""
        ...

    def messages(self) -> list[Message]:
        """What the worker said since this was last asked."""
        ...

    def end(self) -> End | None:
        """How it ended; `None` while it is at work.  Its last words are among the next `messages`."""
        ...

    def close(self) -> None:
        """End the worker if it is at work."""
        ...


class Place(Protocol):
    """Somewhere that units are trained and analysed, each by a worker of its own.

    Attributes:
        here: whether it is this machine: its cores are known, and a layout can be measured on it.
        retries: how often the worker of a unit may die without having got further, before the run ends.
        poll_seconds: time between two looks at the workers.
    """

    here: bool
    retries: int
    poll_seconds: float

    def device(self, asked: str) -> str:
        """`"cpu"` or `"cuda"` for what the user asked.

        Raises:
            UserError: there is no such device.
        """
        ...

    def at_a_time(self, layouts: Sequence[Mapping[str, Any]], cores: int | None, on_gpu: int) -> int:
        """Number of units at work together; asked once, before the first worker starts.

        Args:
            layouts: of all units, as `unit.json` has them.
            cores: that the user gave; `None`: as many as there are.
            on_gpu: units that may share a GPU.
        """
        ...

    def start(self, unit: UnitFolder, left: float | None) -> Job:
        """Start a worker.

        Args:
            unit: what it works on.
            left: seconds that it may take.

        Raises:
            UserError: it cannot be started.
        """
        ...


def recorded_layout(unit: UnitFolder) -> dict[str, Any]:
    """Device, threads and engine that a unit began with: they hold, because others round differently.

    Raises:
        UserError: they are not on record.
    """
    recorded: Any = unit.record.get("layout")
    known = isinstance(recorded, dict) and recorded.get("device") in DEVICES
    if not known or not is_count(recorded.get("threads")) or recorded.get("engine") not in ENGINES:
        raise UserError(
            f"{unit.path / 'unit.json'}: expected device, threads and engine under layout, found {recorded!r}; "
            f"delete the folder {unit.path} and run the same command again"
        )
    return dict(recorded)


def layout_of(unit: UnitFolder) -> dict[str, Any]:
    """The recorded layout of a unit that is to be trained on this machine.

    Raises:
        UserError: it is not on record, or the device or the engine is absent.
    """
    recorded = recorded_layout(unit)
    if recorded["device"] == "cuda":
        chosen_device("cuda")
    ENGINES[recorded["engine"]].check(recorded["device"])
    return recorded


def is_count(threads: Any) -> TypeGuard[int]:
    """Whether a recorded value is a number of threads."""
    return isinstance(threads, int) and threads >= 1


def chosen_device(device: str) -> str:
    """`"cpu"` or `"cuda"` for what the user asked.

    Raises:
        UserError: CUDA was asked for and is absent.
    """
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise UserError("device: expected a CUDA device for --device cuda, found none; use --device cpu or auto")


class Pool:
    """Workers over the pending units, at most `size` at a time."""

    def __init__(
        self,
        run: RunFolder,
        pending: Sequence[UnitFolder],
        size: int,
        deadline: float | None,
        listen: Listener,
        place: Place,
    ):
        self.run, self.pending, self.size = run, list(pending), size
        self.deadline, self.listen, self.place = deadline, listen, place
        self.active: list[Job] = []
        self.errors: dict[str, str] = {}
        self.finished: set[str] = set()
        self.at: dict[str, str] = {}
        self.deaths: dict[str, tuple[int, int]] = {}
        self.late = False

    def work(self) -> None:
        """Run everything.

        Raises:
            TimeBudgetReached, UserError: after the workers have ended.
        """
        try:
            while self.active or (self.pending and not self.late):
                while self.pending and len(self.active) < self.size and not self.late:
                    self._start(self.pending.pop(0))
                for job in list(self.active):
                    self._look_at(job)
                self._withdraw()
                if self.active:
                    time.sleep(self.place.poll_seconds)
        finally:
            for job in self.active:
                job.close()
        if self.late:
            raise TimeBudgetReached("time budget reached; what is done is kept, the same command goes on")

    def _start(self, unit: UnitFolder) -> None:
        left = None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)
        self.active.append(self.place.start(unit, left))

    def _look_at(self, job: Job) -> None:
        end = job.end()
        for message in job.messages():
            if message["kind"] == "error":
                self.errors[job.unit.hash] = str(message["message"])
            elif message["kind"] == "finished":
                self.finished.add(job.unit.hash)
            else:
                self.at[job.unit.hash] = _at(message) or self.at.get(job.unit.hash, "")
                self.listen(job.unit, message)
        if end is not None:
            self._ended(job, end)

    def _ended(self, job: Job, end: End) -> None:
        self.active.remove(job)
        error = self.errors.get(job.unit.hash)
        if end.status == 0 and error is None:
            if not self._is_finished(job.unit):
                raise UserError(stopped(job.unit, self.at.get(job.unit.hash) or "before its first step"))
            self.listen(job.unit, {"kind": "done"})
        elif end.status == TimeBudgetReached.exit_status:
            self.late = True
        elif error is not None or end.status is not None or not self._may_go_on(job.unit):
            raise UserError(error or end.error)
        else:
            self.listen(job.unit, {"kind": "warning", "message": f"{end.error}: another worker goes on"})
            self.pending.insert(0, job.unit)

    def _is_finished(self, unit: UnitFolder) -> bool:
        """Whether a unit is finished whose worker ended with status 0.

        Here that may be anybody's exit, and the unit may have been done before: its worker must have said so.  Another
        machine's worker has returned from `main` with that status, and only the storage may be late to show it.
        """
        if self.place.here:
            return unit.hash in self.finished
        until = time.monotonic() + STORAGE_SECONDS
        while not unit.is_done and time.monotonic() < until:
            time.sleep(self.place.poll_seconds)
        return unit.is_done

    def _may_go_on(self, unit: UnitFolder) -> bool:
        """Whether another worker may take up a unit whose worker died; deaths count until there is a new checkpoint."""
        step = max((step for step, _ in unit.checkpoints()), default=-1)
        before, deaths = self.deaths.get(unit.hash, (-1, 0))
        deaths = deaths + 1 if step <= before else 1
        self.deaths[unit.hash] = (step, deaths)
        return deaths <= self.place.retries

    def _withdraw(self) -> None:
        """Give up jobs that still wait for a machine some time after the end of the time."""
        if self.deadline is None or time.monotonic() < self.deadline + PATIENCE_SECONDS:
            return
        for job in [job for job in self.active if job.waits]:
            job.close()
            self.active.remove(job)
            self.late = True


def died(unit: UnitFolder, found: str) -> End:
    """The end of a worker that died."""
    kept = "what is done is kept, the same command goes on"
    return End(None, f"unit {unit.hash}: expected its worker to finish, found {found}; {kept}")


def stopped(unit: UnitFolder, at: str) -> str:
    """The line on a worker that ended with status 0 and has not finished its unit."""
    return (
        f"unit {unit.hash}: expected its worker to finish, found it ended with status 0 {at}; look for a call of exit "
        "in the study and in the packages that it uses; what is done is kept, the same command goes on"
    )


def _at(message: Message) -> str:
    """Where a worker is, by what it says; empty where a message does not tell."""
    if message["kind"] == "progress":
        return f"after step {message['step']}"
    return f"while {message['name']}" if message["kind"] == "phase" else ""


def failed(unit: UnitFolder, last: str) -> str:
    """The line on a worker that failed in a way that nobody foresaw, with its last words."""
    return f"unit {unit.hash}: its worker failed ({last}); this is a fault of Hopscope, please report it"
