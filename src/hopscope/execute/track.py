"""Trackers: what a run records, sent to TensorBoard, Weights & Biases or trackio.

Training never waits for a tracker and cannot fail by one.  A process of its own, `python -m hopscope.execute.track
TRACKER RUN`, reads what the run has recorded every few seconds, sends what is new, and ends when its standard input
does (so also when the command that started it is killed).  What goes wrong is its last line on standard error.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hopscope.config import in_words
from hopscope.errors import UserError
from hopscope.execute.local import environment
from hopscope.runs import RunFolder, UnitFolder, write_atomic

_HOW_TO_LOOK = {
    "tensorboard": "tensorboard --logdir {root}",
    "wandb": "wandb sync {root}/{study}/*/wandb/offline-run-*   (sends them to your account)",
    "trackio": "trackio show --project hopscope-{study}",
}  # each tracker has the name of its package, and of the extra that installs it
_PAUSE, _PATIENCE = 5.0, 30.0  # seconds between two looks at a run; that its end waits for trackers to store
_WRITERS = 64  # event files that are open at a time

Point = tuple[int, int, str, float]
"""Member, training step, name of a curve such as `loss/held_out`, and value."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that do not exist or are not installed; a `UserError` with the install command."""
    for name in names:
        if name not in _HOW_TO_LOOK:
            raise UserError(f"tracker: expected one of {', '.join(_HOW_TO_LOOK)}, found {name!r}")
        spec = find_spec(name)
        if spec is None or spec.origin is None:  # a folder of that name, such as W&B's own, is no package
            wanted = f"the package {name} for --tracker {name}, found none"
            raise UserError(f"tracker: expected {wanted}; install it with: pip install 'hopscope[{name}]'")


@contextlib.contextmanager
def followed(run: RunFolder, trackers: Sequence[str], say: Callable[[str], object]) -> Iterator[None]:
    """Trackers that follow a run while the block trains it; nothing that they do or fail to do ends the block."""
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(trackers):
            stack.enter_context(_followed(run, name, say))
        yield


@contextlib.contextmanager
def _followed(run: RunFolder, tracker: str, say: Callable[[str], object]) -> Iterator[None]:
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, tracker, str(run.path)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # trackers print there; standard output of a command is its result
            stderr=complaints, env=environment(),
            start_new_session=True,  # with whatever it starts it can be ended at once, and by nothing else
        )  # fmt: skip
        look = _HOW_TO_LOOK[tracker].format(root=_root(run, tracker), study=run.path.parent.name)
        say(f"{tracker}: {look}")
        try:
            yield
        finally:
            status = None
            try:  # it sends what is left, and is ended, also where this one is interrupted once more
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_PATIENCE)
                status = process.poll()
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            complaints.seek(0)
            last = complaints.read().strip().rpartition("\n")[2] or f"its end with status {status}"
            if status is None:
                last = f"it still busy {_PATIENCE:g} seconds after the end of the run"
            if status != 0:
                say(
                    f"hopscope: warning: tracker {tracker}: expected it to take the run's numbers, found {last}; the "
                    "run is not affected, and the same command with this tracker sends what is missing"
                )


def _root(run: RunFolder, tracker: str) -> Path:
    # All that a tracker has on this machine: beside the studies' folders, never within a run.
    return run.path.resolve().parents[1] / "trackers" / tracker


# In the tracker's process.


def points_of(unit: UnitFolder, after: int = -1) -> Iterator[Point]:
    """What a unit recorded after a step; what is not finite is left out."""
    for row in unit.rows(after):
        name = "/".join(str(row[key]) for key in ("metric", "split", "part") if row.get(key) is not None)
        name += "".join(f"/{key}-{row[key]}" for key in ("layer", "head") if row.get(key) is not None)
        for member, value in zip(row["member"], row["value"], strict=True):
            if value is not None and abs(value) != float("inf"):
                yield member, row["step"], name, value


class _TensorBoard:
    """Event files, one folder for each member: TensorBoard lays the curves of all members over each other."""

    def __init__(self, run: RunFolder, folder: Path):
        from torch.utils.tensorboard import SummaryWriter

        self._make, self._folder, self._open = SummaryWriter, folder, dict[int, Any]()

    def write(self, points: Sequence[Point]) -> None:
        for member, step, name, value in points:
            if member not in self._open:
                if len(self._open) == _WRITERS:
                    self._open.pop(next(iter(self._open))).close()
                self._open[member] = self._make(str(self._folder / f"member-{member}"))
            self._open[member].add_scalar(name, value, step)
        for writer in self._open.values():
            writer.flush()

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        with self._make(str(self._folder / "claims")) as writer:
            writer.add_text("verdicts", "\n\n".join(f"{name}: {said}" for name, said in verdicts.items()))

    def close(self) -> None:
        for writer in self._open.values():
            writer.close()


class _OneRun:
    """W&B or trackio, which know a whole run as one of their own: a member stands behind the name of a curve.

    Both keep it on this machine, W&B unless `WANDB_MODE` says something else.
    """

    def __init__(self, tracker: str, run: RunFolder, folder: Path):
        self._wandb, config = tracker == "wandb", run.config
        folder.mkdir(parents=True, exist_ok=True)
        package = importlib.import_module(tracker)
        own: dict[str, Any] = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        if self._wandb:  # nothing of this machine or of the source is sent along
            quiet = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
            mode, place = os.environ.get("WANDB_MODE", "offline"), os.environ.get("WANDB_DIR", str(folder))
            own = {"id": run.path.name, "dir": place, "mode": mode}
            own |= {"settings": package.Settings(**quiet, x_disable_stats=True)}
        about = {name: config[name] for name in ("study", "identity", "members")}
        names = {"project": f"hopscope-{config['study']}", "name": run.path.name, "config": about}
        self._there = package.init(**names, resume="allow", **own)
        if self._wandb:
            # Units are not at the same step, and W&B drops what comes with a step behind the last one.
            self._there.define_metric("*", step_metric="step")

    def write(self, points: Sequence[Point]) -> None:
        rows: dict[int, dict[str, float]] = {}
        for member, step, name, value in points:
            rows.setdefault(step, {})[f"{name}/member-{member}"] = value
        for step, row in rows.items():
            if self._wandb:
                self._there.log({**row, "step": step})
            else:
                self._there.log(row, step=step)

    def conclude(self, verdicts: Mapping[str, str]) -> None:
        for name, said in verdicts.items() if self._wandb else ():  # trackio shows numbers alone
            self._there.summary[f"claims/{name}"] = said

    def close(self) -> None:
        self._there.finish()


def follow(run: RunFolder, tracker: str, ended: Callable[[], bool]) -> None:
    """Send what a run records until it has `ended` (which waits a while), then its verdicts; errors go up.

    What was sent stands in the tracker's `sent.json`: of each unit up to which step, and the verdicts.
    """
    folder, sent = _root(run, tracker) / run.path.parent.name / run.path.name, dict[str, Any]()
    sink = _TensorBoard(run, folder) if tracker == "tensorboard" else _OneRun(tracker, run, folder)
    with contextlib.suppress(OSError, ValueError):
        sent = dict(json.loads((folder / "sent.json").read_bytes()))

    def note(name: str, value: Any) -> None:
        sent[name] = value
        write_atomic(folder / "sent.json", json.dumps(sent, sort_keys=True).encode())

    def send() -> None:
        for unit in run.units:
            points = sorted(points_of(unit, sent.get(unit.name, -1)), key=lambda point: point[1])
            if points:
                sink.write(points)
                note(unit.name, points[-1][1])

    while not ended():
        with contextlib.suppress(UserError):  # a file was replaced while it was read: the next look finds it
            send()
    send()
    if run.is_done:
        verdicts = {each["id"]: each["verdict"] for each in json.loads(run.read("claims.json"))}
        if sent.get("claims.json") != verdicts:
            sink.conclude(verdicts)
            note("claims.json", verdicts)
    sink.close()


def _input_ended() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], _PAUSE)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1)


def main(arguments: Iterable[str]) -> int:
    """Run the process; returns its exit status."""
    tracker, path = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the command, which then ends our input
    try:
        follow(RunFolder.opened(path), tracker, _input_ended)
    except BaseException as error:  # trackers end in errors of many kinds, SystemExit among them
        print(in_words(error), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
