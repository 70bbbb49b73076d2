"""Finding studies: by name, by `package.module:name`, in a file, or from the record of a run.  Loads no torch."""

import ast
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.studies.study import Study

if TYPE_CHECKING:
    from hopscope.studies.program import Program

GROUP = "hopscope.studies"
"""Entry points of installed packages that bring studies."""

BUILT_IN = {
    name: f"hopscope.studies.{name.replace('-', '_')}.study:study"
    for name in (
        "permutation", "depth", "circuits", "emergence", "recipes", "tiny-lm", "llm", "first-steps", "curriculum",
        "capacity", "sharing", "conditional", "markov", "khop", "recall", "formation", "natural", "reduced",
    )
}  # fmt: skip
"""Name of each built-in study → where it is."""

_USUAL = "study"
"""Name that is looked for where a reference names none."""

_loading: ContextVar[str | None] = ContextVar("loading", default=None)


def loading() -> str | None:
    """The file or module that is being loaded for its studies, if one is."""
    return _loading.get()


def study_names() -> list[str]:
    """Names that `hopscope run` knows: the built-in studies, then those of installed packages."""
    return [*BUILT_IN, *(point.name for point in _points() if point.name not in BUILT_IN)]


@contextmanager
def naming(program: "Program") -> Iterator[None]:
    """Let every error that a user's study causes name its file.

    Raises:
        UserError: what was raised, with the place of the study in front.
    """
    place = program.reference
    if place is None or program.built_in:
        yield
        return
    file = split_reference(place)[0]
    try:
        yield
    except UserError as error:
        if type(error) is not UserError or file in str(error) or str(error).startswith("cannot write"):
            raise
        raise UserError(f"{place}: {error}") from error
    except (Exception, SystemExit) as error:
        line = _line_of(error, file)
        if line is None or isinstance(error, HopscopeError):
            raise
        words = _in_words(error)
        raise UserError(
            f"{place}: expected code that runs, found {words} (line {line}); mend the file"
        ) from error


def _in_words(error: BaseException) -> str:
    """Type and message of an error in one line; of a call of exit, also what it does."""
    return in_words(error) + (", which ends the process" if isinstance(error, SystemExit) else "")


def _line_of(error: BaseException, file: str) -> int | None:
    """The last line of a file that an error went through, if it did."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return frames[-1].lineno if frames else None


def find_study(spec: str) -> "Program":
    """A study by its name, as `package.module:name`, or as `file.py` or `file.py:name`.

    Raises:
        UserError: there is none, or it cannot be loaded.
    """
    if is_file(spec) or ":" in spec or spec in BUILT_IN:
        return of_reference(BUILT_IN.get(spec, spec))
    named = [point for point in _points() if point.name == spec]
    if len(named) > 1:
        homes = ", ".join(point.value for point in named)
        raise UserError(
            f"study: expected one study named {spec!r}, found {len(named)}: {homes}; uninstall one package"
        )
    if named:
        return of_reference(named[0].value, f"entry point {spec!r} of {GROUP}")
    raise UserError(
        f"study: expected one of {', '.join(study_names())}, or a file such as study.py, found {spec!r}; "
        "see `hopscope studies`"
    )


def of_reference(reference: str, what: str = "study") -> "Program":
    """The study of a reference.

    Args:
        reference: `package.module:name`, `file.py` or `file.py:name`.
        what: what it is, for errors.

    Raises:
        UserError: it cannot be loaded, or is no study.
    """
    place, name = split_reference(reference)
    return _program(place, *_chosen(load_module(place, what), place, name))


def split_reference(reference: str) -> tuple[str, str | None]:
    """File or module, and the name in it if one is given."""
    if reference.endswith(".py"):
        return reference, None
    place, colon, name = reference.rpartition(":")
    return (place, name) if colon else (reference, None)


def is_file(spec: str) -> bool:
    """Whether a reference names a file."""
    return split_reference(spec)[0].endswith(".py")


def studies_in(reference: str) -> "dict[str, Program]":
    """Every study of a file or module, by its name.

    Raises:
        UserError: it cannot be loaded, or holds no study, or two of one name.
    """
    place, name = split_reference(reference)
    if name is not None:
        return {name: of_reference(reference)}
    found = _studies(load_module(place), place)
    return {study.name: _program(place, attribute, study) for attribute, study in found.items()}


def _program(place: str, attribute: str, study: Study) -> "Program":
    """A study that stands in a file or module under a name."""
    from hopscope.studies.program import Program

    home = str(Path(place).resolve()) if is_file(place) else place
    return Program(study, f"{home}:{attribute}")


def load_module(place: str, what: str = "study") -> ModuleType:
    """A module by its name, or the module of a file.

    The module of a file is made once for each content: a file that was changed is loaded anew.

    Raises:
        UserError: there is none, or it cannot be imported.
    """
    token = _loading.set(place)
    try:
        return _file_module(Path(place)) if is_file(place) else _imported(place, what)
    finally:
        _loading.reset(token)


def _imported(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: expected {name} to be importable, found {_cause(error)}") from None


def _file_module(path: Path) -> ModuleType:
    path = path.resolve()
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: expected a path in UTF-8, because a run records where its study stands, found other bytes; "
            "rename the folder or the file"
        ) from None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: expected a readable file with a study, found {error.strerror}; check the path"
        ) from None
    packaged = _in_package(path)
    if packaged is not None:
        root, dotted = packaged
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        return _imported(dotted, str(path))
    _check_helpers(path, content)
    name = f"hopscope_file_{path.stem}_{hashlib.sha256(str(path).encode() + content).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_AsRead(name, path, content))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:  # as `python file.py` does: the file may have helpers beside it
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except UserError as error:
        del sys.modules[name]
        message = str(error)
        raise UserError(message if str(path) in message else f"{path}: {message}") from None
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UserError(
            f"{path}: expected a file that can be loaded, found {_cause(error, str(path))}; mend the file"
        ) from None
    return module


class _AsRead(importlib.machinery.SourceFileLoader):
    """Runs the content that was read: bytecode is known by a file's second and size alone, and may be older."""

    def __init__(self, name: str, path: Path, content: bytes):
        super().__init__(name, str(path))
        self._content = content

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._content, self.path)


def _check_helpers(path: Path, content: bytes) -> None:
    """Refuse another folder's module under the name of a helper that lies beside the file.

    Raises:
        UserError: names both files.
    """
    try:
        statements = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):
        return  # whoever runs it will say so, with the line
    asked = [alias.name for each in statements if isinstance(each, ast.Import) for alias in each.names]
    asked += [each.module or "" for each in statements if isinstance(each, ast.ImportFrom) and not each.level]
    for name in sorted({each.partition(".")[0] for each in asked}):
        helper, found = path.parent / f"{name}.py", getattr(sys.modules.get(name), "__file__", None)
        if found is not None and helper.is_file() and Path(found).resolve() != helper.resolve():
            raise UserError(
                f"{path}: expected {helper.name} beside it, found {found} imported before under that name; rename one, "
                "or begin a new process"
            )


def _cause(error: BaseException, file: str = "") -> str:
    """An error in one line, with the line of the file where it came up."""
    line = error.lineno if isinstance(error, SyntaxError) else _line_of(error, file)
    return _in_words(error) + (f" (line {line})" if line else "")


def _chosen(module: ModuleType, place: str, name: str | None) -> tuple[str, Study]:
    """The study of a name, or the one that is meant where none is given; and the name of its variable.

    Raises:
        UserError: there is none, or it is not clear which is meant.
    """
    if name is not None:
        found = getattr(module, name, None)
        if not isinstance(found, Study):
            known = ", ".join(_studies(module, place)) or "none"
            raise UserError(
                f"{place}: expected a study named {name!r}, found "
                f"{'none' if found is None else type(found).__name__}; its studies: {known}"
            )
        return name, found
    studies = _studies(module, place)
    if not studies:
        raise UserError(
            f"{place}: expected a study (such as study = hopscope.Study(…)), found none; write one"
        )
    if _USUAL in studies:
        return _USUAL, studies[_USUAL]
    if len(studies) > 1:
        names = ", ".join(f"{place}:{each}" for each in studies)
        raise UserError(
            f"{place}: expected one study, or one named {_USUAL!r}, found {len(studies)}; choose one of {names}"
        )
    return next(iter(studies.items()))


def _studies(module: ModuleType, place: str) -> dict[str, Study]:
    """Studies of a module by the names of their variables, each once.

    Raises:
        UserError: two different ones have one name.
    """
    found: dict[str, Study] = {}
    for attribute, value in vars(module).items():
        if isinstance(value, Study) and not any(value is other for other in found.values()):
            twin = next((other for other in found if found[other].name == value.name), None)
            if twin is not None:
                raise UserError(
                    f"{place}: expected studies with different names, found {value.name!r} twice ({twin} and "
                    f"{attribute}); rename one"
                )
            found[attribute] = value
    return found


def home_of(study: Study) -> str | None:
    """Reference by which another process finds a study; `None` for one of a notebook, or made inside a function."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(module, ModuleType) or not file or not str(file).endswith(".py"):
            continue
        for name, value in list(vars(module).items()):
            if value is study:
                return f"{_importable_as(module, str(file)) or Path(file).resolve()}:{name}"
    return None


def _importable_as(module: ModuleType, file: str) -> str | None:
    """Name under which a fresh process imports this very file; `None` for a file that is in no package."""
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec is not None else module.__name__
    installed = any(part in ("site-packages", "dist-packages") for part in Path(file).parts)
    if name.startswith("hopscope_file_") or ("." not in name and not installed):
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return name if found is not None and found.origin == file else None


def _in_package(path: Path) -> tuple[Path, str] | None:
    """Root folder and dotted name of a file that lies in a package."""
    if not (path.parent / "__init__.py").is_file():
        return None
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, parts = folder.parent, [folder.name, *parts]
    return folder, ".".join(parts)


def _points() -> list[Any]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)
