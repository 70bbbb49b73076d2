"""Fixtures of the page's tests: a made-up run folder, and models for the page's forward pass."""

import importlib.util
from pathlib import Path

import pytest


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic():
    """The module that writes made-up runs."""
    return _load(Path(__file__).with_name("synthetic_run.py"))


@pytest.fixture(scope="session")
def forward_cases():
    """Models and sequences for the page's forward pass, with PyTorch's results."""
    return _load(Path(__file__).with_name("forward_cases.py"))


@pytest.fixture
def run_path(tmp_path: Path, synthetic) -> Path:
    """A fresh made-up run folder."""
    return synthetic.write_synthetic_run(tmp_path / "runs")


@pytest.fixture(scope="session")
def circuit_cases():
    """A made-up circuit."""
    return _load(Path(__file__).with_name("circuit_cases.py"))
