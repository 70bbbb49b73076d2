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


def test_what_was_measured_is_written(script, tmp_path, capsys):
    path = tmp_path / "draws.json"
    assert script.main(["--rounds", "3", "--seconds", "0.001", "--to", str(path)], allowed=100.0) == 0
    result = json.loads(path.read_text(encoding="utf-8"))
    cells = [f"{task}, {size}" for task in script.TASKS for size in script.SIZES]
    assert [f"{cell['task']}, {cell['size']}" for cell in result["cells"]] == cells
    for cell in result["cells"]:
        ratio = cell["draws_over_hand"]
        assert ratio["min"] <= ratio["median"] <= ratio["max"] and len(ratio["rounds"]) == 3
    assert list(json.loads(capsys.readouterr().out.splitlines()[-1])) == cells
    assert script.main(["--rounds", "1", "--seconds", "0.001"], allowed=0.0) == 1
    with pytest.raises(SystemExit):
        script.main(["--rounds", "0"])
