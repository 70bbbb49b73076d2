"""Standard streams of a command: what is only said never ends its work, and nobody reads a closed stream."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


class Said:
    """A stream for words that nobody may be there to hear: what cannot be written is lost, and the work goes on.

    A terminal may be gone, a disk full, or the reader of a pipe at its end.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write where that is possible; the number of characters that were given."""
        with suppress(OSError, ValueError):  # a ValueError where the stream was closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Let go of what was written, where that is possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def saying() -> Iterator[None]:
    """Let standard error be `Said` within the block; an error that ends a command still has its exit status."""
    stream = sys.stderr
    said = sys.stderr = cast(TextIO, Said(stream))
    try:
        yield
    finally:
        if sys.stderr is said:
            sys.stderr = stream


def open_closed() -> None:
    """Let streams that were closed when the process began lead nowhere.

    Otherwise the next file that is opened takes their number, and whatever writes to the number writes into the file.
    """
    for name, mode in _STREAMS.items():
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def settle_output() -> None:
    """Give up what standard output could not take: Python would try once more at the end, and complain."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
