"""What a sink gets is what the run recorded: each number once, whatever was sent before."""

import json
import shutil
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import UserError
from hopscope.executors.tracking.follower import SENT, Follower, points_of, tracked_run, tracking_folder
from hopscope.executors.tracking.sinks import Point
from hopscope.runs import RunFolder
from hopscope.runs.metrics import METRICS_SCHEMA, parts, write_part


class Listed:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.verdicts: dict[str, str] = {}
        self.calls = 0

    def write(self, points):
        assert points
        self.calls += 1
        self.points += points

    def conclude(self, verdicts):
        self.verdicts |= verdicts

    def close(self):
        raise AssertionError("a follower does not close its sink")


class FullDisk(Listed):
    def write(self, points):
        raise OSError(28, "No space left on device")


def recorded(folder: RunFolder) -> set[Point]:
    table = folder.metrics().to_pylist()
    return {
        Point(row["member"], row["step"], f"{row['metric']}/{row['split']}", row["value"]) for row in table
    }


def test_everything_is_sent_once(finished, tmp_path):
    sink = Listed()
    assert Follower(finished, tmp_path / "sent").send(sink) == len(sink.points)
    assert len(set(sink.points)) == len(sink.points)
    assert set(sink.points) == recorded(finished)
    assert {point.member for point in sink.points} == {0, 1}
    assert {"loss/held_out", "accuracy/held_out", "loss/train"} <= {point.name for point in sink.points}
    again = Listed()
    assert Follower(finished, tmp_path / "sent").send(again) == 0 and not again.calls


def test_a_run_that_goes_on_is_sent_in_parts(finished, tmp_path):
    later = {part: part.read_bytes() for unit in finished.units for part in parts(unit.path)[1:]}
    assert later
    for part in later:
        part.unlink()
    first, second = Listed(), Listed()
    Follower(finished, tmp_path / "sent").send(first)
    for part, content in later.items():
        part.write_bytes(content)
    Follower(finished, tmp_path / "sent").send(second)
    assert first.points and second.points
    assert max(point.step for point in first.points) < min(point.step for point in second.points)
    assert set(first.points) | set(second.points) == recorded(finished)


def test_what_a_sink_did_not_take_is_sent_later(finished, tmp_path):
    with pytest.raises(OSError, match="No space left"):
        Follower(finished, tmp_path / "sent").send(FullDisk())
    sink = Listed()
    Follower(finished, tmp_path / "sent").send(sink)
    assert set(sink.points) == recorded(finished)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"sent": {}}', '{"schema_version": 1, "sent": 3, "verdicts": null}']
)
def test_a_damaged_note_is_as_none(finished, tmp_path, content):
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / SENT).write_text(content)
    sink = Listed()
    Follower(finished, tmp_path / "sent").send(sink)
    assert set(sink.points) == recorded(finished)


def test_a_damaged_part_is_an_error(finished, tmp_path):
    parts(finished.units[0].path)[-1].write_bytes(b"PAR1")
    with pytest.raises(UserError, match="part-"):
        Follower(finished, tmp_path / "sent").send(Listed())


def test_verdicts_are_sent_when_the_run_is_done(finished, tmp_path):
    sink = Listed()
    (claim,) = hs.open_run(finished.path).claims
    finished.clear_done()
    Follower(finished, tmp_path / "sent").conclude(sink)
    assert sink.verdicts == {}
    finished.mark_done()
    Follower(finished, tmp_path / "sent").conclude(sink)
    assert sink.verdicts == {"E": claim.verdict.value}
    sink.verdicts.clear()
    Follower(finished, tmp_path / "sent").conclude(sink)
    assert sink.verdicts == {}


def test_a_run_that_has_not_begun_has_nothing(finished, tmp_path):
    shutil.rmtree(finished.path / "units")
    assert Follower(finished, tmp_path / "sent").send(Listed()) == 0


def test_a_slim_run_folder_is_sent_from_its_evidence(tmp_path):
    root = Path(__file__).parents[3] / "docs" / "results"
    slim = next(path.parent for path in sorted(root.rglob("units.json")))
    sink = Listed()
    count = Follower(RunFolder.open(slim), tmp_path / "sent").send(sink)
    table = RunFolder.open(slim).metrics()
    assert 0 < count <= table.num_rows
    assert {point.member for point in sink.points} <= set(table["member"].to_pylist())
    assert Follower(RunFolder.open(slim), tmp_path / "sent").send(Listed()) == 0


def test_names_say_the_place_and_nothing_infinite_is_sent(tmp_path):
    rows = {
        "member": [3, 3, 3], "step": [5, 5, 7], "samples": [65, 65, 91], "split": ["held_out"] * 3,
        "metric": ["loss", "attention", "loss"], "value": [0.5, 0.25, float("inf")],
        "layer": [None, 1, None], "head": [None, 2, None], "part": [None, None, "seven"],
    }  # fmt: skip
    write_part(tmp_path, 0, 7, rows)
    from hopscope.runs.metrics import read_parts_after

    found = points_of(read_parts_after(tmp_path, -1))
    assert found == [
        Point(3, 5, "attention/held_out/layer-1/head-2", 0.25),
        Point(3, 5, "loss/held_out", 0.5),
    ]
    assert points_of(read_parts_after(tmp_path, 5)) == []
    assert read_parts_after(tmp_path, 7).num_rows == 0
    assert set(METRICS_SCHEMA.names) <= set(read_parts_after(tmp_path, 7).schema.names)


def test_a_tracker_is_told_who_the_members_are(finished):
    told = tracked_run(finished)
    assert (told.study, told.hash, told.config) == ("echo", finished.hash, finished.config)
    assert told.members == {0: {"configuration": "echo", "seed": 0}, 1: {"configuration": "echo", "seed": 1}}
    json.dumps(told.members)


def test_files_stand_beside_the_runs_and_not_in_them(finished, monkeypatch):
    expected = finished.path.parents[1] / "trackers" / "wandb"
    assert tracking_folder(finished, "wandb") == expected
    monkeypatch.chdir(finished.path)
    assert tracking_folder(RunFolder(Path()), "wandb") == expected
    assert not expected.is_relative_to(finished.path)
