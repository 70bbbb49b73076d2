"""Units that go on with other programs than they began with."""

import json
import shutil

import pytest

from hopscope.executors import local
from hopscope.executors.healing import RecordWarning
from hopscope.executors.programs import tell_other_programs
from hopscope.runs import RunFolder
from hopscope.runs.seals import SEALS

pytestmark = pytest.mark.usefixtures("units_here")


def edit(run, **versions):
    """The run as if other programs had begun its unit."""
    (path,) = run.glob("units/*/unit.json")
    record = json.loads(path.read_text())
    record["source_hash"] = versions.pop("source", record["source_hash"])
    record["versions"] |= versions
    (path.parent / SEALS).unlink()
    path.write_text(json.dumps(record))


def events(run):
    return [event for event in RunFolder(run).events() if event["kind"] == "other_programs"]


def test_a_run_that_goes_on_with_other_programs_says_so_once(unfinished, rerun):
    edit(unfinished, torch="0.1.2", numpy="0.3.5", source="0123456789ab")
    ended = rerun()
    assert ended.status == 0, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "programs" in line]
    assert line.startswith(
        f"hopscope: warning: {unfinished}: expected the programs with which 1 of its units began (torch 0.1.2, "
        "NumPy 0.3.5, Hopscope's source 0123456789ab), found torch "
    )
    (event,) = events(unfinished)
    assert event["before"] == {"torch": ["0.1.2"], "NumPy": ["0.3.5"], "Hopscope's source": ["0123456789ab"]}
    assert event["now"]["torch"] == local.versions()["torch"]
    assert event["units"] == [unit.hash for unit in RunFolder(unfinished).units]
    assert "programs" not in rerun().stderr  # nothing is left to do


def test_the_same_programs_and_another_python_are_no_news(unfinished, rerun):
    edit(unfinished, python="2.7.1", source=local.source_hash())
    assert "programs" not in rerun().stderr
    assert not events(unfinished)


def test_a_unit_without_a_checkpoint_begins_here(unfinished, recwarn):
    edit(unfinished, torch="0.1.2")
    (unit,) = RunFolder(unfinished).units
    here = {"versions": local.versions(), "source_hash": unit.record["source_hash"]}
    with pytest.warns(RecordWarning, match=r"began \(torch 0\.1\.2\), found torch "):
        tell_other_programs(unit.run, [unit], here, None)
    shutil.rmtree(unit.path / "checkpoints")
    tell_other_programs(unit.run, [unit], here, None)
    assert len(events(unfinished)) == 1


@pytest.mark.parametrize("record", [{"versions": [2]}, {"versions": {"torch": 3}}, {"source_hash": None}])
def test_what_is_not_on_record_is_not_compared(unfinished, record):
    (unit,) = RunFolder(unfinished).units
    (unit.path / SEALS).unlink()
    known = {name: value for name, value in unit.record.items() if name not in ("versions", "source_hash")}
    (unit.path / "unit.json").write_text(json.dumps(known | record))
    tell_other_programs(unit.run, [unit], {"versions": {"torch": "0"}, "source_hash": "0"}, None)
    assert not events(unfinished)
