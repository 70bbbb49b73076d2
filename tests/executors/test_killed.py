"""SIGKILL at any point, then the same command: the finished record equals that of an undisturbed run."""

import os
import random
import signal
import time

import pytest

pytestmark = pytest.mark.extras


@pytest.fixture
def expected(small_run, processes_module):
    return processes_module.record(small_run)


@pytest.fixture
def command(tmp_path, processes_module):
    return ["run", *processes_module.SMALL, "--out", tmp_path / "runs"]


@pytest.fixture
def finished(here, processes_module, command, small_run, tmp_path):
    """Runs the command once more, undisturbed, and returns the record that is there then."""

    def finish(run=here):
        ended = run(*command)
        assert ended.status == 0, ended.stderr
        assert ended.last_line == str(tmp_path / "runs" / "permutation" / small_run.name)
        return processes_module.record(tmp_path / "runs" / "permutation" / small_run.name)

    return finish


def wait_for(condition, limit=60.0):
    """Waits until something that another process does is so."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"expected it within {limit} s"
        time.sleep(0.01)


def is_running(process_id):
    try:
        with open(f"/proc/{process_id}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(process_id):
    with open(f"/proc/{process_id}/task/{process_id}/children") as file:  # noqa: PTH123
        return [int(child) for child in file.read().split()]


def test_the_record_does_not_depend_on_the_clock_or_the_folder(processes, finished, expected):
    assert finished(processes.run) == expected
    assert {"DONE", "claims.json", "report.html", "story.json", "metrics.parquet"} <= expected.keys()


WHILE_TRAINING = [
    ("*/unit.json", 1, "torn"),
    ("*/metrics/part-000000000-*", 1, "torn"),
    ("*/metrics/part-000000002-*", 1, "after"),
    ("*/step-000000004.safetensors", 1, "after"),
    ("*/step-000000001.safetensors", 1, "before"),  # stripping that was left to do
    ("*/step-000000008.safetensors", 1, "after"),
    ("*/probes-*.json", 1, "torn"),
    ("*/patterns-*.npz", 1, "after"),
    ("*/units/*/DONE", 1, "before"),
]
WHILE_CONCLUDING = [
    ("*/metrics.parquet", 1, "torn"),
    ("*/claims.json", 1, "torn"),
    ("*/figures/*.vl.json", 3, "after"),
    ("*/story.json", 1, "torn"),
    ("*/figures/*.svg", 2, "torn"),
    ("*/report.html", 1, "torn"),
    ("*/permutation/*[0-9a-f]/DONE", 1, "before"),
]


SOME = [slice(None, None, 6), pytest.param(slice(None), marks=pytest.mark.soak)]
"""Every sixth moment, and all of them."""


def kill_again_and_again(processes, processes_module, command, moments):
    for pattern, count, moment in moments:
        kill = processes_module.Kill(pattern, count, moment, "group")
        ended = processes.run(*command, kill=kill)
        assert ended.status == -signal.SIGKILL, (kill, ended.stderr)
        assert ended.stdout == ""


@pytest.mark.parametrize("which", SOME, ids=["every sixth moment", "every moment"])
def test_killed_while_training(processes, processes_module, command, finished, expected, which):
    """One kill after the other, each a little later than the one before; every one of them must strike."""
    kill_again_and_again(processes, processes_module, command, WHILE_TRAINING[which])
    assert finished() == expected


@pytest.mark.parametrize("which", SOME, ids=["every sixth moment", "every moment"])
def test_killed_while_concluding(processes, processes_module, command, finished, expected, which):
    kill_again_and_again(processes, processes_module, command, WHILE_CONCLUDING[which])
    assert finished() == expected


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["before", "torn", "after"])
@pytest.mark.parametrize("pattern", sorted({pattern for pattern, *_ in WHILE_TRAINING + WHILE_CONCLUDING}))
def test_killed_once_at_every_kind_of_write(
    processes, processes_module, command, finished, expected, pattern, moment
):
    kill_again_and_again(processes, processes_module, command, [(pattern, 1, moment)])
    assert finished() == expected


def test_killed_worker(processes, processes_module, command, finished, expected):
    """The command survives its worker, says so in one line, and the same command goes on."""
    kill = processes_module.Kill("*/step-000000004.safetensors", 1, "torn", "self")
    ended = processes.run(*command, kill=kill)
    assert ended.status == 2
    assert ended.stdout == ""
    assert "killed by signal 9" in ended.complaint
    assert "the same command goes on" in ended.complaint
    assert finished() == expected


def kill_at_random(processes, command, source, times):
    for _ in range(times):
        process = processes.start(*command)
        time.sleep(source.uniform(0.5, 6.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        processes.end(process)


def test_killed_at_random_times(processes, command, finished, expected):
    kill_at_random(processes, command, random.Random(7), times=2)
    assert finished() == expected


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(11, 31))
def test_killed_at_many_random_times(processes, command, finished, expected, seed):
    kill_at_random(processes, command, random.Random(seed), times=5)
    assert finished() == expected


# After step 512 the workers say nothing until step 1,024: a broken pipe does not end them before.
SILENT = ["--samples-per-epoch", 640_000, "--evaluate-every", 100_000, "--checkpoint-every", 100_000]


def test_no_worker_survives_the_command(processes, processes_module, tmp_path):
    process = processes.start("run", *processes_module.SMALL, *SILENT, "--out", tmp_path)
    wait_for(lambda: any(tmp_path.rglob("step-000000512.safetensors")))
    (worker,) = children(process.pid)
    assert is_running(worker)
    process.kill()  # it alone, not its group
    processes.end(process)
    wait_for(lambda: not is_running(worker), limit=1.0)  # 512 steps take longer
    assert not any(tmp_path.rglob("*-000001024.*"))


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(processes, command, finished, expected, tmp_path, asked):
    """As Ctrl-C and `timeout` do: the whole group hears it, workers too."""
    process = processes.start(*command)
    wait_for(lambda: any(tmp_path.rglob("step-000000001.safetensors")))
    workers = children(process.pid)
    os.killpg(process.pid, asked)
    ended = processes.end(process)
    assert ended.status == 128 + asked
    assert ended.stdout == ""
    assert "interrupted" in ended.complaint
    assert "the same command goes on" in ended.complaint
    wait_for(lambda: not any(map(is_running, workers)), limit=5.0)
    assert finished() == expected


@pytest.mark.parametrize("calls", [3, pytest.param(12, marks=pytest.mark.soak)])
def test_time_budget(here, command, finished, expected, tmp_path, calls):
    """However small it is, calls add up to a finished run; the last of a few has as long as it likes."""
    statuses, sizes = [], []
    for number in range(calls + 1):
        ended = here(*command, "--time-budget", 0.01 if number < calls else 1e6)
        statuses.append(ended.status)
        sizes.append(len([path for path in tmp_path.rglob("*") if path.is_file()]))
        if ended.status == 0:
            break
        assert "time budget reached" in ended.complaint
        assert ended.stdout == ""
    assert statuses == [75] * (len(statuses) - 1) + [0]
    assert len(statuses) >= 4, "it takes several calls"
    assert sizes == sorted(set(sizes)), "expected each call to leave more than the one before"
    assert finished() == expected
