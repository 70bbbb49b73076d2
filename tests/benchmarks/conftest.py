import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

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
