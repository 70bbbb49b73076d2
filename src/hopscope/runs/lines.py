"""Files that grow line by line, which a killed process may leave with a torn last line."""

import errno
import os
from pathlib import Path


def append_line(path: Path, line: bytes, *, sync: bool) -> None:
    """Append one line to a file, which is made if need be; after a torn line it begins a new one.

    Args:
        path: the file.
        line: without its end.
        sync: whether to wait until the disk has it.

    Raises:
        OSError: the system refused, or took only a part of the line.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        # One write per line: lines of several processes do not mix.
        content = (b"\n" if _is_torn(descriptor) else b"") + line + b"\n"
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_torn(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
