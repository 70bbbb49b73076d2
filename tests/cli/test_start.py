"""Nothing heavy is loaded before it is needed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hopscope.errors

SOURCE = Path(hopscope.errors.__file__).parents[1]
LIGHT = {
    "import hopscope": "import hopscope; dir(hopscope)",
    "--help": "from hopscope.cli.main import main; main(['--help'])",
    "studies": "from hopscope.cli.main import main; main(['studies', '--json'])",
    "a wrong option": "from hopscope.cli.main import main; main(['run', 'permutation', '--seeds', '0'])",
}


def python(*arguments):
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": ""}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("what", LIGHT)
def test_without_torch(what):
    done = python("-c", f"{LIGHT[what]}; import sys; sys.exit(int('torch' in sys.modules) + 7)")
    assert done.returncode == 7, done.stderr


@pytest.mark.parametrize("arguments", [["-c", "import hopscope"], ["-m", "hopscope", "--help"]], ids=str)
def test_under_a_second(arguments):
    times = []
    for _ in range(5):
        began = time.monotonic()
        assert python(*arguments).returncode == 0
        times.append(time.monotonic() - began)
    assert min(times) < 1.0


def test_names_of_the_package():
    import hopscope as package

    modules = {"figures", "measures", "tasks", "testing"}
    for name in package.__all__:
        assert name in modules or callable(getattr(package, name))
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = package.absent
