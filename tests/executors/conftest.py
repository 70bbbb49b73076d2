"""Commands that run in this process: only their workers are processes of their own."""

import shutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from hopscope.cli.main import main


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], processes_module: ModuleType) -> Callable[..., Any]:
    """Runs a command line in this process, where it is to be seen what it does and not how it starts or ends."""

    def run(*arguments: object) -> Any:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return processes_module.Ended(status, captured.out, captured.err)

    return run


@pytest.fixture
def expected(small_run, processes_module):
    return processes_module.record(small_run)


@pytest.fixture
def copy(small_run, tmp_path):
    """A finished run that a test may damage."""
    shutil.copytree(small_run.parents[1], tmp_path / "runs")
    return tmp_path / "runs" / "permutation" / small_run.name


@pytest.fixture
def unfinished(copy):
    """The same, as if it had been killed after its last checkpoint."""
    (copy / "DONE").unlink()
    (copy / "claims.json").unlink()
    for unit in (copy / "units").iterdir():
        (unit / "DONE").unlink()
        shutil.rmtree(unit / "analysis")
    return copy


@pytest.fixture
def rerun(here, processes_module, tmp_path):
    """Gives the same command once more."""
    return lambda: here("run", *processes_module.SMALL, "--out", tmp_path / "runs")


@pytest.fixture
def refusal(rerun, monkeypatch):
    """Gives the same command, which must be refused before any training; returns the line."""

    def give():
        with monkeypatch.context() as untrained:
            untrained.setattr("hopscope.executors.local.Pool", None)
            ended = rerun()
        assert (ended.status, ended.stdout) == (2, "")
        (line,) = ended.stderr.splitlines()
        assert line.startswith("hopscope: ")
        return line

    return give
