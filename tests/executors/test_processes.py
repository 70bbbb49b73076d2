"""A worker process and what it says: read without waiting, and without a thread."""

import sys
import threading
import time

import pytest

from hopscope.executors import processes
from hopscope.executors.processes import Processes
from hopscope.runs import UnitFolder

SAID = '{"kind": "step", "step": 7}'


@pytest.fixture
def started(monkeypatch, tmp_path):
    """A job whose worker is a few lines of Python, in a process that has no memory for another thread."""

    def start(code):
        def refused(thread):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refused)
        monkeypatch.setattr(processes, "worker_command", lambda unit: [sys.executable, "-c", code])
        return Processes().start(UnitFolder(tmp_path), None)

    return start


def ended(job):
    """Its messages, and its end."""
    found, until = [], time.monotonic() + 60
    while time.monotonic() < until:
        end = job.end()
        found += job.messages()
        if end is not None:
            return found, end
        time.sleep(0.01)
    raise AssertionError("the worker has not ended")


def test_whole_messages_are_heard_and_other_lines_are_not(started):
    job = started(f"import sys; print('hello'); print('{SAID}'); sys.stdout.write('{SAID[:9]}')")
    found, end = ended(job)
    assert found == [{"kind": "step", "step": 7}] and end.status == 0


def test_a_message_in_two_halves_is_one(started):
    job = started(
        f"import sys, time; sys.stdout.write('{SAID[:11]}'); sys.stdout.flush(); time.sleep(0.3); print('{SAID[11:]}')"
    )
    found, _ = ended(job)
    assert found == [{"kind": "step", "step": 7}]


def test_more_than_a_pipe_holds_does_not_stop_a_worker(started):
    lines = 11_003
    job = started(f"import sys\nfor n in range({lines}): print('{SAID}'); print('w' * 23, file=sys.stderr)")
    found, end = ended(job)
    assert len(found) == lines and end.status == 0


def test_the_last_words_of_a_worker_that_fails_are_told(started):
    job = started(
        "import sys; print('first', file=sys.stderr); print('the last\\n', file=sys.stderr); sys.exit(3)"
    )
    _, end = ended(job)
    assert end.status == 3 and "its worker failed (the last)" in end.error


def test_a_worker_that_is_killed_is_no_fault_of_ours(started):
    job = started("import os; os.kill(os.getpid(), 9)")
    _, end = ended(job)
    assert end.status is None and "killed by signal 9" in end.error


def test_a_child_that_keeps_the_pipe_holds_nobody_up(started):
    job = started(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'])"
    )
    began = time.monotonic()
    _, end = ended(job)
    assert end.status == 0 and time.monotonic() - began < 20


def test_a_job_is_closed_while_it_works(started):
    job = started("import time; time.sleep(60)")
    job.close()
    assert job.process.returncode == -9 and job.messages() == []
