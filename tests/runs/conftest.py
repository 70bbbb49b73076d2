"""A finished run, trained once."""

import contextlib
import importlib.util
import shutil
from pathlib import Path

import pytest

from hopscope.errors import UserError

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("hopscope_tests_tiny", HERE / "tiny.py")
TINY = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(TINY)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run under a root with spaces and beyond ASCII; not to be changed."""
    return TINY.make(tmp_path_factory.mktemp("a") / "läufe von heute ∂")


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it elsewhere."""
    return TINY.RunFolder(
        shutil.copytree(finished.path, tmp_path / "da drüben" / "tiny" / finished.path.name)
    )


@contextlib.contextmanager
def told(words):
    """Expect an error of one line."""
    with pytest.raises(UserError, match=words) as caught:
        yield
    assert "\n" not in str(caught.value) and caught.value.exit_status == 2
