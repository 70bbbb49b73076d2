"""Nothing is lost: a run that is struck anywhere is told in one line, goes on, and ends with the same bytes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMAND = "import sys; from hopscope.cli import main; sys.exit(main())"


def struck(root, stride, seed):
    command = [sys.executable, HERE / "faults.py", root, str(stride), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differs"] == [], found
    assert found["operations"] > 200 and found["files"] > 30, "of a whole run: training, measures, page, copy"
    return found["tried"]


@pytest.mark.long
def test_a_run_that_was_struck_ends_with_the_same_bytes(tmp_path):
    tried = struck(tmp_path, 100, 7)
    assert min(tried.values()) >= 2 and {*tried} == {"killed", "refused", "moment"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_was_struck_anywhere_ends_with_the_same_bytes(tmp_path, seed):
    assert sum(struck(tmp_path, 10, seed).values()) > 45


def command(out):
    """Of the same study, from its file, by worker processes."""
    words = [sys.executable, "-c", COMMAND, "run", str(HERE / "tiny.py"), "--out", str(out)]
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def content(out):
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.soak
def test_a_command_and_its_workers_may_be_killed_at_any_moment(tmp_path):
    """With all its processes, as where the power fails, or alone: its workers end with it."""
    choose, began = random.Random(5), time.monotonic()
    with command(tmp_path / "whole") as whole:
        assert whole.wait() == 0
    long, expected = time.monotonic() - began, content(tmp_path / "whole")
    for number in range(12):
        out = tmp_path / f"{number}"
        with command(out) as struck:
            time.sleep(choose.uniform(0, long))
            (os.killpg if number % 2 else os.kill)(struck.pid, signal.SIGKILL)
        with command(out) as again:
            _, said = again.communicate()
        assert again.returncode == 0, said
        assert content(out) == expected
