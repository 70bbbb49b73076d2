"""Workers that meet on one unit, and workers far from their command."""

import json
import shutil
import subprocess
import sys

import pytest

from hopscope.executors import worker
from hopscope.executors.processes import environment
from hopscope.executors.remote import installed, worker_arguments
from hopscope.runs import RunFolder


@pytest.fixture
def untrained(unfinished):
    """The unit of a run that is planned, and of which nothing is trained."""
    (unit,) = RunFolder(unfinished).units
    for name in ("checkpoints", "metrics"):
        shutil.rmtree(unit.path / name)
    return unit


@pytest.fixture
def start(untrained):
    """Starts a worker of the unit as a process of its own."""
    started = []

    def run(*arguments):
        command = [sys.executable, "-m", "hopscope.executors.worker", str(untrained.run_path), untrained.hash]
        started.append(
            subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, env=environment())
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.extras)])
def test_workers_on_one_unit_do_no_harm(start, untrained, rerun, processes_module, expected, workers):
    """The unit's lock decides: one trains, and the others find it done; the record is as that of one alone."""
    several = [start("--patience", 400) for _ in range(workers)]
    said = [process.communicate(timeout=480)[0].decode() for process in several]
    assert [process.returncode for process in several] == [0] * workers, said
    trained = [text for text in said if '"kind": "progress"' in text]
    assert len(trained) == 1
    begun = [event for event in untrained.run.events() if event["kind"] == "unit started"]
    assert len(begun) == workers + 1  # the first when the run was made
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert processes_module.record(untrained.run_path) == expected


def test_a_worker_waits_for_a_while_only(start, untrained, processes_module):
    before = processes_module.record(untrained.run_path)
    with untrained.lock():
        process = start("--patience", 0.1)
        (line,) = process.communicate(timeout=240)[0].decode().splitlines()
    assert process.returncode == 2
    assert "another hopscope command is working on this unit" in json.loads(line)["message"]
    assert processes_module.record(untrained.run_path) == before


# Far from the command, as a cluster calls it.


@pytest.fixture
def far(untrained, tmp_path, monkeypatch):
    """Calls a worker as on another machine; returns status and messages."""
    monkeypatch.setattr("hopscope.executors.worker.warnings.showwarning", None)  # put back afterwards

    def run(same_as=None):
        mailbox = tmp_path / "messages"
        arguments = worker_arguments(untrained, 1e6, mailbox)
        if same_as is not None:
            arguments[arguments.index("--same-as") + 1] = json.dumps(same_as)
        status = worker.main(arguments)
        return status, [json.loads(line) for line in mailbox.read_text().splitlines()]

    return run


def test_arguments_are_plain_strings(untrained, tmp_path):
    """Whatever hands them on, as a pickle or otherwise, hands on no data of a run."""
    arguments = worker_arguments(untrained, 7.0, tmp_path / "messages")
    assert {type(each) for each in arguments} == {str}
    assert sum(map(len, arguments)) < 2_000


@pytest.mark.parametrize("name", ["hopscope", "torch", "numpy"])
def test_another_program_is_refused(far, name):
    status, (begun, error) = far(installed() | {name: "0.0"})
    assert (status, begun["kind"], error["kind"]) == (2, "begun", "error")
    assert f"expected {name} as where the command was given (0.0), found" in error["message"]


def test_a_program_that_lacks_something_is_refused(far):
    _, (_, error) = far(installed() | {"numba2": "7"})
    assert "expected numba2 as where the command was given (7), found none" in error["message"]


def test_a_run_that_nobody_leads_is_left_alone(far, untrained, processes_module):
    """Its command has ended, or its lock is not seen from here: two machines might write into one unit."""
    before = processes_module.record(untrained.run_path)
    status, (_, error) = far()
    assert status == 2
    assert "expected the command that started this worker to hold the run's lock" in error["message"]
    assert processes_module.record(untrained.run_path) == before


def test_a_run_that_is_led_is_worked_on(far, untrained, monkeypatch):
    called = []
    monkeypatch.setattr(worker, "run_unit", lambda *arguments: called.append(arguments))
    with untrained.run.lock():
        status, (begun, finished) = far()
    assert (status, begun["unit"], finished) == (0, untrained.hash, {"kind": "finished"})
    ((path, unit, seconds, _, patience),) = called
    assert (path, unit, patience) == (untrained.run_path.resolve(), untrained.hash, 300.0)
    assert 0.9e6 < seconds <= 1e6


def test_a_folder_that_is_not_there(far, untrained):
    shutil.rmtree(untrained.run_path)
    status, (_, error) = far()
    assert status == 2 and "config.json: expected a file, found none" in error["message"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), True),
        (RuntimeError("could not create a primitive"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_a_machine_without_memory_is_told_from_a_fault(monkeypatch, capsys, error, told):
    def starved(*_):
        raise error

    monkeypatch.setattr(worker, "run_unit", starved)
    if not told:
        with pytest.raises(RuntimeError):
            worker.main(["run", "0123"])
        return
    assert worker.main(["run", "0123"]) == 2
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert said["kind"] == "error" and "device's memory" in said["message"] and "0123" in said["message"]


def test_a_call_of_exit_does_not_end_a_worker_as_if_it_had_finished(monkeypatch, capsys):
    monkeypatch.setattr(worker, "run_unit", lambda *_: sys.exit(0))
    assert worker.main(["run", "0123"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "error" and "unit 0123: expected code that runs to its end" in said["message"]
    assert f"{__file__}, line " in said["message"] and "SystemExit: 0" in said["message"]


def test_a_worker_says_that_it_has_finished(monkeypatch, capsys):
    monkeypatch.setattr(worker, "run_unit", lambda *_: None)
    assert worker.main(["run", "0123"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kind": "finished"}
