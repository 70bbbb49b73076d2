from datetime import UTC, datetime, timedelta

import pytest

from hopscope.runs.events import append_event, read_events


def test_events_come_back_in_order_with_the_time(tmp_path):
    path = tmp_path / "events.jsonl"
    before = datetime.now(UTC) - timedelta(seconds=1)
    append_event(path, "started", {"device": "cpu"})
    append_event(path, "größe", {"note": "two\nlines"})
    first, second = read_events(path)
    assert before <= datetime.fromisoformat(first["time"]) <= datetime.now(UTC)
    assert {key: first[key] for key in ("kind", "device")} == {"kind": "started", "device": "cpu"}
    assert second["note"] == "two\nlines"
    assert len(path.read_bytes().splitlines()) == 2


def test_a_torn_last_line_is_skipped_and_not_grown_onto(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(path, "started", {})
    append_event(path, "torn", {})
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for length in range(start, len(whole) - 1):
        path.write_bytes(whole[:length])
        append_event(path, "resumed", {})
        assert [event["kind"] for event in read_events(path)] == ["started", "resumed"]


def test_no_file_is_no_events(tmp_path):
    assert read_events(tmp_path / "events.jsonl") == []


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    append_event(tmp_path / "missing" / "events.jsonl", "started", {})
    append_event(tmp_path, "started", {})
    assert list(tmp_path.iterdir()) == []


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        append_event(tmp_path / "events.jsonl", "started", {"loss": float("nan")})


APPENDING = """
import sys
from pathlib import Path
from hopscope.runs.events import append_event
for number in range(101):
    append_event(Path(sys.argv[1]), "n", {"by": sys.argv[2], "number": number, "padding": "x" * 997})
"""


def test_lines_of_two_processes_do_not_mix(tmp_path, start_python):
    path = tmp_path / "events.jsonl"
    for process in [start_python(APPENDING, path, name) for name in ("a", "b")]:
        assert process.wait(60) == 0
    events = read_events(path)
    for name in ("a", "b"):
        assert [event["number"] for event in events if event["by"] == name] == list(range(101))
