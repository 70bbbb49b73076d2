"""Shapes in signatures are checked at every call, examples are reproducible, one thread computes."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

PACKAGE = "hopscope"


def _annotated() -> list[str]:
    source = Path(importlib.util.find_spec(PACKAGE).origin).parent
    return [
        ".".join((PACKAGE, *path.relative_to(source).with_suffix("").parts))
        for path in sorted(source.rglob("*.py"))
        if "jaxtyping" in path.read_text(encoding="utf-8")
    ]


def _shape_checks():
    name = "hopscope_tests_shape_checks"
    if name not in sys.modules:
        path = Path(__file__).with_name("shape_checks.py")
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


# The hook changes modules while they are imported: it must come first.
_early = sorted(set(_annotated()) & set(sys.modules))
assert not _early, f"expected the hook before the first import, found imported: {_early}"
_shape_checks().install(_annotated())

settings.register_profile(PACKAGE, deadline=None, derandomize=True, database=None)
settings.load_profile(PACKAGE)


def pytest_sessionstart() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shape_checks():
    """The module of the checks that every test runs under."""
    return _shape_checks()


@pytest.fixture(autouse=True)
def _search_path(monkeypatch):
    """A file that is loaded puts its folder first, as `python file.py` does; the next test starts afresh."""
    monkeypatch.setattr(sys, "path", [*sys.path])
