"""What every test shares: checked shapes, one thread, reproducible examples, processes and finished runs."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import settings

CHECKED_ROOMS = (
    "rng",
    "tasks",
    "models",
    "training",
    "probes",
    "circuits",
    "finders",
    "studies",
    "zoo",
    "language",
)
"""Rooms whose annotations are checked at every call, so that the shapes in their signatures are tested facts."""


def load(path: Path) -> ModuleType:
    """A module by its path; once, so that all folders see the same classes."""
    name = f"hopscope_tests_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _annotated_modules() -> list[str]:
    """Modules of the checked rooms that annotate shapes; beartype cannot read `Self` in those that do not."""
    (source,) = find_spec("hopscope").submodule_search_locations
    paths = {path.relative_to(source).with_suffix(""): path for path in sorted(Path(source).rglob("*.py"))}
    return [
        ".".join(("hopscope", *module.parts))
        for module, path in paths.items()
        if module.parts[0] in CHECKED_ROOMS and "jaxtyping" in path.read_text(encoding="utf-8")
    ]


# The hook changes modules while they are imported: it must come before the first import of any of them.
_checked = _annotated_modules()
_early = sorted(set(_checked) & set(sys.modules))
assert _checked and not _early, f"expected the hook before the first import, found imported: {_early}"
_shape_checks = load(Path(__file__).with_name("shape_checks.py"))
_shape_checks.install(_checked)

# Before workers of pytest-xdist and commands under test begin: NumPy's threads wait spinning, and two processes of two
# threads on two cores make small fits four times slower (6.5 instead of 1.4 s for a claim of tests/studies/formation).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No file of a test needs to survive a power cut, and waiting for the disk is a twentieth of the time of tests that
# write runs.  What is flushed, and when, is tested by the calls themselves; processes of their own flush for real.
os.fsync = lambda descriptor: None

settings.register_profile("hopscope", deadline=None, derandomize=True, database=None)
settings.load_profile("hopscope")


def pytest_sessionstart() -> None:
    """Products of these sizes gain nothing from more threads, and tests of several processes lose."""
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests begin first: what is left in the end can be shared between workers."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def _subnormals_are_kept():
    """Training flushes subnormal numbers on its threads; what comes after in the same process needs them."""
    yield
    torch.set_flush_denormal(False)


class _Here:
    """Takes the place of the pool of workers: trains in this process, and hands on warnings as workers do."""

    def __init__(self, run: Any, pending: Any, size: Any, deadline: Any, listen: Any, place: Any):
        self.run, self.pending, self.deadline, self.listen = run, pending, deadline, listen

    def work(self) -> None:
        from hopscope.executors import local
        from hopscope.studies.record import program_of

        program = program_of(self.run)
        for unit in self.pending:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.showwarning = lambda message, *_, unit=unit, **__: self.listen(
                    unit, {"kind": "warning", "message": str(message)}
                )
                local._work_here(program, [unit], self.deadline, self.listen)


@pytest.fixture(scope="session")
def training_here() -> Callable[[], AbstractContextManager[None]]:
    """Within it, runs train their units in the test's process, as those of a notebook do.

    A worker of its own takes two to three seconds for each unit before it begins, to load torch and compiled loops.
    """

    @contextmanager
    def here() -> Iterator[None]:
        from hopscope.executors import local

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "Pool", _Here)
            yield

    return here


@pytest.fixture
def units_here(training_here: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """`training_here` for one test."""
    with training_here():
        yield


@pytest.fixture(scope="session")
def docs_tables() -> ModuleType:
    """What `docs/tables.py` defines, imported with the modules beside it as a run of the script does."""
    docs = Path(__file__).parents[1] / "docs"
    sys.path.insert(0, str(docs))
    try:
        return load(docs / "tables.py")
    finally:
        sys.path.remove(str(docs))


@pytest.fixture(scope="session")
def shape_checks() -> ModuleType:
    """What `shape_checks.py` defines."""
    return _shape_checks


@pytest.fixture(scope="session")
def processes_module() -> ModuleType:
    """What `processes.py` defines."""
    return load(Path(__file__).with_name("processes.py"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all parallel parts of a test session share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes"


@pytest.fixture(scope="session")
def processes(processes_module: ModuleType, home: Path) -> Iterator[object]:
    """Starts and ends Hopscope."""
    made = processes_module.Processes.make(home)
    yield made
    made.close()


@pytest.fixture(scope="session")
def small_run(processes, processes_module) -> Path:
    """A finished run of `SMALL`, undisturbed."""
    return processes.shared_run("small", processes_module.SMALL)


@pytest.fixture(scope="session")
def whole_run(processes, processes_module) -> Path:
    """A finished run of `WHOLE`."""
    return processes.shared_run("whole", processes_module.WHOLE)


@pytest.fixture(scope="session")
def depth_run(processes, processes_module) -> Path:
    """A finished run of `DEPTH`."""
    return processes.shared_run("depth", processes_module.DEPTH)


@pytest.fixture(scope="session")
def emergence_run(processes, processes_module) -> Path:
    """A finished run of `EMERGENCE`, whose members have learned."""
    return processes.shared_run("emergence", processes_module.EMERGENCE)


@pytest.fixture(scope="session")
def faulty_module() -> ModuleType:
    """What `runs/faulty_storage.py` defines."""
    return load(Path(__file__).parent / "runs" / "faulty_storage.py")


@pytest.fixture
def faulty(faulty_module: ModuleType) -> Iterator[Callable[..., None]]:
    """Says what hears each operation of a storage at `faulty://`; without anything, it works."""

    def strike(hear: Callable[..., None] | None) -> None:
        faulty_module.Faulty.strike = staticmethod(hear or (lambda *_: None))

    strike(None)
    yield strike
    strike(None)
