"""The cost of named draws beside words drawn by hand: the same kind of batches, and a record that tells them apart."""

import json

import pytest
import torch


@pytest.fixture
def script(load):
    return load("draws")


@pytest.mark.parametrize("task", ["tokens", "vectors", "permutation"])
@pytest.mark.parametrize("size", ["one step of 8 members", "many steps of 4 members"])
def test_both_ways_draw_the_same_kind_of_batch(script, task, size):
    first, second = (work() for work in script.ways(task, size).values())
    assert first.inputs.shape == second.inputs.shape and first.inputs.dtype == second.inputs.dtype
    assert first.targets.shape == second.targets.shape
    for one, other in ((first.inputs, second.inputs), (first.targets, second.targets)):
        one, other = one.double(), other.double()
        assert not torch.equal(one, other)
        torch.testing.assert_close(one.mean(), other.mean(), rtol=0.15, atol=0.15)
        torch.testing.assert_close(one.std(), other.std(), rtol=0.15, atol=0.05)


def test_what_was_measured_is_written(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(script, "SIZES", {"small": (2, 3, 5)})
    monkeypatch.setattr(script, "ALLOWED", 100.0)
    path = tmp_path / "draws.json"
    assert script.main(["--rounds", "3", "--seconds", "0.001", "--to", str(path)]) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    assert [cell["task"] for cell in result["cells"]] == list(script.TASKS)
    for cell in result["cells"]:
        ratio = cell["draws_over_hand"]
        assert ratio["min"] <= ratio["median"] <= ratio["max"] and len(ratio["rounds"]) == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1]).keys() == {
        f"{task}, small" for task in script.TASKS
    }
    monkeypatch.setattr(script, "ALLOWED", 0.0)
    assert script.main(["--rounds", "1", "--seconds", "0.001"]) == 1
    with pytest.raises(SystemExit):
        script.main(["--rounds", "0"])
