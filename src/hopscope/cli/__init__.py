"""`hopscope COMMAND …`: finds the command, turns errors into one line and an exit status."""

import importlib
import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from hopscope.errors import HopscopeError, UserError, printable

COMMANDS = {
    "studies": ("listing", "what there is: studies and presets"),
    "new": ("listing", "begin a study of your own: a file, its page and its test"),
    "run": ("run", "train, measure and judge a study, or go on where it stopped"),
    "claims": ("reading", "the ledger of a run: every claim with its verdict"),
    "report": ("reading", "build the page of one run, or of several"),
    "circuit": ("reading", "the circuit of one trained member, read and proven by ablation"),
    "export": ("reading", "write one trained member as a folder that other tools open"),
    "theory": ("theory", "how many layers a retrieval chain needs: bound and exact minimum"),
    "questions": ("words", "retrieval questions in words, for language models"),
    "heads": ("words", "which heads of a language model retrieve, and what is lost without them"),
    "bench": ("listing", "training speed beside other ways to do it"),
}
"""Name → module, and what it does."""

_KEPT = "what is done is kept, the same command goes on"
_TWICE = 5.0  # seconds in which a signal that comes again is the same one


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a sign shows another, and is no fault.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    with redirect_stderr(cast(TextIO, _Said(sys.stderr))), _obeying():
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
        _settle_output()
    return status


def say(words: str) -> None:
    """Write a line on standard error, where that is possible."""
    print(words, file=sys.stderr, flush=True)


def _run(given: list[str]) -> int:
    try:
        status = _called(given)
        sys.stdout.flush()  # a result that cannot be written is a fault, which Python would tell in its own way
    except HopscopeError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt as asked:
        number = int(asked.args[0]) if isinstance(asked, _Asked) else signal.SIGINT
        return _fail(f"interrupted; {_KEPT}", 128 + number)  # as shells have it
    except BrokenPipeError:
        return 0  # the reader of our output has gone (such as `| head`): nothing is wrong
    except OSError as error:
        return _fail(f"{error.filename or 'system'}: {error.strerror}; {_KEPT}", 2)
    except Exception as error:
        # A RuntimeError of Python where its stack found no room for a thread.
        if isinstance(error, MemoryError) or str(error) == "can't start new thread":
            return _fail(f"the memory of this machine ran out; {_KEPT}", 2)
        if os.environ.get("HOPSCOPE_TRACEBACK"):
            raise
        words = f"{type(error).__name__}: {error}"
        return _fail(f"{words}; a fault of Hopscope: please report it, with HOPSCOPE_TRACEBACK=1 set", 2)
    return status


def _called(given: list[str]) -> int:
    name, *rest = given or [""]
    if name in ("", "-h", "--help"):
        print(_usage())
        return 0 if name else 2
    if name == "--version":
        print(f"hopscope {importlib.import_module('hopscope').__version__}")
        return 0
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise UserError(f"command: expected one of {known}, found {name!r}; see hopscope --help")
    command = getattr(importlib.import_module(f"{__name__}.{COMMANDS[name][0]}"), name)
    from hopscope.cli.parsing import bound

    try:
        # The options of `run` are its study's.
        call = partial(command, rest) if name == "run" else bound(command, rest)
        call()
    except SystemExit as stop:
        if stop.code not in (0, None):
            raise
    return 0


def _usage() -> str:
    lines = "\n".join(f"  {name:<9}  {words}" for name, (_, words) in COMMANDS.items())
    return f"""usage: hopscope COMMAND [OPTIONS]

Grow small transformers on in-context retrieval tasks and read out what they learned.

{lines}

hopscope COMMAND --help says more.  Exit status: 0 done, 2 something to mend, 75 time budget reached,
130 interrupted (143 by SIGTERM, 129 by SIGHUP); after all but 0 and 2 the same command goes on."""


def _fail(message: str, status: int) -> int:
    say(f"hopscope: {printable(message)}")
    return status


class _Asked(KeyboardInterrupt):
    """A signal asked for the end, which is answered as Ctrl-C is; its number is the argument."""


@contextmanager
def _obeying() -> Iterator[None]:
    asked = list[float]()

    def answer(number: int, _: FrameType | None) -> None:
        # `timeout` and batch systems send it twice; a callback that swallows the first is no reason to go on.
        if not asked or time.monotonic() - asked[0] > _TWICE:
            asked[:] = [time.monotonic()]
            raise _Asked(number)

    taken = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, answer)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


# What is only said never ends the work, and nobody reads a closed stream.


class _Said:
    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # a ValueError where the stream was closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _open_closed() -> None:
    # Streams that were closed when the process began lead nowhere: else the next file that is opened takes their
    # number, and whatever writes to the number writes into the file.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _settle_output() -> None:
    # Give up what standard output could not take: Python would try once more at the end, and complain.
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
