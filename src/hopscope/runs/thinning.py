"""Runs that travel: checkpoints with fewer digits, and a note of what was left out.

A unit's `thinned.json` says which of its checkpoints are float16 and which are gone, so that nobody takes the one for
the full weights, or the unit for one that must be trained again because the other is missing.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hopscope.errors import UserError
from hopscope.runs.checkpoints import load_checkpoint, save_checkpoint
from hopscope.runs.files import is_file, read_json, write_json
from hopscope.runs.hashing import SCHEMA_VERSION
from hopscope.runs.units import THINNED, UnitFolder


def save_rounded(source: Path, to: Path) -> None:
    """Write the weights of a checkpoint as float16 (11 significant bits), without the optimiser's state.

    Weights too large for float16 stay as they are.  The metadata gain `rounded`, the names of the rounded arrays.

    Raises:
        CheckpointDamaged: its content cannot be trusted.
        UserError: a file cannot be read or written.
    """
    arrays, metadata = load_checkpoint(source)
    largest = float(np.finfo(np.float16).max)
    weights = {name: array for name, array in arrays.items() if name.startswith("weights/")}
    fits = [name for name, array in weights.items() if not (np.abs(array) > largest).any()]
    rounded = {name: array.astype(np.float16) if name in fits else array for name, array in weights.items()}
    save_checkpoint(to, rounded, {**metadata, "rounded": fits})


def note_thinned(
    folder: Path, rounded: Iterable[int], left_out: Iterable[int], frozen: Iterable[int]
) -> None:
    """Note which checkpoints a unit lost.

    Args:
        folder: of the unit.
        rounded, left_out: steps whose checkpoints are rounded, and are absent.
        frozen: what `frozen_members` says of it.

    Raises:
        UserError: the file cannot be written.
    """
    note = {
        "schema_version": SCHEMA_VERSION,
        "rounded": sorted(rounded),
        "left_out": sorted(left_out),
        "frozen": sorted(frozen),
    }
    write_json(folder / THINNED, note)


def frozen_members(unit: UnitFolder, step: int) -> set[int]:
    """Places in a unit of the members that diverged and were frozen.

    Not from the events: they are a log that may lose lines.

    Args:
        unit: the unit.
        step: of its newest checkpoint.

    Raises:
        UserError: that checkpoint is damaged, or is absent and was not left out on purpose.
    """
    if step in steps_left_out(unit):
        return set(_noted(unit, "frozen"))
    _, _, metadata = unit.checkpoint(step)
    return {index for index, frozen_at in enumerate(metadata["frozen_at"]) if frozen_at >= 0}


def steps_left_out(unit: UnitFolder) -> list[int]:
    """Steps whose checkpoints were left out of a unit on purpose.

    Raises:
        UserError: the note is damaged.
    """
    return _noted(unit, "left_out") if is_thinned(unit) else []


def steps_rounded(unit: UnitFolder) -> list[int]:
    """Steps whose checkpoints have fewer digits than the weights that were trained.

    Raises:
        UserError: the note is damaged.
    """
    return _noted(unit, "rounded") if is_thinned(unit) else []


def _noted(unit: UnitFolder, name: str) -> list[int]:
    path = unit.path / THINNED
    record = read_json(path)
    numbers = record.get(name) if isinstance(record, dict) else None
    if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
        raise UserError(
            f"{path}: expected a list of whole numbers as {name}, found another record: restore it"
        )
    return numbers


def is_thinned(unit: UnitFolder) -> bool:
    """Whether checkpoints of a unit were rounded or left out on purpose."""
    return is_file(unit.path / THINNED)
