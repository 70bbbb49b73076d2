"""A hash of what code does, with the helpers of its author that it uses, also those that it imports when called."""

import ast
import importlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hopscope.claims.source import text_of
from hopscope.runs.checkpoint import sha256

_HOUSE = __name__.partition(".")[0]


def source_hash(*things: Any) -> str:
    """SHA-256, in hexadecimal digits, of classes, functions and plain values; what is of this library has its name."""
    told = [_name(thing) if _is_ours(thing) else [thing, *_imported_within(thing)] for thing in things]
    return sha256(text_of(told).encode("utf-8", "backslashreplace"))


def _imported_within(thing: Any) -> Iterator[Any]:
    """What functions import when they are called, as a task does that needs torch: `text_of` only has its name."""
    kinds = [kind for kind in getattr(thing, "__mro__", ()) if _is_beside(kind, thing)]
    for function in [each for kind in kinds for each in vars(kind).values()] or [thing]:
        try:
            text = inspect.getsource(function) if isinstance(function, types.FunctionType) else ""
            nodes = ast.walk(ast.parse(textwrap.dedent(text)))
        except (OSError, SyntaxError):  # typed into a plain interpreter, or a lambda amid other code
            continue
        for node in (node for node in nodes if isinstance(node, ast.ImportFrom)):
            package = sys.modules[function.__module__].__package__
            module = importlib.import_module("." * node.level + (node.module or ""), package)
            found = (getattr(module, alias.name, None) for alias in node.names)
            yield from (each for each in found if _is_beside(each, thing) and not _is_ours(each))


def _is_beside(thing: Any, other: Any) -> bool:
    """Whether something is a class or function in the same folder or package as another."""
    modules = [getattr(each, "__module__", None) or "" for each in (thing, other)]
    tops = {each.partition(".")[0] for each in modules}
    folders = {Path(str(getattr(sys.modules.get(each), "__file__", each))).parent for each in modules}
    return isinstance(thing, types.FunctionType | type) and 1 in (len(tops), len(folders))


def _is_ours(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or ""
    return module.partition(".")[0] == _HOUSE and not module.startswith(f"{_HOUSE}.studies")


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{getattr(thing, '__qualname__', thing)}"
