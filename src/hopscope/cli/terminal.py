"""Output that several commands share: console, status line, and lines on standard error."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hopscope.runs import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""

SELDOM = 30.0
"""Seconds between two lines on the stage of the work that do not go to a terminal."""

TABLE_WIDTH = 110
"""Columns from which all of a ledger can be read as a table."""


def console() -> "Console":
    """A console on standard output, as wide as the terminal (or as COLUMNS says)."""
    from rich.console import Console

    return Console(width=shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows the stage of the work on standard error.

    On a terminal it is one line, which goes when the work ends; elsewhere lines, at most one in half a minute.
    """
    from rich.console import Console
    from rich.text import Text

    if not sys.stderr.isatty():
        yield _seldom()
        return
    with Console(stderr=True).status("") as status:
        yield lambda stage: status.update(Text(f"{stage} …"))


def _seldom() -> Callable[[str], None]:
    last = time.monotonic()

    def tell(stage: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SELDOM:
            last = time.monotonic()
            say(stage)

    return tell


def ledger_words(run: RunFolder) -> dict[str, str]:
    """Words about each claim from the story of an older run; newer records hold their own."""
    if not (run.path / "story.json").is_file():
        return {}
    story = run.read_json("story.json")
    claims = story.get("claims") if isinstance(story, dict) else None
    if not isinstance(claims, dict):
        return {}
    return {
        name: str(entry["words"])
        for name, entry in claims.items()
        if isinstance(entry, dict) and "words" in entry
    }


def say(words: str) -> None:
    """Write a line on standard error, where that is possible: see `hopscope.cli.streams`."""
    print(words, file=sys.stderr, flush=True)
