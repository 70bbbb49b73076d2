"""Checkpoints: safetensors files that carry their own checksum and are whole or absent.

A process may be killed, or a disk may fill up, at any moment; a file may be cut short or altered later.  What was
written before must survive the first, and the second must be recognised before anything is computed from the file.
"""

import contextlib
import errno
import hashlib
import json
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hopscope_next.errors import UserError, printable

Array = np.ndarray[Any, Any]
"""An array of any shape and number type."""

_KEY = "hopscope"  # one only: the order in which safetensors writes several is random
_AGAIN = "use another checkpoint, or delete the file and run the same command again"


class CheckpointDamaged(UserError):
    """A checkpoint whose content cannot be trusted.

    Attributes:
        path, found: the file, and what is wrong with it in words.
    """

    def __init__(self, path: Path, found: str):
        super().__init__(path, found)  # both, so that the error can cross processes
        self.path, self.found = path, found

    def __str__(self) -> str:
        return printable(f"{self.path}: expected a whole checkpoint, found {self.found}; {_AGAIN}")


def save_checkpoint(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Write a checkpoint, or leave what was there; equal content gives equal bytes.

    Args:
        path: the file; folders above it are made.
        tensors: arrays of numbers or booleans by name.
        metadata: JSON values.

    Raises:
        UserError: the file cannot be written.
        ValueError: the metadata hold a NaN or an infinity.
    """
    plain = {name: (each, each.dtype.newbyteorder("<")) for name, each in tensors.items()}
    arrays = {name: np.asarray(each, dtype, order="C") for name, (each, dtype) in plain.items()}
    text = json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_atomic(path, safetensors.numpy.save(arrays, {_KEY: f"{_digest(arrays, text)} {text}"}))


def load_checkpoint(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the tensors and the metadata that were given to `save_checkpoint`.

    Raises:
        CheckpointDamaged: the file was cut short or altered, or is no checkpoint of Hopscope.
        UserError: the file is missing or cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, found: {error.strerror}; {_AGAIN}") from error
    try:
        arrays = safetensors.numpy.load(content)
        (length,) = struct.unpack_from("<Q", content)  # of the header, which is JSON
        digest, _, text = json.loads(content[8 : 8 + length])["__metadata__"][_KEY].partition(" ")
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(path, "a file that was cut short, or one of another program") from error
    if digest != _digest(arrays, text):
        raise CheckpointDamaged(path, "numbers that do not match their checksum")
    return arrays, json.loads(text)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file, or leave what was there; folders above it are made.

    Raises:
        UserError: the system refused (full disk, no permission, a file in place of a folder …).
    """
    # Hidden, and this thread's own; what a killed process leaves of it is garbage.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: expected a writable folder with free space, found: {error.strerror}; nothing "
            "written before is lost: free some space or choose another folder, and run the same command again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    # The name must survive a power cut as well.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(descriptor)


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
