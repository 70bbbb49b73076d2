import json

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.runs import (
    RunFolder,
    frozen_members,
    is_thinned,
    load_checkpoint,
    note_thinned,
    save_checkpoint,
    save_rounded,
    steps_left_out,
    write_json,
)

UNIT = "aaaaaaaaaaaa"


@pytest.fixture
def unit(tmp_path):
    """A unit of three members, of which the second was frozen."""
    members = [{"member": n, "unit": UNIT, "index": n, "seed": n, "overrides": {}} for n in range(3)]
    run = RunFolder.create(tmp_path, "permutation", {"seeds": 3}, members, None)
    unit = run.unit(UNIT).create({"label": "made up"})
    weights = np.array([[0.1, -3.0, 1e-9], [7e4, 0.0, 1.0]], dtype=np.float32)
    arrays = {"weights/x": weights[0], "weights/large": weights[1], "optimiser/first_moment": weights[0]}
    save_checkpoint(unit.checkpoint_path(7), arrays, {"step": 7, "frozen_at": [-1, 5, -1]})
    return unit


def test_weights_lose_digits_and_nothing_else(unit, tmp_path):
    save_rounded(unit.checkpoint_path(7), tmp_path / "rounded.safetensors")
    full, _ = load_checkpoint(unit.checkpoint_path(7))
    found, metadata = load_checkpoint(tmp_path / "rounded.safetensors")
    assert metadata == {"step": 7, "frozen_at": [-1, 5, -1], "rounded": ["weights/x"]}
    assert set(found) == {"weights/x", "weights/large"}
    assert found["weights/x"].dtype == np.float16
    np.testing.assert_allclose(found["weights/x"], full["weights/x"], rtol=2.0**-11, atol=1e-7)
    # 70,000 is beyond float16.
    assert found["weights/large"].dtype == np.float32
    np.testing.assert_array_equal(found["weights/large"], full["weights/large"])


def test_who_diverged_is_known_with_the_checkpoint_and_without(unit):
    assert not is_thinned(unit) and steps_left_out(unit) == []
    assert frozen_members(unit, 7) == {1}
    unit.checkpoint_path(7).unlink()
    with pytest.raises(UserError, match="expected a checkpoint, found none"):
        frozen_members(unit, 7)
    note_thinned(unit.path, [], {7, 3}, {1})
    assert is_thinned(unit) and steps_left_out(unit) == [3, 7]
    assert frozen_members(unit, 7) == {1}


def test_a_damaged_note_is_one_clear_line(unit, unseal):
    unseal(unit.path)
    (unit.path / "thinned.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"thinned\.json"):
        steps_left_out(unit)
    (unit.path / "thinned.json").write_text(json.dumps({"left_out": [2]}), encoding="utf-8")
    assert steps_left_out(unit) == [2]


@pytest.mark.parametrize(
    "note",
    [
        [],
        {},
        {"left_out": 4},
        {"left_out": ["²"]},
        {"left_out": [None]},
        {"left_out": [-1]},
        {"left_out": [True]},
    ],
)
def test_a_note_that_says_something_else_is_refused(unit, note):
    write_json(unit.path / "thinned.json", note)
    with pytest.raises(UserError, match=r"thinned\.json: expected a list of whole numbers as left_out"):
        steps_left_out(unit)
