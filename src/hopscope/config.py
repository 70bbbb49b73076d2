"""The base of every configuration: frozen, strict about unknown fields, free of torch."""

import difflib
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hopscope.errors import UserError

if TYPE_CHECKING:  # pydantic gives it no public name
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

MOST_SEEDS = 10_000
"""Seeds of a configuration in one run: every member of a run is planned, and listed, before anything is trained."""


class OneLine(ModelMetaclass):
    """The type of classes that say in one line what is wrong with a field, where Python code makes one.

    Within pydantic's own validation its `ValidationError` remains, which knows the way to the field.
    """

    __pydantic_fields__: dict[str, Any]

    def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805 - of a class, not of a value
        """A value of the class; `UserError`: a field is missing, unknown, or has no such value."""
        try:
            return super().__call__(*values, **fields)
        except ValidationError as error:
            name = next((fields[key] for key in ("name", "id", "label") if fields.get(key)), None)
            called = cls.__name__ if name is None else f"{cls.__name__.lower()} {name!r}"
            raise UserError(f"{called}: {validation_line(error, cls.__pydantic_fields__)}") from None


class Config(BaseModel, metaclass=OneLine):
    """A frozen value that refuses unknown fields and NaN, and turns into canonical JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


def check_seeds(name: str, seeds: int) -> None:
    """Refuse more seeds than one run can hold, by a `UserError`."""
    if seeds > MOST_SEEDS:
        words = f"expected at most {MOST_SEEDS:,} seeds in one run, found {seeds}"
        raise UserError(f"{name}: {words}; take fewer, or several runs")


def values_of(model: BaseModel) -> dict[str, Any]:
    """Field → value.  `dict(model)` fails where a field is called `keys`: it takes the model for a mapping."""
    return {name: getattr(model, name) for name in type(model).model_fields}


def given_of(model: BaseModel) -> dict[str, Any]:
    """Field → value, of the fields that were given; the others follow from their defaults, or from these."""
    return {name: value for name, value in values_of(model).items() if name in model.model_fields_set}


def unknown_field(name: str, known: Iterable[str]) -> str:
    """Error words for a dotted field that does not exist: the one that was probably meant, or all of its section."""
    section, _, word = name.rpartition(".")
    every = list(known)
    beside = [each for each in every if each.rpartition(".")[0] == section] or every
    for near, among in itertools.product((False, True), (beside, every)):
        words = {each.rpartition(".")[2]: each for each in among}
        meant = [each for each in words if word in (each, "".join(part[:1] for part in each.split("_")))]
        if near:
            meant += difflib.get_close_matches(word, words, n=1)
            meant += [each for each in words if each in word or (len(word) > 2 and word in each)]
        if meant:
            return f"no field {name!r}; did you mean {words[meant[0]]!r}?"
    return f"no field {name!r}" + (f"; expected one of the fields {', '.join(beside)}" if beside else "")


def validation_line(error: ValidationError, known: Iterable[str] = ()) -> str:
    """The first fault of a configuration: field, expected, found; `known` are the fields that there are."""
    first = error.errors(include_url=False)[0]
    words = first["msg"].removeprefix("Value error, ")
    # Of a union pydantic names the branches as well, such as `literal['a','b']`.
    field = ".".join(part for part in map(str, first["loc"]) if "[" not in part)
    if not field:
        return " ".join(words.split())
    if first["type"] == "missing":
        return f"{field}: expected a value, found none"
    if first["type"] == "extra_forbidden":
        return unknown_field(field, known)
    return f"{field}: expected {words.removeprefix('Input should be ')}, found {first['input']!r}"


def in_words(error: BaseException) -> str:
    """Type and message of any error, in one line; of a configuration's errors the first, with its field."""
    if isinstance(error, ValidationError):
        return f"{error.title}: {validation_line(error)}"
    return " ".join(f"{type(error).__name__}: {error}".split())
