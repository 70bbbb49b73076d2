"""Command lines in this process."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hopscope.cli.main import main


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


@pytest.fixture(autouse=True)
def no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as where they do not go to a terminal, whatever the terminal of the tests is."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training would be a fault: it fails at once."""
    monkeypatch.setattr("hopscope.executors.local.Pool", None)


@pytest.fixture
def whole_copy(whole_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, under the root `runs`."""
    shutil.copytree(whole_run.parents[1], tmp_path / "runs")
    return tmp_path / "runs" / "permutation" / whole_run.name


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the user's machine has told of costs plays no part."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
