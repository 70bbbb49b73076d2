"""Fixtures of the executor's tests; `tests/cli` and `tests/studies` take them from here."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


def load(path: Path) -> ModuleType:
    """A module of the tests by its path; once, so that all folders see the same classes."""
    name = f"hopscope_tests_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


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
