"""Generations of a folder at a URL: one follows the other as a whole, though no storage changes several files at once.

The files of the newest generation lie under their own names, and beside them `.copy/<number>.json`, its record: who
made it, and the SHA-256 of each file.  A new generation is uploaded to a folder of its own below `.copy`.  It becomes
the newest when its record is created, which one command alone can do; then its files are put in their places.  So what
is there at any moment is one generation or the next, and never a mixture, whoever is killed while uploading.
"""

import contextlib
import hashlib
import platform
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, ValidationError

from hopscope.config import Config, validation_line
from hopscope.errors import UserError
from hopscope.runs.files import is_file, listed, make_folder, remove
from hopscope.runs.storage import Gone, Storage
from hopscope.strict_json import canonical_json, parse_json

_RECORD = re.compile(r"\.copy/(\d{6,12})\.json")
_UPLOAD = re.compile(r"(\.copy/(\d{6,12})-[0-9a-f]+)/(.+)")

_TRIES = 3


def _inside(name: str) -> str:
    parts = name.split("/")
    if "\0" in name or parts[0] == ".copy" or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"expected the path of a file in the folder, found {name!r}")
    return name


Entry = tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")], Annotated[int, Field(ge=0, le=2**50)]]
"""SHA-256 and bytes of a file."""


def _apart(files: dict[str, Any]) -> dict[str, Any]:
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    if both := folders & files.keys():
        raise ValueError(f"expected files, found {min(both)!r} as a folder too")
    return files


Files = Annotated[dict[Annotated[str, AfterValidator(_inside)], Entry], AfterValidator(_apart)]
"""Path of each file in the folder → what it is."""


class Generation(Config):
    """The record of a generation.

    Attributes:
        number: 1, 2, …
        id: tells it from another one of that number.
        by: name of the machine that made it.
        time: when it was made, ISO 8601, UTC.
        files: all that is in it.
    """

    number: Annotated[int, Field(ge=1, lt=10**12)]
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    by: str
    time: str
    files: Files

    @classmethod
    def following(cls, number: int, files: Mapping[str, Entry]) -> "Generation":
        """A generation that this machine is about to make."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(number=number, id=uuid.uuid4().hex[:12], by=platform.node(), time=now, files=dict(files))

    @property
    def record(self) -> str:
        """The path of its record."""
        return _record(self.number)

    @property
    def uploads(self) -> str:
        """The folder that its files are uploaded to."""
        return f".copy/{self.number:06}-{self.id}"


def read_generation(content: bytes) -> Generation:
    """A generation's record.

    Raises:
        ValueError: it is cut short, damaged, or of another kind.
    """
    try:
        return Generation.model_validate(parse_json(content))
    except ValidationError as error:
        raise ValueError(validation_line(error)) from error


def entry_of(path: Path) -> Entry:
    """What a file is.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


class Newest(NamedTuple):
    """What is at a URL.

    Attributes:
        generation: the newest one; `None` where there is none.
        names: files below `.copy`.
        number: the highest that was given to a generation, finished or not.
    """

    generation: Generation | None
    names: list[str]
    number: int

    @property
    def id(self) -> str:
        """The generation's id; empty where there is none."""
        return "" if self.generation is None else self.generation.id

    @property
    def files(self) -> Files:
        """The files of the generation; none where there is none."""
        return {} if self.generation is None else self.generation.files


class Overtaken(Exception):
    """Another command made a generation in the meantime.

    Attributes:
        by: what is there now.
    """

    def __init__(self, by: Newest):
        super().__init__()
        self.by = by


def newest_at(storage: Storage) -> Newest:
    """The newest generation at a URL.

    Raises:
        UserError: the storage fails, or holds files that no generation brought there.
    """
    for _ in range(_TRIES):  # the newest of a moment ago may be gone
        names = storage.names(".copy")
        numbers = sorted(
            (int(match[1]) for name in names if (match := _RECORD.fullmatch(name))), reverse=True
        )
        for number in numbers:
            # A record that was cut while it was written is none: its generation was not finished.
            with contextlib.suppress(Gone, ValueError):
                generation = read_generation(storage.read(_record(number)))
                if generation.number == number:
                    return Newest(generation, names, numbers[0])
        if not numbers:
            break
    stray = [name for name in storage.names() if not name.startswith(".copy/")]
    if stray:
        raise UserError(
            f"{storage.url}: expected a copy with its record .copy/NUMBER.json, found {listed(stray, 3)} without one "
            "that can be read; nothing is overwritten: move these files away, or name another URL"
        )
    return Newest(None, names, max(numbers, default=0))


def make_generation(storage: Storage, made: Generation, before: Files, folder: Path) -> None:
    """Make a generation of the files of a folder here, after that with the files `before`.

    Raises:
        Overtaken: another command was quicker; nothing of its generation is overwritten.
        UserError: the storage fails, or files change while they are uploaded.
    """
    changed = [name for name, entry in made.files.items() if before.get(name) != entry]
    storage.upload({f"{made.uploads}/{name}": folder / name for name in changed})
    if any(entry_of(folder / name) != made.files[name] for name in changed):
        raise UserError(
            f"{folder}: expected files at rest, found some that change while they are copied; try again"
        )
    created = storage.create(made.record, canonical_json(made.model_dump(mode="json")).encode())
    newest = newest_at(storage)
    if newest.generation != made:
        if created and newest.number > made.number:
            storage.remove(made.record)
        raise Overtaken(newest)


def settle(storage: Storage, newest: Newest) -> None:
    """Put the files of the newest generation in their places, and remove what is left of older ones.

    It may be done again after it was cut, by any command.
    """
    there = newest.generation
    if there is None:
        return
    uploads = [match for name in newest.names if (match := _UPLOAD.fullmatch(name))]
    own = {match[0]: match[3] for match in uploads if match[1] == there.uploads and match[3] in there.files}
    storage.copy(own, sum(there.files[name][1] for name in own.values()))
    records = (int(match[1]) for name in newest.names if (match := _RECORD.fullmatch(name)))
    older = [_record(number) for number in records if number < there.number]
    for record in older:
        with contextlib.suppress(Gone, ValueError):
            for name in read_generation(storage.read(record)).files.keys() - there.files.keys():
                storage.remove(name)
    # Who uploads under such a number can no longer make a generation of it.
    for folder, files in Counter(match[1] for match in uploads if int(match[2]) <= there.number).items():
        storage.remove(folder, files)
    for record in older:
        storage.remove(record)


def download(storage: Storage, there: Generation, to: Path, here: Mapping[Entry, Path]) -> list[str]:
    """Download a generation, but for files that are here already; returns the paths of those that are not whole."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    names = set(storage.names())
    wanted: dict[str, Path] = {}
    for name, entry in there.files.items():
        path = to / name
        make_folder(path.parent)
        if entry in here:
            shutil.copyfile(here[entry], path)
        else:
            uploaded = f"{there.uploads}/{name}"
            wanted[uploaded if uploaded in names else name] = path
    wanted = {name: path for name, path in wanted.items() if name in names}
    with contextlib.suppress(Gone):  # a newer generation was made meanwhile
        storage.download(wanted, sum(size for _, size in there.files.values()))
    lacking = [
        name for name, entry in there.files.items() if not is_file(to / name) or entry_of(to / name) != entry
    ]
    for name in lacking:
        remove(to / name)
    return lacking


def _record(number: int) -> str:
    return f".copy/{number:06}.json"
