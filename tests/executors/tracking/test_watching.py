"""Trackers that fail in every way: the run ends as without them, with one line; and what is refused at the start."""

import json
import os
import subprocess
import sys
import time
import warnings

import pytest

import hopscope as hs
from hopscope.cli.main import main
from hopscope.executors.processes import environment
from hopscope.executors.tracking import watching
from hopscope.executors.tracking.follower import tracking_folder
from hopscope.executors.tracking.sinks import TRACKERS, check_trackers
from hopscope.executors.tracking.watching import TrackerWarning, followed
from hopscope.runs import find_run
from hopscope.runs.locks import folder_lock

KEEPING = '''
"""A tracker that writes what it is told into files, and prints on standard output, as trackers do."""
import json, os, pathlib

print("* project initialized")


class Settings:
    def __init__(self, **given):
        assert given["silent"] and given["console"] == "off"


class Run:
    summary = {}

    def __init__(self, **given):
        self.path = pathlib.Path(given["dir"]) / "told.json"
        self.told = {"init": {k: v for k, v in given.items() if k != "settings"}, "rows": []}

    def define_metric(self, name, step_metric):
        self.told["steps"] = [name, step_metric]

    def log(self, row):
        self.told["rows"].append(row)

    def finish(self):
        aside = self.path.with_suffix(".aside")
        aside.write_text(json.dumps({**self.told, "summary": self.summary}))
        aside.replace(self.path)  # whoever waits for it finds all of it


def init(**given):
    return Run(**given)
'''

FAILING = {
    "an exception": (
        "def init(**_):\n    raise RuntimeError('the service\\nsaid no')", "RuntimeError: the service said no"
    ),
    "no package after all": ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
    "a full disk": ("def init(**_):\n    raise OSError(28, 'No space left on device')", "No space left on device"),
    "no network": (
        "def init(**_):\n    raise ConnectionError('no route to host')", "ConnectionError: no route to host"
    ),
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "a crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "its end by signal 11"),
}  # fmt: skip

HANGING = "import time\nSettings = dict\ndef init(**_):\n    time.sleep(600)"


FAILING = {kind: (f"Settings = dict\n{source}", found) for kind, (source, found) in FAILING.items()}


def warned(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("hopscope: warning: ")]


def await_warning(lines, look):
    end = time.monotonic() + 100
    while not warned(lines) and time.monotonic() < end:
        time.sleep(0.05)
        look()


@pytest.fixture
def plain(trained, processes_module):
    """The record of the same run without any tracker, but for the note where its study stands."""
    return comparable(find_run(trained), processes_module)


def comparable(folder, processes_module):
    found = dict(processes_module.record(folder.path))
    assert found.pop("study.json") and len(found) > 20
    return found


def test_a_tracker_gets_what_the_run_recorded(run, package, plain, processes_module):
    package("wandb", KEEPING)
    status, folder, lines = run("--tracker", "wandb")
    assert status == 0 and not warned(lines)
    assert comparable(folder, processes_module) == plain
    told = json.loads((tracking_folder(folder, "wandb") / "echo" / folder.hash / "told.json").read_text())
    assert told["init"]["project"] == "hopscope-echo" and told["init"]["mode"] == "offline"
    assert told["init"]["config"]["members"]["1"] == {"configuration": "echo", "seed": 1}
    assert told["steps"] == ["*", "step"]
    found = {
        (int(name.rpartition("-")[2]), row["step"], name.rpartition("/")[0], value)
        for row in told["rows"]
        for name, value in row.items()
        if name != "step"
    }
    table = folder.metrics().to_pylist()
    assert found == {(r["member"], r["step"], f"{r['metric']}/{r['split']}", r["value"]) for r in table}
    (claim,) = hs.open_run(folder.path).claims
    assert told["summary"] == {"claims/E": claim.verdict.value}
    assert any("wandb sync" in line for line in lines)


@pytest.mark.extras
def test_a_tracker_that_fails_is_one_line_and_the_run_is_the_same(run, package, plain, processes_module):
    source, found = FAILING["an exception"]
    package("wandb", source)
    status, folder, lines = run("--tracker", "wandb")
    assert status == 0
    (line,) = warned(lines)
    assert found in line and "the run is not affected" in line and f"hopscope track {folder.path}" in line
    assert "Traceback" not in "\n".join(lines)
    assert comparable(folder, processes_module) == plain


@pytest.mark.parametrize("kind", FAILING)
def test_every_failure_is_one_line(finished, package, kind):
    source, found = FAILING[kind]
    package("wandb", source)
    lines: list[str] = []
    with followed(finished, ["wandb"], lines.append) as look:
        await_warning(lines, look)
        look()
    (line,) = warned(lines)
    assert found in line and "\n" not in line


def test_a_tracker_that_has_ended_is_not_ended_again(finished, package, monkeypatch):
    """At the end of a long run its number may be another process's."""
    package("wandb", FAILING["an exception"][0])
    ended, kill = [], os.killpg
    monkeypatch.setattr(os, "killpg", lambda *given: [ended.append(given), kill(*given)])
    lines: list[str] = []
    with followed(finished, ["wandb"], lines.append) as look:
        await_warning(lines, look)
        assert len(ended) == 1
    assert len(ended) == 1


def test_a_tracker_that_hangs_is_ended(finished, package, monkeypatch):
    package("wandb", HANGING)
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", 0.5)
    lines: list[str] = []
    begun = time.monotonic()
    with followed(finished, ["wandb"], lines.append) as look:
        for _ in range(1000):
            look()
        assert time.monotonic() - begun < 60  # nobody waits for it
    (line,) = warned(lines)
    assert "still busy 0.5 seconds after the end of the run" in line


def test_an_error_of_the_run_is_not_hidden(finished, package):
    package("wandb", FAILING["an exception"][0])
    lines: list[str] = []
    with pytest.raises(ValueError, match="of the run"), followed(finished, ["wandb"], lines.append):
        raise ValueError("of the run")
    assert len(warned(lines)) == 1


def test_one_of_two_trackers_fails(finished, package):
    package("wandb", KEEPING)
    package("trackio", "raise ImportError('too old')")
    lines: list[str] = []
    with followed(finished, ["trackio", "wandb", "wandb"], lines.append):
        pass
    (line,) = warned(lines)
    assert "tracker trackio" in line and "ImportError: too old" in line
    assert (tracking_folder(finished, "wandb") / "echo" / finished.hash / "told.json").is_file()


def test_a_process_that_cannot_be_started_is_one_line(finished, monkeypatch):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(watching.subprocess, "Popen", refuse)
    lines: list[str] = []
    with followed(finished, ["wandb"], lines.append) as look:
        look()
    (line,) = lines
    assert "Cannot allocate memory" in line


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_package_that_is_missing_is_said_before_anything_is_trained(run, tmp_path, monkeypatch, tracker):
    monkeypatch.setattr("hopscope.executors.tracking.sinks.find_spec", lambda name: None)
    monkeypatch.setattr("hopscope.executors.local.Pool", None)
    status, _, lines = run("--tracker", tracker)
    assert status == 2 and not (tmp_path / "runs").exists()
    (line,) = lines
    assert line == (
        f"hopscope: tracker: expected the package {tracker} for --tracker {tracker}, found none; install it with: "
        f"pip install 'hopscope[{tracker}]'"
    )


def test_a_folder_of_the_packages_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "trackio").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    if __import__("importlib.util", fromlist=["util"]).find_spec("trackio").origin is not None:
        pytest.fail("expected the tests to run without trackio, or in another folder")
    with pytest.raises(hs.UserError, match=r"pip install 'hopscope\[trackio\]'"):
        check_trackers(["trackio"])


def test_an_unknown_tracker_is_refused(run):
    status, _, lines = run("--tracker", "mlflow")
    assert status == 2
    assert "'mlflow'" in lines[0] and "tensorboard" in lines[0]
    with pytest.raises(hs.UserError, match="expected one of tensorboard, wandb, trackio, found 'mlflow'"):
        check_trackers(["mlflow"])


def test_a_finished_run_is_sent_afterwards_once(finished, package, capsys):
    package("wandb", KEEPING)
    assert main(["track", str(finished.path), "--tracker", "wandb"]) == 0
    assert capsys.readouterr().out.startswith("wandb: wandb sync ")
    told = tracking_folder(finished, "wandb") / "echo" / finished.hash / "told.json"
    assert len(json.loads(told.read_text())["rows"]) > 1
    assert main(["track", str(finished.path), "--tracker", "wandb"]) == 0
    assert json.loads(told.read_text())["rows"] == []


@pytest.mark.extras
def test_one_process_at_a_time_sends_a_run(finished, package, capsys):
    """Two would send every number twice: each reads once what was sent."""
    package("wandb", KEEPING)
    folder = tracking_folder(finished, "wandb") / "echo" / finished.hash
    with folder_lock(folder, "tracker's record of the run", 0.0):
        assert main(["track", str(finished.path), "--tracker", "wandb"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder}: another hopscope command is working on this tracker's record of the run" in line
    assert not (folder / "told.json").exists() and not (folder / "sent.json").exists()
    # While a run goes on, its process waits for the one that a killed command left.
    with folder_lock(folder, "tracker's record of the run", 0.0):
        busy = watching._Sender(finished, "wandb")
        time.sleep(3.0)
        assert busy.fault() is None and not (folder / "told.json").exists()
    busy.finish()
    assert busy.wait(100.0) is None
    busy.close()
    assert (folder / "told.json").is_file()


def test_sending_afterwards_says_what_failed(finished, package, capsys):
    package("wandb", FAILING["no network"][0])
    assert main(["track", str(finished.path), "--tracker", "wandb"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "found ConnectionError: no route to host" in said.err.splitlines()[-1]


def test_the_library_warns(study, package, tmp_path):
    package("wandb", FAILING["an exception"][0])
    with pytest.warns(TrackerWarning, match="the service said no"):
        found = hs.run(f"{study}:study", out=tmp_path / "runs", tracker="wandb")
    assert found.is_done


def test_nothing_is_started_where_nothing_is_asked_for(finished, monkeypatch):
    monkeypatch.setattr(watching, "_Sender", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with followed(finished, ()) as look:
            look()
    assert not (finished.path.parents[1] / "trackers").exists()


def test_the_process_ends_when_its_command_is_killed(finished, package):
    """Its input ends when the command does, however that ends; then it sends what is left."""
    package("wandb", KEEPING)
    command = (
        "import os, sys\nfrom pathlib import Path\nfrom hopscope.executors.tracking.watching import _Sender\n"
        "from hopscope.runs import RunFolder\nsender = _Sender(RunFolder(Path(sys.argv[1])), 'wandb')\n"
        "print(sender._process.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    died = subprocess.run(
        [sys.executable, "-c", command, str(finished.path)], capture_output=True, text=True, env=environment()
    )
    assert died.returncode == -9, died.stderr
    told = tracking_folder(finished, "wandb") / "echo" / finished.hash / "told.json"
    end = time.monotonic() + 100
    while not told.is_file() and time.monotonic() < end:
        time.sleep(0.05)
    assert json.loads(told.read_text())["rows"]
