"""Definitions of live functions and classes: the author's module, and the node in the parsed file."""

import ast
import copy
import functools
import importlib.util
import linecache
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hopscope.sources.compared import comparable, in_file
from hopscope.sources.plain_strings import unparsed

OWN_ROOMS = ("hopscope.studies", "hopscope.claims", "hopscope.theory", "hopscope.circuits.places")
"""Parts of Hopscope whose code decides what a built-in claim says; the rest is named only, as any library is."""

_RECORDS = ("hopscope.claims.samples", "hopscope.claims.claim", "hopscope.claims.criteria")
"""Modules among them that only hold what a claim says: to check it otherwise changes no number."""

Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Home(NamedTuple):
    """The module of a piece of code: its name, its file, and the names in it."""

    name: str
    file: str | None
    names: Mapping[str, Any]

    def owns(self, other: "Home") -> bool:
        """Whether another module is by the same author."""
        if other.name == self.name:
            return True
        top, others = self.name.partition(".")[0], other.name.partition(".")[0]
        if "hopscope" in (top, others):
            return top == others and _in_rooms(other.name)
        if top == others:
            return True
        if self.file is None or other.file is None or _is_library(other.file):
            return False
        return Path(self.file).resolve().parent == Path(other.file).resolve().parent


def home_of(thing: type | types.FunctionType) -> Home:
    """The module of a function or class."""
    if isinstance(thing, types.FunctionType):
        names = thing.__globals__
        return Home(thing.__module__ or str(names.get("__name__", "")), names.get("__file__"), names)
    module = sys.modules.get(thing.__module__)
    if module is not None:
        return module_home(module)
    for function in map(unwrapped, vars(thing).values()):
        if isinstance(function, types.FunctionType):
            return home_of(function)
    return Home(thing.__module__, None, {})


def module_home(module: types.ModuleType) -> Home:
    """A module as a place of code."""
    return Home(module.__name__, getattr(module, "__file__", None), vars(module))


def is_own(home: Home) -> bool:
    """Whether a module is nobody's library."""
    if home.name.partition(".")[0] == "hopscope":
        return _in_rooms(home.name)
    return home.name == "__main__" or (home.file is not None and not _is_library(home.file))


def _in_rooms(name: str) -> bool:
    return name not in _RECORDS and any(name == room or name.startswith(f"{room}.") for room in OWN_ROOMS)


def is_foreign(name: str, home: Home) -> bool:
    """Whether a module is surely by another author, as its package is an installed library; imports nothing."""
    top = name.partition(".")[0]
    if top == home.name.partition(".")[0]:
        return False
    spec = importlib.util.find_spec(top)
    return spec is not None and spec.origin is not None and _is_library(spec.origin)


@functools.cache
def _is_library(file: str) -> bool:
    """Whether a file was installed, and does not merely lie beside the asking one."""
    path = Path(file).resolve()
    roots = [
        Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    return any(path.is_relative_to(root) for root in roots)


def unwrapped(thing: Any) -> Any:
    """The function behind decorators that keep it, behind class and static methods and properties."""
    seen: set[int] = set()
    while id(thing) not in seen:
        seen.add(id(thing))
        if isinstance(thing, classmethod | staticmethod):
            thing = thing.__func__
        elif isinstance(thing, property) and thing.fget is not None:
            thing = thing.fget
        elif isinstance(thing, functools.cached_property):
            thing = thing.func
        elif not isinstance(thing, type | types.ModuleType) and callable(getattr(thing, "__wrapped__", None)):
            thing = thing.__wrapped__
    return thing


def functions(thing: type) -> list[types.FunctionType]:
    """Methods of a class, those behind properties included; not those of its bases."""
    found = map(unwrapped, vars(thing).values())
    return [
        each
        for each in found
        if isinstance(each, types.FunctionType) and each.__qualname__.startswith(f"{thing.__qualname__}.")
    ]


def node_of(thing: type | types.FunctionType) -> Node | None:
    """The definition in its file; None where there is no source.

    Raises:
        UserError: the file holds other code than that which was imported from it.
    """
    if isinstance(thing, types.FunctionType):
        tree = _tree(thing.__code__.co_filename, thing.__globals__)
        code = _code_in_file(thing)
        return None if tree is None or code is None else _function_node(tree, code)
    methods = functions(thing)
    codes = [function.__code__ for function in methods]
    home = home_of(thing)
    # A class that was typed into a notebook has no file, but its methods know their cell.
    for file in dict.fromkeys([*(code.co_filename for code in codes), *([home.file] if home.file else [])]):
        tree = _tree(file, home.names)
        found = [_code_in_file(function) for function in methods if function.__code__.co_filename == file]
        lines = {code.co_firstlineno for code in found if code is not None}
        node = None if tree is None or None in found else _class_node(tree, thing, lines)
        if node is not None:
            return node
    return None


def _code_in_file(function: types.FunctionType) -> types.CodeType | None:
    """A function's code with the lines where its file has it now; as it is, where the two cannot be compared."""
    code, names = function.__code__, function.__globals__
    text = _text(code.co_filename, names) if comparable(code, names) else ""
    return in_file(text, code) if text else code


def _text(file: str, names: Mapping[str, Any]) -> str:
    linecache.checkcache(file)  # the file may have been written anew since somebody last looked at it
    return "".join(linecache.getlines(file, dict(names)))


def _tree(file: str, names: Mapping[str, Any]) -> ast.Module | None:
    text = _text(file, names)
    return _parsed(text) if text else None


@functools.lru_cache(maxsize=128)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _function_node(tree: ast.Module, code: types.CodeType) -> Node | None:
    if code.co_name == "<lambda>":
        return _lambda_node(tree, code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min(each.lineno for each in [node, *node.decorator_list])
            if first == code.co_firstlineno:
                return node
    return None


def _lambda_node(tree: ast.Module, code: types.CodeType) -> ast.Lambda | None:
    """The lambda whose body is the smallest that holds every instruction: several may stand on one line."""
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno
    ]
    if len(found) <= 1:
        return found[0] if found else None
    # The first instruction of every function stands at column 0 of its line, and says nothing of the body.
    spans = [
        ((line, column), (end_line, end))
        for line, end_line, column, end in code.co_positions()
        if None not in (line, end_line, column, end) and (column, end) != (0, 0)
    ]
    if not spans:
        return None
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    holding = [
        node
        for node in found
        if (node.body.lineno, node.body.col_offset) <= first
        and last <= (node.body.end_lineno, node.body.end_col_offset)
    ]
    return max(holding, key=lambda node: (node.body.lineno, node.body.col_offset), default=None)


def _class_node(tree: ast.Module, thing: type, lines: set[int]) -> ast.ClassDef | None:
    """The class of that name; of several the last that holds the lines of its methods."""
    holding = [
        node
        for name, node in _classes_of(tree)
        if name == thing.__qualname__ and all(node.lineno <= line <= (node.end_lineno or 0) for line in lines)
    ]
    return holding[-1] if holding else None


@functools.lru_cache(maxsize=128)
def _classes_of(tree: ast.Module) -> tuple[tuple[str, ast.ClassDef], ...]:
    return tuple(_classes(tree, ""))


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Qualified name and definition of every class inside a node."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield f"{prefix}{each.name}", each
            yield from _classes(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(each, f"{prefix}{each.name}.<locals>.")
        else:
            yield from _classes(each, prefix)


@functools.lru_cache(maxsize=4096)
def plain_text(node: Node) -> str:
    """A definition as text without comments, docstrings and formatting."""
    return unparsed(bare(node))


@functools.lru_cache(maxsize=4096)
def bare(node: Node) -> Node:
    """A copy without docstrings and other bare strings; nobody may change it."""
    node = copy.deepcopy(node)
    for each in ast.walk(node):
        body = getattr(each, "body", None)
        if isinstance(body, list):
            kept = [statement for statement in body if not _is_bare_string(statement)]
            each.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return node


def _is_bare_string(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
