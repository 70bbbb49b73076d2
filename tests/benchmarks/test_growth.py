import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

Load = Callable[[str], ModuleType]


# Prints a speed that is a formula of its options, and leaves a trace of every call.
FAKE = """
import json, pathlib, sys
options = dict(zip(sys.argv[1:-1:2], sys.argv[2::2]))
point = options["--members"] + "/" + options["--layers"] + "/" + options["--engine"]
trace = pathlib.Path(__file__).with_name("trace.txt")
calls = trace.read_text().split() if trace.exists() else []
trace.write_text(" ".join([*calls, point]))
turn = calls.count(point)
members = int(options["--members"])
{body}
print(json.dumps({{"name": "fake", "samples_per_second": speed, "peak_memory_mb": 10.0 + turn, "loss": 1.0,
                  "settings": {{"engine": "fused" if options["--engine"] == "auto" else "general", **options}}}}))
"""


def grow(load: Load, folder: Path, body: str, *words: str, **axes: Any) -> tuple[int, dict[str, Any], str]:
    script, out, printed = folder / "fake.py", folder / "result.json", io.StringIO()
    script.write_text(FAKE.format(body=body), encoding="utf-8")
    growth = load("growth")
    chosen = axes.get("axes") or [
        growth.Axis("members", (2, 8)),
        growth.Axis("layers", (1, 3), {"engine": "general"}),
    ]
    model = replace(growth.MODELS["permutation"], script=script, axes=tuple(chosen))
    argv = ["--seconds", "1", "--out", str(out), *words]
    status = growth.main(argv, {"permutation": model}, Console(file=printed, width=170))
    return status, json.loads(out.read_text(encoding="utf-8")), printed.getvalue()


def trace(folder: Path) -> list[str]:
    return (folder / "trace.txt").read_text(encoding="utf-8").split()


def test_points_take_turns_and_every_other_round_goes_backwards(load: Load, tmp_path: Path) -> None:
    grow(load, tmp_path, "speed = 7", "--rounds", "3")
    there = ["2/1/auto", "8/1/auto", "8/1/general", "8/3/general"]
    assert trace(tmp_path) == [*there, *there[::-1], *there]


def test_rows_hold_speed_cost_and_memory(load: Load, tmp_path: Path) -> None:
    body = "speed = {2: [500, 400, 250], 8: [1000, 800, 2000]}[members][turn]"
    status, result, printed = grow(load, tmp_path, body, "--rounds", "3", "--axes", "members")
    assert status == 0
    first, second = result["rows"]
    assert (first["axis"], first["value"], first["engine"], first["status"]) == ("members", 2, "fused", "ok")
    assert first["settings"] == {"members": 2, "values": 5, "layers": 1, "width": 32, "heads": 2}
    assert first["samples_per_second"] == {"median": 400, "min": 250, "max": 500, "rounds": [500, 400, 250]}
    cost = {"median": 2500, "min": 2000, "max": 4000, "rounds": [2000, 2500, 4000]}
    assert first["microseconds_per_sample"] == cost
    assert first["peak_memory_mb"] == 12.0
    assert (first["disturbed"], second["disturbed"]) == (True, True)
    assert (second["value"], second["samples_per_second"]["median"]) == (8, 1000)
    assert {
        "schema_version": 2,
        "suite": "growth",
        "model": "permutation",
        "batch": 256,
    }.items() <= result.items()
    assert result["provenance"]["versions"]["torch"]
    assert "400 [250–500]" in printed
    assert "2,500.00 [2,000.00–4,000.00]" in printed


def test_every_process_has_one_thread_and_the_same_batch(load: Load, tmp_path: Path) -> None:
    body = "speed = 3 if (options['--threads'], options['--batch']) == ('1', '256') else sys.exit('no')"
    status, _, _ = grow(load, tmp_path, body, "--rounds", "1")
    assert status == 0


def test_a_point_of_two_axes_is_measured_once_and_stands_in_both(load: Load, tmp_path: Path) -> None:
    axes = [load("growth").Axis("members", (8, 2)), load("growth").Axis("layers", (1, 3))]
    _, result, _ = grow(load, tmp_path, "speed = 5 * members + turn", "--rounds", "1", axes=axes)
    assert trace(tmp_path) == ["8/1/auto", "2/1/auto", "8/3/auto"]
    found = [(row["axis"], row["value"], row["samples_per_second"]["median"]) for row in result["rows"]]
    assert found == [("members", 8, 40), ("members", 2, 10), ("layers", 1, 40), ("layers", 3, 40)]


def test_a_point_that_fails_sits_out_and_the_others_go_on(load: Load, tmp_path: Path) -> None:
    body = "speed = sys.exit('out of memory [a]') if members == 2 and turn == 1 else 6"
    status, result, printed = grow(load, tmp_path, body, "--rounds", "3", "--axes", "members")
    assert status == 1
    failed, sound = result["rows"]
    assert (failed["status"], failed["message"]) == ("failed", "round 2: out of memory [a]")
    assert failed["samples_per_second"]["rounds"] == [6, None, None]
    assert (sound["status"], sound["samples_per_second"]["rounds"]) == ("ok", [6, 6, 6])
    assert trace(tmp_path).count("2/1/auto") == 2
    assert "out of memory [a]" in printed


def test_a_point_without_any_round_has_no_numbers(load: Load, tmp_path: Path) -> None:
    status, result, _ = grow(load, tmp_path, "sys.exit('gone')", "--rounds", "2", "--axes", "members")
    assert status == 1
    for row in result["rows"]:
        empty = ("engine", "samples_per_second", "microseconds_per_sample", "peak_memory_mb")
        assert [row[name] for name in empty] == [None] * 4
        assert row["disturbed"] is False


def test_the_axes_meet_in_the_base_and_only_the_permutation_s_depth_is_by_the_general_engine(
    load: Load,
) -> None:
    growth = load("growth")
    values = {name: {axis.name: axis.values for axis in model.axes} for name, model in growth.MODELS.items()}
    assert values == {
        "permutation": {
            "members": (1, 2, 4, 8, 16, 32, 64),
            "values": (3, 4, 5, 6, 7, 8),
            "layers": (1, 2, 3, 4, 6),
            "width": (8, 16, 32, 64),
        },
        "depth": {
            "members": (1, 2, 4, 8, 16),
            "layers": (1, 2, 3, 4, 6, 8, 12),
            "steps": (1, 2, 3, 4, 6, 8),
        },
    }
    for name, model in growth.MODELS.items():
        for axis in model.axes:
            engine = "general" if (name, axis.name) == ("permutation", "layers") else "auto"
            assert {**model.base, "engine": engine} in model.settings(axis)
            assert {each["engine"] for each in model.settings(axis)} == {engine}
    assert len(growth.points_of(growth.MODELS["permutation"])) == 7 + 6 + 5 + 4 - 2
    assert len(growth.points_of(growth.MODELS["depth"])) == 5 + 7 + 6 - 2


def words_of(point: Any) -> list[str]:
    return [word for name, value in point.settings.items() for word in (f"--{name}", str(value))]


def test_every_point_is_a_model_that_our_contestant_takes(load: Load) -> None:
    ours = load("hopscope_ensemble")
    for point in load("growth").points_of(load("growth").MODELS["permutation"]):
        options = ours.options_of(words_of(point))
        job = ours.job_of(7, options.members, 0, options.values, options.layers, options.width, options.heads)
        assert ours.engine_of(options.engine, job) in ("general", "fused")
        found = (len(job.members), job.task.values, job.model.layers, job.model.width, job.model.heads)
        assert found == tuple(
            point.settings[name] for name in ("members", "values", "layers", "width", "heads")
        )
        assert job.model.mlp_size == 2 * job.model.width


def test_every_point_of_the_deep_models_is_one_that_our_contestant_takes(load: Load) -> None:
    ours = load("hopscope_depth")
    for point in load("growth").points_of(load("growth").MODELS["depth"]):
        options = ours.options_of(words_of(point))
        job = ours.job_of(load("_depth").shape_of(options), 7, options.members, 0)
        assert load("hopscope_ensemble").engine_of(options.engine, job) in ("general", "stacked")
        found = (len(job.members), job.task.steps, job.model.layers, job.model.width, job.model.heads)
        assert found == tuple(
            point.settings[name] for name in ("members", "steps", "layers", "width", "heads")
        )
        assert job.model.mlp_size == 0


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--seconds", "inf"], "--seconds"),
        (["--axes", "depth"], "depth"),
        (["--out", "no/such/folder/out.json"], "no/such/folder"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], words: list[str], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("growth").main(words)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert found in error
    assert "expected" in error


def test_real_points_train(load: Load, tmp_path: Path) -> None:
    growth, out = load("growth"), tmp_path / "growth.json"
    axes = (growth.Axis("members", (3,)), growth.Axis("layers", (2,), {"engine": "general"}))
    models = {"permutation": replace(growth.MODELS["permutation"], axes=axes)}
    words = ["--rounds", "1", "--seconds", "0.05", "--out", str(out)]
    assert growth.main(words, models, Console(file=io.StringIO())) == 0
    shallow, deep = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert shallow["engine"] in ("fused", "general")
    assert deep["engine"] == "general"
    for row in (shallow, deep):
        speed, cost = row["samples_per_second"]["median"], row["microseconds_per_sample"]["median"]
        assert speed * cost == pytest.approx(1e6)
        assert row["peak_memory_mb"] > 50
        assert 1.0 < row["loss"][0] < 3.0


def test_a_real_point_of_a_deep_model_trains(load: Load, tmp_path: Path) -> None:
    growth, out = load("growth"), tmp_path / "growth.json"
    model = growth.MODELS["depth"]
    small = {**model.base, "members": 2, "layers": 2}
    models = {"depth": replace(model, base=small, axes=(growth.Axis("steps", (2,)),))}
    words = ["--model", "depth", "--rounds", "1", "--seconds", "0.05", "--out", str(out)]
    assert growth.main(words, models, Console(file=io.StringIO())) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    (row,) = result["rows"]
    assert (result["model"], result["batch"], row["value"]) == ("depth", 64, 2)
    assert row["engine"] in ("stacked", "general")
    assert 0.5 < row["loss"][0] < 1.5


def test_the_documentation_shows_every_point(load: Load, tmp_path: Path, docs_tables: ModuleType) -> None:
    body = "speed = 8000 * members - turn if members == 2 else 16000"
    _, result, _ = grow(load, tmp_path, body, "--rounds", "2")
    shown = docs_tables.TABLES["growth"](str(tmp_path / "result"))
    assert "By members, with V 5, layers 1, width 32, heads 2, batch 256, one thread:" in shown
    assert "By layers, with members 8, V 5, width 32, heads 2, batch 256, one thread:" in shown
    assert "| 2 | fused | 16,000 (15,999 to 16,000) | 62.50 (62.50 to 62.50) | 11 |\n" in shown
    assert "| 3 | general | 16,000 (16,000 to 16,000) | 62.50 (62.50 to 62.50) | 11 |\n" in shown
    assert sum(line.startswith("| ") and line[2].isdigit() for line in shown.splitlines()) == len(
        result["rows"]
    )


def test_the_picture_shows_every_axis(load: Load, tmp_path: Path) -> None:
    grow(load, tmp_path, "speed = members * 7")
    drawn = (tmp_path / "result.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg") and "members" in drawn and "layers" in drawn
    spec = load("_plot").growth_chart(json.loads((tmp_path / "result.json").read_text())).to_dict()
    members, layers = spec["hconcat"]
    # 1e6 microseconds over 7 samples a second for each of two and of eight members.
    assert [point["median"] for point in members["data"]["values"]] == pytest.approx([1e6 / 14, 1e6 / 56])
    # A line in proportion stands beside layers, but not beside members.
    assert (len(members["layer"]), len(layers["layer"])) == (2, 3)
