"""The reading benchmark: its model is what it says, and its times are of readings that found what was planted."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar

Load = Callable[[str], ModuleType]


FAKE = """
import json, pathlib, sys
way = sys.argv[2]
trace = pathlib.Path(__file__).with_name("trace.txt")
calls = trace.read_text().split() if trace.exists() else []
trace.write_text(" ".join([*calls, way]))
turn, given = calls.count(way), sys.argv[3:]
{body}
print(json.dumps({{"seconds": None if "--only-search" in given else 10.0 + turn, "search_seconds": search * 7,
                  "cpu_seconds": None if "--only-search" in given else 8.0 + turn, "search_cpu_seconds": search,
                  "search_passes": 31, "search_layers": layers, "found": found, "peak_memory_mb": 17.0 + turn,
                  "settings": {{"way": way, "only_search": way == "afresh", "threads": given[-1], "layers": 12}}}}))
"""
SOUND = 'found = "same"; search = {"kept": [2, 3, 5], "afresh": [6, 6, 20]}[way][turn]; layers = len(way)'


def play(load: Load, folder: Path, body: str, *words: str) -> tuple[int, dict[str, Any] | None, str]:
    script, out, printed = folder / "fake.py", folder / "result.json", io.StringIO()
    script.write_text(FAKE.format(body=body), encoding="utf-8")
    argv = ["--out", str(out), *words]
    status = load("reading").main(argv, script, Console(file=printed, width=150))
    result = json.loads(out.read_text(encoding="utf-8")) if out.exists() else None
    return status, result, printed.getvalue()


def test_ratios_are_taken_within_a_round(load: Load, tmp_path: Path) -> None:
    status, result, printed = play(load, tmp_path, SOUND, "--threads", "2")
    assert status == 0 and result is not None
    assert (tmp_path / "trace.txt").read_text().split() == [
        "kept",
        "afresh",
        "afresh",
        "kept",
        "kept",
        "afresh",
    ]
    assert result["search_cpu_seconds"]["kept"] == {"median": 3, "min": 2, "max": 5, "rounds": [2, 3, 5]}
    assert result["search_seconds"]["afresh"]["rounds"] == [42, 42, 140]
    assert result["cpu_seconds"]["rounds"] == [8, 9, 10]
    assert result["search_afresh_over_kept"]["rounds"] == [3, 2, 4]
    assert result["seconds"] == {"median": 11, "min": 10, "max": 12, "rounds": [10, 11, 12]}
    assert result["search_layers"] == {"kept": 4, "afresh": 6}
    assert result["settings"] == {"threads": "2", "layers": 12}
    assert (result["disturbed"], result["peak_memory_mb"], result["aim_seconds"]) == (True, 19, 180)
    assert "3.00 [2.00–4.00]" in printed and "disturbed" in printed


def test_steps_that_differ_are_no_result(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result, _ = play(load, tmp_path, SOUND.replace('"same"', "way"))
    assert (status, result) == (1, None)
    assert "round 1: expected the same steps of the search in both ways" in capsys.readouterr().err


def test_a_process_that_fails_is_no_result(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result, _ = play(load, tmp_path, f"{SOUND}\nif way == 'afresh': sys.exit('void')")
    assert (status, result) == (1, None)
    assert capsys.readouterr().err == "reading: afresh: void\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [(["--rounds", "0"], "--rounds"), (["--threads", "0"], "--threads"), (["--orders", "-1"], "--orders")],
)
def test_a_bad_option_is_one_line_and_status_2(
    load: Load, capsys: pytest.CaptureFixture[str], words: list[str], found: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load("reading").main(words)
    error = capsys.readouterr().err
    assert (stopped.value.code, error.count("\n")) == (2, 1)
    assert found in error and "expected at least" in error


def test_the_documentation_shows_both_ways(
    load: Load, tmp_path: Path, docs_tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(load, tmp_path, SOUND)
    shown = docs_tables.TABLES["reading"](str(tmp_path / "result"))
    assert "| whole reading | 11.0 (10.0 to 12.0) | 9.0 (8.0 to 10.0) |  |  |\n" in shown
    assert (
        "| search, every pass from the bottom | 42.0 (42.0 to 140.0) | 6.0 (6.0 to 20.0) | 31 | 6 |\n"
        in shown
    )
    assert "within a round: 3.00 (2.00 to 4.00)." in shown


# The model.


@pytest.fixture(scope="module")
def plant(load: Load) -> Any:
    return load("_hidden_plant").hidden_plant()


def execution_of(plant: Any) -> Execution:
    batch = plant.task.sample(torch.tensor([3]), "test", 1, 13)
    return Execution(plant.model, Grammar(batch, causal=True, words=plant.task.role_values))


def test_the_model_has_the_shape_that_is_promised_and_solves_its_task(plant: Any) -> None:
    assert plant.shape == {
        "layers": 12,
        "heads": 1,
        "width": 128,
        "head_size": 128,
        "mlp_size": 512,
        "steps": 3,
        "chains": 4,
        "symbol_dim": 4,
    }
    run = execution_of(plant)
    assert float(plant.task.losses(run.clean.predictions, run.grammar.batch)["loss"]) < 1e-6


def test_random_layers_are_as_busy_as_trained_ones(plant: Any, load: Load) -> None:
    run, places = execution_of(plant), load("_hidden_plant").PLACES
    last = run.model.blocks[-1].under(run.clean.streams[-1], run.patterns[-1])
    streams = [*run.clean.streams, last]
    for layer, pattern in enumerate(run.patterns):
        if layer not in places:
            # The last row sees 28 tokens: an even share is 1/28.
            assert 0.1 < float(pattern[0, :, 0, -1].max(-1).values.mean()) < 0.9
        before, after = (stream[..., 64:] for stream in streams[layer : layer + 2])
        assert float((after - before).std()) > 0.3


def test_the_planted_reads_are_the_circuit(plant: Any) -> None:
    run = execution_of(plant)
    rules = {}
    for layer, rows, target in plant.truth:
        role = next(n for n, roles in enumerate(run.grammar.roles) if run.grammar.words(roles) == rows)
        rules[layer, 0, role] = next(
            rule for rule in run.grammar.rules(role) if run.grammar.target(role, rule) == target
        )
    alone = run.assigned(run.untouched(), {slot: run.grammar.rules(slot[2])[0] for slot in run.slots} | rules)
    circuit = Circuit.of(alone, run.grammar)
    assert plant.is_truth(circuit)
    assert not plant.is_truth(circuit.model_copy(update={"paths": circuit.paths[1:]}))
    for mode in ("rules", "recomputed"):
        predictions = run.run(alone, mode).predictions
        assert float(plant.task.losses(predictions, run.grammar.batch)["loss"]) < 1e-3


# One reading, of a smaller model.


@pytest.fixture
def small(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LAYERS": 5, "PLACES": (0, 2, 4), "MLP_SIZE": 64}.items():
        monkeypatch.setattr(load("_hidden_plant"), name, value)


def read(load: Load, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status = load("hopscope_reading").main(
        ["--only-search", "--orders", "0", "--samples", "3", "--threads", "1", *words]
    )
    assert status == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("small")
def test_both_ways_take_the_same_steps_and_one_runs_fewer_layers(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, afresh = (read(load, capsys, "--way", way) for way in ("kept", "afresh"))
    assert kept["found"] == afresh["found"]
    assert kept["settings"]["layers"] == 5
    assert kept["search_passes"] == afresh["search_passes"] > 50
    assert afresh["search_layers"] == 5 * afresh["search_passes"]
    assert kept["search_layers"] < 0.9 * afresh["search_layers"]


@pytest.mark.usefixtures("small")
def test_a_wrong_circuit_voids_the_time(
    load: Load, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load("hopscope_reading")
    monkeypatch.setattr(script.HiddenPlant, "is_truth", lambda *_: False)
    assert script.main(["--only-search", "--orders", "0", "--samples", "2"]) == 1
    assert capsys.readouterr().err.endswith("expected the planted circuit, found another; the time is void\n")


def test_what_is_left_out_is_the_readers_own(load: Load) -> None:
    options = load("hopscope_reading").read_options([])
    assert (options.samples, options.orders, options.threads) == (48, 4, 1)
