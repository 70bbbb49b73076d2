"""Checkpoints: safetensors files that carry their own checksum.

A checkpoint that was cut short or altered must be recognised before anything is computed from it.  So the
metadata hold a SHA-256 over the arrays and one over the metadata themselves.
"""

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from hopscope.errors import UserError, printable
from hopscope.runs.arrays import Array, plain
from hopscope.runs.files import read_bytes, write_atomic
from hopscope.runs.hashing import SCHEMA_VERSION
from hopscope.strict_json import canonical_json, parse_json

_KEY = "hopscope"
_OWN = ("schema_version", "sha256", "metadata_sha256")
_REMEDY = "use another checkpoint, or delete the unit's folder and run the same command again"


class CheckpointDamaged(UserError):
    """A checkpoint file whose content cannot be trusted.

    Attributes:
        path: the file.
        reason: what is wrong with it, in words.
        remedy: what the user should do.
    """

    def __init__(self, path: Path, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(path, reason, remedy)  # all of them, so that the error can cross processes
        self.path = path
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return printable(f"{self.path}: expected a whole checkpoint, found {self.reason}: {self.remedy}")


def save_checkpoint(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Writes a checkpoint atomically; equal content gives equal bytes.

    Args:
        path: the file.
        tensors: arrays by name, with a leading member axis.
        metadata: JSON values, among them `step`.

    Raises:
        UserError: the file cannot be written.
        ValueError: the metadata lack `step`, use a reserved key, or hold a NaN or an infinity.
    """
    if "step" not in metadata or any(key in metadata for key in _OWN):
        raise ValueError(f"expected metadata with step and without {_OWN}, found keys {sorted(metadata)}")
    arrays = {name: plain(array) for name, array in tensors.items()}
    header = {
        **metadata,
        "schema_version": SCHEMA_VERSION,
        "sha256": _digest(arrays),
        "metadata_sha256": _metadata_digest(metadata),
    }
    # One key only: the order in which safetensors writes several is random.
    write_atomic(path, safetensors.numpy.save(arrays, {_KEY: canonical_json(header)}))


def load_checkpoint(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the metadata that were given to `save_checkpoint`.

    Raises:
        CheckpointDamaged: the file was cut short or altered, is no checkpoint, or a newer Hopscope made it.
        UserError: the file is missing or cannot be read.
    """
    content = read_bytes(path, _REMEDY)
    header = _header(path, content)
    try:
        arrays = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(path, f"arrays that cannot be read ({error})") from error
    metadata = {key: value for key, value in header.items() if key not in _OWN}
    if header.get("metadata_sha256") != _metadata_digest(metadata):
        raise CheckpointDamaged(path, "metadata that do not match their checksum")
    if header.get("sha256") != _digest(arrays):
        raise CheckpointDamaged(path, "arrays that do not match their checksum")
    return arrays, metadata


def strip_checkpoint(path: Path) -> None:
    """Rewrites a checkpoint with its weights alone; nothing is written if it has nothing else.

    Raises:
        CheckpointDamaged: as in `load_checkpoint`.
        UserError: the file is missing, or cannot be read or written.
    """
    arrays, metadata = load_checkpoint(path)
    kept = {name: array for name, array in arrays.items() if name.startswith("weights/")}
    if len(kept) < len(arrays):
        save_checkpoint(path, kept, metadata)


def _header(path: Path, content: bytes) -> dict[str, Any]:
    """Our part of the safetensors header, which is an 8-byte length and then JSON."""
    try:
        (length,) = struct.unpack_from("<Q", content)
        header = parse_json(parse_json(content[8 : 8 + length])["__metadata__"][_KEY])
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointDamaged(path, "a file that was cut short or is no checkpoint of ours") from error
    if not isinstance(header, dict) or not isinstance(header.get("schema_version"), int):
        raise CheckpointDamaged(path, "metadata without a schema version")
    version = header["schema_version"]
    if version > SCHEMA_VERSION:
        found = f"one made by a newer Hopscope (schema {version}, this one reads up to {SCHEMA_VERSION})"
        raise CheckpointDamaged(path, found, "upgrade Hopscope")
    return header


def _metadata_digest(metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(dict(metadata)).encode()).hexdigest()


def _digest(arrays: Mapping[str, Array]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in name order."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(canonical_json([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
