"""Progress bars on standard error: one for each unit, with losses, rate and time left."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hopscope.runs import UnitFolder, content_hash
from hopscope.training.config import UnitPlan


class Bars:
    """Shows what the workers say; on anything but a terminal, a line now and then."""

    def __init__(self, plans: Sequence[UnitPlan]):
        console = Console(stderr=True)
        self.live = console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self.live,
        )
        self.plans = {content_hash(plan.model_dump(mode="json")): plan for plan in plans}
        self.tasks: dict[str, TaskID] = {}
        self._said: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def hear(self, unit: UnitFolder, message: Mapping[str, Any]) -> None:
        """Take in one message of a worker."""
        plan = self.plans[unit.hash]
        seeds = [member.seed for member in plan.members]
        name = (
            f"{plan.label}, seeds {seeds[0]}–{seeds[-1]}"
            if len(seeds) > 1
            else f"{plan.label}, seed {seeds[0]}"
        )
        if message["kind"] == "warning":
            say(f"hopscope: warning: {message['message']}")
        elif message["kind"] == "progress":
            self._advance(unit.hash, name, plan, message)
        elif message["kind"] == "done" and not self.live:
            say(f"{name}: done")

    def _advance(self, unit: str, name: str, plan: UnitPlan, message: Mapping[str, Any]) -> None:
        steps, step = plan.training.steps, int(message["step"])
        note = f"loss {_losses(message['losses'])}  {message['samples_per_second']:,.0f} samples/s"
        if message["frozen"]:
            note += f"  diverged: member {', '.join(map(str, message['frozen']))}"
        if unit not in self.tasks:
            self.tasks[unit] = self.progress.add_task(name, total=steps, note=note)
        self.progress.update(self.tasks[unit], completed=step, note=note)
        tenth = 10 * step // steps
        if not self.live and tenth > self._said.get(unit, 0):
            self._said[unit] = tenth
            say(f"{name}: step {step:,} of {steps:,}  {note}")


def say(words: str) -> None:
    """Write a line on standard error."""
    with suppress(BrokenPipeError):  # nobody reads it any more, and the work goes on
        print(words, file=sys.stderr, flush=True)


def _losses(losses: Sequence[float | None]) -> str:
    """Lowest to highest of the members that are still trained."""
    known = [loss for loss in losses if loss is not None]
    if not known:
        return "–"
    return f"{min(known):.4f}–{max(known):.4f}" if len(known) > 1 else f"{known[0]:.4f}"
