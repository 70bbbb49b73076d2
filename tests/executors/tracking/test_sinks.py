"""TensorBoard's own reader finds what was sent, whatever the number of members."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from hopscope.executors.processes import environment
from hopscope.executors.tracking import sinks
from hopscope.executors.tracking.sinks import Point, TensorBoard, TrackedRun

READER = """
import json, sys
from pathlib import Path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

found = {}
for folder in sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_dir()):
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    found[folder.name] = {
        "scalars": {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags["scalars"]},
        "texts": {tag: [e.tensor_proto.string_val[0].decode() for e in events.Tensors(tag)] for tag in tags["tensors"]},
    }
print(json.dumps(found))
"""


@pytest.fixture
def tensorboard():
    if find_spec("tensorboard") is None:
        missing = "tensorboard is not installed: `pip install -e .[tensorboard]`"
        if os.environ.get("HOPSCOPE_REQUIRE_TENSORBOARD") == "1":
            pytest.fail(f"{missing}, and HOPSCOPE_REQUIRE_TENSORBOARD=1 asks for it")
        pytest.skip(missing)


def read(folder):
    """What TensorBoard reads, in a process of its own, whose warnings are its own too."""
    import json

    command = [sys.executable, "-c", READER, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.extras
@pytest.mark.filterwarnings("ignore")  # those of TensorBoard's packages; the sender's process shows none
def test_event_files_hold_what_was_sent(tensorboard, tmp_path, monkeypatch):
    monkeypatch.setattr(sinks, "MOST_WRITERS", 2)
    members = {number: {"configuration": "layers 2", "seed": number + 7} for number in range(5)}
    sink = TensorBoard(TrackedRun("echo", "abc", {}, members), tmp_path)
    for step in (0, 3, 11):
        sink.write([Point(member, step, "loss/held_out", member + step / 16) for member in members])
    sink.conclude({"E": "refuted", "F": "inconclusive"})
    sink.close()
    found = read(tmp_path)
    for member in members:
        told = found[f"member-{member}"]
        curve = told["scalars"]["loss/held_out"]
        assert sorted(map(tuple, curve)) == [(step, member + step / 16) for step in (0, 3, 11)]
        (words,) = told["texts"]["member/text_summary"]
        assert words == f"configuration: layers 2\n\nseed: {member + 7}"
    assert found["claims"]["texts"] == {"verdicts/text_summary": ["E: refuted\n\nF: inconclusive"]}


@pytest.mark.extras
def test_a_run_is_followed_into_event_files(tensorboard, run):
    status, folder, lines = run("--tracker", "tensorboard")
    assert status == 0 and not [line for line in lines if "warning" in line]
    found = read(folder.path.parents[1] / "trackers" / "tensorboard" / "echo" / folder.hash)
    rows = folder.metrics().to_pylist()
    for member in (0, 1):
        for split, metric in {(row["split"], row["metric"]) for row in rows}:
            expected = [
                (row["step"], pytest.approx(row["value"]))
                for row in rows
                if (row["member"], row["split"], row["metric"]) == (member, split, metric)
            ]
            assert list(map(tuple, found[f"member-{member}"]["scalars"][f"{metric}/{split}"])) == expected


def test_rows_of_trackers_that_know_one_run():
    points = [
        Point(0, 3, "loss/train", 0.5),
        Point(1, 3, "loss/train", 0.25),
        Point(0, 7, "loss/train", 0.125),
    ]
    assert sinks._OneRun._rows(points) == {
        3: {"loss/train/member-0": 0.5, "loss/train/member-1": 0.25},
        7: {"loss/train/member-0": 0.125},
    }
