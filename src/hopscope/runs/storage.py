"""Storage by URL: the few things that a copy of a run asks of an object store or of another machine, through fsspec.

fsspec is imported where a URL is given, and only there.  Every call has a time limit and ends in one line: packages
for storage retry for minutes, and each has exceptions of its own.
"""

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from hopscope.errors import UserError

ANSWER_SECONDS = 30.0
"""Seconds in which a storage must answer."""

SLOWEST = 50_000
"""Bytes for which it may take a second more; a file counts as that many, whatever its size."""

MOST_LISTED = 500
"""Files, for which it may take as long, of a listing of all."""

MOST_BYTES = 2**26
"""Of a file that is read as a record."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+(?:::[A-Za-z0-9+.:-]+)?):/+(.*)")
"""How a URL begins, also after `pathlib` has taken one of its slashes."""

Value = TypeVar("Value")


class StorageError(UserError):
    """A storage that does not do what it is asked."""


class Gone(StorageError):
    """A file that is not there."""


def url_of(path: Path | str) -> str | None:
    """The URL that a path of the command line is, or `None` where it is a path; `pathlib` takes slashes away."""
    match = _URL.fullmatch(str(path))
    if match is None:
        return None
    protocol, rest = match[1], match[2].rstrip("/")
    return f"{protocol}:///{rest}" if protocol in ("file", "local") else f"{protocol}://{rest}"


def shown(url: str) -> str:
    """A URL without its password."""
    return re.sub(r"//([^/@:]*):[^/@]*@", r"//\1:…@", url)


class Storage:
    """A folder at a URL.

    Attributes:
        url: of the folder, without its password.
    """

    def __init__(self, url: str):
        """Take up what serves the URL; nothing is asked of it yet.

        Raises:
            StorageError: no such protocol, or its package is missing.
        """
        from fsspec.core import url_to_fs

        self.url = shown(url)
        if "::" in url:
            raise StorageError(
                f"{self.url}: expected the URL of one storage, found several joined by `::`; name one"
            )
        try:
            self._system, root = self._within(0, lambda: url_to_fs(url))
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, ImportError):
                raise StorageError(
                    f"{self.url}: expected the package that serves it, found none: {_told(cause)}"
                ) from error
            if isinstance(cause, ValueError):
                raise StorageError(
                    f"{self.url}: expected a URL that fsspec can open, such as s3://BUCKET/FOLDER, found none: "
                    f"{_told(cause)}"
                ) from error
            raise
        self._root = str(root).rstrip("/")
        # Storage that renames has folders, which must be made; an object store has keys.
        self._has_folders = type(self._system).mv is not _plain_system().mv

    def names(self, below: str = "", depth: int | None = None) -> list[str]:
        """Files at and below the folder, or a folder in it, by their path in it: none where there is no folder.

        Args:
            below: the folder in it.
            depth: levels to look at; all by default.
        """
        self._system.invalidate_cache()  # of what another machine has changed since
        top = self._at(below) if below else self._root or "/"
        files = 0 if below or depth else MOST_LISTED
        found = self._within(0, lambda: self._system.find(top, maxdepth=depth), files)
        return sorted(str(path)[len(self._root) + 1 :] for path in found)

    def read(self, name: str) -> bytes:
        """The content of a small file; of a large one the first `MOST_BYTES`."""
        content = self._within(0, lambda: self._system.cat_file(self._at(name), end=MOST_BYTES))
        return bytes(content)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that must not be there; returns whether it was not.

        A storage that cannot promise this is asked first, which leaves a moment between question and answer.
        """
        path = self._at(name)

        def write() -> bool:
            try:
                with self._system.open(path, "xb") as file:
                    file.write(content)
            except FileExistsError:
                return False
            except (NotImplementedError, ValueError):
                if self._system.exists(path):
                    return False
                self._system.pipe_file(path, content)
            return True

        self._make_folders([path])
        return self._within(len(content), write)

    def upload(self, files: Mapping[str, Path]) -> None:
        """Write files: name at the URL → file here."""
        paths, here = [self._at(name) for name in files], [str(file) for file in files.values()]
        size = sum(file.stat().st_size for file in files.values())
        self._make_folders(paths)
        self._within(size, lambda: here and self._system.put(here, paths), len(here))

    def download(self, files: Mapping[str, Path], size: int) -> None:
        """Read files: name at the URL → file here, whose folder is there; `size` is their sum."""
        paths, here = [self._at(name) for name in files], [str(file) for file in files.values()]
        self._within(size, lambda: here and self._system.get(paths, here), len(here))

    def copy(self, files: Mapping[str, str], size: int) -> None:
        """Copy files within the storage: name → further name; `size` is their sum."""
        pairs = [(self._at(old), self._at(new)) for old, new in files.items()]

        def work() -> None:
            try:
                self._system.copy([old for old, _ in pairs], [new for _, new in pairs])
            except NotImplementedError:
                for old, new in pairs:
                    self._system.pipe_file(new, self._system.cat_file(old))

        self._make_folders(new for _, new in pairs)
        if pairs:
            self._within(size, work, len(pairs))

    def remove(self, name: str, files: int = 0) -> None:
        """Remove a file, or a folder with so many files, unless it is gone already."""
        with suppress(Gone):
            self._within(0, lambda: self._system.rm(self._at(name), recursive=bool(files)), files)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _make_folders(self, paths: Iterable[str]) -> None:
        folders = dict.fromkeys(path.rpartition("/")[0] for path in paths) if self._has_folders else ()

        def work() -> None:
            for folder in folders:
                self._system.makedirs(folder, exist_ok=True)

        self._within(0, work, len(folders))

    def _within(self, size: int, call: Callable[[], Value], files: int = 0) -> Value:
        """What a call gives, in the time that so many bytes and files may take.

        Raises:
            StorageError: it took longer, or failed.
        """
        limit = ANSWER_SECONDS + size / SLOWEST + files
        came: list[Any] = []

        def work() -> None:
            try:
                came.append((call(), None))
            except Exception as error:  # each package for storage has its own
                came.append((None, error))

        # Not of a pool: Python would wait at its end for one that hangs.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(limit)
        value, error = came[0] if came else (None, TimeoutError(f"no answer in {limit:.0f} s"))
        if error is None:
            return cast(Value, value)
        if isinstance(error, FileNotFoundError):
            raise Gone(
                f"{self.url}: expected a file or a bucket, found none: {_told(error)}; check the address"
            ) from error
        raise StorageError(
            f"{self.url}: expected storage that can be read and written, found: {_told(error)}; check the address, "
            "the network and your rights"
        ) from error


def _plain_system() -> Any:
    from fsspec import AbstractFileSystem

    return AbstractFileSystem


def _told(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:200]}" if words else type(error).__name__
