"""What a run lost: records that were altered or deleted are made again from what they derive from.

A record of a sealed folder (`hopscope.runs.seals`) that was altered is taken away, with a word, and made again: an
analysis from its checkpoint, a table, a verdict or a figure from the analyses, a training record by training anew.
What derives from nothing (configuration, members, registered rules) is refused where it is read.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from hopscope.runs import RunFolder, UnitFolder, is_thinned, seals
from hopscope.runs.files import listed, remove

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


def tell_lost_checkpoints(unit: UnitFolder, steps: Sequence[int], say: Callable[[str], None] | None) -> None:
    """Say which checkpoints before a unit's last one are gone: they come back only if the unit is trained anew.

    Args:
        unit: its folder.
        steps: of all its checkpoints.
        say: as of `remove_altered`.
    """
    found = [step for step, _ in unit.checkpoints()]
    gone = (
        []
        if is_thinned(unit) or not found
        else [step for step in steps if step < found[-1] and step not in found]
    )
    if gone:
        _tell(
            f"{unit.path / 'checkpoints'}: expected the checkpoints of every interval, found those of steps "
            f"{listed(gone)} gone: pages and circuits do without them; delete the folder {unit.path} to train it anew",
            say,
        )


def _can_be_made(name: str) -> bool:
    """Whether a file of a run or unit derives from others; a training record is made again by the trainer."""
    place = Path(name).parts
    return place[-1] not in GIVEN and place[0] not in ("source", "metrics")


def _tell(words: str, say: Callable[[str], None] | None) -> None:
    if say is None:
        warnings.warn(words, RecordWarning, stacklevel=4)
    else:
        say(f"hopscope: warning: {words}")
