"""The campaign's modules, which are no package, and the processes and runs of `tests/executors`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path, name: str) -> ModuleType:
    """A module by its path, once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


_shared = load(ROOT / "tests" / "executors" / "conftest.py", "hopscope_tests_executors")
home = _shared.home
processes = _shared.processes
processes_module = _shared.processes_module
small_run = _shared.small_run


@pytest.fixture(scope="session")
def packing() -> ModuleType:
    """`campaigns/packing.py`."""
    return load(ROOT / "campaigns" / "packing.py", "packing")


@pytest.fixture(scope="session")
def campaign() -> ModuleType:
    """`campaigns/run.py`."""
    return load(ROOT / "campaigns" / "run.py", "hopscope_campaign")
