"""The campaign's modules, which are no package."""

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


@pytest.fixture(scope="session")
def packing() -> ModuleType:
    """`campaigns/packing.py`."""
    return load(ROOT / "campaigns" / "packing.py", "packing")


@pytest.fixture(scope="session")
def campaign() -> ModuleType:
    """`campaigns/run.py`."""
    return load(ROOT / "campaigns" / "run.py", "hopscope_campaign")


@pytest.fixture(scope="session")
def background() -> ModuleType:
    """`campaigns/background.py`."""
    return load(ROOT / "campaigns" / "background.py", "background")


@pytest.fixture(scope="session")
def lent(background: ModuleType, packing: ModuleType) -> ModuleType:
    """`campaigns/lent.py`, which imports the other two by their names."""
    return load(ROOT / "campaigns" / "lent.py", "lent")
