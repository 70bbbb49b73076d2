"""The command's side of trackers: start their processes, never wait for them while training, say if one failed."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from hopscope.errors import UserError
from hopscope.executors.processes import environment
from hopscope.executors.tracking.follower import tracking_folder
from hopscope.executors.tracking.sinks import how_to_look
from hopscope.runs import RunFolder

PATIENCE_SECONDS = 30.0
"""How long the end of a run waits for its trackers, all together, to store what they have."""


class TrackerWarning(UserWarning):
    """A tracker failed; the run that it followed did not."""


class _Sender:
    """The process of one tracker."""

    def __init__(self, run: RunFolder, tracker: str):
        self.run, self.tracker = run, tracker
        self.over = self._killed = False
        # Open as long as the process is: `close` ends both.
        self._complaints: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hopscope.executors.tracking.sender", tracker, str(run.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # trackers print there; standard output of a command is its result
                stderr=self._complaints,
                env=environment(),
                start_new_session=True,  # with whatever it starts it can be ended at once, and by nothing else
            )
        except BaseException:
            self._complaints.close()
            raise

    def fault(self) -> str | None:
        """What went wrong, once it has; told once."""
        status = self._process.poll()
        if self.over or status is None:
            return None
        self.over = True
        self._kill()
        if status == 0:
            return None
        self._complaints.seek(0)
        last = self._complaints.read().strip().rpartition("\n")[2]
        return last or (f"its end by signal {-status}" if status < 0 else f"its end with status {status}")

    def finish(self) -> None:
        """Let it send what is left, and end."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait(self, seconds: float | None) -> str | None:
        """What went wrong by then (`None`: whenever it ends)."""
        try:
            self._process.wait(None if seconds is None else max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.over = True
            return f"it still busy {PATIENCE_SECONDS:g} seconds after the end of the run"
        return self.fault()

    def close(self) -> None:
        """End it, and what it started."""
        self._kill()
        self._process.wait()
        self._complaints.close()

    def _kill(self) -> None:
        """End its process group, once: hours after its end, its number may be another's."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _words(run: RunFolder, tracker: str, found: str) -> str:
    return (
        f"tracker {tracker}: expected it to take the run's numbers, found {found}; the run is not affected, and "
        f"`hopscope track {run.path} --tracker {tracker}` sends what is missing"
    )


@contextlib.contextmanager
def followed(
    run: RunFolder, trackers: Sequence[str], say: Callable[[str], None] | None = None
) -> Iterator[Callable[[], None]]:
    """Trackers that follow a run while the block trains it; nothing that they do or fail to do ends the block.

    Args:
        run: the run.
        trackers: names, checked (`check_trackers`).
        say: hears one line of each tracker that failed; by default it is a `TrackerWarning`.

    Yields:
        A function that tells of trackers that have failed since; it does not wait.
    """

    def tell(tracker: str, found: str) -> None:
        if say is None:
            warnings.warn(_words(run, tracker, found), TrackerWarning, stacklevel=2)
        else:
            say(f"hopscope: warning: {_words(run, tracker, found)}")

    senders = []
    for tracker in dict.fromkeys(trackers):
        try:
            senders.append(_Sender(run, tracker))
        except OSError as error:
            tell(tracker, str(error))
            continue
        if say is not None:
            say(f"{tracker}: {how_to_look(tracker, tracking_folder(run, tracker), run.study)}")

    def look() -> None:
        for sender in senders:
            if (found := sender.fault()) is not None:
                tell(sender.tracker, found)

    try:
        yield look
    finally:
        try:
            end = time.monotonic() + PATIENCE_SECONDS
            for sender in senders:
                sender.finish()
            for sender in senders:
                if not sender.over and (found := sender.wait(end - time.monotonic())) is not None:
                    tell(sender.tracker, found)
        finally:
            for sender in senders:
                sender.close()


def send(run: RunFolder, tracker: str) -> None:
    """Send what a run has recorded and a tracker lacks, and wait for it.

    Raises:
        UserError: the tracker failed.
    """
    sender = _Sender(run, tracker)
    try:
        sender.finish()
        found = sender.wait(None)
    finally:
        sender.close()
    if found is not None:
        raise UserError(f"tracker {tracker}: expected it to take the run's numbers, found {found}")
