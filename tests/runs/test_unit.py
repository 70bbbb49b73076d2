"""Units: killed at any moment, damaged anywhere, carried elsewhere, they end with the same bytes."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from hopscope.runs import Evidence, RunFolder, UnitFolder

from .conftest import HERE, TINY, told


@pytest.mark.long
def test_killed_at_any_operation_the_same_command_ends_with_the_same_bytes(tmp_path):
    command = [sys.executable, HERE / "tiny.py", tmp_path, "17"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["differs"] == [] and found["last"] > 200


def test_a_unit_is_what_was_kept(run):
    unit = run.units[0]
    assert unit.name == "zwölf a" and [member.seed for member in unit.members] == [11, 13, 17]
    assert unit.steps == [0, 1, 2, 3, 6, 7] and unit.is_whole and unit.record["engine"] == "autograd"
    step, (arrays, metadata) = unit.latest()
    assert step == 7 and metadata == {"step": 7, "diverged_at": [None, None, None]}
    assert unit.diverged_at(3) == [None, None, None]
    assert {name.split("/")[0] for name in arrays} == {"weights", "optimiser"}
    assert all((arrays[f"weights/{name}"] == weight).all() for name, weight in unit.weights(7).items())
    norms = [row for row in unit.rows(after=2) if row["metric"] == "norm"]
    assert [row["step"] for row in norms] == [3, 4, 5, 6, 7] and norms[0]["member"] == [0, 1, 2]
    assert norms[0]["measure"] == "training" and len(norms[0]["value"]) == 3
    names = sorted(path.name for path in unit.path.glob("checkpoints/*.optimiser.*"))
    assert names == ["000000007.optimiser.safetensors"], "of the newest alone"


def test_missing_and_infinite_numbers_come_back(tmp_path):
    unit = UnitFolder(tmp_path / "units" / "a", tmp_path)
    values = [None, np.nan, np.inf, -np.inf, 2.5]
    unit.keep([{"metric": "x", "step": 0, "value": values}], ({"weights/a": np.zeros((5, 2))}, {"step": 0}))
    (row,) = unit.rows()
    np.testing.assert_array_equal(np.array(row["value"], float), np.array(values, float))


@pytest.mark.parametrize("step", [3, None])
def test_a_measure_is_kept_until_its_source_changes(step, run):
    unit, name, arrays = run.units[1], "größe/von (x)", {"maps": np.arange(6.0).reshape(2, 3)}
    rows = [
        {"metric": "m", "value": np.array([2.0, 3.0]), "file": "maps"},
        {"metric": "n", "member": 3, "value": 5.0},
    ]
    assert unit.measured(name, "one", step) is None
    found = unit.keep_measure(name, "one", step, rows, arrays)
    assert unit.measured(name, "one", step) == found and unit.measured(name, "two", step) is None
    assert unit.measured(name, "one", 6) is None
    numbers = [(row["member"], row["value"], row["measure"]) for row in found]
    assert numbers == [([3, 4], [2.0, 3.0], name), (3, 5.0, name)]
    evidence = Evidence.of(found, run.members, run.config, run.path)
    np.testing.assert_array_equal(evidence.arrays(found[0]["file"])["maps"], arrays["maps"])
    assert unit.is_whole, "what is new spoils nothing"
    unit.seal()
    unit.keep_measure(name, "two", step, [])
    assert not unit.is_whole, "its seal is of before"
    assert run.whole.keep_measure("w", "s", None, [{"metric": "m", "value": 7.0}])[0]["measure"] == "w"
    found = RunFolder(run.path).whole.measured("w", "s", None)
    assert found == [{"measure": "w", "metric": "m", "value": 7.0}]


NAMES = ("0", "3", "7", "7.optimiser")
CHECKPOINTS = [f"units/zwölf a/checkpoints/00000000{name}.safetensors" for name in NAMES]
FILES = [*CHECKPOINTS, "units/b/measures/largest@000000006.safetensors", "units/b/unit.json", "manifest.json"]


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [0.3, 0.9, "cut", "empty", "gone"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_damaged_is_made_again_to_the_same_bytes(name, damage, run, finished):
    path = run.path / name
    if isinstance(damage, float):
        flip(path, damage)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else 300])
    (run.path / "manifest.json").unlink(missing_ok=True)  # so that the command looks at the units again
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert TINY.content(TINY.make(run.path.parent.parent)) == TINY.content(finished)
    assert len(heard) == (name in CHECKPOINTS), "trained again, which one line tells"
    for words in (str(each.message) for each in heard):
        assert words.startswith(f"{run.units[0].path}/checkpoints/0000") and "\n" not in words
        assert ": expected a whole checkpoint, found " in words and words.endswith(
            "; the unit is trained again"
        )


@pytest.mark.parametrize("name", CHECKPOINTS[:3])
def test_nothing_is_read_from_a_damaged_checkpoint(name, run):
    flip(run.path / name, 0.6)
    unit, step = run.units[0], int(name[-21:-12])
    for ask in (lambda: unit.weights(step), lambda: unit.diverged_at(step), lambda: list(unit.rows())):
        with told(f"{step:09d}.safetensors: expected a whole checkpoint, found "):
            ask()
    assert not unit.is_whole and run.units[1].is_whole


def test_a_checkpoint_that_is_gone_or_another_is_told(run):
    unit = run.units[0]
    one, two = (unit.path / "checkpoints" / f"00000000{step}.safetensors" for step in (1, 2))
    two.unlink()
    with told(r"000000002\.safetensors: expected a whole checkpoint, found none"):
        list(unit.rows())
    two.write_bytes(one.read_bytes())
    with told("found one of step 1"):
        unit.weights(2)


def test_a_unit_goes_on_elsewhere(run, finished, tmp_path):
    """Stopped behind its fourth checkpoint, and carried to another folder."""

    def evaluate(ensemble):
        if ensemble.step == 5:
            raise InterruptedError
        return TINY.evaluate(ensemble)

    with pytest.raises(InterruptedError):
        TINY.make(tmp_path / "one", evaluate)
    (tmp_path / "one").rename(tmp_path / "zwei drei")
    (begun,) = (unit for unit in RunFolder.opened(tmp_path / "zwei drei").units if unit.steps)
    assert begun.steps == [0, 1, 2, 3] and begun.latest()[0] == 3 and not begun.is_whole
    assert TINY.content(TINY.make(tmp_path / "zwei drei")) == TINY.content(finished)


def test_a_full_disk_is_told_and_what_was_kept_stays(run, monkeypatch):
    unit = run.units[0]
    _, (arrays, metadata) = unit.latest()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: unit.keep([], (arrays, {**metadata, "step": 9})), unit.seal):
        with told(r"cannot write .*found: No space left on device; nothing written before"):
            write()
    monkeypatch.undo()
    assert unit.latest()[0] == 7 and unit.is_whole and not list(unit.path.rglob("*.tmp"))


def test_checkpoints_may_lie_on_another_disk(run, tmp_path):
    unit = run.units[0]
    shutil.move(unit.path / "checkpoints", tmp_path / "large")
    (unit.path / "checkpoints").symlink_to(tmp_path / "large")
    unit.seal()
    assert unit.is_whole and any("checkpoints/" in name for name in unit.digests)
    next((tmp_path / "large").glob("*3.safetensors")).write_bytes(b"cut")
    assert not unit.is_whole


def test_rules_of_a_unit_that_was_taken_over_are_not_lost_silently(run):
    unit, elsewhere = run.units[0], run.path.parent / "0123456789ab"
    own = replace(unit, path=elsewhere / "units" / unit.name, run_path=elsewhere)
    own.take_over(lambda other: None)
    assert not own.steps  # rules that are not known
    own.take_over(lambda other: {"C1": "old"})
    own.seal()
    (own.path / "taken.json").unlink()
    assert not own.is_whole
    with pytest.warns(UserWarning, match="taken.json.*; the unit is trained again"):
        assert own.latest() is None


def test_altered_rules_and_records_are_found_out(run):
    unit, elsewhere = run.units[0], run.path.parent / "0123456789ab"
    own = replace(unit, path=elsewhere / "units" / unit.name, run_path=elsewhere)
    own.take_over(lambda other: {"C1": "old"})
    assert own.latest() and own.taken["registration"] == {"C1": "old"}
    for file, one, other in (
        (own.path / "taken.json", b"registration", b"segistration"),
        (unit.path / "unit.json", b'"unit"', b'"init"'),
    ):
        file.write_bytes(file.read_bytes().replace(one, other))
    with pytest.warns(UserWarning, match="taken.json.*altered one; the unit is trained again"):
        assert own.latest() is None
    assert not unit.is_whole and unit.latest()


def test_what_was_measured_over_the_run_goes_when_a_unit_begins_again(run):
    run.whole.keep_measure("all", "source", None, [{"metric": "n", "value": 1.0}])
    arrays, metadata = run.units[0].latest()[1]
    run.units[0].keep([], (arrays, {**metadata, "step": 9}))
    assert run.whole.measured("all", "source", None)
    run.units[0].keep([], (arrays, {**metadata, "step": 0}))
    assert run.whole.measured("all", "source", None) is None


def test_taking_over_that_was_interrupted_is_taken_up_again(run, tmp_path):
    unit, elsewhere = run.units[0], run.path.parent / "0123456789ab"
    own = replace(unit, path=elsewhere / "units" / unit.name, run_path=elsewhere)
    own.take_over(lambda other: {"C1": other.name})
    assert own.steps == unit.steps and own.taken == {"registration": {"C1": unit.name}, "made_by": {}}
    for step in (0, 1):
        (own.path / "checkpoints" / f"00000000{step}.safetensors").unlink()
    own.take_over(lambda other: {"C1": other.name})
    assert own.steps == unit.steps and own.latest()[0] == unit.steps[-1]
