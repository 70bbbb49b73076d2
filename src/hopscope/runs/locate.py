"""Which run a PATH of the command line means: a run folder, a root that holds runs, or a URL where copies of such are.

A root may hold anything else besides, so a folder counts as a run only where it has a run's name or records.
"""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from hopscope.errors import UserError
from hopscope.runs.files import is_file, is_folder, listed, read_json
from hopscope.runs.storage import url_of
from hopscope.runs.store import RunFolder

_HASH = re.compile(r"[0-9a-f]{12}")


def find_run(path: Path) -> RunFolder:
    """The one run that a path names.

    Args:
        path: a run folder, a study's folder, or a root.

    Raises:
        UserError: the path is missing, holds no run or several, or its run cannot be read.
    """
    found = _folders_of(path)
    if len(found) > 1:
        runs = listed(found)
        raise UserError(f"{path}: expected exactly one run, found {len(found)}: give one of {runs}")
    return RunFolder.open(found[0])


def runs_of(path: Path) -> list[RunFolder]:
    """The runs that a path names: itself, or all under a study's folder or a root.

    They are not opened: of a root with a thousand runs a command reads what it needs, and once.

    Raises:
        UserError: the path is missing or holds no run.
    """
    return [RunFolder(folder) for folder in _folders_of(path)]


def runs_of_all(paths: Iterable[Path]) -> list[RunFolder]:
    """The runs that several paths name, in their order, each once and not opened.

    Raises:
        UserError: as in `runs_of`.
    """
    runs: dict[Path, RunFolder] = {}
    for path in paths:
        for run in runs_of(path):
            runs.setdefault(run.path.resolve(), run)
    return list(runs.values())


def find_runs(paths: Iterable[Path]) -> list[RunFolder]:
    """The runs that several paths name, in their order, each once.

    Raises:
        UserError: as in `find_run`.
    """
    runs: dict[Path, RunFolder] = {}
    for run in map(find_run, paths):
        runs.setdefault(run.path.resolve(), run)
    return list(runs.values())


def _folders_of(path: Path) -> list[Path]:
    """Run folders at or under a path, at least one.

    Raises:
        UserError: there is none.
    """
    url = url_of(path)
    if url is not None:
        # Few paths are URLs: other commands start without what serves them.
        from hopscope.runs.copies import fetched

        path = fetched(url)
    if is_file(path):
        raise UserError(f"{path}: expected a run folder or a root of runs, found a file: give a folder")
    if not is_folder(path):
        raise UserError(
            f"{path}: expected a run folder or a root of runs, found nothing there: check the path"
        )
    found = [path] if _is_run(path) else _runs_below(path)
    if not found:
        raise UserError(
            f"{path}: expected a run folder or a root of runs, found no run: make one with `hopscope run`"
        )
    return found


def _runs_below(root: Path) -> list[Path]:
    """Runs at ROOT/<study>/<hash> and at ROOT/<hash>; where there are none, what is left of damaged ones."""
    found: list[Path] = []
    for child in _folders(root):
        found += [child] if _is_run(child) else [folder for folder in _folders(child) if _is_run(folder)]
    # A run that was killed while its folder was made has no configuration yet: nothing was done in it.
    return [folder for folder in found if is_file(folder / "config.json")] or found


def _folders(parent: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(path for path in parent.iterdir() if not path.name.startswith(".") and is_folder(path))
    return []


def _is_run(folder: Path) -> bool:
    records = [is_file(folder / "config.json"), is_file(folder / "members.json"), is_folder(folder / "units")]
    named_as_one = _HASH.fullmatch(folder.name) is not None
    return sum(records) >= (1 if named_as_one else 2) or _is_our_config(folder / "config.json")


def _is_our_config(path: Path) -> bool:
    """Whether a `config.json` is a run's: many other programs write files of that name."""
    with contextlib.suppress(UserError):
        record = read_json(path)
        return isinstance(record, dict) and {"schema_version", "study", "hash", "config"} <= record.keys()
    return False
