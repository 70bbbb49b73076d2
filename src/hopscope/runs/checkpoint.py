"""Files that are whole or absent, and checkpoints: safetensors files that carry their own checksum.

A process may be killed, or a disk may fill up, at any moment; a file may be cut short or altered later.  What was
written before must survive the first, and the second must be recognised before anything is computed from the file.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from hopscope.errors import UserError

Array = np.ndarray[Any, Any]
"""An array of any shape and number type."""

_KEY = "hopscope"  # one only: the order in which safetensors writes several is random
_PATIENCE = 3.0  # seconds, in which what a stopped command has started comes to its end
_AGAIN = "delete it and run the same command again"


class CheckpointDamaged(UserError):
    """A checkpoint whose content cannot be trusted."""


def save_checkpoint(path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, Any]) -> None:
    """Write arrays by name, and JSON values, as `write_atomic` does; equal content gives equal bytes."""
    kinds = {name: each.dtype.newbyteorder("<") for name, each in tensors.items()}
    arrays = {name: np.asarray(each, kinds[name], order="C") for name, each in tensors.items()}
    text = json.dumps(dict(metadata), sort_keys=True, ensure_ascii=False, default=lambda each: each.tolist())
    write_atomic(path, safetensors.numpy.save(arrays, {_KEY: f"{_digest(arrays, text)} {text}"}))


def load_checkpoint(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """What was given to `save_checkpoint`; `CheckpointDamaged`: the file was cut short, altered, or is another's."""
    content = read_bytes(path, _AGAIN)
    try:
        arrays = safetensors.numpy.load(content)
        (length,) = struct.unpack_from("<Q", content)  # of the header, which is JSON
        digest, _, text = json.loads(content[8 : 8 + length])["__metadata__"][_KEY].partition(" ")
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, "a file that was cut short, or one of another program") from error
    if digest != _digest(arrays, text):
        raise damaged(path, "numbers that do not match their checksum")
    return arrays, json.loads(text)


def damaged(path: Path, found: str, expected: str = "a whole checkpoint") -> CheckpointDamaged:
    """The error of a checkpoint, with what is wrong in words."""
    return CheckpointDamaged(f"{path}: expected {expected}, found {found}; {_AGAIN}")


def canonical_json(value: object) -> str:
    """JSON with one spelling for each value: sorted keys, no spaces; of a NaN or an infinity `ValueError`."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path, remedy: str) -> bytes:
    """The bytes of a file; where it cannot be read `UserError`, in which `remedy` says what to do."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, found: {error.strerror}; {remedy}") from error


def read_record(path: Path, key: str = "files") -> dict[str, Any]:
    """A JSON object with hashes by name under a key; empty where it is missing, altered, or something else."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        record = json.loads(path.read_bytes())
        digest = record.pop("sha256", None)  # of a list of sums there is none
        whole = digest in (None, sha256(canonical_json(record).encode()))
        return record if whole and isinstance(record[key], dict) else {}
    return {}


def with_sum(record: Mapping[str, Any]) -> bytes:
    """JSON that people can read, with a checksum of its own."""
    return indented({"sha256": sha256(canonical_json(record).encode()), **record})


def digests_in(folder: Path, skipped: tuple[str, ...]) -> dict[str, str]:
    """SHA-256 of the files below a folder by their path in it, but of hidden ones and of those that begin so."""
    walked = os.walk(folder, followlinks=True)  # a large folder may lie on another disk
    every = (Path(place, name) for place, _, names in walked for name in names)
    names = sorted(path.relative_to(folder).as_posix() for path in every if path.is_file())
    names = [name for name in names if not name.startswith(skipped) and "/." not in f"/{name}"]
    return {name: sha256(read_bytes(folder / name, "run the same command again")) for name in names}


def indented(value: Mapping[str, Any]) -> bytes:
    """JSON that people can read."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file, or leave what was there (`UserError`); folders above it are made."""
    with staged(path, content) as place:
        place()


@contextlib.contextmanager
def staged(path: Path, content: bytes) -> Iterator[Callable[[], None]]:
    """A file beside the one to be written, whole on the disk (`UserError`); what is given puts it in that place."""

    def place() -> None:
        with _told(path):
            temporary.replace(path)
            _sync_folder(path.parent)

    # Hidden, and this thread's own; what a killed process leaves of it is garbage.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        with _told(path):
            _make_folder(path.parent)
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        yield place
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, unless it is gone; `UserError`: the system refused."""
    with _told(path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def sweep(folder: Path) -> None:
    """Remove what killed processes left of files in a folder, into which nobody else writes."""
    for path in [*folder.glob(".*.tmp"), *folder.glob("*/.*.tmp")]:
        remove(path)


@contextlib.contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Keep other processes from working in a folder (`UserError`: one does); let go when this one ends, however."""
    import filelock

    with _told(folder / ".lock"):
        _make_folder(folder)
        lock = filelock.FileLock(folder / ".lock", _PATIENCE, is_singleton=True)  # this thread may ask again
        try:
            lock.acquire()
        except filelock.Timeout as error:
            found = "found another hopscope command at work; wait for it, or stop it"
            raise UserError(f"{folder}: expected a {what} that nobody works on, {found}") from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: expected a writable folder with free space, found: {error.strerror or error}; "
            "nothing written before is lost: free some space or choose another folder, and run the same command again"
        ) from error


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


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
