"""What a value or function does, as text: two texts differ where the code does, and not where only its looks do."""

import ast
import functools
import hashlib
import importlib
import linecache
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hopscope.claims.claim import Claim

_LIBRARY = __name__.partition(".")[0]
_KEPT = functools.cached_property


def text_of(thing: Any) -> str:
    """A value as text that does not hang on where it lies in memory; functions and classes as what they do.

    Comments, docstrings and formatting do not count.  Helpers are followed within a folder and within a package; of
    everything else, and of what is imported inside a function, the name counts.
    """
    return _told(thing, None, set())


def hash_of(text: str) -> str:
    """SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def source_hash(*things: Any) -> str:
    """`hash_of` the texts of things, with what their functions import when called, as tasks do that need torch.

    What is of this library has its name.
    """
    modules = [getattr(thing, "__module__", None) or "" for thing in things]
    told = [
        f"{module}.{getattr(thing, '__qualname__', thing)}"
        if _is_library(module)
        else [thing, *_imported_within(thing)]
        for module, thing in zip(modules, things, strict=True)
    ]
    return hash_of(text_of(told))


def registered(claims: Iterable[Claim]) -> dict[str, str]:
    """Id of a claim → hash of everything that decides it: its record, and the text of its functions with their helpers.

    Statement, source, trust and summary are words about a claim, and may change.
    """
    words, found = ("statement", "source", "trust", "summary"), {}
    for claim in claims:
        record = {name: value for name, value in claim if name not in words}
        found[claim.id] = hash_of(text_of({**record, "structural": bool(claim.structural)}))
    return found


def _told(thing: Any, home: str | None, seen: set[int]) -> str:
    while hasattr(thing, "__wrapped__"):
        thing = thing.__wrapped__
    if isinstance(thing, functools.partial):
        thing = (thing.func, thing.args, thing.keywords)
    if isinstance(thing, types.MethodType):
        thing = (thing.__func__, thing.__self__)
    if isinstance(thing, Mapping):
        thing = list(thing.items())
    if isinstance(thing, list | tuple | set | frozenset):
        inner = [_told(each, home, seen) for each in thing]
        return f"[{', '.join(inner if isinstance(thing, list | tuple) else sorted(inner))}]"
    if not isinstance(thing, type):
        thing = _content(thing)
    if not isinstance(thing, types.FunctionType | type):
        told = repr(thing)
        is_plain = " at 0x" not in told and not callable(thing)
        if is_plain or id(thing) in seen or not hasattr(thing, "__dict__"):
            return type(thing).__qualname__ if " at 0x" in told else told
        seen.add(id(thing))
        # What was found once and kept may not be there the next time.
        found = {k: v for k, v in vars(thing).items() if not isinstance(getattr(type(thing), k, None), _KEPT)}
        return _told((type(thing), found), home, seen)
    if home is not None and not _ours(thing.__module__, home):
        return f"{thing.__module__}.{thing.__qualname__}"
    if id(thing) in seen:
        return thing.__qualname__
    seen.add(id(thing))
    definition = _definition(thing)
    scope, texts = dict(vars(sys.modules.get(thing.__module__, types))), [definition.text]
    if isinstance(thing, types.FunctionType):
        empty = types.CellType()  # of a name that is not bound yet
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        scope = {**thing.__globals__, **{name: cell.cell_contents for name, cell in cells if cell != empty}}
        texts.append(_told([thing.__defaults__, thing.__kwdefaults__], thing.__module__, seen))
    for name in sorted(definition.names & scope.keys()):
        used = scope[name]
        if isinstance(used, types.ModuleType):
            known = vars(used).keys() if _ours(used.__name__, thing.__module__) else set()
            used = [(each, getattr(used, each)) for each in sorted(definition.attributes & known)]
        texts.append(f"{name} = {_told(used, thing.__module__, seen)}")
    return "\n".join(texts)


def _content(thing: Any) -> Any:
    """Of arrays, tensors and tables, whose text leaves numbers out, a hash of all; anything else as it is."""
    thing = thing.to_pandas() if hasattr(thing, "to_pandas") else thing
    if hasattr(thing, "to_csv"):
        return f"{type(thing).__name__} {hash_of(thing.to_csv())}"
    if hasattr(thing, "detach"):
        plain = thing.detach().cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8)
        return f"{thing.dtype} {[*thing.shape]} {hashlib.sha256(plain.numpy().tobytes()).hexdigest()}"
    if hasattr(thing, "tobytes"):
        return f"{thing!r} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    return thing


def _ours(module: str, home: str) -> bool:
    """Whether a module is by the author of another one; what this library does is told by its version instead."""
    if module.partition(".")[0] == _LIBRARY:
        return not _is_library(module)
    files = [str(getattr(sys.modules.get(each), "__file__", each)) for each in (module, home)]
    same_package = module.partition(".")[0] == home.partition(".")[0]
    return same_package or Path(files[0]).parent == Path(files[1]).parent


def _is_library(module: str) -> bool:
    return module.partition(".")[0] == _LIBRARY and not module.startswith(f"{_LIBRARY}.studies")


def _imported_within(thing: Any) -> Iterator[Any]:
    kinds = [kind for kind in getattr(thing, "__mro__", ()) if _ours(kind.__module__, thing.__module__)]
    for kind in kinds or [thing] * isinstance(thing, types.FunctionType):
        for node in _definition(kind).imports:
            module = "." * node.level + (node.module or "")
            if _is_library(module):
                continue  # nothing there is the author's, and a package that it needs may not be here
            try:
                found = importlib.import_module(module, sys.modules[kind.__module__].__package__)
            except ImportError:
                continue  # what it does without, it says itself
            used = [getattr(found, alias.name, None) for alias in node.names]
            defined = [each for each in used if isinstance(each, types.FunctionType | type)]
            yield from (each for each in defined if _ours(each.__module__, thing.__module__))


class _Definition(NamedTuple):
    text: str
    names: set[str]
    attributes: set[str]
    imports: list[ast.ImportFrom]


@functools.cache  # the file may be edited while the run goes on
def _definition(thing: types.FunctionType | type) -> _Definition:
    own = [thing] if isinstance(thing, types.FunctionType) else [*vars(thing).values()]
    codes = [each.__code__ for each in own if isinstance(each, types.FunctionType)]
    name = codes[0].co_name if isinstance(thing, types.FunctionType) else thing.__name__
    module = str(getattr(sys.modules.get(thing.__module__), "__file__", ""))
    file = [*(code.co_filename for code in codes if not code.co_filename.startswith("<string")), module][0]
    found = [
        node
        for node in _nodes("".join(linecache.getlines(file)))
        if getattr(node, "name", "<lambda>") == name
        and (isinstance(node, ast.ClassDef) or _line(node) == codes[0].co_firstlineno)
    ]
    if not found:  # typed into a plain interpreter
        names = {name for code in codes for name in code.co_names}
        return _Definition(str([(code.co_code, code.co_consts) for code in codes]), names, names, [])
    every = [each for node in found for each in ast.walk(node)]
    names = {each.id for each in every if isinstance(each, ast.Name)}
    attributes = {each.attr for each in every if isinstance(each, ast.Attribute)}
    imports = [each for each in every if isinstance(each, ast.ImportFrom)]
    return _Definition(str(_plain(found)), names, attributes, imports)


@functools.lru_cache(maxsize=64)
def _nodes(text: str) -> list[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    try:
        return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    except (SyntaxError, ValueError):
        return []


def _line(node: Any) -> int:
    return min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))


def _plain(node: Any) -> Any:
    if isinstance(node, list):
        return [_plain(each) for each in node if not _is_docstring(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    # Python's versions add fields that are empty where they are not used.
    return type(node).__name__, *((k, _plain(v)) for k, v in ast.iter_fields(node) if v not in (None, []))


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
