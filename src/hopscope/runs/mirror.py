"""Mirrors of runs at a URL, through fsspec; `mirror.json`, written last, has the SHA-256 of all files there."""

import contextlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs.checkpoint import digests_in, remove, sha256, write_atomic
from hopscope.runs.folder import RunFolder
from hopscope.runs.unit import UnitFolder

_LIST, _CONFIG, _MANIFEST = "mirror.json", "config.json", "manifest.json"


class NoMirror(UserError):
    """Nothing is kept at an address."""


def mirror(run: RunFolder, url: str) -> None:
    """Send the record and the whole units of a run to `URL/<study>/<name>`; what is there already is not sent again.

    `UserError`: the storage fails, or has another run in this place; nothing here is lost.
    """
    with _at(f"{url.rstrip('/')}/{run.config['study']}/{run.path.name}") as (system, place):
        here, there = digests_in(run.path, ("units/",)), _listed(system, place)
        for digests in (unit.digests for unit in run.units):
            here |= digests if all((run.path / name).is_file() for name in digests) else {}
        if not there and system.exists(f"{place}/{_CONFIG}"):  # a list that was cut short
            there = {_CONFIG: sha256(system.cat_file(f"{place}/{_CONFIG}"))}
        if _CONFIG not in there:  # nobody knows of which run they are
            there = {}
        if there.get(_CONFIG, here[_CONFIG]) != here[_CONFIG]:
            raise UserError(f"{place}: expected a mirror of {run.path}, found another run; name another URL")
        changed = [name for name in here if there.get(name) != here[name]]
        for name in changed:
            with contextlib.suppress(Exception):  # an object store has no folders
                system.makedirs(f"{place}/{name}".rpartition("/")[0], exist_ok=True)
            system.put_file(str(run.path / name), f"{place}/{name}")
        if changed:
            _list(system, place, there | here)


def fetch(url: str, root: Path) -> list[RunFolder]:
    """Bring the runs at a URL, of one or of a root of them, to a root here: `ROOT/<study>/<name>`.

    What is here stays, but for a unit or a run that is whole there and not here.  What is damaged there, or gone, is
    left out, a unit as a whole, of which a warning tells: the same command makes it again.  `UserError`: the storage
    fails, or has no run, one that was begun apart from the one here, or a list of other files than a run has.
    """
    runs = []
    with _at(url) as (system, place):
        lists = sorted(path for path in system.find(place, maxdepth=3) if path.endswith(f"/{_LIST}"))
        for there in (path.rpartition("/")[0] for path in lists):
            run = RunFolder(root.joinpath(*there.split("/")[-2:]))
            with run.locked():
                _fetch(run, system, there)
            runs.append(run)
        if not runs:
            raise NoMirror(f"{place}: expected a mirror of a run, found none; check the address")
    return runs


def _fetch(run: RunFolder, system: Any, place: str) -> None:
    files, beside = _listed(system, place), run.path / ".fetched"
    own, known = run.path / _CONFIG, files.get(_CONFIG)
    if own.exists() and known and sha256(run.read(_CONFIG)) != known:
        raise UserError(f"{run.path}: expected the run of {place}, found one begun apart; move one away")
    if strange := [name for name in files if {"", ".", ".."} & {*name.split("/")}]:
        raise UserError(f"{place}/{_LIST}: expected files of a run, found {strange[0]!r}; move it away")
    remove(beside)

    def lost(names: Iterable[str], to: Path) -> list[str]:
        return [name for name in names if not _brought(system, f"{place}/{name}", to / name, files[name])]

    damaged = lost([_CONFIG], run.path) if known and not own.exists() else []
    told = files if known and not damaged else {}  # without the record of their run, files say nothing
    record = [name for name in told if not name.startswith("units/")]
    # Measures that are here may be newer: whether they are is known by their source.
    newer = _MANIFEST in told and not run.is_done
    replaced = [name for name in record if newer and not name.startswith(("measures/", _CONFIG))]
    wanted = [name for name in record if name in replaced or not (run.path / name).exists()]
    damaged += lost((name for name in wanted if name != _MANIFEST), run.path)
    for part in sorted({"/".join(name.split("/")[:2]) for name in told.keys() - record}):
        if not UnitFolder(run.path / part, run.path).is_whole:
            # Beside its place, until all of it is here: two trainings do not mix, and what is here is kept.
            if gone := lost((name for name in files if name.startswith(f"{part}/")), beside):
                damaged += gone
            else:
                remove(run.path / part)
                (run.path / part).parent.mkdir(exist_ok=True)
                (beside / part).rename(run.path / part)
    remove(beside)
    if not damaged:
        lost((name for name in wanted if name == _MANIFEST), run.path)  # last: with it the run is done
    else:
        # Sent again when it is made again, unless this reader may not write.
        with contextlib.suppress(Exception):
            _list(system, place, {name: files[name] for name in files if name not in damaged})
        warnings.warn(f"{place}: expected whole files, found {damaged[0]} damaged; left out", stacklevel=4)


def _brought(system: Any, there: str, here: Path, digest: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        if sha256(content := system.cat_file(there)) == digest:
            write_atomic(here, content)
            return True
    return False


def _list(system: Any, place: str, files: dict[str, str]) -> None:
    system.pipe_file(f"{place}/{_LIST}", json.dumps({"files": files}).encode())


def _listed(system: Any, place: str) -> dict[str, str]:
    path = f"{place}/{_LIST}"
    with contextlib.suppress(ValueError, KeyError, TypeError):  # the list was cut short, and is made anew
        return dict(json.loads(system.cat_file(path))["files"]) if system.exists(path) else {}
    return {}


@contextlib.contextmanager
def _at(url: str) -> Iterator[tuple[Any, str]]:
    from fsspec.core import url_to_fs

    try:
        system, place = url_to_fs(url)
        system.invalidate_cache()
        yield system, str(place).rstrip("/")
    except UserError:
        raise
    except Exception as error:  # each package for storage has its own
        words = f"found {type(error).__name__}: {error}; nothing here is lost: check address and rights"
        raise UserError(f"{shown(url)}: expected storage that can be read and written, {words}") from error


def shown(url: str) -> str:
    """A URL without its password."""
    return re.sub(r"//([^/@:]*):[^/@]*@", r"//\1:…@", url)
