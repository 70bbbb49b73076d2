import time

import pytest

from hopscope.errors import UserError
from hopscope.runs.locks import folder_lock

HOLDING = """
import sys
from pathlib import Path
from hopscope.runs.locks import folder_lock
with folder_lock(Path(sys.argv[1]), "run", 3.0):
    print("held", flush=True)
    sys.stdin.readline()
print("let go", flush=True)
"""


@pytest.fixture
def holder(start_python, tmp_path):
    process = start_python(HOLDING, tmp_path)
    assert process.stdout.readline() == "held\n"
    return process


def take(folder, patience):
    with folder_lock(folder, "run", patience):
        return True


def test_a_second_process_is_refused_after_its_patience(holder, tmp_path):
    start = time.monotonic()
    with pytest.raises(
        UserError, match="another hopscope command is working on this run: wait or stop it"
    ) as caught:
        take(tmp_path, 0.3)
    assert 0.3 <= time.monotonic() - start < 30
    assert str(tmp_path) in str(caught.value)


def test_the_lock_is_free_once_the_other_is_done(holder, tmp_path):
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert take(tmp_path, 30)


def test_the_lock_dies_with_its_process(holder, tmp_path):
    holder.kill()
    assert take(tmp_path, 30)


def test_the_lock_is_let_go_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), folder_lock(tmp_path, "run", 0):
        raise ZeroDivisionError
    assert take(tmp_path, 0)


def test_the_folder_is_made(tmp_path):
    assert take(tmp_path / "a" / "b", 0)
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        take(tmp_path / "file", 0)
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*lock"):
        take(tmp_path, 0)
