"""Signals that ask a command to end: they are answered as Ctrl-C is, so that what is done is kept and told."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

REPEAT_SECONDS = 2.0
"""For so long the same wish counts once: `timeout`, shells and batch systems send a signal twice, or two of them."""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the signal's number, as shells have it."""


class Terminated(KeyboardInterrupt):
    """The command was asked to end."""


@dataclass
class Asked:
    """Who asked a command to end, if anybody did.

    Attributes:
        exit_status: 128 and the number of the first signal; that of Ctrl-C until one comes, because something between
            may make a `KeyboardInterrupt` of its own out of a `Terminated`.
        raised: when the last one was obeyed, in seconds.
    """

    exit_status: int = INTERRUPTED
    raised: float = -math.inf

    def answer(self, number: int, _: FrameType | None) -> None:
        """Handle a signal: what is at work is interrupted, once for signals that come together."""
        now = time.monotonic()
        if now - self.raised < REPEAT_SECONDS:
            return
        if self.exit_status == INTERRUPTED:
            self.exit_status = 128 + number
        self.raised = now
        raise Terminated(signal.Signals(number).name)


@contextmanager
def obeying() -> Iterator[Asked]:
    """Let SIGTERM and SIGHUP raise `Terminated` within the block; what it gives tells of them.

    A signal that is ignored (`nohup`), or that somebody else handles, is left as it is.  Processes that are started
    meanwhile begin with the usual handling: no handler outlives the start of a program.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread may say what a signal does
        return
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    taken = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, asked.answer)
    try:
        yield asked
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
