"""What a run lost: records that were altered or deleted are made again from what they derive from.

A record of a sealed folder (`hopscope.runs.seals`) that was altered is taken away, with a word, and made again: an
analysis from its checkpoint, a table, a verdict or a figure from the analyses, a training record by training anew.
What derives from nothing (configuration, members, registered rules) is refused where it is read, and so is, before
anything is taken away, an analysis whose checkpoint was rounded or is gone.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from hopscope.errors import UserError
from hopscope.runs import RunFolder, UnitFolder, is_thinned, seals, steps_rounded
from hopscope.runs.files import listed, remove
from hopscope.runs.units import THINNED

GIVEN = (
    "campaign.json",
    "config.json",
    "members.json",
    "registration.json",
    "study.json",
    "unit.json",
    THINNED,
)
"""Files that nothing in a run can give back."""

_STEP = re.compile(r".+-step-(\d{9,})\.(?:json|npz)")
"""Name of an analysis of a checkpoint (`UnitFolder.analysis_path`)."""


class RecordWarning(UserWarning):
    """An altered record of a run was taken away, to be made again."""


def remove_altered(run: RunFolder, say: Callable[[str], None] | None = None) -> None:
    """Take away altered records of a run and its units that can be made again.

    Args:
        run: the run.
        say: told of each in one line; by default a `RecordWarning` is issued.

    Raises:
        UserError: a file cannot be removed; or an analysis was altered whose checkpoint does not give it back, and
            nothing is taken away then.
    """
    found = seals.altered(run.path, _can_be_made)
    for unit in run.units:
        of_unit = seals.altered(unit.path, _can_be_made)
        for path in of_unit:
            check_can_be_made(unit, path, "the content that was written, found another")
        found += of_unit
    for path in found:
        remove(path)
        run.event("record_altered", file=path.relative_to(run.path).as_posix())
        tell(f"{path}: expected the content that was written, found another: it is made again", say)


def check_can_be_made(unit: UnitFolder, path: Path, expected: str) -> None:
    """Refuse an analysis that was lost for good; other files of a unit pass.

    Args:
        unit: its folder.
        path: the file.
        expected: what was expected and found, for the error line.

    Raises:
        UserError: the checkpoint that the analysis was made from was rounded, or is gone and is not trained again.
    """
    match = _STEP.fullmatch(path.name) if path.parent.name == "analysis" else None
    if match is None:
        return
    step, there = int(match[1]), [step for step, _ in unit.checkpoints()]
    rounded = step in steps_rounded(unit)
    # Training that was not left out on purpose comes by at what is beyond the last checkpoint.
    to_come = not is_thinned(unit) and step > max(there, default=-1)
    if rounded or not (step in there or to_come):
        lost = "has only rounded weights" if rounded else "is gone"
        raise UserError(
            f"{path}: expected {expected}, and it cannot be made again, because the checkpoint of step {step} {lost}: "
            f"restore it from a copy of the run, or move {unit.path} away and run the same command again to train anew"
        )


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
        tell(
            f"{unit.path / 'checkpoints'}: expected the checkpoints of every interval, found those of steps "
            f"{listed(gone)} gone: pages and circuits do without them; delete the folder {unit.path} to train it anew",
            say,
        )


def _can_be_made(name: str) -> bool:
    """Whether a file of a run or unit derives from others; a training record is made again by the trainer."""
    place = Path(name).parts
    return place[-1] not in GIVEN and place[0] not in ("source", "metrics")


def tell(words: str, say: Callable[[str], None] | None) -> None:
    """Say a warning in one line; by default a `RecordWarning` is issued."""
    if say is None:
        warnings.warn(words, RecordWarning, stacklevel=4)
    else:
        say(f"hopscope: warning: {words}")
