"""What a run lost: records that were altered or deleted are made again from what they derive from.

A record of a sealed folder (`hopscope.runs.seals`) that was altered is taken away, with a word, and made again: an
analysis from its checkpoint, a table, a verdict or a figure from the analyses, a training record by training anew.
What derives from nothing (configuration, members, registered rules) is refused where it is read.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

from hopscope.runs import RunFolder, seals
from hopscope.runs.files import remove

GIVEN = ("config.json", "members.json", "registration.json", "study.json", "unit.json")
"""Files that nothing in a run can give back."""


class RecordWarning(UserWarning):
    """An altered record of a run was taken away, to be made again."""


def remove_altered(run: RunFolder, say: Callable[[str], None] | None = None) -> None:
    """Take away altered records of a run and its units that can be made again.

    Args:
        run: the run.
        say: told of each in one line; by default a `RecordWarning` is issued.

    Raises:
        UserError: a file cannot be removed.
    """
    for folder in (run.path, *(unit.path for unit in run.units)):
        for path in seals.altered(folder, _can_be_made):
            remove(path)
            run.event("record_altered", file=path.relative_to(run.path).as_posix())
            _tell(f"{path}: expected the content that was written, found another: it is made again", say)


def _can_be_made(name: str) -> bool:
    """Whether a file of a run or unit derives from others; a training record is made again by the trainer."""
    place = Path(name).parts
    return place[-1] not in GIVEN and place[0] not in ("source", "metrics")


def _tell(words: str, say: Callable[[str], None] | None) -> None:
    if say is None:
        warnings.warn(words, RecordWarning, stacklevel=4)
    else:
        say(f"hopscope: warning: {words}")
