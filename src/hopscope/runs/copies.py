"""Copies of runs at a URL: a run is worked on in a folder here, and a copy of it is kept at `URL/<study>/<hash>`.

A run needs locks, appends, renames and flushes, which no object store has.  So the record is kept here, whole as ever,
and copied at moments when its files are at rest, each time as a new generation (`hopscope.runs.generations`).
"""

import contextlib
import hashlib
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hopscope.config import Config
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.runs.checkpoints import load_checkpoint
from hopscope.runs.files import listed, read_json, user_caches, write_atomic, write_json
from hopscope.runs.generations import (
    Entry,
    Files,
    Generation,
    Newest,
    Overtaken,
    download,
    entry_of,
    make_generation,
    newest_at,
    settle,
)
from hopscope.runs.locks import folder_lock
from hopscope.runs.seals import is_as_noted
from hopscope.runs.storage import Storage, shown

_DRAWN = (".html", ".svg", ".png")
"""Made from the rest by whoever looks at a run: a folder that differs in these alone has not gone on."""

_COARSE_NS = 2 * 10**9
"""For so long a file may change without a change of its time, on file systems with coarse clocks."""


class CopyWarning(UserWarning):
    """A copy of a run is behind, or lacks files."""


class _Known(Config):
    """What is known here of a copy: the generation that was fetched or made last, and one that was to be made."""

    id: str = ""
    making: str = ""
    files: Files = {}
    sums: dict[str, tuple[int, Entry]] = {}


def folder_of(url: str) -> Path:
    """The root here of runs whose copies are at a URL: a folder of its own among the user's caches."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", shown(url)).strip("-")[:48]
    return user_caches() / "copies" / f"{words}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def fetched(url: str) -> Path:
    """The folder here of what a URL names: a run, a study's runs, or a root; what is newer there is fetched.

    Raises:
        UserError: there is no copy of a run, a run has changed on both sides, or the storage fails.
    """
    records = [name.split("/") for name in Storage(url).names(depth=4)]
    protocol, _, rest = url.partition("://")
    base = rest.split("/") if rest else []
    found = {tuple(parts[:-2]) for parts in records if len(parts) > 1 and parts[-2] == ".copy"}
    places = sorted(place for place in found if len(base) + len(place) > 1)
    paths = []
    for place in places:
        *root, study, run_hash = [*base, *place]
        copy = RunCopy(f"{protocol}://{'/'.join(root)}", study, run_hash)
        copy.fetch()
        paths.append(copy.path)
    if not paths:
        raise UserError(
            f"{shown(url)}: expected a copy of a run, or a root of such copies, found none: make one with "
            "`hopscope run STUDY --out URL`"
        )
    return paths[0] if len(paths) == 1 else paths[0].parents[len(places[0]) - 1]


class RunCopy:
    """A run here and its copy at a URL.

    Attributes:
        root: root of the runs here.
        path: the run's folder here.
        url: of the copy, without a password.
    """

    def __init__(self, url: str, study: str, run_hash: str, say: Callable[[str], None] | None = None):
        """Take up a run and its copy; nothing is asked of the storage yet.

        Args:
            url: root of the copies.
            study, run_hash: of the run.
            say: hears, in a line, of a copy that is behind or lacks files; by default a `CopyWarning` is issued.

        Raises:
            UserError: nothing serves the URL.
        """
        self._storage = Storage(f"{url}/{study}/{run_hash}")
        self.root, self.url = folder_of(url), self._storage.url
        self.path = self.root / study / run_hash
        self._home = self.root / ".copies" / study / run_hash
        self._root_url = shown(url)
        self._known, self._say, self._begun = _Known(), say, False
        self._sender, self._lock, self._fault, self._told = threading.Thread(), threading.Lock(), "", False
        self._waiting: list[str] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator["RunCopy"]:
        """Keep the copy while a command works on the run, which is fetched first where the copy is newer.

        However the command ends, other than by being killed, the copy is brought up to date.

        Raises:
            UserError: both sides have changed, or the storage fails; what is done is kept here.
        """
        with self._compared():
            try:
                yield self
            except (TimeBudgetReached, KeyboardInterrupt):
                self._end()
                raise
            except BaseException:
                with contextlib.suppress(KeyboardInterrupt):
                    self._end(self._warn)
                raise
            self._begun = True
            self._end()

    def fetch(self) -> None:
        """Fetch the run if the copy is newer, or if there is none here.

        Raises:
            UserError: both sides have changed, or the storage fails.
        """
        with self._compared():
            pass

    def begin(self) -> None:
        """Copy what there is before anything is trained: what would not work in the end is told now."""
        self._push()
        self._begun = True

    def send(self, unit: Path) -> None:
        """Copy the folder of a unit that is finished, while others are trained; `look` tells if that fails."""
        with self._lock:
            self._waiting.append(unit.relative_to(self.path).as_posix())
            if not (self._sender.is_alive() or self._fault):
                self._sender = threading.Thread(target=self._send, daemon=True)
                self._sender.start()

    def look(self) -> None:
        """Say, once, that a unit could not be copied."""
        if self._fault and not self._told:
            self._told = True
            self._warn(f"{self._fault}; training goes on, and what is missing is copied at the end")

    def _send(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._sender = threading.Thread()
                    return
                unit = self._waiting.pop(0)
            try:
                self._push(f"{unit}/")
            except (UserError, OSError) as error:
                self._fault = str(error)
                return

    def _end(self, tell: Callable[[str], None] | None = None) -> None:
        if not self._begun:
            return  # the run was refused as it is, and nobody worked on it
        sender = self._sender
        while sender.is_alive():
            sender.join(0.1)
        try:
            self._push()
        except (UserError, OSError) as error:
            words = (
                f"{error}; what is done is kept in {self.path}, and the same command goes on and copies it"
            )
            if tell is None:
                raise UserError(words) from error
            tell(words)

    @contextlib.contextmanager
    def _compared(self) -> Iterator[None]:
        """Hold the lock of the copy, and begin with the side that is newer."""
        with folder_lock(self._home, "copy of a run", 3.0):
            self._note_url()
            with contextlib.suppress(UserError, ValueError):
                self._known = _Known.model_validate(read_json(self._home / "known.json"))
            newest, here = newest_at(self._storage), self._files()
            if newest.generation is None:
                self._note(id="", making="", files={})
            elif newest.id in (self._known.id, self._known.making) or here == newest.files:
                self._note(id=newest.id, making="", files=newest.files)
                if here:
                    self._restore(newest, here)
                else:
                    self._fetch(newest)
            elif not here or (self._known.id and _undrawn(here) == _undrawn(self._known.files)):
                self._fetch(newest)
            else:
                raise self._refusal(newest)
            yield

    def _note_url(self) -> None:
        """Say, for readers, which URL the root here belongs to: once, for all of its runs."""
        path, text = self.root / "url.txt", f"{self._root_url}\n"
        with contextlib.suppress(OSError):
            if path.read_bytes() == text.encode():
                return
        write_atomic(path, text)

    def _refusal(self, newest: Newest) -> UserError:
        there = newest.generation
        found = "none" if there is None else f"generation {there.number}, made by {there.by} at {there.time}"
        return UserError(
            f"{self.url}: expected the generation that {self.path} goes on from, found {found}, and both have changed; "
            f"nothing is overwritten: move {self.path} away to go on from the copy, or name another URL"
        )

    def _push(self, below: str = "") -> None:
        """Make a generation of the files of the run whose paths begin so, and of the others as they are in the copy."""
        newest = newest_at(self._storage)
        if newest.id != self._known.id:
            raise self._refusal(newest)
        settle(self._storage, newest)
        others = {name: entry for name, entry in newest.files.items() if not name.startswith(below)}
        files = others | self._files(below)
        if files == newest.files:
            return
        made = Generation.following(newest.number + 1, files)
        self._note(making=made.id)
        try:
            make_generation(self._storage, made, newest.files, self.path)
        except Overtaken as error:
            raise self._refusal(error.by) from error
        self._note(id=made.id, making="", files=files)
        settle(self._storage, newest_at(self._storage))

    def _fetch(self, newest: Newest) -> None:
        """Put the newest generation in the place of the folder here."""
        fresh, replaced = self._home / "fetched", self._home / "replaced"
        here = {entry: self.path / name for name, entry in self._files().items()}
        while newest.generation is not None:
            lacking = download(self._storage, newest.generation, fresh, here)
            again = newest_at(self._storage) if lacking else newest
            if again == newest:
                break
            newest = again
        if lacking:
            self._warn(f"{self.url}: expected whole files, found {listed(lacking)} damaged or gone: left out")
        shutil.rmtree(replaced, ignore_errors=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(replaced)
        fresh.rename(self.path)
        self._note(id=newest.id, making="", files=newest.files, sums={})
        shutil.rmtree(replaced, ignore_errors=True)

    def _restore(self, newest: Newest, here: Files) -> None:
        """Fetch what was lost or damaged here since the newest generation: no push shall take it from the copy too."""
        lost = {
            name: entry
            for name, entry in newest.files.items()
            if not name.endswith(_DRAWN)
            and (name not in here or (here[name] != entry and _is_damaged(self.path / name)))
        }
        if newest.generation is None or not lost:
            return
        fresh, again = self._home / "fetched", []
        part = newest.generation.model_copy(update={"files": lost})
        lacking = download(self._storage, part, fresh, {})
        for name in lost.keys() - set(lacking):
            write_atomic(self.path / name, (fresh / name).read_bytes())
            again.append(name)
        shutil.rmtree(fresh, ignore_errors=True)
        if again:
            self._warn(
                f"{self.path}: expected whole files, found {listed(sorted(again))} lost or damaged: fetched again"
            )

    def _files(self, below: str = "") -> Files:
        """What is in the run's folder, or in a folder of it; sums of files that have not changed since are known."""
        sums, now, found = dict(self._known.sums), time.time_ns(), {}
        for path in sorted(_below(self.path / below)):
            if path.name == ".lock" or (path.name.startswith(".") and path.name.endswith(".tmp")):
                continue
            name = path.relative_to(self.path).as_posix()
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                if not path.is_file():
                    continue
                changed, entry = sums.get(name, (0, ("", -1)))
                if (changed, entry[1]) != (state.st_mtime_ns, state.st_size):
                    entry = entry_of(path)
                    if now - state.st_mtime_ns > _COARSE_NS:
                        sums[name] = (state.st_mtime_ns, entry)
                found[name] = entry
        self._known = self._known.model_copy(update={"sums": sums})
        return found

    def _note(self, **known: Any) -> None:
        self._known = self._known.model_copy(update=known)
        write_json(self._home / "known.json", self._known.model_dump(mode="json"))

    def _warn(self, words: str) -> None:
        if self._say is None:
            warnings.warn(words, CopyWarning, stacklevel=4)
        else:
            self._say(f"hopscope: warning: {words}")


def _below(folder: Path) -> Iterator[Path]:
    """Everything below a folder, also where a folder in it is a link to another place; each place once."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place) / name for name in names)


def _is_damaged(path: Path) -> bool:
    """Whether a file is not what a command wrote, as far as it can be told."""
    if path.suffix == ".safetensors":
        try:
            load_checkpoint(path)
        except UserError:
            return True
        return False
    return not is_as_noted(path, path.read_bytes())


def _undrawn(files: Files) -> Files:
    return {name: entry for name, entry in files.items() if not name.endswith(_DRAWN)}
