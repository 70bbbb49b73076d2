"""`hopscope run STUDY --out URL`: the same results as in a folder, on any machine, whatever the storage does."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"
COMMAND = ("run", TESTS / "faults" / "tiny.py", "--device", "cpu", "--threads", "1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, processes, processes_module):
    """The record of a run in a folder."""
    out = tmp_path_factory.mktemp("local")
    ended = processes.run(*COMMAND, "--out", out)
    assert ended.status == 0, ended.stderr
    return processes_module.record(Path(ended.last_line))


@pytest.fixture
def on(here, monkeypatch, tmp_path, faulty):
    """Gives the command on a machine of that name; returns how it ended."""

    def run(machine, *more, url=None):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        return here(*COMMAND, "--out", url or f"faulty://{tmp_path}/store", *more)

    return run


@pytest.fixture
def there(processes_module, tmp_path):
    """The record of what lies at the URL."""

    def record():
        (run,) = (tmp_path / "store" / "tiny").iterdir()
        found = processes_module.record(run)
        return {name: digest for name, digest in found.items() if not name.startswith(".copy/")}

    return record


@pytest.mark.extras
def test_a_url_gives_what_a_folder_gives(on, there, undisturbed, here, tmp_path):
    url = f"file://{tmp_path}/store"
    ended = on("one", url=url)
    assert ended.status == 0, ended.stderr
    assert ended.last_line.startswith(str(tmp_path / "one"))
    assert f"a copy is kept at {url}/tiny/" in ended.stderr
    assert there() == undisturbed
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "two")
    claims = here("claims", url, "--json")
    assert (claims.status, len(json.loads(claims.stdout))) == (0, 1)
    (page,) = here("report", url).stdout.split()
    assert Path(page).is_relative_to(tmp_path / "two")


@pytest.mark.extras
def test_a_run_goes_on_where_another_machine_left_it(on, there, undisturbed):
    """Each time on a machine that has never seen it, and each time a little further."""
    for machine in map(str, itertools.count()):
        ended = on(machine, "--time-budget", "0.001") if int(machine) < 2 else on(machine)
        assert ended.status in (0, 75), ended.stderr
        if ended.status == 0:
            break
    assert int(machine) == 2
    assert there() == undisturbed


@pytest.mark.extras
def test_a_storage_that_dies_while_a_run_trains(on, there, undisturbed, faulty, tmp_path):
    left = itertools.count(60, -1)

    def dies(operation, *arguments):
        if next(left) < 0:
            raise OSError("it is gone")

    faulty(dies)
    ended = on("one")
    assert (ended.status, ended.stdout) == (2, "")
    assert "it is gone" in ended.complaint and "the same command goes on and copies it" in ended.complaint
    assert ended.stderr.count("hopscope: warning") == 1
    faulty(None)
    ended = on("one")
    assert ended.status == 0
    assert "trained" not in ended.stderr
    assert there() == undisturbed


@pytest.mark.extras
def test_a_command_that_is_asked_to_end_brings_the_copy_up_to_date(
    on, there, processes_module, monkeypatch, tmp_path
):
    def hear(bars, unit, message):
        if message["kind"] == "phase":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("hopscope.cli.progress.Bars.hear", hear)
    ended = on("one")
    assert (ended.status, ended.stdout) == (143, "")
    assert ended.complaint == "hopscope: interrupted; what is done is kept, the same command goes on"
    (run,) = (tmp_path / "one").glob("hopscope/copies/*/tiny/*")
    assert any(run.glob("units/*/checkpoints/*"))
    written = {name: digest for name, digest in processes_module.record(run).items() if ".tmp" not in name}
    assert there() == written


def test_nothing_to_write_to(on, tmp_path, faulty):
    def refuses(*_):
        raise PermissionError("not yours")

    faulty(refuses)
    ended = on("one")
    assert (ended.status, ended.stdout) == (2, "")
    assert ended.complaint.startswith(f"hopscope: faulty://{tmp_path}/store/tiny/".replace("///", "//"))
    assert not list((tmp_path / "one").rglob("config.json"))


KILLED = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("faulty", sys.argv[1])
faulty = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faulty)
faulty.Faulty.strike = staticmethod(faulty.killed_at(int(sys.argv[2])))
from hopscope.cli.main import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.extras
def test_killed_while_copying(on, there, undisturbed, tmp_path, faulty_module):
    """The command is killed again and again while it copies; another machine goes on each time."""
    command = [*map(str, COMMAND), "--out", f"faulty://{tmp_path}/store"]
    for number in (10, 40, 90):
        environment = os.environ | {
            "XDG_CACHE_HOME": str(tmp_path / f"killed {number}"),
            "PYTHONPATH": str(SOURCE),
        }
        arguments = [sys.executable, "-c", KILLED, faulty_module.__file__, str(number), *command]
        process = subprocess.run(arguments, env=environment, capture_output=True, text=True)
        assert process.returncode == -signal.SIGKILL, process.stderr
    ended = on("last")
    assert ended.status == 0, ended.stderr
    assert there() == undisturbed
    shutil.rmtree(tmp_path / "store")
    ended = on("killed 90")
    assert ended.status == 0, ended.stderr
    assert there() == undisturbed
