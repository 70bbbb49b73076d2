"""What every test shares: checked shapes, one thread, reproducible examples."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

CHECKED_ROOMS = ("rng", "tasks", "models", "training", "probes")
"""Rooms whose annotations are checked at every call, so that the shapes in their signatures are tested facts."""


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
install_import_hook(_checked, "beartype.beartype")

settings.register_profile("hopscope", deadline=None, derandomize=True, database=None)
settings.load_profile("hopscope")


def pytest_sessionstart() -> None:
    """Products of these sizes gain nothing from more threads, and tests of several processes lose."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _subnormals_are_kept():
    """Training flushes subnormal numbers on its threads; what comes after in the same process needs them."""
    yield
    torch.set_flush_denormal(False)
