import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

Load = Callable[[str], ModuleType]


class Counter:
    """Three samples per call, without doing anything."""

    def __init__(self, loss: float = 1.25) -> None:
        self.calls, self.value = 0, loss

    def advance(self) -> int:
        self.calls += 1
        return 3

    def loss(self) -> float:
        return self.value


def options(load: Load, *words: str, single: bool = True) -> argparse.Namespace:
    common = load("_common")
    chosen: argparse.Namespace = common.parse(common.arguments("fake"), list(words), single=single)
    return chosen


def test_only_the_timed_part_is_counted(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(load("_common"), "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    program = Counter()
    # The clock moves one second per look: one look starts a phase, one follows each call.
    assert load("_common").timed(program, 7.0) == 3.0
    assert program.calls == 2 + 7


def test_a_run_is_one_json_line(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = options(load, "--seconds", "0.01", "--batch", "7", "--json")
    assert load("_common").measure("fake", chosen, lambda _: Counter(), ["torch"], extra=11) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    result = json.loads(line)
    assert set(result) == {"name", "samples_per_second", "settings", "peak_memory_mb", "loss"}
    assert (result["name"], result["loss"]) == ("fake", 1.25)
    assert result["samples_per_second"] > 0
    assert {"threads": 1, "batch": 7, "members": 1, "extra": 11}.items() <= result["settings"].items()
    assert "json" not in result["settings"]
    assert set(result["settings"]["versions"]) == {"python", "torch"}


def test_without_json_the_line_is_for_people(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("_common").measure("fake", options(load, "--seconds", "0.01"), lambda _: Counter(), []) == 0
    assert "member-samples/s" in capsys.readouterr().out


def test_a_diverged_run_has_no_speed(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = options(load, "--seconds", "0.01", "--json")
    assert load("_common").measure("fake", chosen, lambda _: Counter(float("nan")), []) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "found nan" in captured.err


@pytest.mark.parametrize(
    "words",
    [("--seconds", "0"), ("--seconds", "nan"), ("--threads", "0"), ("--batch", "-3"), ("--members", "2")],
)
def test_a_bad_option_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        options(load, *words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words[0] in error
    assert "expected" in error or "one model" in error


def test_ensembles_take_any_number_of_members(load: Load) -> None:
    assert options(load, "--members", "7", single=False).members == 7


def test_peak_memory_grows_with_what_is_held(load: Load) -> None:
    before = load("_common").peak_memory_mb()
    held = bytearray(os.urandom(1)) * (1 << 27)
    after = load("_common").peak_memory_mb()
    assert len(held) == 1 << 27
    assert before > 5
    # The peak may have stood higher than what was held just before, so the whole 128 MiB need not show.
    assert after >= max(before, 128)


def test_a_missing_jax_names_the_command_that_installs_it(benchmarks: Path, tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(benchmarks / "jax_vmap.py"), "--seconds", "1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "not installed" in done.stderr
    assert "pip install -e .[bench]" in done.stderr


def test_a_script_runs_alone(benchmarks: Path) -> None:
    command = [
        sys.executable,
        str(benchmarks / "plain_pytorch.py"),
        "--seconds",
        "0.2",
        "--batch",
        "64",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path.home())
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["samples_per_second"] > 64
    assert result["settings"]["subnormals_flushed"] is True
