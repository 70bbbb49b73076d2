import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

Load = Callable[[str], ModuleType]

# Options that every process has.
GIVEN = {
    "depth-mlp": {"mlp-ratio": 4},
    "transformer-d": {"members": 1, "steps": 4, "layers": 24, "width": 512, "heads": 1, "head-size": 16},
    "transformer-a": {"members": 1, "layers": 12, "width": 128, "heads": 1, "mlp-ratio": 4},
}

# Prints a speed that is a formula of its options, and leaves a trace of every call.
FAKE = """
import json, pathlib, sys
options = dict(zip(sys.argv[1:-1:2], sys.argv[2::2]))
trace = pathlib.Path(__file__).with_name("trace.txt")
calls = trace.read_text().split() if trace.exists() else []
here = pathlib.Path(__file__).stem
trace.write_text(" ".join([*calls, here]))
turn = calls.count(here)
{body}
print("noise before the result")
print(json.dumps({{"name": here, "samples_per_second": speed, "peak_memory_mb": 10.0 + turn, "loss": 1.0,
                  "settings": options}}))
"""


def fake(
    load: Load, folder: Path, name: str, body: str, grid: dict[str, tuple[Any, ...]] | None = None
) -> Any:
    script = folder / f"{name}.py"
    script.write_text(FAKE.format(body=body), encoding="utf-8")
    return load("compare").Contestant(name, script, grid or {"threads": (1,)})


def compare(load: Load, folder: Path, contestants: list[Any], *words: str) -> tuple[int, dict[str, Any], str]:
    out, printed = folder / "result.json", io.StringIO()
    argv = ["--seconds", "1", "--probe-seconds", "1", "--out", str(out), *words]
    status = load("compare").main(argv, contestants, Console(file=printed, width=160))
    return status, json.loads(out.read_text(encoding="utf-8")), printed.getvalue()


def test_rounds_alternate_and_ratios_are_taken_within_a_round(load: Load, tmp_path: Path) -> None:
    # Calls 0 and 1 are the probe and the large batch; the rounds follow.
    ours = fake(load, tmp_path, "hopscope_ensemble", "speed = [100, 90, 110, 130, 120][turn]")
    other = fake(load, tmp_path, "plain_pytorch", "speed = [50, 45, 50, 65, 40][turn]")
    status, result, printed = compare(load, tmp_path, [ours, other], "--rounds", "3")
    assert status == 0
    order = (tmp_path / "trace.txt").read_text(encoding="utf-8").split()
    assert order[4:] == ["hopscope_ensemble", "plain_pytorch"] * 3
    speeds = {each["name"]: each["samples_per_second"] for each in result["contestants"]}
    assert speeds["hopscope_ensemble"] == {"median": 120, "min": 110, "max": 130, "rounds": [110, 130, 120]}
    assert speeds["plain_pytorch"] == {"median": 50, "min": 40, "max": 65, "rounds": [50, 65, 40]}
    # The ratio of the medians would be 2.4; the median of the ratios is 2.2.
    assert result["ratios"] == {
        "plain_pytorch": {"median": 2.2, "min": 2.0, "max": 3.0, "rounds": [2.2, 2.0, 3.0]}
    }
    assert [each["peak_memory_mb"] for each in result["contestants"]] == [14.0, 14.0]
    assert "2.20 [2.00–3.00]" in printed
    assert "120 [110–130]" in printed
    assert "median [min–max]" in printed


def test_the_quickest_settings_are_chosen_and_used(load: Load, tmp_path: Path) -> None:
    body = (
        "speed = {'1': 20, '2': 30}[options['--threads']] + int(options['--workers']) * 7"
        " + (options['--batch'] == '1024') * 100"
    )
    contestant = fake(load, tmp_path, "page_loop", body, {"threads": (1, 2), "workers": (0, 2)})
    status, result, printed = compare(load, tmp_path, [contestant], "--rounds", "1")
    (entry,) = result["contestants"]
    assert status == 0
    assert [probe["samples_per_second"] for probe in entry["probes"]] == [20, 34, 30, 44]
    assert entry["settings"] == {"threads": 2, "workers": 2}
    assert entry["samples_per_second"]["rounds"] == [44]
    assert entry["reported"]["--batch"] == "256"
    assert entry["best_over_batch"] == {"batch": 1024, "samples_per_second": 144}
    assert "page_loop: threads 2 workers 2" in printed
    assert result["ratios"] == {}


def test_settings_that_fail_are_passed_over(load: Load, tmp_path: Path) -> None:
    body = "speed = 40 if options['--threads'] == '1' else sys.exit('no second thread')"
    contestant = fake(load, tmp_path, "page_loop", body, {"threads": (2, 1)})
    status, result, _ = compare(load, tmp_path, [contestant], "--rounds", "1")
    assert status == 0
    assert result["contestants"][0]["settings"] == {"threads": 1}
    assert result["contestants"][0]["probes"][0]["failure"] == "no second thread"


def test_a_contestant_that_is_not_installed_is_listed_and_the_rest_goes_on(
    load: Load, tmp_path: Path
) -> None:
    ours = fake(load, tmp_path, "hopscope_ensemble", "speed = 60")
    absent = fake(
        load, tmp_path, "jax_vmap", "sys.stderr.write('jax is not installed; do x\\n'); sys.exit(2)"
    )
    gone = load("compare").Contestant("page_loop", tmp_path / "nowhere.py", {"threads": (1,)})
    status, result, printed = compare(load, tmp_path, [ours, absent, gone], "--rounds", "2")
    assert status == 0
    assert [each["status"] for each in result["contestants"]] == ["ok", "not installed", "not installed"]
    assert result["contestants"][1]["samples_per_second"] is None
    assert result["ratios"] == {"jax_vmap": None, "page_loop": None}
    assert "jax is not installed; do x" in printed
    # It was tried once, not once per setting or round.
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").split().count("jax_vmap") == 1


def test_a_failure_midway_is_reported_and_keeps_the_earlier_rounds(load: Load, tmp_path: Path) -> None:
    ours = fake(load, tmp_path, "hopscope_ensemble", "speed = 60")
    breaks = fake(
        load, tmp_path, "plain_pytorch", "speed = 30 if turn < 3 else sys.exit('out of memory [a]')"
    )
    status, result, printed = compare(load, tmp_path, [ours, breaks], "--rounds", "3")
    assert status == 1
    entry = result["contestants"][1]
    assert (entry["status"], entry["message"]) == ("failed", "round 2: out of memory [a]")
    assert entry["samples_per_second"]["rounds"] == [30, None, None]
    assert result["ratios"]["plain_pytorch"]["rounds"] == [2.0, None, None]
    assert result["contestants"][0]["samples_per_second"]["rounds"] == [60, 60, 60]
    assert "out of memory [a]" in printed
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").split().count("plain_pytorch") == 4


@pytest.mark.parametrize("body", ["print('hello'); sys.exit(0)", "print('{}'); sys.exit(0)", "sys.exit(0)"])
def test_output_that_is_no_result_is_a_failure(load: Load, tmp_path: Path, body: str) -> None:
    status, result, _ = compare(load, tmp_path, [fake(load, tmp_path, "page_loop", body)], "--rounds", "1")
    assert status == 1
    assert "expected one JSON result line" in result["contestants"][0]["message"]


def test_a_contestant_that_hangs_is_given_up(load: Load, tmp_path: Path) -> None:
    hangs = fake(load, tmp_path, "page_loop", "import time; time.sleep(600)")
    run = load("compare").launch(hangs, {}, 0.4, start_up=0.2)
    assert run.result is None
    assert "1 s" in run.failure


@pytest.mark.parametrize(("speeds", "expected"), [("[80, 80, 61, 75]", False), ("[80, 80, 41, 75]", True)])
def test_rounds_on_a_busy_machine_are_marked(load: Load, tmp_path: Path, speeds: str, expected: bool) -> None:
    contestant = fake(load, tmp_path, "page_loop", f"speed = {speeds}[turn]")
    _, result, printed = compare(load, tmp_path, [contestant], "--rounds", "2")
    assert result["contestants"][0]["disturbed"] is expected
    assert ("run again on an idle machine" in printed) is expected


def test_provenance_names_the_machine_and_the_versions(load: Load) -> None:
    provenance = load("compare").provenance()
    assert provenance["cpu_count"] >= 1
    assert provenance["cpu_model"]
    assert provenance["versions"]["torch"]
    json.dumps(provenance, allow_nan=False)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "nan"], "--seconds"),
        (["--probe-seconds", "-1"], "--probe-seconds"),
        (["--contestants", "page_lop"], "page_lop"),
        (["--out", "no/such/folder/out.json"], "no/such/folder"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], words: list[str], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("compare").main(words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error
    assert "expected" in error


def test_only_the_contestants_asked_for_play(load: Load, tmp_path: Path) -> None:
    both = [fake(load, tmp_path, name, "speed = 3") for name in ("page_loop", "plain_pytorch")]
    _, result, _ = compare(load, tmp_path, both, "--rounds", "1", "--contestants", "plain_pytorch")
    assert [each["name"] for each in result["contestants"]] == ["plain_pytorch"]


def test_the_contestants_of_a_model_are_scripts_that_exist(load: Load, benchmarks: Path) -> None:
    for model, found in load("compare").MODELS.items():
        contestants = found.contestants()
        assert contestants[0].name == found.ours
        assert all(each.script.parent == benchmarks and each.script.exists() for each in contestants)
        assert all(each.given == GIVEN.get(model, {}) for each in contestants)


def fake_peak(load: Load, folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """The peak of a core as a formula of how often it was measured."""
    contestant = fake(load, folder, "peak", body)
    text = contestant.script.read_text(encoding="utf-8")
    contestant.script.write_text(
        text.replace('"samples_per_second"', '"gflops_per_second"'), encoding="utf-8"
    )
    monkeypatch.setattr(load("compare"), "PEAK", contestant)


def test_another_model_has_its_own_batch_and_is_compared_with_its_own(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_peak(load, tmp_path, monkeypatch, "speed = 7")
    contestants = [
        fake(load, tmp_path, "jax_depth", "speed = 128"),
        fake(load, tmp_path, "hopscope_depth", "speed = 640 + (options['--batch'] == '256')"),
    ]
    _, result, printed = compare(load, tmp_path, contestants, "--rounds", "1", "--model", "depth")
    assert (result["model"], result["batch"]) == ("depth", 64)
    assert [each["reported"]["--batch"] for each in result["contestants"]] == ["64", "64"]
    assert result["contestants"][1]["best_over_batch"] == {"batch": 256, "samples_per_second": 641}
    assert [each["steps_per_second"]["median"] for each in result["contestants"]] == [2.0, 10.0]
    assert result["ratios"]["jax_depth"]["median"] == 5.0
    assert "hopscope_depth ÷ other" in printed


def test_rates_stand_beside_the_peak_of_each_round(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_peak(load, tmp_path, monkeypatch, "speed = [81, 60][turn] if turn < 2 else sys.exit('no peak')")
    monkeypatch.setattr(load("compare"), "operations", lambda shape: 3_000_000 * shape.layers)
    # Calls 0 and 1 are the probe and the large batch.
    body = "speed = [9000, 1, 9000, 6000, 3000][turn]"
    ours = fake(load, tmp_path, "hopscope_depth", body, {"threads": (2,)})
    breaks = fake(load, tmp_path, "jax_depth", "speed = 1000 if turn < 3 else sys.exit('no')")
    _, result, printed = compare(load, tmp_path, [ours, breaks], "--rounds", "3", "--model", "depth")
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").split()[4:7] == [
        "peak",
        "hopscope_depth",
        "jax_depth",
    ]
    assert (result["operations_per_sample"], result["shape"]["layers"]) == (18_000_000, 6)
    assert result["core_peak_gflops_per_second"]["rounds"] == [81, 60, None]
    first, second = result["contestants"]
    assert first["gflops_per_second"]["rounds"] == pytest.approx([162, 108, 54])
    assert first["gflops_per_second"]["median"] == pytest.approx(108)
    # Two threads could do twice what one core can.
    assert first["share_of_peak"]["rounds"] == [pytest.approx(1.0), pytest.approx(0.9), None]
    assert second["gflops_per_second"]["rounds"] == [pytest.approx(18), None, None]
    assert second["share_of_peak"]["rounds"] == [pytest.approx(18 / 81), None, None]
    assert "108.0 [54.0–162.0]" in printed and "95% [90%–100%]" in printed
    assert "round 3 of 3: no peak of a core: no peak" in printed
    assert "Peak of a core: 70.5 [60.0–81.0] GFLOP/s; 18,000,000 operations a sample" in printed


def test_the_peak_is_that_of_all_threads_of_all_processes(load: Load) -> None:
    module = load("compare")
    entry = module.Entry(None, settings={"processes": 2, "threads": 3}, rounds=[{"samples_per_second": 7e9}])
    shape = load("_depth").Shape(layers=2)
    model = replace(module.MODELS["depth"], shape=shape)
    (share,) = module.arithmetic(entry, model, [11.0])["share_of_peak"]["rounds"]
    assert share == pytest.approx(7 * load("_arithmetic").operations(shape) / (2 * 3 * 11.0))


def test_operations_are_counted_of_deep_models_only(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_peak(load, tmp_path, monkeypatch, "speed = 7")
    _, result, printed = compare(
        load, tmp_path, [fake(load, tmp_path, "page_loop", "speed = 3")], "--rounds", "1"
    )
    (entry,) = result["contestants"]
    found = (entry["gflops_per_second"], entry["share_of_peak"], result["core_peak_gflops_per_second"])
    assert found == (None, None, None)
    assert (result["shape"], result["operations_per_sample"]) == (None, None)
    assert "peak" not in (tmp_path / "trace.txt").read_text(encoding="utf-8").split()
    assert "GFLOP/s" not in printed


def test_without_a_large_batch_none_is_tried(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_peak(load, tmp_path, monkeypatch, "speed = 7")
    contestant = fake(load, tmp_path, "hopscope_depth", "speed = 300")
    _, result, _ = compare(load, tmp_path, [contestant], "--rounds", "1", "--model", "transformer-d")
    (entry,) = result["contestants"]
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").split().count("hopscope_depth") == 2
    assert (entry["batch"], entry["best_over_batch"]) == (256, None)


def test_what_is_trained_is_given_to_every_run(load: Load, tmp_path: Path) -> None:
    contestant = fake(
        load, tmp_path, "jax_depth", "speed = int(options['--layers']) + int(options['--threads'])"
    )
    run = load("compare").launch(replace(contestant, given={"layers": 24}), {"threads": 7}, 1.0)
    assert run.speed == 31


def test_the_peak_of_a_core_is_measured_by_a_script_of_its_own(load: Load) -> None:
    run = load("compare").core_peak()
    assert run.failure == ""
    assert 0.1 < run.result["gflops_per_second"] < 10_000


def test_processes_share_members_and_add_up(load: Load, tmp_path: Path) -> None:
    compare = load("compare")
    script = tmp_path / "fake.py"
    script.write_text(
        "import json, sys\n"
        "members = int(sys.argv[sys.argv.index('--members') + 1])\n"
        "print(json.dumps({'samples_per_second': 7.0 * members, 'peak_memory_mb': 11.0, 'loss': 1.3}))\n",
        encoding="utf-8",
    )
    run = compare.launch(compare.Contestant("fake", script, {}), {"members": 6, "processes": 3}, 1.0)
    assert run.result == {"samples_per_second": 42.0, "peak_memory_mb": 33.0, "loss": pytest.approx(1.3)}
    run = compare.launch(compare.Contestant("fake", script, {}, {"members": 5}), {"processes": 2}, 1.0)
    assert run.speed == 70.0


speeds = st.one_of(st.none(), st.floats(1.0, 1e6))


@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=7))
def test_ratios_and_spreads_leave_out_only_what_is_missing(load: Load, rounds: list[tuple[Any, Any]]) -> None:
    module = load("compare")
    ours, others = zip(*rounds, strict=True)
    ratios = module.ratios(ours, others)
    assert [ratio is None for ratio in ratios] == [None in pair for pair in rounds]
    for ratio, (mine, other) in zip(ratios, rounds, strict=True):
        assert ratio is None or ratio * other == pytest.approx(mine)
    spread = module.spread(ratios)
    present = [ratio for ratio in ratios if ratio is not None]
    assert (spread is None) == (not present)
    if spread is not None:
        assert (spread["min"], spread["max"]) == (min(present), max(present))
        below = sum(ratio <= spread["median"] for ratio in present)
        above = sum(ratio >= spread["median"] for ratio in present)
        assert 2 * min(below, above) >= len(present)


def test_more_threads_than_cores_are_not_tried(load: Load) -> None:
    combinations = load("compare").combinations
    grid = {"processes": (1, 2), "threads": (1, 2), "rows": ("all", "loss")}
    found = [(each["processes"], each["threads"]) for each in combinations(grid, cores=2)]
    assert found == [(1, 1), (1, 1), (1, 2), (1, 2), (2, 1), (2, 1)]
    assert combinations({"threads": (3,)}, cores=2) == [{"threads": 3}]
    assert len(combinations(grid, cores=4)) == 8
