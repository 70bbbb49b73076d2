"""Writes `constraints-lowest.txt`: every dependency at the lower bound that `pyproject.toml` gives.

`python release/lowest.py` writes the file; with `--check` it says whether it is up to date (if not: exit status 1).
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "constraints-lowest.txt"

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?\s*>=\s*(?P<lowest>[0-9][0-9A-Za-z.]*)(,.*)?"
)
_HEAD = (
    "# Made by release/lowest.py from the lower bounds in pyproject.toml: change those, then run it again.\n"
)


def lower_bounds(project: dict[str, object]) -> dict[str, str]:
    """Package → the oldest version allowed, over the dependencies and all extras.

    A package that is named twice has the higher of its bounds, because both hold once the extra is installed.

    Raises:
        ValueError: a dependency has no lower bound.
    """
    dependencies, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list) and isinstance(extras, dict)
    found: dict[str, str] = {}
    for requirement in [*dependencies, *(each for extra in extras.values() for each in extra)]:
        match = _REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: expected a lower bound (NAME>=VERSION), found {requirement!r}")
        name, lowest = match["name"].lower().replace("_", "-"), match["lowest"]
        found[name] = max(found.get(name, lowest), lowest, key=_parts)
    return found


def constraints(pyproject: Path) -> str:
    """The text of the constraints file: one line a package, in name order."""
    bounds = lower_bounds(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"])
    return _HEAD + "".join(f"{name}=={bounds[name]}\n" for name in sorted(bounds))


def main(arguments: list[str]) -> int:
    """Writes the file, or compares it; returns the exit status."""
    text = constraints(ROOT / "pyproject.toml")
    if arguments == ["--check"]:
        same = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print(f"{TARGET.name}: {'up to date' if same else 'out of date: run python release/lowest.py'}")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


def _parts(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
