"""Named arrays as `.npz` bytes that depend on the arrays alone: no clock in the archive, nothing pickled."""

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hopscope.errors import UserError
from hopscope.runs.files import read_bytes

Array = npt.NDArray[Any]
"""An array of any shape and dtype."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


def plain(array: Array) -> Array:
    """The same numbers in C order, with little-endian bytes: one byte string per value."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """An `.npz` archive of the arrays, in name order.

    Raises:
        ValueError: an array holds Python objects.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = 0o644 << 16
            content = io.BytesIO()
            np.lib.format.write_array(content, plain(arrays[name]), allow_pickle=False)
            file.writestr(entry, content.getvalue())
    return archive.getvalue()


def npz_arrays(content: bytes) -> dict[str, Array]:
    """The arrays of an `.npz` archive.

    Raises:
        ValueError: the bytes are no such archive, are damaged, or hold Python objects.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            return {entry.filename.removesuffix(".npy"): _array(file, entry) for entry in file.infolist()}
    except Exception as error:  # damaged bytes end in errors of every kind
        found = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"not a whole npz archive ({found})") from error


def read_arrays(path: Path, remedy: str) -> dict[str, Array]:
    """The arrays of an `.npz` file by name.

    Args:
        path: the file.
        remedy: what the user should do if it cannot be read, for the error line.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        return npz_arrays(read_bytes(path, remedy))
    except ValueError as error:
        raise UserError(f"{path}: expected whole arrays, found {error}: {remedy}") from error


def _array(file: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """One array; nothing is made that is larger than the archive itself."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        # Ours are not: it could hold any number of bytes.
        raise ValueError("an array that is compressed")
    content = io.BytesIO(file.read(entry))
    version = np.lib.format.read_magic(content)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
        version
    ]
    shape, _, dtype = read_header(content)
    told, found = math.prod(shape) * dtype.itemsize, entry.file_size - content.tell()
    if not dtype.hasobject and (told != found or min(shape, default=0) < 0):
        raise ValueError(f"an array of {told} bytes, {found} of which are there")
    content.seek(0)
    array: Array = np.lib.format.read_array(content, allow_pickle=False)
    return array
