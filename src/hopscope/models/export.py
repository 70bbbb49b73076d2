"""One member as a folder that stands on its own: configuration and weights, no run folder needed."""

from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError

from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.member import MemberTransformer
from hopscope.runs import CheckpointDamaged, load_checkpoint, read_json, save_checkpoint, write_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = "hopscope-member"

UNFINISHED = {"unfinished": True}
"""Stands in the record of an export while its other files are written: whoever is killed leaves no folder that holds
the weights of one member and says that they are another's."""


def export_module(
    module: MemberTransformer, to: Path, origin: dict[str, object], *, half: bool = False
) -> None:
    """Write a member's configuration and weights.

    Args:
        module: the member.
        to: folder; made if absent, and an earlier export in it is replaced.
        origin: where the member comes from, for the record; must hold `step`.
        half: whether weights are rounded to float16, which must hold them (up to 65,504); they are read as float32.

    Raises:
        UserError: `to` is a file, or a folder with something else in it.
    """
    if to.exists() and not to.is_dir():
        raise UserError(f"{to}: expected a folder for the export, found a file; choose another --to")
    if to.is_dir() and any(to.iterdir()) and not is_export(to):
        raise UserError(
            f"{to}: expected an empty folder or an earlier export, found other files; choose another --to"
        )
    kept = torch.float16 if half else torch.float32
    weights = {name: tensor.to(kept).numpy() for name, tensor in module.state_dict().items()}
    write_json(to / CONFIG, {"schema_version": 1, "format": FORMAT, **UNFINISHED})
    save_checkpoint(to / WEIGHTS, weights, origin)
    write_json(
        to / CONFIG,
        {
            "schema_version": 1,
            "format": FORMAT,
            "model": module.config.model_dump(mode="json"),
            "origin": origin,
        },
    )


def is_export(folder: Path) -> bool:
    """Whether an export of this layout is in a folder, and not a run, or another tool's model with a config.json."""
    try:
        record = read_json(folder / CONFIG)
    except UserError:
        return False
    return isinstance(record, dict) and record.get("format") == FORMAT


def check_finished(record: object, folder: Path) -> None:
    """Refuse the record of an export that was cut short.

    Raises:
        UserError: it was.
    """
    if isinstance(record, dict) and record.get("unfinished"):
        raise UserError(
            f"{folder}: expected a whole export, found one that was cut short; export the member again"
        )


def load_module(directory: Path | str) -> MemberTransformer:
    """Load an exported member, ready for evaluation.

    For the permutation study `module(tokens)` maps integers `[batch, position]` (values 1…V at up to 2V - 1
    positions) to logits `[batch, position, V + 1]`, where the index is the value.

    Raises:
        UserError: the folder holds no export, or a damaged one.
    """
    folder = Path(directory)
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"{folder}: expected an exported member, found no {CONFIG}; write one with hopscope export"
        )
    record = read_json(folder / CONFIG, "export the member again")
    check_finished(record, folder)
    try:
        if record["format"] != FORMAT or record["schema_version"] != 1:
            raise KeyError("format")
        config = TransformerConfig.model_validate(record["model"])
    except (KeyError, TypeError, ValidationError):
        raise UserError(
            f"{folder / CONFIG}: expected the record of an exported member, found another; export the member again"
        ) from None
    weights = _weights(folder / WEIGHTS)
    try:
        state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
        return MemberTransformer.with_state(config, state).eval()
    except (ValueError, TypeError):  # TypeError: numbers of a kind that torch does not have
        raise UserError(
            f"{folder / WEIGHTS}: expected weights that fit {CONFIG}, found others; export the member again"
        ) from None


def _weights(path: Path) -> dict[str, np.ndarray]:
    """The weights of an export; what a run's checkpoint would say to do about damage does not help here."""
    if not path.is_file():
        raise UserError(f"{path}: expected the weights of an export, found none; export the member again")
    try:
        return load_checkpoint(path)[0]
    except CheckpointDamaged as error:
        raise UserError(
            f"{path}: expected whole weights, found {error.reason}; export the member again"
        ) from None
