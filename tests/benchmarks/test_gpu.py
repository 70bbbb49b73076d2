"""The GPU's benchmark, tried on a CPU: the same steps, with the compiler left out."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from rich.console import Console

from hopscope.training.engines import torch_compile

Load = Callable[[str], ModuleType]


@pytest.fixture
def gpu(load: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(torch_compile, "_compiled", lambda work, backend: work)
    return load("gpu")


def test_every_way_is_measured_at_every_depth(gpu: ModuleType, tmp_path: Path) -> None:
    out, printed = tmp_path / "gpu.json", io.StringIO()
    words = ["--device", "cpu", "--preset", "smoke", "--rounds", "2", "--seconds", "0.02", "--out", str(out)]
    threads = torch.get_num_threads()
    assert gpu.main(words, Console(file=printed, width=200)) == 0
    assert torch.get_num_threads() == threads
    result = json.loads(out.read_text(encoding="utf-8"))
    assert "says nothing of a GPU" in result["device"] and result["peak_operations_per_second"] is None
    rows = result["rows"]
    assert [row["label"] for row in rows] == [
        f"{asked} D=2, {layers}" for asked in ("IC", "non-IC") for layers in ("1 layer", "3 layers")
    ]
    for row in rows:
        assert list(row["ways"]) == ["ours", "compiled one", "graph one", "eager one"]
        assert [way["members"] for way in row["ways"].values()] == [2, 1, 1, 1]
        assert set(row["ratios"]) == {"compiled one", "graph one", "eager one"}
        assert len(row["ways"]["ours"]["seconds_per_step"]["rounds"]) == 2
        assert 0 < row["of_bandwidth"] < 10 and row["of_peak_operations"] is None
    assert all(each["ours"] < 1e-4 for each in result["agreement"].values())
    assert result["whole_study"]["models"] == 8
    assert "all units, by sampled steps, graph one" in printed.getvalue()


def test_what_was_measured_outlives_a_machine_that_goes(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed, calls = gpu.timed, []

    def once(*given: object) -> object:
        calls.append(given)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return timed(*given)

    monkeypatch.setattr(gpu, "timed", once)
    out = tmp_path / "gpu.json"
    words = ["--device", "cpu", "--preset", "smoke", "--rounds", "1", "--seconds", "0.02", "--out", str(out)]
    with pytest.raises(KeyboardInterrupt):
        gpu.main(words, Console(file=io.StringIO()))
    result = json.loads(out.read_text(encoding="utf-8"))
    assert [row["label"] for row in result["rows"]] == ["IC D=2, 1 layer"]
    assert result["whole_study"]["models"] == 2


def test_the_whole_study_is_all_models_at_all_depths(gpu: ModuleType) -> None:
    def way(seconds: float, members: int) -> dict[str, object]:
        return {"seconds_per_step": {"median": seconds}, "members": members}

    rows = [
        {"label": "shallow", "steps": 60, "ways": {"ours": way(0.5, 5), "eager one": way(0.25, 1)}},
        {"label": "deep", "steps": 60, "ways": {"ours": way(1.0, 5), "eager one": way(0.75, 1)}},
    ]
    found = gpu.whole_study(rows, {"shallow": 10, "deep": 20})
    assert found["minutes_by_sampled_steps"] == pytest.approx({"ours": 1.0 + 4.0, "eager one": 2.5 + 15.0})
    assert found["over_ours"] == pytest.approx({"eager one": 3.5}) and found["models"] == 30


def test_bytes_moved_grow_with_all_that_grows(gpu: ModuleType) -> None:
    (job, *_), _ = gpu.chosen_jobs("paper", [8])
    model, training = job.model, job.training
    # A member's positions, times layers, times what a position costs: 32 widths, 16 and 8 hidden sizes for the MLP.
    expected = 3 * 8 * 512 * 44 * 8 * (32 * 128 + 16 * 128 + 8 * 512)
    assert (model.width, model.mlp_size, training.batch_size, len(job.members)) == (128, 512, 512, 8)
    assert gpu.bytes_moved(job) == expected


def test_a_step_that_is_not_finite_is_no_speed(gpu: ModuleType) -> None:
    with pytest.raises(gpu.UserError, match="expected a finite training loss"):
        gpu.seconds_per_step(lambda: torch.tensor([1.0, float("nan")]), "cpu", 0.001)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "bench: expected a CUDA device for --suite gpu, found none"),
        (["--ways", "ours", "theirs"], "--ways: expected names out of ours, compiled one"),
        (["--rounds", "0"], "--rounds: expected at least 1, found 0"),
        (["--device", "cpu", "--preset", "smoke", "--layers", "7"], "--layers: expected some of 1, 3"),
    ],
)
def test_refusals_are_one_line(
    gpu: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    found: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as left:
        gpu.main(words)
    said = capsys.readouterr()
    assert left.value.code == 2 and said.out == ""
    assert found in said.err and said.err.count("\n") == 1
