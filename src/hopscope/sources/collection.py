"""A definition with everything of the same author that it uses, as text."""

import dataclasses
import enum
import functools
import hashlib
import importlib
import importlib.util
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hopscope.sources.definitions import (
    Home,
    functions,
    home_of,
    is_foreign,
    is_own,
    module_home,
    node_of,
    plain_text,
    unwrapped,
)
from hopscope.sources.uses import Use, uses, uses_of_code

_LONGEST = 2_000
"""Characters of a foreign value's own words that are kept."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Collection:
    """Texts of definitions and constants, each once, in the order in which they were met.

    Attributes:
        found: (name, text) of what the roots use.
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._waiting: list[tuple[str, object]] = []
        self._seen: dict[int, object] = {}
        self._inside: set[int] = set()

    def root(self, thing: object) -> str:
        """Text of an object that is asked for."""
        thing = unwrapped(thing)
        if isinstance(thing, type | types.FunctionType):
            self._seen[id(thing)] = thing
            return self._definition(thing)
        return self._value(thing, None)

    def follow(self) -> None:
        """Collect what is waiting, and what that uses in turn."""
        while self._waiting:
            name, thing = self._waiting.pop(0)
            assert isinstance(thing, type | types.FunctionType)
            self.found.append((name, self._definition(thing)))

    def _add(self, entry: tuple[str, str]) -> None:
        if entry not in self.found:
            self.found.append(entry)

    def _definition(self, thing: type | types.FunctionType) -> str:
        home, node = home_of(thing), node_of(thing)
        closure: dict[str, Any] = {}
        if isinstance(thing, types.FunctionType):
            closure, codes = _closure(thing), [thing.__code__]
            lines = [_code_text(thing.__code__) if node is None else plain_text(node)]
            defaults = [*enumerate(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).items()]
            lines += [f"default {name} = {self._value(value, home)}" for name, value in defaults]
        else:
            codes = [function.__code__ for function in functions(thing)]
            lines = [_class_text(thing) if node is None else plain_text(node)]
            bases = [base for base in thing.__bases__ if base is not object]
            lines += [f"base {self._named(base.__name__, base, home)}" for base in bases]
        used = uses(node) if node is not None else [use for code in codes for use in uses_of_code(code, {})]
        # Python's versions order instructions differently: whose name comes first must not hang on it.
        for use in sorted(used, key=lambda use: (use.chain, use.module or "", use.level)):
            self._use(use, home, closure)
        return "\n".join(lines)

    def _use(self, use: "Use", home: Home, closure: Mapping[str, Any]) -> None:
        """Follow one name that a piece of code uses; names such as `__name__` say only where it stands."""
        if use.chain and use.chain[0].startswith("__"):
            return
        names: Mapping[str, Any] = {**home.names, **closure}
        if use.module is not None:
            thing: Any = _own_module(use, home)
            if thing is None:
                return
            name, chain = str(use.module), use.chain
        elif use.chain[0] in names:
            name, thing, chain = use.chain[0], names[use.chain[0]], use.chain[1:]
        else:
            return
        for attribute in chain:
            if not isinstance(thing, types.ModuleType) or not home.owns(module_home(thing)):
                break
            name, thing = attribute, _attribute(thing, attribute)
        thing = unwrapped(thing)
        if isinstance(thing, types.ModuleType):
            self._add((name, f"module {thing.__name__}"))
        elif isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType):
            told = self._named(name, thing, home)
            if told != name:
                self._add((name, told))
        else:
            self._add((name, self._value(thing, home)))

    def _named(self, name: str, thing: Any, home: Home | None) -> str:
        """Name of a definition; one of the same author is kept waiting."""
        if not isinstance(thing, type | types.FunctionType):
            return f"{thing.__module__}.{thing.__qualname__}"
        where = home_of(thing)
        if where.name == "builtins":
            return str(thing.__qualname__)
        if not (home.owns(where) if home is not None else is_own(where)):
            return f"{thing.__module__}.{thing.__qualname__}"
        if id(thing) not in self._seen:
            self._seen[id(thing)] = thing
            self._waiting.append((name, thing))
        return name

    def _value(self, thing: Any, home: Home | None) -> str:
        """A value in words that do not depend on where it lies in memory."""
        thing = unwrapped(thing)
        if isinstance(thing, type | types.FunctionType | types.BuiltinFunctionType):
            return self._named(thing.__name__, thing, home)
        if isinstance(thing, types.ModuleType):
            return f"module {thing.__name__}"
        if isinstance(thing, Path):
            return f"Path({str(_beside(thing, home))!r})"
        if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
            return f"{type(thing).__name__}.{thing.name}" if isinstance(thing, enum.Enum) else repr(thing)
        if type(thing).__module__ == "typing" or isinstance(thing, types.GenericAlias | types.UnionType):
            return _ADDRESS.sub(
                "", repr(thing)
            )  # a validator of an annotated type is written with its address
        if id(thing) in self._inside:
            return "…"
        self._inside.add(id(thing))
        try:
            return self._composed(thing, home)
        finally:
            self._inside.remove(id(thing))

    def _composed(self, thing: Any, home: Home | None) -> str:
        name = self._named(type(thing).__name__, type(thing), home)
        if isinstance(thing, Mapping):
            inner = [f"{self._value(key, home)}: {self._value(value, home)}" for key, value in thing.items()]
        elif isinstance(thing, list | tuple):
            inner = [self._value(each, home) for each in thing]
        elif isinstance(thing, set | frozenset):
            inner = sorted(self._value(each, home) for each in thing)
        elif isinstance(thing, functools.partial):
            inner = [self._value(each, home) for each in (thing.func, thing.args, thing.keywords)]
        elif isinstance(thing, types.MethodType):
            inner = [thing.__name__, self._value(thing.__self__, home)]
        elif hasattr(thing, "tobytes") and hasattr(thing, "dtype"):
            inner = self._array(thing, home)
        elif hasattr(thing, "to_numpy") and (hasattr(thing, "columns") or hasattr(thing, "dtype")):
            inner = self._frame(thing, home)
        elif (array := _of_tensor(thing)) is not None:
            inner = [str(thing.dtype), *self._array(array, home)]
        elif (fields := self._fields(thing, name)) is not None:
            inner = [f"{field}={self._value(value, home)}" for field, value in fields.items()]
        else:
            words = repr(thing)[:_LONGEST]
            inner = [] if " at 0x" in words else [words]
        return f"{name}({', '.join(inner)})"

    def _array(self, thing: Any, home: Home | None) -> list[str]:
        """Type, shape and digest of an array; of one that holds objects, the digest of what they say."""
        objects = getattr(thing.dtype, "hasobject", False)
        told = (
            self._value(thing.tolist(), home).encode("utf-8", "backslashreplace")
            if objects
            else thing.tobytes()
        )
        return [str(thing.dtype), str(getattr(thing, "shape", "")), hashlib.sha256(told).hexdigest()]

    def _frame(self, thing: Any, home: Home | None) -> list[str]:
        """Names, types and values of a frame, column by column, or of a series, each with its index."""
        inner = [str(getattr(thing, "name", ""))]
        columns = getattr(thing, "columns", None)
        for labels in (getattr(thing, "index", None), columns):
            if labels is not None and hasattr(labels, "to_numpy"):
                inner += [repr(list(labels.names)), str(labels.dtype), *self._array(labels.to_numpy(), home)]
        if columns is None or not hasattr(thing, "iloc"):
            names = [] if columns is None else [self._value(columns, home)]
            return [*inner, *names, str(getattr(thing, "dtype", "")), *self._array(thing.to_numpy(), home)]
        for number in range(len(columns)):
            column = thing.iloc[:, number]
            inner += [str(column.dtype), *self._array(column.to_numpy(), home)]
        return inner

    @staticmethod
    def _fields(thing: Any, name: str) -> dict[str, Any] | None:
        if isinstance(thing, enum.Enum):
            return {thing.name: thing.value}
        if dataclasses.is_dataclass(thing):
            return {field.name: getattr(thing, field.name, None) for field in dataclasses.fields(thing)}
        if hasattr(type(thing), "model_fields"):
            return {field: getattr(thing, field, None) for field in type(thing).model_fields}
        own = "." not in name  # an instance of a foreign class is what its author says it is
        return dict(sorted(vars(thing).items())) if own and hasattr(thing, "__dict__") else None


def _beside(path: Path, home: Home | None) -> Path:
    """A path seen from the folder of the file that names it, so that a file and its data may move together."""
    folder = None if home is None or home.file is None else Path(home.file).resolve().parent
    return path.resolve().relative_to(folder) if folder and path.resolve().is_relative_to(folder) else path


def _of_tensor(thing: Any) -> Any:
    """The values of a torch tensor as an array; None of anything else, and where there are no values (meta)."""
    if not all(hasattr(thing, name) for name in ("detach", "cpu", "numpy", "dtype")):
        return None
    try:
        return thing.numpy(force=True)
    except (TypeError, RuntimeError):
        pass  # numpy lacks the type (bfloat16), or the tensor is sparse
    try:
        return thing.detach().cpu().to_dense().float().numpy()
    except (TypeError, RuntimeError):
        return None


def _own_module(use: Use, home: Home) -> types.ModuleType | None:
    """The module of an import inside a function, if it is by the same author."""
    package = str(home.names.get("__package__") or "")
    try:
        name = importlib.util.resolve_name("." * use.level + str(use.module), package)
        if is_foreign(name, home):
            return None  # before `find_spec`, which imports what a module is inside of: all of torch, for torch.nn
        spec = importlib.util.find_spec(name)
        if spec is None or not home.owns(Home(name, spec.origin, {})):
            return None
        return importlib.import_module(name)
    except (ImportError, ValueError, AttributeError):
        return None


def _attribute(module: types.ModuleType, name: str) -> Any:
    """A name of a module, or a module inside it that nobody has imported yet."""
    if not hasattr(module, name):
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ImportError:
            return None
    return getattr(module, name)


def _closure(function: types.FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not set yet: a name that is defined further down
    return found


def _code_text(code: types.CodeType) -> str:
    """Bytecode and constants of code whose source is not to be had."""
    constants = [
        _code_text(constant) if isinstance(constant, types.CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    names = (*code.co_names, *code.co_varnames, *code.co_freevars)
    return f"code {code.co_code.hex()} {', '.join(constants)} names {', '.join(names)}"


def _class_text(thing: type) -> str:
    """Annotations, values and methods of a class whose source is not to be had."""
    lines = [f"class {thing.__name__}"]
    for name, value in sorted(vars(thing).items()):
        function = unwrapped(value)
        if isinstance(function, types.FunctionType):
            lines.append(f"{name}: {_code_text(function.__code__)}")
        elif not name.startswith("_") or name == "__annotations__":
            words = repr(value)
            lines.append(f"{name}: {type(value).__name__}" if " at 0x" in words else f"{name}: {words}")
    return "\n".join(lines)
