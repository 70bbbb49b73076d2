"""`hopscope bench` hands over to the scripts of the source tree; what they measure is tested in tests/benchmarks."""

import subprocess
import sys
from pathlib import Path

import pytest

from hopscope.cli import bench


@pytest.fixture
def started(monkeypatch):
    """Commands that would have been started, each ending with status 3."""
    commands = []

    def run(command, check):
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(bench.subprocess, "run", run)
    return commands


@pytest.mark.parametrize(
    ("words", "script", "handed"),
    [
        ((), "compare.py", []),
        (
            ("--rounds", 2, "--seconds", 0.5),
            "compare.py",
            ["--rounds", "2", "--seconds", "0.5"],
        ),
        (("--model", "depth-mlp"), "compare.py", ["--model", "depth-mlp"]),
        (("--model", "transformer-d"), "compare.py", ["--model", "transformer-d"]),
        (("--growth",), "growth.py", []),
        (("--reading", "--rounds", 7), "reading.py", ["--rounds", "7"]),
        (
            ("--reading", "--run", "runs/one", "--member", 3),
            "reading_of_run.py",
            ["--run", "runs/one", "--member", "3"],
        ),
        (("--suite", "gpu", "--rounds", 2), "gpu.py", ["--rounds", "2"]),
        (("--suite", "solved"), "solved.py", []),
        (
            ("--suite", "solved", "--model", "depth", "--seeds", 2, "--rounds", 3, "--out", "here.json"),
            "solved.py",
            ["--model", "depth", "--seeds", "2", "--rounds", "3", "--out", "here.json"],
        ),
        (
            ("--growth", "--model", "depth", "--rounds", 7, "--seconds", 3, "--out", "here.json"),
            "growth.py",
            ["--model", "depth", "--rounds", "7", "--seconds", "3.0", "--out", "here.json"],
        ),
    ],
)
def test_the_script_gets_what_was_asked(hopscope, started, words, script, handed):
    assert hopscope("bench", *words).status == 3
    ((python, path, *rest),) = started
    assert (python, Path(path), rest) == (sys.executable, bench.BENCHMARKS / script, handed)
    assert Path(path).is_file()


@pytest.mark.parametrize("growth", [(), ("--growth",)])
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--rounds", "0"), "--rounds: expected at least 1, found 0"),
        (("--seconds", "-1"), "--seconds: expected a positive number, found -1.0"),
        (("--out", "nowhere/x.json"), "expected an existing folder, found nowhere"),
    ],
)
def test_what_the_script_refuses_is_one_line_and_status_2(tmp_path, growth, words, found):
    command = [sys.executable, "-m", "hopscope", "bench", *growth, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert found in done.stderr


def test_what_the_suite_of_results_refuses_is_one_line_and_status_2(tmp_path):
    command = [sys.executable, "-m", "hopscope", "bench", "--suite", "solved", "--seeds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("--seeds: expected at least 1, found 0; ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--growth", "--rounds", "two"), ["--rounds", "'two'"]),
        (("--growth", "members"), ["members", "bench --help"]),
        (
            ("--growth", "--suite", "gpu"),
            ["--growth: expected --suite gpu with --rounds, --seconds, --out only"],
        ),
        (("--growth", "--model", "depth-mlp"), ["expected permutation or depth", "depth-mlp"]),
        (("--growth", "--model", "transformer-a"), ["expected permutation or depth", "transformer-a"]),
        (("--model", "width"), ["--model", "'width'"]),
        (("--reading", "--growth"), ["--growth: expected --reading with"]),
        (("--reading", "--model", "depth"), ["--model: expected --reading with"]),
        (("--reading", "--suite", "gpu"), ["--reading: expected --suite gpu with"]),
        (("--reading", "--seconds", 3), ["--seconds: expected --reading with"]),
        (("--suite", "solved", "--growth"), ["--growth: expected --suite solved with"]),
        (("--suite", "solved", "--reading"), ["--reading: expected --suite solved with"]),
        (("--suite", "solved", "--seconds", 3), ["--seconds: expected --suite solved with"]),
        (("--suite", "solved", "--model", "depth-mlp"), ["expected permutation or depth", "depth-mlp"]),
        (("--run", "runs/one"), ["--run: expected --suite cpu with"]),
        (("--reading", "--member", 2), ["--member: expected --reading with --reading, --rounds, --out only"]),
        (("--suite", "solved", "--run", "runs/one"), ["--run: expected --suite solved with"]),
        (("--seeds", 2), ["--seeds: expected --suite cpu with"]),
        (("--suite", "gpu", "--seeds", 2), ["--seeds: expected --suite gpu with"]),
        (("--suite", "gpu", "--model", "depth"), ["--model: expected --suite gpu with"]),
    ],
)
def test_what_the_command_refuses_starts_nothing(hopscope, started, words, found):
    complaint = hopscope("bench", *words).complaint
    assert all(part in complaint for part in found)
    assert started == []


def test_without_the_source_tree_it_says_so(hopscope, started, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path)
    for words in ((), ("--growth",), ("--suite", "solved")):
        assert "expected the source tree with benchmarks/" in hopscope("bench", *words).complaint
    assert started == []
