"""What several commands print the same way."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from hopscope.runs import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""

TABLE_WIDTH = 110
"""Columns from which all of a ledger can be read as a table."""


def console() -> "Console":
    """A console on standard output, as wide as the terminal (or as COLUMNS says)."""
    from rich.console import Console

    return Console(width=shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def progress() -> Callable[[str], None]:
    """A function that shows, on a terminal's standard error, what is being done; each word replaces the one before."""
    if not os.isatty(2):
        return lambda _: None

    def show(stage: str) -> None:
        print(f"\r\x1b[2K{stage} …", end="", file=sys.stderr, flush=True)

    return show


def ledger_words(run: RunFolder) -> dict[str, str]:
    """What the story of an older run says about each claim; the records of newer ones say it themselves."""
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
    """Write a line on standard error."""
    with suppress(BrokenPipeError):  # nobody reads it any more, and the work goes on
        print(words, file=sys.stderr, flush=True)
