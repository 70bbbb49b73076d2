"""Progress of a run on standard error: bars on a terminal, elsewhere a dated line every half minute."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from hopscope.cli.terminal import say
from hopscope.executors.timing import operations
from hopscope.runs import UnitFolder, content_hash
from hopscope.training.config import TrainJob

SECONDS_BETWEEN_LINES = 30.0

_PARTS = 10_000
"""Number of parts of a full bar."""


@dataclass
class _Unit:
    """What is known of a unit: its name, its cost, and what its worker said last.

    Attributes:
        share: of its training that is done.
        found: the share that was done when this command first heard of it.
    """

    name: str
    steps: int
    cost: float
    share: float = 0.0
    found: float | None = None
    rate: float = 0.0
    losses: list[float] = field(default_factory=list)
    frozen: tuple[int, ...] = ()
    task: TaskID | None = None


class Bars:
    """Shows what the workers say: percent, rate and time left, of each unit at work and of them all."""

    def __init__(self, jobs: Sequence[TrainJob]):
        console = Console(stderr=True)
        self.live = console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=10),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}", justify="right"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not self.live,
            expand=True,
        )
        self.units = {
            content_hash(job.model_dump(mode="json")): _Unit(
                _name(job), job.training.steps, float(operations(job))
            )
            for job in jobs
        }
        self._all: TaskID | None = None
        self._began = self._said = -math.inf

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def hear(self, folder: UnitFolder, message: Mapping[str, Any]) -> None:
        """Take in one message of a worker."""
        unit = self.units[folder.hash]
        if message["kind"] == "warning":
            self._tell(f"hopscope: warning: {message['message']}")
        elif message["kind"] == "progress":
            self._advance(unit, message)
        elif message["kind"] == "phase":
            unit.rate = 0.0
            self._show(unit, message["name"])
        elif message["kind"] == "found":
            unit.share = unit.found = 1.0
        elif message["kind"] == "done":
            unit.share, unit.rate, unit.losses = 1.0, 0.0, []
            if unit.task is not None:
                self.progress.update(unit.task, visible=False)
            self._show_all()
            if self._share == 1.0:
                self._line("trained and analysed")

    @property
    def _share(self) -> float:
        """Share of the work of all units that is done."""
        return self._of_all({name: unit.share for name, unit in self.units.items()})

    def _of_all(self, shares: Mapping[str, float]) -> float:
        total = sum(unit.cost for unit in self.units.values())
        return sum(self.units[name].cost * share for name, share in shares.items()) / total

    def _advance(self, unit: _Unit, message: Mapping[str, Any]) -> None:
        unit.share = int(message["step"]) / unit.steps
        unit.found = unit.share if unit.found is None else unit.found
        unit.rate = float(message["samples_per_second"])
        unit.losses = [loss for loss in message["losses"] if loss is not None]
        frozen = tuple(message["frozen"])
        if frozen != unit.frozen:
            unit.frozen = frozen
            self._tell(f"{unit.name}: diverged: member {', '.join(map(str, frozen))}")
        self._show(unit, f"{unit.rate:,.0f} samples/s")

    def _show(self, unit: _Unit, note: str) -> None:
        self._show_all()
        if unit.task is None:
            unit.task = self._added(unit.name, unit.share)
        self.progress.update(unit.task, completed=_PARTS * unit.share, rate=note)
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES:
            self._line(f"{unit.name}: {note}" if not unit.rate else self._numbers())

    def _show_all(self) -> None:
        """The line of all units together, where there are several."""
        if self._all is None:
            self._began = time.monotonic()
            self._all = self._added(f"all {len(self.units)} units", self._share)
        rate = sum(unit.rate for unit in self.units.values())
        self.progress.update(
            self._all,
            completed=_PARTS * self._share,
            rate=f"{rate:,.0f} samples/s" if rate else "",
            visible=len(self.units) > 1,
        )

    def _added(self, name: str, share: float) -> TaskID:
        """A new bar; what an earlier command did does not count as this one's speed."""
        return self.progress.add_task(name, total=_PARTS, completed=round(_PARTS * share), rate="")

    def _line(self, words: str) -> None:
        if self.live:
            return
        self._said = time.monotonic()
        say(f"{datetime.now():%Y-%m-%d %H:%M:%S}  {self._share:4.0%}  {self._left()}{words}")

    def _left(self) -> str:
        """Time left at this command's pace."""
        new = {name: unit.share - unit.found for name, unit in self.units.items() if unit.found is not None}
        passed, done = time.monotonic() - self._began, self._of_all(new)
        if done <= 0.0 or self._share == 1.0:
            return ""
        minutes, seconds = divmod(round(passed * (1.0 - self._share) / done), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02} left  "

    def _numbers(self) -> str:
        """Rate and losses of all units at work."""
        rate = sum(unit.rate for unit in self.units.values())
        losses = [loss for unit in self.units.values() for loss in unit.losses]
        return f"{rate:,.0f} samples/s  loss {_range(losses)}"

    def _tell(self, words: str) -> None:
        if self.live:
            self.progress.console.print(words, markup=False, highlight=False)
        else:
            say(words)


def _name(job: TrainJob) -> str:
    seeds = [member.seed for member in job.members]
    return f"{job.label}, seeds {seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else f"{job.label}, seed {seeds[0]}"


def _range(losses: Sequence[float]) -> str:
    """Lowest to highest of the members that are still trained."""
    if not losses:
        return "–"
    low, high = f"{min(losses):.4f}", f"{max(losses):.4f}"
    return low if low == high else f"{low}–{high}"
