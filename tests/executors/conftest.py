"""Commands that run in this process: only their workers are processes of their own."""

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
