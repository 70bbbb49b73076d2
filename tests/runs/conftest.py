import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hopscope.errors
from hopscope.runs.seals import SEALS
from hopscope.runs.store import RunFolder

SOURCE = Path(hopscope.errors.__file__).parent.parent


@pytest.fixture
def unseal():
    """Makes a folder one from before there were seals: its files may be edited by hand."""
    return lambda folder: (folder / SEALS).unlink()


@pytest.fixture
def start_python():
    """Starts Python with `code` and arguments; what still runs after the test is killed."""
    started = []

    def start(code, *arguments, hash_seed="0"):
        environment = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def arrays():
    """Two weights and an optimiser state: members 2, model 3, batch 5, position 7."""
    numbers = np.random.default_rng(11)
    return {
        "weights/key": numbers.normal(size=(2, 3, 5)).astype(np.float32),
        "weights/value": numbers.normal(size=(2, 7)),
        "optimiser/step": np.array([13, 17]),
    }


CONFIG = {"depth": 3, "rate": 0.1, "name": "größe"}
MEMBERS = [
    {"member": 0, "unit": "bbb", "index": 0, "seed": 11, "overrides": {}},
    {"member": 1, "unit": "aaa", "index": 0, "seed": 11, "overrides": {"depth": 5}},
    {"member": 2, "unit": "bbb", "index": 1, "seed": 13, "overrides": {}},
]


@pytest.fixture
def make_run(tmp_path):
    def make(root=tmp_path / "runs", study="permutation", **changes):
        return RunFolder.create(root, study, CONFIG | changes, MEMBERS, "smoke")

    return make


@pytest.fixture
def run(make_run):
    return make_run()


@pytest.fixture
def unit(run):
    return run.unit("bbb").create({"label": "d16"})
