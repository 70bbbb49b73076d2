import os
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from hopscope.cli.progress import Bars
from hopscope.cli.run import read_options
from hopscope.errors import TimeBudgetReached
from hopscope.runs import config_hash, content_hash
from hopscope.studies import find_study
from hopscope.studies.permutation.config import PRESETS

STUDY = find_study("permutation")


def configured(*arguments):
    return read_options(STUDY, list(arguments))[1]


# Options.


def test_defaults():
    options, config = read_options(STUDY, [])
    assert config == PRESETS["laptop"]
    assert (options.preset, options.out, options.device) == ("laptop", Path("runs"), "auto")
    assert (options.threads, options.time_budget) == (None, None)


@pytest.mark.parametrize("arguments", [["--preset", "smoke"], ["--preset=smoke"]])
def test_preset_gives_every_default(arguments):
    options, config = read_options(STUDY, arguments)
    assert config == PRESETS["smoke"]
    assert options.preset == "smoke"


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--repeat-ratio", "0.2"], "repeat_ratio", 0.2),
        (["--repeat_ratio", "0.2"], "repeat_ratio", 0.2),
        (["--repeat-ratio=0.2"], "repeat_ratio", 0.2),
        (["--V", "7"], "values", 7),
        (["--values", "7"], "values", 7),
        (["--seeds", "11"], "seeds", 11),
        (["--configurations", "d32/2 repeats"], "configurations", ("d32/2 repeats",)),
        (
            ["--configurations", "d32/2 repeats", "d16/1 plain"],
            "configurations",
            ("d32/2 repeats", "d16/1 plain"),
        ),
        (["--repeat-slots", "3", "5"], "repeat_slots", (3, 5)),
        (["--betas", "0.8", "0.95"], "betas", (0.8, 0.95)),
        (["--width", "20"], "width", 20),
        (["--clip-norm", "0.7"], "clip_norm", 0.7),
        (["--clip-norm", "None"], "clip_norm", None),
        (["--all-configurations"], "all_configurations", True),
        (["--optimizer", "adamw"], "optimizer", "adamw"),
        (["--samples-per-epoch", "1000"], "samples_per_epoch", 1000),
    ],
)
def test_every_field_can_be_given(arguments, field, value):
    for extra in ([], ["--preset", "smoke"]):
        config = configured(*extra, *arguments)
        preset = PRESETS["smoke" if extra else "laptop"]
        assert getattr(config, field) == value
        assert config == type(config).model_validate({**preset.model_dump(), field: value})


def test_what_decides_the_hash():
    def name(*arguments):
        return config_hash("permutation", configured(*arguments).model_dump(mode="json"))

    plain = name()
    others = ["--out", "x", "--threads", "3", "--time-budget", "5", "--device", "cpu"]
    assert name(*others) == plain
    assert name("--preset", "laptop", "--seeds", "10") == plain
    assert name("--V", "5") == plain
    changed = [["--seeds", "5"], ["--V", "6"], ["--repeat-ratio", "0.2"], ["--learning-rate", "0.002"],
               ["--preset", "smoke"], ["--members-per-unit", "4"]]  # fmt: skip
    assert len({plain, *(name(*arguments) for arguments in changed)}) == 7


# Finding what is there.


@pytest.fixture
def again(whole_copy, processes_module):
    """The command of the finished run, for its copy."""
    return ["run", *processes_module.WHOLE, "--out", whole_copy.parents[1]]


def test_the_same_command_finds_its_run(hopscope, no_training, again, whole_copy):
    before = {path: path.stat().st_mtime_ns for path in whole_copy.rglob("*")}
    said = hopscope(*again, "--threads", 7, "--time-budget", 99)
    assert (said.status, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[-1] == str(whole_copy)
    assert lines[-3] == f"why: hopscope claims {whole_copy} --long"
    assert "so far" in lines[-4]
    assert lines[-2] == f"report: {whole_copy / 'report.html'}"
    for name in ("P1", "P10a", "P10b", "P11"):
        assert f"\n{name} " in said.out
    assert {path: path.stat().st_mtime_ns for path in whole_copy.rglob("*")} == before


def test_a_changed_field_makes_another_run(hopscope, monkeypatch, again, whole_copy):
    class Pool:
        def __init__(self, *arguments):
            pass

        def work(self):
            raise TimeBudgetReached("spent")

    monkeypatch.setattr("hopscope.executors.local.Pool", Pool)
    said = hopscope(*again, "--learning-rate", 0.002)
    assert (said.status, said.out, said.err) == (75, "", "hopscope: spent\n")
    (other,) = (path for path in whole_copy.parent.iterdir() if path != whole_copy)
    assert (other / "config.json").is_file()
    assert not (other / "DONE").exists()


def test_interrupted(hopscope, monkeypatch, again):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("hopscope.executors.local.layout", interrupt)
    said = hopscope(*again, "--seeds", 2)
    assert (said.status, said.out) == (130, "")
    assert "interrupted" in said.err and "same command" in said.err and said.err.count("\n") == 1


def test_relative_root(hopscope, no_training, again, whole_copy, monkeypatch):
    monkeypatch.chdir(whole_copy.parents[2])
    said = hopscope(*again[:-1], "runs")
    assert said.out.splitlines()[-1] == os.path.join("runs", "permutation", whole_copy.name)  # noqa: PTH118


def test_leftovers_of_a_killed_start_do_not_matter(hopscope, no_training, again, whole_copy):
    shutil.copy(whole_copy / "config.json", whole_copy / ".config.json.tmp")
    assert hopscope(*again).status == 0


# Progress.


@pytest.fixture
def job():
    return STUDY.jobs(configured("--preset", "smoke", "--seeds", "3", "--configurations", "d16/1 plain"))


class Unit:
    def __init__(self, job):
        self.hash = content_hash(job.model_dump(mode="json"))


def progress(step, losses, frozen=()):
    return {
        "kind": "progress", "step": step, "losses": losses, "samples_per_second": 12345.6, "frozen": list(frozen)
    }  # fmt: skip


class Clock:
    """Time that passes only where a test lets it."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("hopscope.cli.progress.time", clock)
    return clock


def undated(line):
    """A line without its date, which is checked."""
    datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S")
    return line[19:]


def test_piped_progress_is_a_dated_line_every_half_minute(job, capsys, clock):
    steps = job[0].training.steps
    first, second = map(Unit, job)
    with Bars(job) as bars:
        bars.hear(first, progress(steps // 4, [1.25, 1.5]))
        clock.now += 29
        bars.hear(first, progress(steps // 2, [1.25, 1.5]))  # too soon: silent
        clock.now += 1
        bars.hear(first, progress(steps // 2, [1.125, None], frozen=[1]))
        bars.hear(first, progress(steps // 2, [1.125, None], frozen=[1]))
        clock.now += 30
        bars.hear(second, progress(steps // 2, [None], frozen=[2]))
        clock.now += 30
        bars.hear(second, {"kind": "phase", "name": "analysing"})
        bars.hear(second, {"kind": "warning", "message": "a checkpoint was damaged"})
        bars.hear(first, {"kind": "done"})
        bars.hear(second, {"kind": "done"})
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    # Two members and one of the same shape: the first unit is two thirds of the work.
    assert undated(lines[0]) == "   17%  12,346 samples/s  loss 1.2500–1.5000"
    assert lines[1] == "d16/1 plain, seeds 0–1: diverged: member 1"
    assert undated(lines[2]) == "   33%  0:02:00 left  12,346 samples/s  loss 1.1250"
    assert lines[3] == "d16/1 plain, seed 2: diverged: member 2"
    assert undated(lines[4]) == "   50%  0:03:00 left  24,691 samples/s  loss 1.1250"
    assert undated(lines[5]) == "   50%  0:04:29 left  d16/1 plain, seed 2: analysing"
    assert lines[6] == "hopscope: warning: a checkpoint was damaged"
    assert undated(lines[7]) == "  100%  trained and analysed"
    assert len(lines) == 8 and max(map(len, lines)) <= 80


def test_what_an_earlier_command_did_counts_as_done_but_not_for_the_pace(job, capsys, clock):
    steps = job[0].training.steps
    first, second = map(Unit, job)
    with Bars(job) as bars:
        bars.hear(first, {"kind": "found"})
        bars.hear(second, progress(steps // 2, [1.0]))
        clock.now += 60
        bars.hear(second, progress(3 * steps // 4, [1.0]))
    lines = capsys.readouterr().err.splitlines()
    assert [undated(line).split("  ")[1:3] for line in lines] == [
        [" 83%", "12,346 samples/s"],
        [" 92%", "0:01:00 left"],
    ]


def test_bars_of_a_terminal_fit_eighty_columns(job, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    steps = job[0].training.steps
    with Bars(job) as bars:
        assert bars.live
        for each in job:
            bars.hear(Unit(each), progress(steps // 2, [1.25], frozen=[1]))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert all(len(line) <= 80 for line in lines)
    assert "d16/1 plain, seeds 0–1: diverged: member 1" in lines
    last = {line.partition("  ")[0]: line for line in lines}
    for name in ("all 2 units", "d16/1 plain, seeds 0–1", "d16/1 plain, seed 2"):
        assert re.search(r" 50 % +[0-9,]+ samples/s +\S+ left$", last[name].rstrip()), last[name]
