"""The processes and finished runs of `tests/executors`, under the same names, and command lines in this process."""

import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hopscope.cli.main import main

_PATH = Path(__file__).parents[1] / "executors" / "conftest.py"
_NAME = "hopscope_tests_executors"
if _NAME not in sys.modules:
    _spec = importlib.util.spec_from_file_location(_NAME, _PATH)
    assert _spec is not None and _spec.loader is not None
    sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_NAME])

home = sys.modules[_NAME].home
processes = sys.modules[_NAME].processes
processes_module = sys.modules[_NAME].processes_module
small_run = sys.modules[_NAME].small_run
whole_run = sys.modules[_NAME].whole_run


@dataclass(frozen=True)
class Said:
    """Status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The only line that a refused command says."""
        assert (self.status, self.out) == (2, "")
        (line,) = self.err.splitlines()
        assert line.startswith("hopscope: ")
        assert "Traceback" not in line
        return line


@pytest.fixture
def hopscope(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a command line in this process."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code or 0
        return Said(status, *capsys.readouterr())

    return run


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training would be a fault: it fails at once."""
    monkeypatch.setattr("hopscope.executors.local._Pool", None)


@pytest.fixture
def whole_copy(whole_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, under the root `runs`."""
    shutil.copytree(whole_run.parents[1], tmp_path / "runs")
    return tmp_path / "runs" / "permutation" / whole_run.name
