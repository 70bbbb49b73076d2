"""What several commands print the same way."""

import os
import shutil
from typing import TYPE_CHECKING

from hopscope.errors import UserError
from hopscope.runs import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that does not go to a terminal."""


def console() -> "Console":
    """A console on standard output, wide enough for the ledger."""
    from rich.console import Console

    if os.isatty(1):
        return Console(width=max(100, shutil.get_terminal_size().columns))
    return Console(width=PIPE_WIDTH)


def ledger_words(run: RunFolder) -> dict[str, str]:
    """What a run can say about each claim, in a sentence."""
    story = run.read_json("story.json")
    claims = story.get("claims") if isinstance(story, dict) else None
    if not isinstance(claims, dict) or not all(isinstance(e, dict) and "words" in e for e in claims.values()):
        raise UserError(
            f"{run.path / 'story.json'}: expected words for every claim, found another record; "
            "delete it and run the same command again"
        )
    return {name: str(entry["words"]) for name, entry in claims.items()}
