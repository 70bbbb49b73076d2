"""Workers for real: a study in a file, killed, late, at fault, and two commands at once."""

import os
import signal
import site
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from hopscope import api
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.execute.local import ThisMachine, environment, message_of
from hopscope.execute.places import place_of
from hopscope.execute.pool import train_all
from hopscope.execute.worker import work as train_unit
from hopscope.runs import RunFolder
from hopscope.study import jobs, measuring
from hopscope.study.load import Loaded, load
from hopscope.training.train import TimeBudget

STUDY = '''
import os, time
import hopscope as hs

class Copy(hs.Task):
    """Repeat the first token."""

    length: int = 3

    def shape(self):
        return hs.Shape(inputs="tokens", input_size=5, positions=self.length, readout=(2,), output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (self.length,))
        return hs.Batch(inputs=tokens, targets=tokens[..., :1])

@hs.measure
def slow(context):
    {measure}
    return {{"seven": [7.0] * len(context.members)}}

study = hs.Study(
    name="tiny", task=Copy(), model=hs.Model(layers=2, heads=1, width=8), measures=[slow], seeds=2,
    training=hs.Training(steps=60, batch_size=2, checkpoint_every=20), held_out=7, members_per_unit=1,
)
'''


@pytest.fixture
def made(tmp_path):
    """A function that writes the study with some line in its measure, and makes the folder of its run."""

    def make(measure="pass", root="runs"):
        file = tmp_path / root / "study.py"
        file.parent.mkdir()
        file.write_text(STUDY.format(measure=measure), encoding="utf-8")
        loaded = load(str(file))
        planned = jobs.plan(loaded.study)
        record = jobs.record(loaded, planned)
        return RunFolder.named(tmp_path / root, "tiny", record["identity"]).create(record), loaded

    return make


def work(run: RunFolder, loaded: Loaded, cores=2, **how):
    with place_of("local", None, loaded) as place, run.locked():
        train_all(run, loaded, place, cores=cores, **how)


def content(run: RunFolder) -> dict[str, bytes]:
    names = [path for path in run.path.rglob("*.safetensors") if path.is_file()]
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in names}


def test_a_worker_that_is_killed_leaves_no_trace_in_what_comes_out(made, tmp_path):
    whole, loaded = made()
    work(whole, loaded)
    assert all(unit.is_whole for unit in whole.units)

    # The same task and training in another root; one of its measures says its process, and waits until that is killed.
    flag, heard = tmp_path / "killed", []
    run, loaded = made(
        f"with __import__('contextlib').suppress(FileExistsError), open({str(flag)!r}, 'x', buffering=1) as flag:\n"
        f"        print(os.getpid(), file=flag); time.sleep(600)",
        "others",
    )

    def kill(unit, message):
        heard.append(message["kind"])
        if message["kind"] == "phase" and heard.count("phase") == 1:
            end = time.monotonic() + 120
            while not (flag.exists() and flag.read_text().endswith("\n")):
                assert time.monotonic() < end, "no worker has come to its measure"
                time.sleep(0.05)
            os.kill(int(flag.read_text()), signal.SIGKILL)

    with pytest.raises(UserError, match="expected its worker to finish, found it killed by signal 9"):
        work(run, loaded, listen=kill)
    work(run, loaded, listen=lambda unit, message: heard.append(message["kind"]))
    assert "done" in heard and all(unit.is_whole for unit in run.units)
    trained = {name: data for name, data in content(run).items() if "/checkpoints/" in name}
    assert trained and trained == {name: data for name, data in content(whole).items() if name in trained}
    work(run, loaded, listen=lambda unit, message: heard.append(message["kind"]))
    assert heard[-2:] == ["found", "found"]


def test_a_worker_imports_what_lies_beside_the_study_and_not_what_lies_here(made, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here/beside_the_study.py").write_text("NUMBER = 1\n")
    monkeypatch.chdir(tmp_path / "here")
    number = "[beside_the_study.NUMBER] * len(context.members)"
    run, loaded = made(f"import beside_the_study; return {{'seven': {number}}}")
    (tmp_path / "runs/beside_the_study.py").write_text("NUMBER = 7\n")
    work(run, loaded)
    assert {row["value"][0] for row in measuring.rows_of_run(run, loaded.study, "slow")} == {7}


def test_a_place_below_python_s_own_is_passed_on_to_workers(monkeypatch, tmp_path):
    (shared := tmp_path / "site-packages").mkdir()  # as of a module system
    monkeypatch.syspath_prepend(str(shared))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path.parent))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    known = environment()["PYTHONPATH"].split(os.pathsep)
    assert {str(tmp_path), str(shared)} <= {*known} and known[1] == str(Path.cwd())
    assert not {*known} & {*site.getsitepackages()}


def test_a_rule_that_came_after_a_unit_was_trained_elsewhere_is_not_registered(made):
    first, loaded = made()
    work(first, loaded)
    own, was = first.config["identity"], {"C1": "old", "C2": "b"}
    root = first.path.parents[1] / "apart"

    def begun(rules, identity):
        config = {**first.config, "registration": rules, "identity": identity}
        return RunFolder.named(root, "tiny", identity).create(config)

    trained = begun(was, own)
    work(trained, loaded)
    longer, other = (
        {**own, "grid": [{**each, "seeds": [0, 1, 2]} for each in own["grid"]]},
        {**own, "options": {"a": 1}},
    )
    for identity, rules in (
        (longer, was),
        (other, {**was, "C1": "new"}),
    ):  # rules of other options are other rules
        later = begun({**was, "C1": "new"}, identity)
        assert later.registration == {**was, "C1": "new"}
        later.take_over()
        assert later.registration == rules
        assert later.units[0].made_by == trained.units[0].made_by != {}


def test_a_trained_unit_is_measured_where_it_could_not_be_trained(made, monkeypatch):
    run, loaded = made()
    work(run, loaded)
    monkeypatch.setattr(
        "hopscope.training.train.train", MagicMock(side_effect=AssertionError("no such device"))
    )
    unit = run.units[0]
    for file in unit.path.glob("measures/*"):
        file.unlink()
    train_unit(unit, loaded, TimeBudget(), lambda message: None)
    assert unit.is_whole and measuring.is_measured(unit, loaded.study)


def test_a_process_trains_one_unit_after_another_as_two_processes_do(made):
    trained, processes = [], []
    for root, cores in (("apart", 2), ("together", 1)):
        (run, loaded), heard = made("assert not __import__('sys').stdin.read()", root), []
        work(run, loaded, cores, listen=lambda unit, message, heard=heard: heard.append(message))
        trained.append(content(run))
        processes.append({each["process"] for each in heard if each["kind"] == "begun"})
    assert [len(each) for each in processes] == [2, 1] and trained[0] == trained[1]
    with pytest.raises(ProcessLookupError):  # it has ended with the run
        os.kill(processes[1].pop(), 0)


def test_a_unit_that_fails_is_named_though_its_process_finished_another(made):
    run, loaded = made("assert 0 in context.members, 'the second'")
    heard = []
    with pytest.raises(UserError, match="the second"):
        work(run, loaded, 1, listen=lambda unit, message: heard.append((unit.name, message["kind"])))
    first, second = (unit.name for unit in run.units)
    assert (first, "done") in heard and (second, "begun") in heard and (second, "done") not in heard


def test_a_process_that_dies_without_work_is_replaced(made, monkeypatch):
    run, loaded = made()
    started = []

    def start(self, unit, until, start=ThisMachine.start):
        if started:
            os.kill(started[0].process.pid, signal.SIGKILL)
            started[0].process.wait()
        started.append(start(self, unit, until))
        return started[-1]

    monkeypatch.setattr(ThisMachine, "start", start)
    work(run, loaded, 1)
    assert all(unit.is_whole for unit in run.units) and started[0] is not started[1]


def test_the_time_budget_ends_it_and_it_goes_on(made):
    run, loaded = made("time.sleep(0.2)")
    with pytest.raises(TimeBudgetReached):
        work(run, loaded, seconds=0.01)
    work(run, loaded)
    assert all(unit.is_whole for unit in run.units)


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("os._exit(0)", "ended with status 0 before; look for a call of exit"),
        ("raise SystemExit(3)", "which ends the process"),
        ("return {'seven': [1 / 0]}", "measure slow: expected numbers, found ZeroDivisionError"),
        ('print(\'{"kind": "finished"}\'); os._exit(5)', "its worker failed ("),
    ],
)
def test_code_that_fails_is_told_in_one_line(made, measure, words):
    run, loaded = made(measure)
    with pytest.raises(UserError) as caught:
        work(run, loaded)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_worker_ends_with_its_parent(made, tmp_path):
    flag = tmp_path / "there"
    run, _ = made(f"open({str(flag)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    code = (
        "import sys\nfrom pathlib import Path\nfrom hopscope.execute.local import ThisMachine\n"
        "from hopscope.runs import RunFolder\nimport time\n"
        "worker = ThisMachine(); worker.at_once([], 1); run = RunFolder(Path(sys.argv[1]))\n"
        "there = worker.start(run.units[0], None)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run.path)]) as parent:
        for _ in range(600):
            if flag.exists() and flag.read_text(encoding="utf-8"):
                break
            time.sleep(0.1)
        parent.kill()
    process = int(flag.read_text(encoding="utf-8"))
    for _ in range(100):
        if (
            not Path(f"/proc/{process}").exists()
            or "Z" in Path(f"/proc/{process}/stat").read_text().split()[2]
        ):
            return
        time.sleep(0.1)
    raise AssertionError("the worker goes on")


def test_two_commands_never_work_on_one_run(made):
    run, loaded = made()
    code = (
        "import sys\nfrom pathlib import Path\nfrom hopscope.runs import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).locked():\n    print(flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match="run"):
            api.run(str(loaded.file), out=run.path.parents[1])
        other.stdin.close()


def test_what_is_no_message_is_none():
    assert message_of(b'{"kind": "done"}') == {"kind": "done"}
    assert [message_of(line) for line in (b"", b'{"kind', b"7", b'{"step": 1}', b"words")] == [None] * 5


@pytest.mark.parametrize(
    ("executor", "address", "words"),
    [
        ("grid", None, "executor: expected one of local, ray, slurm, found 'grid'"),
        ("local", "here:1", "address: expected one with --executor ray or slurm"),
        ("slurm", "there", "address: expected one of slurm, local, debug"),
    ],
)
def test_a_place_that_is_not_there_is_refused(made, executor, address, words):
    _, loaded = made()
    with pytest.raises(UserError, match=words), place_of(executor, address, loaded):
        pass


def test_slurm_jobs_call_the_same_worker(made):
    pytest.importorskip("submitit")
    run, loaded = made()
    with place_of("slurm", "local", loaded) as place, run.locked():
        train_all(run, loaded, place)
    assert all(unit.is_whole for unit in run.units)
    assert not (run.path.parents[1] / ".jobs").exists()


def test_a_job_that_failed_ends_the_run_and_one_that_ran_out_of_time_is_followed_by_another(made):
    pytest.importorskip("submitit")
    from submitit.core.utils import FailedJobError, UncompletedJobError

    from hopscope.execute.slurm import SlurmJobs

    (run, _), place, followed = made(), SlurmJobs("study.py", "debug"), []

    def ended(error):
        job = MagicMock(job_id=7, state="TIMEOUT")
        job.result.side_effect = error
        own = {"job": job, "unit": run.units[0], "deaths": 0, "furthest": -1, "ended": None}
        return place.end_of(SimpleNamespace(**own, submit=lambda: followed.append(error)))

    assert "No module named 'lab'" in ended(FailedJobError("ImportError: No module named 'lab'")).words
    assert not followed
    for error in (
        UncompletedJobError("lost"),
        FailedJobError("submitit.core.utils.UncompletedJobError: timed out"),
    ):
        assert ended(error) is None and followed[-1] is error
