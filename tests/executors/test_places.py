"""Where units are trained: bad places are refused before anything is written, and the pool serves every place alike."""

import json
import shutil
import socket
import time
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.executors import local, on_ray, on_slurm, pool, processes
from hopscope.executors.places import check_root, opened_place
from hopscope.executors.pool import End, Pool
from hopscope.executors.remote import Exchange, Mailbox
from hopscope.runs import RunFolder
from hopscope.studies import find_study

DEPTH = find_study("depth")


@pytest.fixture
def refused(here, tmp_path):
    """Runs a study that must be refused, in time and with nothing written; returns the line."""

    def run(*arguments, out=tmp_path / "runs"):
        began = time.monotonic()
        ended = here("run", "depth", "--preset", "smoke", "--device", "cpu", "--out", out, *arguments)
        assert time.monotonic() - began < 30
        assert (ended.status, ended.stdout) == (2, "")
        (line,) = ended.stderr.splitlines()
        assert not (tmp_path / "runs").exists()
        return line

    return run


# Bad input.


def installed(monkeypatch, module, *names):
    """Let a module believe that these packages, and no others, are there."""
    monkeypatch.setattr(module, "find_spec", lambda name: name if name in names else None)


def test_missing_packages(refused, monkeypatch):
    installed(monkeypatch, on_ray)
    installed(monkeypatch, on_slurm)
    assert "pip install 'hopscope[ray]'" in refused("--executor", "ray")
    assert "pip install 'hopscope[slurm]'" in refused("--executor", "slurm")


def test_no_slurm_here(refused, monkeypatch, tmp_path):
    installed(monkeypatch, on_slurm, "submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "expected SLURM's command sbatch on this machine, found none" in refused("--executor", "slurm")
    assert "expected one of slurm, local, debug" in refused("--executor", "slurm", "--address", "h:1")


def test_nobody_listens_at_the_address(refused, monkeypatch):
    installed(monkeypatch, on_ray, "ray")
    with socket.socket() as deaf:  # it has the port and does not listen
        deaf.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        line = refused("--executor", "ray", "--address", address)
        assert address in line and "Connection refused" in line
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert address in refused("--executor", "ray")


@pytest.mark.parametrize("address", ["nowhere", "host:", ":6379", "host:port", "ray://host"])
def test_no_address(refused, monkeypatch, address):
    installed(monkeypatch, on_ray, "ray")
    assert f"expected a Ray cluster at {address}, found no HOST:PORT" in refused(
        "--executor", "ray", "--address", address
    )


def test_something_else_listens_at_the_address(refused, monkeypatch):
    """It takes the connection and never answers; Ray, which would wait for two minutes, is ended."""
    installed(monkeypatch, on_ray, "ray")
    monkeypatch.setattr(on_ray, "_HELLO", "import time; time.sleep(99)")
    monkeypatch.setattr(on_ray, "ANSWER_SECONDS", 2.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        line = refused("--executor", "ray", "--address", f"127.0.0.1:{mute.getsockname()[1]}")
    assert "found no answer in 2 s" in line


def test_what_ray_says_last_is_told(monkeypatch):
    monkeypatch.setattr(on_ray, "_HELLO", "import sys; sys.exit('first\\nVersion mismatch: ' + sys.argv[1])")
    assert on_ray._fault_of("a:1") == "Version mismatch: a:1"
    monkeypatch.setattr(on_ray, "_HELLO", "")
    assert on_ray._fault_of("a:1") == ""
    assert on_ray.PORT_SECONDS + on_ray.ANSWER_SECONDS < 30


def test_an_address_needs_a_cluster(refused):
    assert "expected one with --executor ray or slurm" in refused("--address", "host:1")


@pytest.mark.parametrize("executor", ["ray", "slurm"])
@pytest.mark.parametrize("url", ["s3://bucket/runs", "file:///tmp/runs"])
def test_other_machines_need_a_folder(refused, url, executor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("--executor", executor, out=url)
    assert f"expected a folder that all machines share for {executor}, found the URL {url}; mount" in line
    assert list(tmp_path.iterdir()) == []


def test_folders_are_no_urls(tmp_path):
    for path in (tmp_path, Path("runs"), Path("../a:b/c"), Path("C:/runs")):
        check_root(path, "ray")
    check_root(Path("s3://bucket"), "local")


def test_a_notebook_s_study_stays_where_it_is(tmp_path):
    study = hs.Study(name="here", question="", task=None)
    with pytest.raises(UserError, match="found one that was made in a notebook or a function"):
        hs.run(study, out=tmp_path / "runs", executor="ray")
    assert not (tmp_path / "runs").exists()


def test_unknown_executor():
    with pytest.raises(UserError, match="expected one of local, ray, slurm, found 'spark'"):
        opened_place("spark", None, DEPTH).__enter__()


# The pool.


class Job:
    """A worker that has ended as the test says."""

    def __init__(self, unit, end, messages=(), waits=False):
        self.unit, self._end, self._messages, self.waits = unit, end, list(messages), waits
        self.closed = False

    def messages(self):
        said, self._messages = self._messages, []
        return said

    def end(self):
        return self._end

    def close(self):
        self.closed = True


class Scripted:
    """A place whose workers do one thing after another; `before` is called when one starts."""

    poll_seconds = 0.0

    def __init__(self, *ends, retries=0, before=lambda unit: None, here=False):
        self.ends, self.retries, self.before, self.here = list(ends), retries, before, here
        self.started = []

    def start(self, unit, left):
        self.before(unit)
        end = self.ends.pop(0)
        self.started.append(end if isinstance(end, Job) else Job(unit, end))
        return self.started[-1]


LOST = End(None, "it died")


@pytest.fixture
def work(copy):
    """Lets a pool train the one unit of a run at a place; returns what its listener heard."""

    def run(place, deadline=None):
        heard = []
        folder = RunFolder(copy)
        try:
            Pool(folder, folder.units, 3, deadline, lambda unit, message: heard.append(message), place).work()
        except (UserError, TimeBudgetReached) as error:
            return heard, str(error)
        return heard, None

    return run


def test_a_lost_worker_has_successors(work):
    place = Scripted(LOST, LOST, End(0), retries=2)
    heard, error = work(place)
    assert error is None
    assert [message["kind"] for message in heard] == ["warning", "warning", "done"]
    assert heard[0]["message"] == "it died: another worker goes on"


def test_a_worker_that_is_lost_again_and_again_ends_the_run(work):
    heard, error = work(Scripted(LOST, LOST, LOST, retries=2))
    assert error == "it died"
    assert len(heard) == 2


def test_who_got_further_may_be_lost_again(work, copy):
    """Deaths count from the last new checkpoint on: a job of an hour may need many successors."""
    step = iter(range(100, 200))

    def further(unit):
        unit.checkpoint_path(next(step)).touch()

    heard, error = work(Scripted(*[LOST] * 7, End(0), retries=1, before=further))
    assert error is None
    assert len(heard) == 8


@pytest.mark.parametrize("end", [End(2, "unheard"), LOST])
def test_what_a_worker_says_is_not_tried_again(work, copy, end):
    (unit,) = RunFolder(copy).units
    said = [{"kind": "error", "message": "mend this", "status": 2}]
    assert work(Scripted(Job(unit, end, said), retries=3)) == ([], "mend this")


def test_a_worker_that_fails_unheard(work):
    assert work(Scripted(End(1, "unheard"), retries=3)) == ([], "unheard")


# A status of 0 is no proof: whatever calls exit in a worker ends it so.

FINISHED = {"kind": "finished"}


def test_a_worker_here_must_say_that_its_unit_is_finished(work, copy):
    """The unit was done before, and is worked on because something of it was lost."""
    (unit,) = RunFolder(copy).units
    said = [{"kind": "progress", "step": 7}, FINISHED]
    heard, error = work(Scripted(Job(unit, End(0), said), here=True))
    assert error is None and [message["kind"] for message in heard] == ["progress", "done"]
    heard, error = work(Scripted(Job(unit, End(0), said[:1]), here=True))
    assert [message["kind"] for message in heard] == ["progress"]
    assert error.startswith(
        f"unit {unit.hash}: expected its worker to finish, found it ended with status 0 after"
    )
    assert "after step 7; look for a call of exit" in error


@pytest.mark.parametrize(
    ("said", "at"),
    [([], "before its first step"), ([{"kind": "phase", "name": "analysing"}], "while analysing")],
)
def test_it_is_told_how_far_a_worker_came_that_ended_too_early(work, copy, said, at):
    (unit,) = RunFolder(copy).units
    _, error = work(Scripted(Job(unit, End(0), said), here=True))
    assert f"ended with status 0 {at};" in error


def test_a_worker_elsewhere_must_leave_a_unit_that_is_done(work, copy, monkeypatch):
    monkeypatch.setattr(pool, "STORAGE_SECONDS", 0.0)
    (unit,) = RunFolder(copy).units
    (unit.path / "DONE").unlink()
    heard, error = work(Scripted(Job(unit, End(0), [FINISHED])))
    assert heard == [] and "ended with status 0" in error


def test_storage_may_be_late_to_show_what_another_machine_wrote(work, copy, monkeypatch):
    (unit,) = RunFolder(copy).units
    (unit.path / "DONE").unlink()
    monkeypatch.setattr(pool.time, "sleep", lambda seconds: unit.mark_done())
    heard, error = work(Scripted(End(0)))
    assert error is None and [message["kind"] for message in heard] == ["done"]


def test_an_error_counts_whatever_the_status(work, copy):
    (unit,) = RunFolder(copy).units
    said = [{"kind": "error", "message": "mend this", "status": 2}]
    assert work(Scripted(Job(unit, End(0), said))) == ([], "mend this")


def test_jobs_that_wait_are_withdrawn_when_the_time_is_over(work, copy, monkeypatch):
    (unit,) = RunFolder(copy).units
    monkeypatch.setattr(pool, "PATIENCE_SECONDS", 0.0)
    place = Scripted(Job(unit, None, waits=True))
    heard, error = work(place, deadline=time.monotonic())
    assert (heard, place.started[0].closed) == ([], True)
    assert "time budget reached" in error


def test_an_error_of_the_pool_closes_its_jobs(work, copy):
    (unit,) = RunFolder(copy).units
    job = Job(unit, None)
    job.end = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        work(Scripted(job))
    assert job.closed


# Messages in files.


def test_messages_are_read_as_they_are_written(tmp_path):
    mailbox = Mailbox(tmp_path / "messages")
    assert mailbox.messages() == []
    lines = [{"kind": "begun", "unit": "u", "node": "a"}, {"kind": "progress", "step": 3}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    mailbox.path.write_text(text[:-5])
    assert mailbox.messages() == lines[:1]
    assert mailbox.messages() == []
    with mailbox.path.open("a") as file:
        file.write(
            text[-5:] + "no message\n" + json.dumps({"kind": "begun", "unit": "u", "node": "b"}) + "\n"
        )
    progress, again = mailbox.messages()
    assert progress == lines[1]
    assert again == {
        "kind": "warning",
        "message": "unit u: its worker was lost, and another goes on at b",
    }
    assert mailbox.beginnings == 2


def test_the_folder_of_messages_goes_with_the_command(copy):
    unit = RunFolder(copy).units[0]
    first, second = Exchange(), Exchange()
    assert first.folder(unit).parent == second.folder(unit).parent == copy.parents[1] / ".jobs"
    assert first.folder(unit) != second.folder(unit)
    second.keep = True
    first.close()
    second.close()
    assert [path.name for path in (copy.parents[1] / ".jobs").iterdir()] == [second.folder(unit).name]


# Several devices of this machine.


def test_gpus_that_may_be_used(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert processes.visible_gpus() == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,11")
    assert processes.visible_gpus() == ["5", "7", "11"]
    place = processes.Processes()
    assert place.at_a_time([{"device": "cuda", "threads": 7}], None, 2) == 6
    assert processes.Processes().at_a_time([{"device": "cpu", "threads": 2}] * 5, 7, 2) == 3


DEVICES = '''"""devices.py: where was each unit trained?"""
import os

import hopscope as hs

from copying import Copy


@hs.measure(when="end")
def device(context):
    """Number of the device that the worker sees."""
    return {"device": [float(os.environ["CUDA_VISIBLE_DEVICES"])]}


study = hs.Study(
    name="devices", task=Copy(), model=hs.Model(width=8), training=hs.Training(steps=3, batch_size=11),
    seeds=1, held_out=23, vary={"model.layers": [1, 2, 3]}, measures=[device],
)
'''


@pytest.mark.extras
def test_units_are_spread_over_devices(tmp_path):
    """Stand-ins for GPUs: workers compute on the CPU, and note which device they were given."""
    shutil.copy(Path(__file__).parents[2] / "examples" / "copying.py", tmp_path)
    (tmp_path / "devices.py").write_text(DEVICES, encoding="utf-8")
    program = find_study(str(tmp_path / "devices.py"))
    config = program.configured(None, {})
    run = local.prepare(program, config, out=tmp_path / "runs")
    local.complete(run, program, config, processes.Processes(["3", "7"]), device="cpu", threads=1)
    used = hs.open_run(run.path).evidence.last("device").tolist()
    assert set(used) == {3.0, 7.0} and len(used) == 3
