"""Finding studies: by name, by `package.module:name`, or in a file.  Loads no torch."""

import hashlib
import importlib
import importlib.util
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from hopscope.config import in_words
from hopscope.errors import HopscopeError, UserError
from hopscope.study.study import Study

GROUP = "hopscope.studies"
"""Entry points of installed packages that bring studies."""

BUILT_IN = {
    name: f"{__name__.partition('.')[0]}.studies.{name.replace('-', '_')}.study:study"
    for name in (
        "permutation", "depth", "circuits", "emergence", "recipes", "tiny-lm", "llm", "first-steps", "curriculum",
        "capacity", "sharing", "conditional", "natural",
    )
}  # fmt: skip
"""Name of each built-in study → where it is."""

_USUAL = "study"  # the name that is looked for where a reference names none

loading: ContextVar[str | None] = ContextVar("loading", default=None)
"""The file or module that is being loaded for its studies, if one is."""


@dataclass(frozen=True)
class Loaded:
    """A study, and where it stands.

    Attributes:
        study: as its author wrote it, or with the fields of a run.
        reference: where another process finds it: a built-in name, `package.module:name`, or `/path/file.py:name`;
            `None` for one of a notebook, which is trained in the process that it was made in.
        file, text: that it was read from, for readers; the text is never executed.
    """

    study: Study
    reference: str | None = None
    file: Path | None = None
    text: str | None = None

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let every error that the study's code causes name its file, and the line, in one `UserError`."""
        try:
            yield
        except (Exception, SystemExit) as error:
            file, told = str(self.file), isinstance(error, HopscopeError)
            # What is wrapped in words of ours has the line in what caused it.
            line = _line_of(error, file) or _line_of(error.__cause__, file)
            shown = told and (type(error) is not UserError or self.reference in BUILT_IN)
            place = f"{file}, line {line}" if line else "" if told else _place_of_others(error)
            if not place or file in str(error) or shown:
                raise
            found = f"expected code that runs, found {_in_words(error)}; mend the file"
            raise UserError(f"{place}: {error if told else found}") from error

    def template(self) -> tuple[str, str] | None:
        """Name and text of the page's template, if the study has one; `UserError`: its file is not there."""
        page = self.study.page
        if page is None:
            return None
        if {"\n", "{"} & {*page}:
            return f"page of {self.study.name}", page
        path = (self.file.parent if self.file else Path()) / page
        if not path.is_file():
            raise UserError(f"page: expected a template, or its file beside the study's, found no {path}")
        return path.name, template_text(path)


def template_text(path: Path) -> str:
    """The text of a template; `UserError`: it is not in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: expected a template in UTF-8, found other bytes; save it anew") from None


def studies() -> list[str]:
    """Names that `hopscope run` knows: the built-in studies, then those of installed packages."""
    others = sorted(point.name for point in entry_points(group=GROUP))
    return [*BUILT_IN, *(name for name in others if name not in BUILT_IN)]


def load(reference: str) -> Loaded:
    """A study by its name, as `package.module:name`, or as `file.py` or `file.py:name`; `UserError`: it cannot be."""
    if reference in BUILT_IN:
        return replace(_loaded(BUILT_IN[reference]), reference=reference)
    if reference.endswith(".py") or split_reference(reference)[1]:
        return _loaded(reference)
    points = [point.value for point in entry_points(group=GROUP) if point.name == reference]
    if len(points) == 1:
        return _loaded(points[0], f"entry point {reference!r} of {GROUP}")
    if points:
        found = f"found {len(points)}: {', '.join(points)}; uninstall one package"
        raise UserError(f"study: expected one study named {reference!r}, {found}")
    known = f"one of {', '.join(studies())}, or a file such as study.py"
    raise UserError(f"study: expected {known}, found {reference!r}; see `hopscope studies`")


def studies_in(reference: str) -> dict[str, Loaded]:
    """Every study of a file or module, or the one of it that is named, by its name; errors as of `load`."""
    place, name = split_reference(reference)
    names = [name] if name else [*_studies(_module(place))]
    return {found.study.name: found for found in (_loaded(f"{place}:{each}") for each in names)}


def loaded_as(study: Study) -> Loaded:
    """A study that is at hand, with the reference by which another process finds it, if one does."""
    # A script that imports the study comes after the module that has it.
    for module in sorted(sys.modules.values(), key=lambda each: getattr(each, "__name__", "") == "__main__"):
        file = getattr(module, "__file__", None)
        if isinstance(module, ModuleType) and str(file).endswith(".py"):
            for name, value in list(vars(module).items()):
                if value is study:
                    found = _at(study, _importable_as(module, str(file)) or str(file), name)
                    return found if module.__name__ != "__main__" or _is_found_again(found) else Loaded(study)
    return Loaded(study)


def _is_found_again(loaded: Loaded) -> bool:
    """Whether another process finds this study of a script, which may make it under its main guard."""
    place, name = split_reference(str(loaded.reference))
    again = getattr(_module(place), str(name), None)
    names = [each.name for each in loaded.study.measures]
    return isinstance(again, Study) and names == [each.name for each in again.measures]


def split_reference(reference: str) -> tuple[str, str | None]:
    """File or module, and the name in it if one is given."""
    place, colon, name = reference.rpartition(":")
    return (place, name) if colon and not reference.endswith(".py") else (reference, None)


def _loaded(reference: str, what: str = "study") -> Loaded:
    place, name = split_reference(reference)
    name, study = _chosen(_module(place, what), place, name)
    return _at(study, place, name)


def _at(study: Study, place: str, name: str) -> Loaded:
    is_file = place.endswith(".py")
    file = Path(place).resolve() if is_file else Path(str(sys.modules[place].__file__))
    # What was loaded, also if the file has changed since.
    held: Any = linecache.cache.get(str(file), ())
    text = "".join(held[2]) if len(held) == 4 and held[1] is None else file.read_text(encoding="utf-8")
    return Loaded(study, f"{file if is_file else place}:{name}", file, text)


# Modules, and files as modules.


def _module(place: str, what: str = "study") -> ModuleType:
    token = loading.set(place)
    try:
        return _of_file(Path(place)) if place.endswith(".py") else _imported(place, what)
    finally:
        loading.reset(token)


def _imported(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}: expected {name} to be importable, found {_cause(error)}") from None


def _of_file(path: Path) -> ModuleType:
    # Made once for each content: a file that was changed is loaded anew.
    path = path.resolve()
    try:
        os.fsencode(path).decode()  # a run records the path, and the text
        content = path.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "other bytes than UTF-8"
        words = f"expected a readable file with a study, found {found}"
        raise UserError(f"{path}: {words}; check the path and the file") from None
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, parts = folder.parent, [folder.name, *parts]
    # As `python file.py` does: the file may have helpers beside it.
    sys.path[:] = [str(folder), *(place for place in sys.path if place != str(folder))]
    if len(parts) > 1:
        return _imported(".".join(parts), str(path))
    _check_helpers(path, text)
    name = f"hopscope_file_{path.stem}_{hashlib.sha256(str(path).encode() + content).hexdigest()[:12]}"
    # Whoever reads the code's text gets what was loaded, also when the file is changed.
    linecache.cache[str(path)] = (len(content), None, text.splitlines(True), str(path))
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = ModuleType(name)
    module.__file__, module.__package__ = str(path), ""
    try:
        # Not by import: bytecode is known by a file's second and size alone, and may be older.
        exec(compile(content, path, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if type(error) is UserError and str(path) in str(error):
            raise
        found = _cause(error, str(path))
        raise UserError(f"{path}: expected a file that can be loaded, found {found}; mend the file") from None
    return module


def _check_helpers(path: Path, text: str) -> None:
    """Refuse another folder's module under the name of a helper that lies beside the file."""
    for helper in path.parent.glob("*.py"):
        found = getattr(sys.modules.get(helper.stem), "__file__", None)
        asked = rf"^\s*(from|import\b.*)\s{re.escape(helper.stem)}\b"
        other = found is not None and Path(found).resolve() != helper.resolve()
        if other and re.search(asked, text, re.MULTILINE):
            words = f"expected {helper.name} beside it, found {found} imported before under that name"
            raise UserError(f"{path}: {words}; rename one, or begin a new process")


def _chosen(module: ModuleType, place: str, name: str | None) -> tuple[str, Study]:
    """The name of a variable, and the study in it: that of a name, or the one that is meant where none is given."""
    named = _studies(module)
    if name is not None:
        found = getattr(module, name, None)
        if isinstance(found, Study):
            return name, found
        kind, known = "none" if found is None else type(found).__name__, ", ".join(named) or "none"
        raise UserError(f"{place}: expected a study named {name!r}, found {kind}; its studies: {known}")
    if _USUAL not in named and len(named) != 1:
        names = ", ".join(f"{place}:{each}" for each in named)
        remedy = f"choose one of {names}" if named else f"write {_USUAL} = hs.Study(…)"
        words = f"expected one study, or one named {_USUAL!r}, found {len(named) or 'none'}"
        raise UserError(f"{place}: {words}; {remedy}")
    name = _USUAL if _USUAL in named else next(iter(named))
    return name, named[name]


def _studies(module: ModuleType) -> dict[str, Study]:
    """Studies of a module by the names of their variables, each once."""
    found: dict[str, Study] = {}
    for attribute, value in vars(module).items():
        if isinstance(value, Study) and not any(value is other for other in found.values()):
            found[attribute] = value
    return found


def _importable_as(module: ModuleType, file: str) -> str | None:
    # Name under which a fresh process imports this very file; none for a file that is in no package.
    spec = getattr(module, "__spec__", None)
    name = spec.name if spec is not None else module.__name__
    installed = any(part in ("site-packages", "dist-packages") for part in Path(file).parts)
    if name.startswith("hopscope_file_") or ("." not in name and not installed):
        return None
    with suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        return name if found is not None and found.origin == file else None
    return None


def _cause(error: BaseException, file: str = "") -> str:
    line = _line_of(error, file)  # a SyntaxError names its own
    words = str(error) if isinstance(error, HopscopeError) else _in_words(error)
    return words + (f" (line {line})" if line else "")


def _in_words(error: BaseException) -> str:
    return in_words(error) + (", which ends the process" if isinstance(error, SystemExit) else "")


def _place_of_others(error: BaseException) -> str:
    """The last place that an error went through in a file that is not ours, nor of Python or an installed package."""
    known = [*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1])]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_file() and not any(map(file.is_relative_to, known)):
            return f"{file}, line {frame.lineno}"
    return ""


def _line_of(error: BaseException | None, file: str) -> int | None:
    """The last line of a file that an error went through, if it did."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else ()
    return next((frame.lineno for frame in reversed(frames) if frame.filename == file), None)
