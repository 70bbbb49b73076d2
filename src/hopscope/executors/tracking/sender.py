"""The process of one tracker: `python -m hopscope.executors.tracking.sender TRACKER RUN`.

It reads what the run has recorded and sends it, every few seconds, until its standard input ends (so also when the
command that started it is killed), then once more.  What goes wrong is its last line on standard error.
"""

import argparse
import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hopscope.config import in_words
from hopscope.errors import UserError
from hopscope.executors.tracking.follower import Follower, tracked_run, tracking_folder
from hopscope.executors.tracking.sinks import SINKS, Sink
from hopscope.runs import RunFolder
from hopscope.runs.locks import Locked, folder_lock

PAUSE_SECONDS = 5.0
"""Time between two looks at the run folder: its parts come with the checkpoints, seldom more often."""
PATIENCE_SECONDS = 3.0
"""How long it waits, when the run has ended, for another process that sends it to the same tracker."""


def follow(run: RunFolder, tracker: str, ended: Callable[[], bool]) -> None:
    """Send what a run records until it has ended, then its verdicts; one process at a time, so nothing is sent twice.

    Args:
        run: the run; units that begin later are found.
        tracker: name of the sink.
        ended: waits a while and says whether the run's command has ended.

    Raises:
        UserError: a record is damaged, or another process sends this run to this tracker.
        Exception: whatever the tracker raises.
    """
    folder = tracking_folder(run, tracker) / run.study / run.hash
    with _alone(folder, ended):
        follower = Follower(run, folder)
        sink: Sink = SINKS[tracker](tracked_run(run), folder)
        while not ended():
            with contextlib.suppress(
                UserError
            ):  # a part was replaced while it was read: the next look finds it
                follower.send(sink)
        follower.send(sink)
        follower.conclude(sink)
        sink.close()


@contextlib.contextmanager
def _alone(folder: Path, ended: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock of a run's record; as long as the run goes on, wait for what a killed command left at work."""
    with contextlib.ExitStack() as held:
        last = False
        while True:
            try:
                patience = PATIENCE_SECONDS if last else 0.0
                held.enter_context(folder_lock(folder, "tracker's record of the run", patience))
                break
            except Locked:
                if last:
                    raise
                last = ended()
        yield


def _input_ended() -> bool:
    """Wait a while; whether standard input has ended by then."""
    ready, _, _ = select.select([sys.stdin], [], [], PAUSE_SECONDS)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1)


def main(arguments: list[str]) -> int:
    """Run the process; returns its exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tracker", choices=sorted(SINKS))
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    # An interrupt is for the command, which then ends this process's input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        follow(RunFolder.open(options.run), options.tracker, _input_ended)
    except BaseException as error:  # trackers end in errors of many kinds, SystemExit among them
        print(in_words(error), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
