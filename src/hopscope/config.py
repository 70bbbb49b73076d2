"""The base of every configuration value: frozen, strict about unknown fields, free of torch."""

import re

from pydantic import BaseModel, ConfigDict, ValidationError


class Config(BaseModel):
    """A frozen value that refuses unknown fields and NaN, and turns into canonical JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


def validation_line(error: ValidationError) -> str:
    """The first fault of a configuration: field, expected, found."""
    first = error.errors(include_url=False)[0]
    words = first["msg"].removeprefix("Value error, ")
    field = ".".join(str(part) for part in first["loc"])
    if not field:
        return " ".join(words.split())
    if first["type"] == "missing":
        return f"{field}: expected a value, found none"
    if first["type"] == "extra_forbidden":
        return f"{field}: expected a field that exists, found {first['input']!r} for one that does not"
    expected = re.sub(r"^Input should be ", "", words)
    return f"{field}: expected {expected}, found {first['input']!r}"


def in_words(error: BaseException) -> str:
    """Type and message of any error, in one line; of a configuration's errors the first, with its field."""
    if isinstance(error, ValidationError):
        return f"{error.title}: {validation_line(error)}"
    return " ".join(f"{type(error).__name__}: {error}".split())
