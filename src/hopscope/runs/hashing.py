"""Names made of content, and versions of layout: equal questions find the same run, changed ones make a new run."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.strict_json import canonical_json

SCHEMA_VERSION = 1
"""Version of the files' layout; a reader refuses a newer one."""

RESULTS_VERSION = 3
"""Raised when a configuration would give other numbers than before, so that old runs are not resumed."""

_DIGITS = 12


def content_hash(value: object) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a value's canonical JSON.

    Raises:
        ValueError: the value holds a NaN or an infinity.
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:_DIGITS]


def config_hash(study: str, config: object, results_version: int | None = None) -> str:
    """The hash that names a run: of study, results version (by default today's) and configuration (a JSON value)."""
    version = RESULTS_VERSION if results_version is None else results_version
    return content_hash({"study": study, "results_version": version, "config": config})


def source_hash(package: Path | None = None) -> str:
    """The hash of a package's `.py` files: relative names and bytes, in name order.

    Args:
        package: the package's folder; by default Hopscope's own, which is read once a process: what a process runs was
            loaded when it began.
    """
    return _own_hash() if package is None else _hash(package)


@cache
def _own_hash() -> str:
    return _hash(Path(__file__).resolve().parent.parent)


def _hash(root: Path) -> str:
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*.py")}
    digests = [[name, hashlib.sha256(files[name].read_bytes()).hexdigest()] for name in sorted(files)]
    return content_hash(digests)


def check_schema(path: Path, value: Any, remedy: str) -> dict[str, Any]:
    """The value that was read from `path`, if it is a record whose layout we know.

    Raises:
        UserError: it is no record, or a newer Hopscope made it.
    """
    version = value.get("schema_version") if isinstance(value, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise UserError(f"{path}: expected a record with a schema version, found none: {remedy}")
    if version > SCHEMA_VERSION:
        raise UserError(
            f"{path}: expected schema {SCHEMA_VERSION} or older, found {version}, made by a newer Hopscope: "
            "upgrade Hopscope"
        )
    record: dict[str, Any] = value
    return record
