"""Where a run's numbers go: one class for each tracker, all with the three calls of `Sink`.

The trackers' packages are imported where a sink is made, in the sender's process.
"""

import importlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

from hopscope.errors import UserError

Tracker = Literal["tensorboard", "wandb", "trackio"]
TRACKERS: Final[tuple[Tracker, ...]] = get_args(Tracker)
"""Names of the trackers: that of its package, and of our extra that installs it."""

MOST_WRITERS = 64
"""Event files that are open at a time: a process may have about a thousand files, and a run has as many members."""


class Point(NamedTuple):
    """One recorded number.

    Attributes:
        member: number of the member in the run.
        step: training step.
        name: such as `loss/held_out`.
        value: finite.
    """

    member: int
    step: int
    name: str
    value: float


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run besides its numbers.

    Attributes:
        study, hash: of the run.
        config: its whole configuration, as JSON values.
        members: number of a member → its configuration, its seed and the fields in which it differs from others.
    """

    study: str
    hash: str
    config: Mapping[str, Any]
    members: Mapping[int, Mapping[str, Any]]


class Sink(Protocol):
    """A tracker as the follower uses it; any exception ends the sending, and nothing else."""

    def write(self, points: Sequence[Point]) -> None:
        """Take numbers, in ascending order of their steps within a unit; those of several units may overlap."""
        ...

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        """Take the verdicts of a finished run, by the ids of its claims."""
        ...

    def close(self) -> None:
        """Store everything; nothing is written afterwards."""
        ...


class TensorBoard:
    """Event files, one folder for each member: TensorBoard lays the curves of all members over each other."""

    def __init__(self, run: TrackedRun, folder: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._make = SummaryWriter
        self._run, self._folder = run, folder
        self._open: OrderedDict[int, Any] = OrderedDict()
        self._told: set[int] = set()

    def write(self, points: Sequence[Point]) -> None:
        """Add scalars, then hand them to the system: a dashboard shows them at once."""
        for point in points:
            self._writer(point.member).add_scalar(point.name, point.value, point.step)
        for writer in self._open.values():
            writer.flush()

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        """Add the verdicts as a text."""
        if verdicts:
            writer = self._make(str(self._folder / "claims"))
            writer.add_text("verdicts", "\n\n".join(f"{name}: {said}" for name, said in verdicts.items()))
            writer.close()

    def close(self) -> None:
        """Close all event files, which stores them."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()

    def _writer(self, member: int) -> Any:
        if member not in self._open:
            if len(self._open) == MOST_WRITERS:
                self._open.popitem(last=False)[1].close()
            self._open[member] = self._make(str(self._folder / f"member-{member}"))
            if member not in self._told:
                self._told.add(member)
                facts = self._run.members.get(member, {})
                words = "\n\n".join(f"{name}: {value}" for name, value in facts.items())
                self._open[member].add_text("member", words)
        self._open.move_to_end(member)
        return self._open[member]


class _OneRun:
    """A tracker that knows a whole run as one of its own: a member's number stands behind the name of a curve."""

    def __init__(self, run: TrackedRun):
        self._run = run
        members = {str(member): dict(facts) for member, facts in run.members.items()}
        self._config = {"study": run.study, "hash": run.hash, "config": dict(run.config), "members": members}

    @staticmethod
    def _rows(points: Sequence[Point]) -> dict[int, dict[str, float]]:
        """Step → name of a curve → value: one call of the tracker each."""
        rows: dict[int, dict[str, float]] = {}
        for point in points:
            rows.setdefault(point.step, {})[f"{point.name}/member-{point.member}"] = point.value
        return rows


class WeightsAndBiases(_OneRun):
    """One W&B run; kept on this machine (`WANDB_MODE=offline`) unless `WANDB_MODE` says something else.

    The training step is a field of its own: units are not at the same step, and W&B drops what comes with a step that
    is behind the last one.
    """

    def __init__(self, run: TrackedRun, folder: Path):
        super().__init__(run)
        wandb = importlib.import_module("wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run_there = wandb.init(
            project=f"hopscope-{run.study}",
            name=run.hash,
            id=run.hash,
            resume="allow",
            dir=os.environ.get("WANDB_DIR", str(folder)),
            config=self._config,
            mode=os.environ.get("WANDB_MODE", "offline"),
            # Nothing of this machine or of the source is sent along.
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )
        self._run_there.define_metric("*", step_metric="step")

    def write(self, points: Sequence[Point]) -> None:
        """Log one row for each training step."""
        for step, row in self._rows(points).items():
            self._run_there.log({**row, "step": step})

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        """Put the verdicts into the run's summary."""
        for name, said in verdicts.items():
            self._run_there.summary[f"claims/{name}"] = said

    def close(self) -> None:
        """End the W&B run, which stores it."""
        self._run_there.finish()


class Trackio(_OneRun):
    """One run of trackio, which keeps it on this machine (`TRACKIO_DIR`, or the cache of Hugging Face)."""

    def __init__(self, run: TrackedRun, folder: Path):
        super().__init__(run)
        trackio = importlib.import_module("trackio")
        self._run_there = trackio.init(
            project=f"hopscope-{run.study}",
            name=run.hash,
            config=self._config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def write(self, points: Sequence[Point]) -> None:
        """Log one row for each training step."""
        for step, row in self._rows(points).items():
            self._run_there.log(row, step=step)

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        """Trackio shows numbers: verdicts are in the run's page."""

    def close(self) -> None:
        """End the run, which stores what is waiting."""
        self._run_there.finish()


SINKS: Final[dict[str, Any]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}
"""Name of a tracker → its sink, made of a `TrackedRun` and a folder."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that do not exist or cannot be imported, before anything is trained.

    Raises:
        UserError: with the install command.
    """
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"tracker: expected one of {', '.join(TRACKERS)}, found {name!r}")
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a folder of that name, such as W&B's own, is no package
            raise UserError(
                f"tracker: expected the package {name} for --tracker {name}, found none; install it with: "
                f"pip install 'hopscope[{name}]'"
            )


def how_to_look(name: str, root: Path, study: str) -> str:
    """The command that shows what a tracker has.

    Args:
        name: of the tracker.
        root: folder of the tracker's files (`tracking_folder`), of all runs.
        study: of the run.
    """
    return {
        "tensorboard": f"tensorboard --logdir {root}",
        "wandb": f"wandb sync {root}/{study}/*/wandb/offline-run-*   (sends them to your account)",
        "trackio": f"trackio show --project hopscope-{study}",
    }[name]
