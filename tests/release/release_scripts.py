"""The scripts of `release/`, which are no package, as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """A script by its name, made into a module."""
    spec = importlib.util.spec_from_file_location(f"hopscope_{name}", ROOT / "release" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
