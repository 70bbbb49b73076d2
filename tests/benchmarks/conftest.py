import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def benchmarks() -> Path:
    return BENCHMARKS


@pytest.fixture(scope="session")
def load() -> Iterator[Callable[[str], ModuleType]]:
    """Import a script of the folder by name, as a run of the script itself would."""
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(autouse=True)
def _streams_untouched() -> Iterator[None]:
    """The page's loop seeds the global streams, as the page does; other tests must not notice."""
    before = random.getstate(), torch.random.get_rng_state()
    yield
    random.setstate(before[0])
    torch.random.set_rng_state(before[1])


@pytest.fixture(scope="session")
def run_jax(benchmarks: Path) -> Callable[[str, Path, dict[str, Any]], dict[str, np.ndarray]]:
    """Runs a worker of this folder, in a process of its own, on given arrays; skips without JAX."""

    def run(worker: str, folder: Path, given: dict[str, Any]) -> dict[str, np.ndarray]:
        if find_spec("jax") is None:
            pytest.skip("the jax contestant needs `pip install -e .[bench]`")
        np.savez(folder / "in.npz", **given)
        script = Path(__file__).with_name(worker)
        done = subprocess.run(
            [sys.executable, str(script), str(folder / "in.npz"), str(folder / "out.npz")],
            capture_output=True,
            text=True,
            check=False,
            # Values are compared here, not speeds: XLA takes most of a minute to write its fastest code.
            env={
                **os.environ,
                "PYTHONPATH": str(benchmarks),
                "XLA_FLAGS": "--xla_backend_optimization_level=1",
            },
        )
        assert done.returncode == 0, done.stderr
        return dict(np.load(folder / "out.npz"))

    return run
