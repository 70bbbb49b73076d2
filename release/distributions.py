"""Builds wheel and source distribution from a copy of the repository, and says what is wrong with their content."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FOLDERS = (".ci", "benchmarks", "docs", "examples", "notebooks", "release", "src", "tests")
"""Folders of the repository that hold files of ours."""

_MADE = (
    "__pycache__", "*.egg-info", "*.pyc", ".DS_Store", ".lock", "report.html", ".hypothesis", ".pytest_cache",
    ".ipynb_checkpoints",
)  # fmt: skip

_BUILD = "from setuptools import build_meta as b; b.build_sdist({to!r}); b.build_wheel({to!r})"


def tracked(root: Path = ROOT) -> list[str]:
    """Files of the repository, relative to `root`: those of git, or what lies there where git is missing."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return sorted(name for name in listed.split("\0") if name and (root / name).is_file())
    return sorted(_lying_there(root))


def copied(to: Path, root: Path = ROOT) -> Path:
    """A copy of the repository's files in `to`, so that building leaves nothing in the tree."""
    for name in tracked(root):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, to / name)
    return to


def built(tree: Path, to: Path, python: str = sys.executable) -> tuple[Path, Path]:
    """Wheel and source distribution of `tree`, made in `to` by the setuptools of `python` (77 or newer).

    Raises:
        RuntimeError: the build failed; the message is what it printed.
    """
    to.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [python, "-c", _BUILD.format(to=str(to.resolve()))], cwd=tree, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{done.stdout}{done.stderr}")
    (wheel,), (sdist,) = to.glob("*.whl"), to.glob("*.tar.gz")
    return wheel, sdist


def version_of(root: Path) -> str:
    """The version in `src/hopscope/__init__.py`, read from its text."""
    tree = ast.parse((root / "src" / "hopscope" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["__version__"]:
            return str(ast.literal_eval(node.value))
    raise ValueError('src/hopscope/__init__.py: expected __version__ = "…", found none')


def wheel_faults(wheel: Path, root: Path) -> list[str]:
    """What the wheel has too much or too little, compared with `src/hopscope` of `root`; empty if nothing."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
        (metadata_name,) = (name for name in held if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(metadata_name).decode()
    ours = {name for name in held if ".dist-info/" not in name}
    expected = {name.removeprefix("src/") for name in tracked(root) if name.startswith("src/hopscope/")}
    faults = _compared("wheel", ours, expected)
    if not any(name.endswith("licenses/LICENSE") for name in held):
        faults.append("wheel: without its LICENSE")
    found = re.search(r"^Version: (.+)$", metadata, re.MULTILINE)
    if found is None or found[1] != version_of(root):
        faults.append(f"wheel: expected version {version_of(root)}, found {found and found[1]}")
    return faults


def sdist_faults(sdist: Path, root: Path) -> list[str]:
    """What the source distribution has too much or too little, compared with the files of `root`."""
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    added = {name for name in held if name in ("PKG-INFO", "setup.cfg") or ".egg-info/" in name}
    return _compared("sdist", held - added, set(tracked(root)))


def version_faults(root: Path) -> list[str]:
    """Places that tell another version than the package does."""
    version, faults = version_of(root), []
    for name, line in (("CITATION.cff", f"version: {version}\n"), ("CHANGELOG.md", f"## {version} ")):
        if line not in (root / name).read_text(encoding="utf-8"):
            faults.append(f"{name}: expected the line {line.strip()!r}, found none")
    return faults


def _compared(what: str, found: set[str], expected: set[str]) -> list[str]:
    missing, foreign = sorted(expected - found), sorted(found - expected)
    return [f"{what}: without {name}" for name in missing] + [f"{what}: has {name}" for name in foreign]


def _lying_there(root: Path) -> Iterator[str]:
    for path in root.iterdir():
        if path.is_file() and path.name not in ("PKG-INFO", "setup.cfg"):
            yield path.name
    for folder in FOLDERS:
        for at, folders, files in os.walk(root / folder):
            folders[:] = [name for name in folders if not _made(name)]
            yield from ((Path(at) / name).relative_to(root).as_posix() for name in files if not _made(name))


def _made(name: str) -> bool:
    return any(Path(name).match(pattern) for pattern in _MADE)
