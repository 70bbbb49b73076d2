"""Whether the code that runs is still the code that its file holds."""

import dis
import functools
import importlib.machinery
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hopscope.errors import UserError

_UNTOLD = ("__doc__", "__firstlineno__", "__static_attributes__")
"""What a class body notes of its own text, and no code depends on."""

_INSTRUMENTS = ("typeguard", "beartype", "jaxtyping", "@py")
"""Beginnings of names in code that checkers have written anew under the name of the original file."""


def comparable(code: types.CodeType, names: Mapping[str, Any]) -> bool:
    """Whether Python itself compiled the code from its module's file, so that compiling it again must give the same.

    A loader of any other class (pytest, jaxtyping, beartype, a notebook) may have changed what it read.
    """
    file = names.get("__file__")
    loader = names.get("__loader__") or getattr(names.get("__spec__"), "loader", None)
    return (
        type(loader) is importlib.machinery.SourceFileLoader
        and isinstance(file, str)
        and Path(file).absolute() == Path(code.co_filename).absolute()
        and not any(name.startswith(_INSTRUMENTS) for name in code.co_names)
    )


def in_file(text: str, code: types.CodeType) -> types.CodeType | None:
    """The same code, compiled from the file's text as it is now; None if the file has nothing of that name.

    Raises:
        UserError: the file has something else of that name.
    """
    named = _codes(text).get(code.co_qualname, ())
    same = [each for each in named if _told(each) == _told(code)]
    if named and not same:
        raise UserError(
            f"{code.co_filename}: expected the code that was imported, found a file that was changed since; "
            "restart, or reload it"
        )
    places = list(code.co_positions())
    return min(
        same,
        key=lambda each: (each.co_firstlineno != code.co_firstlineno, list(each.co_positions()) != places),
        default=None,
    )


@functools.lru_cache(maxsize=128)
def _codes(text: str) -> dict[str, list[types.CodeType]]:
    """Every piece of code in a file, by its qualified name."""
    found: dict[str, list[types.CodeType]] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # said when the file itself was compiled
            module = compile(text, "<compared>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}
    for code in _inside(module):
        found.setdefault(code.co_qualname, []).append(code)
    return found


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inside(constant)


@functools.lru_cache(maxsize=4096)
def _told(code: types.CodeType) -> tuple[object, ...]:
    """Return the instructions of code with their names, but without lines, docstrings and numbers of constants."""
    kept: list[tuple[str, object, bool]] = []
    places: dict[int, int] = {}
    for each in dis.get_instructions(code):
        places[each.offset] = len(kept)
        if each.opname in ("NOP", "EXTENDED_ARG"):
            continue
        if each.opname == "STORE_NAME" and each.argval in _UNTOLD and kept:
            kept.pop()
            continue
        jumps = each.opcode in dis.hasjrel or each.opcode in dis.hasjabs
        kept.append((each.opname, each.argval if jumps else _constant(each.argval), jumps))
    steps = tuple((name, places.get(value, value) if jumps else value) for name, value, jumps in kept)  # type: ignore[call-overload]
    head = (code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return (*head, code.co_varnames, code.co_freevars, code.co_cellvars, steps)


def _constant(value: object) -> object:
    """A constant so that 1, 1.0 and True differ, and the order of a set does not count."""
    if isinstance(value, types.CodeType):
        return _told(value)
    if isinstance(value, tuple):
        return ("tuple", *map(_constant, value))
    if isinstance(value, frozenset):
        return ("set", *sorted(map(repr, value)))
    return (type(value).__name__, repr(value))
