import json
import warnings

import numpy as np
import pytest

from hopscope.errors import UserError
from hopscope.runs.checkpoints import CheckpointDamaged, save_checkpoint, strip_checkpoint
from hopscope.runs.units import CheckpointWarning, UnitFolder


@pytest.fixture
def trained(unit, arrays):
    """A unit with checkpoints of steps 2, 3, 5 and 1000000007, each with the optimiser's state."""
    for step in (1_000_000_007, 2, 5, 3):
        save_checkpoint(
            unit.checkpoint_path(step), arrays | {"weights/step": np.array([step])}, {"step": step}
        )
    return unit


def damage(path):
    path.write_bytes(path.read_bytes()[:-1])


def test_a_unit_keeps_the_record_it_was_started_with(unit):
    assert unit.record == {"schema_version": 1, "unit": "bbb", "label": "d16"}
    assert unit.create({"label": "d32"}) == unit
    assert unit.record["label"] == "d16"


def test_a_record_that_is_missing_damaged_or_newer_is_refused(unit, unseal):
    unseal(unit.path)
    path = unit.path / "unit.json"
    path.write_text(json.dumps({"schema_version": 2}))
    with pytest.raises(UserError, match="made by a newer Hopscope"):
        unit.create({})
    path.write_text('{"schema')
    with pytest.raises(UserError, match=f"delete the folder {unit.path}"):
        unit.create({})
    path.unlink()
    with pytest.raises(UserError, match="found none"):
        _ = unit.record


def test_checkpoints_are_listed_by_step(trained):
    (trained.path / "checkpoints" / "step-mine.safetensors").write_bytes(b"")
    (trained.path / "checkpoints" / ".step-000000007.safetensors.tmp").write_bytes(b"")
    steps = (2, 3, 5, 1_000_000_007)
    assert trained.checkpoints() == [(step, trained.checkpoint_path(step)) for step in steps]
    assert trained.checkpoint_path(2).name == "step-000000002.safetensors"


def test_a_checkpoint_is_the_one_asked_for_or_the_last(trained):
    for asked, step in ((3, 3), (None, 1_000_000_007)):
        found, tensors, metadata = trained.checkpoint(asked)
        assert (found, metadata) == (step, {"step": step})
        assert tensors["weights/step"] == [step]


def test_a_checkpoint_that_is_not_there(trained, run):
    with pytest.raises(UserError, match="of step 7, found steps 2, 3, 5, 1000000007: choose one"):
        trained.checkpoint(7)
    with pytest.raises(UserError, match="expected a checkpoint, found none"):
        run.unit("aaa").checkpoint()


def test_a_checkpoint_under_another_ones_name_is_damaged(trained):
    trained.checkpoint_path(3).rename(trained.checkpoint_path(5))
    with pytest.raises(CheckpointDamaged, match="found one of step 3"):
        trained.checkpoint(5)


def test_training_goes_on_from_the_newest_checkpoint(trained, run):
    step, tensors, metadata = trained.resume_point()
    assert (step, metadata) == (1_000_000_007, {"step": 1_000_000_007})
    assert "optimiser/step" in tensors
    assert run.events() == []


def test_stripped_checkpoints_are_passed_over_in_silence(trained, run):
    for step in (5, 1_000_000_007):
        strip_checkpoint(trained.checkpoint_path(step))
    assert trained.resume_point()[0] == 3
    assert run.events() == []


def test_damaged_checkpoints_are_passed_over_aloud(trained, run):
    newest = trained.checkpoint_path(1_000_000_007)
    damage(newest)
    damage(trained.checkpoint_path(5))
    content = newest.read_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert trained.resume_point()[0] == 3
    assert [warning.category for warning in caught] == [CheckpointWarning] * 2
    messages = [str(warning.message) for warning in caught]
    assert str(newest) in messages[0]
    for message in messages:
        assert message.endswith("going on from step-000000003.safetensors instead")
        assert "\n" not in message
    assert newest.read_bytes() == content
    events = run.events()
    assert [event["kind"] for event in events] == ["checkpoint_damaged"] * 2
    assert events[1]["file"] == "units/bbb/checkpoints/step-000000005.safetensors"
    assert events[1]["instead"] == "step-000000003.safetensors"


def test_training_starts_anew_where_no_checkpoint_is_whole(unit, arrays):
    assert unit.resume_point() is None
    save_checkpoint(unit.checkpoint_path(2), arrays, {"step": 2})
    damage(unit.checkpoint_path(2))
    with pytest.warns(CheckpointWarning, match="starting from the beginning instead"):
        assert unit.resume_point() is None


def test_analyses_come_back(unit, arrays):
    path = unit.write_analysis("heads", 5, {"b": [2, None], "a": {"c": 0.1}})
    assert path == unit.analysis_path("heads", 5)
    assert path.name == "heads-step-000000005.json"
    assert unit.read_analysis("heads", 5) == {"b": [2, None], "a": {"c": 0.1}}
    path = unit.write_analysis("patterns", 5, arrays)
    assert path == unit.analysis_path("patterns", 5, "npz")
    found = unit.read_analysis("patterns", 5)
    assert found.keys() == arrays.keys()
    np.testing.assert_array_equal(found["weights/key"], arrays["weights/key"], strict=True)


def test_an_analysis_has_one_file(unit, arrays):
    unit.write_analysis("heads", 5, arrays)
    unit.write_analysis("heads", 5, {})
    assert unit.read_analysis("heads", 5) == {}
    unit.write_analysis("heads", 5, arrays)
    assert unit.read_analysis("heads", 5).keys() == arrays.keys()
    assert [path.name for path in (unit.path / "analysis").iterdir()] == ["heads-step-000000005.npz"]


def test_an_analysis_that_is_missing_or_cut_short_is_refused(unit, arrays):
    with pytest.raises(UserError, match="found none"):
        unit.read_analysis("heads", 5)
    for value in ({"a": 1}, arrays):
        path = unit.write_analysis("heads", 5, value)
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(UserError, match="delete it and run the same command again") as caught:
            unit.read_analysis("heads", 5)
        assert str(path) in str(caught.value)


def test_done(unit):
    assert not unit.is_done
    unit.mark_done()
    assert UnitFolder(unit.path).is_done


def test_a_unit_is_locked_apart_from_its_run(unit, run):
    with run.lock(), unit.lock(), pytest.raises(UserError, match="working on this unit"), unit.lock(0.1):
        pass


@pytest.mark.parametrize("units", [None, [], "units", {"another": {"schema_version": 1}}])
def test_a_slim_record_without_the_unit_is_refused(tmp_path, units):
    (tmp_path / "units.json").write_text(json.dumps({"schema_version": 1, "units": units}))
    with pytest.raises(UserError, match=r"units\.json: expected a record with a schema version"):
        _ = UnitFolder(tmp_path / "units" / "aaaaaaaaaaaa").record


@pytest.mark.parametrize("findings", ["null", "[2, 3]", "7"])
def test_findings_of_another_kind_are_refused(tmp_path, findings):
    unit = UnitFolder(tmp_path / "units" / "aaaaaaaaaaaa")
    path = unit.analysis_path("floors", 7)
    path.parent.mkdir(parents=True)
    path.write_text(findings)
    with pytest.raises(UserError, match="expected findings by name"):
        unit.read_analysis("floors", 7)
