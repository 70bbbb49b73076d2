"""Members: which model of an ensemble is where, and what sets it apart."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.runs.files import read_json


class MemberRecord(Config):
    """One trained model of a run.

    Attributes:
        member: its run-global number, in grid order, then by seed.
        unit: hash of the unit that it is trained in, which is also the name of that unit's folder.
        index: its place on the unit's member axis.
        seed: what its initialisation and its training samples are drawn from.
        overrides: configuration fields in which it differs from the run's base.
    """

    member: int
    unit: Annotated[str, Field(pattern=r"^[\w=-][\w .=-]*$", max_length=200)]
    index: int
    seed: int
    overrides: dict[str, Any]


_MEMBERS = TypeAdapter(list[MemberRecord])


def read_members(path: Path, remedy: str) -> list[MemberRecord]:
    """The members in a `members.json`.

    Raises:
        UserError: the file is missing, damaged, or lists something else.
    """
    value = read_json(path, remedy)
    try:
        return _MEMBERS.validate_python(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"]) or "the file"
        found = error.errors()[0]["msg"]
        raise UserError(f"{path}: expected a list of members, found at {where}: {found}: {remedy}") from error
