"""Records that say which layout they have, so that an older Hopscope does not misread a newer one."""

from pathlib import Path
from typing import Any

from hopscope.errors import UserError
from hopscope.runs.hashing import SCHEMA_VERSION


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
