"""Trackers get every number that a run records, once; and nothing that they do harms the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope as hs
from hopscope.errors import UserError
from hopscope.execute.track import check_trackers, follow, points_of
from hopscope.runs import RunFolder

STUDY = """
import hopscope as hs

study = hs.Study(
    name="tiny", task=hs.tasks.Retrieval(steps=1, chains=2), model=hs.Model(layers=1, heads=1, head_dim=8, width=16),
    training=hs.Training(steps=30, batch_size=3, checkpoint_every=10), seeds=2, held_out=7,
    claims=(hs.Claim(id="C1", statement="It learns.", source="here", protocol="loss at the end",
                     value=lambda evidence: evidence.last("loss"), must=hs.at_most(9.0)),),
)
"""


TRACKIO = """
import json, pathlib

FILE = pathlib.Path(__file__).with_name("calls.jsonl")

class There:
    def log(self, row, step):
        with FILE.open("a") as file:
            file.write(json.dumps([step, row]) + "\\n")

    def finish(self):
        pass

def init(**given):
    return There()
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "tiny_tracked.py").write_text(STUDY, encoding="utf-8")
    return hs.run(str(folder / "tiny_tracked.py"), out=folder / "runs").folder


@pytest.fixture
def trackio(tmp_path, monkeypatch):
    """A package of that name, which writes down how it is called."""
    (tmp_path / "trackio.py").write_text(TRACKIO, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield lambda: [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    sys.modules.pop("trackio", None)


def expected(run):
    return sorted(
        (step, f"{name}/member-{member}", value)
        for unit in run.units
        for member, step, name, value in points_of(unit)
    )


def test_a_tracker_gets_every_number_once(done, trackio):
    follow(done, "trackio", lambda: True)
    follow(done, "trackio", lambda: True)  # a later process, which knows what was sent
    sent = sorted((step, name, value) for step, row in trackio() for name, value in row.items())
    assert sent == expected(done) and {0, 10, 20, 30} <= {step for step, _, _ in sent}


def test_a_command_with_a_tracker_ends_with_the_same_run(done, tmp_path, trackio):
    study = done.path.parents[2] / "tiny_tracked.py"
    said = []
    found = hs.run(str(study), out=tmp_path / "runs", tracker="trackio", say=said.append)
    assert len(trackio()) > 0 and not any("warning" in words for words in said)
    for file in ("evidence.parquet", "claims.json"):
        assert (found.path / file).read_bytes() == (done.path / file).read_bytes()


def test_a_tracker_that_fails_is_a_warning(done, tmp_path, monkeypatch, trackio):
    broken = Path(sys.path[0]) / "trackio.py"
    broken.write_text("def init(**given): raise SystemExit('no room')", encoding="utf-8")
    said = []
    study = done.path.parents[2] / "tiny_tracked.py"
    found = hs.run(str(study), out=tmp_path / "runs", tracker="trackio", say=said.append)
    warned = [words for words in said if "warning" in words]
    assert found.folder.is_done and len(warned) == 1 and "no room" in warned[0] and "\n" not in warned[0]


def test_unknown_and_missing_trackers_are_refused():
    with pytest.raises(UserError, match="expected one of tensorboard, wandb, trackio, found 'tensorbord'"):
        check_trackers(["tensorbord"])


@pytest.mark.extras
def test_tensorboard_and_wandb_files(done, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    copy = RunFolder.opened(done.path)
    follow(copy, "tensorboard", lambda: True)
    folder = copy.path.parents[1] / "trackers" / "tensorboard" / "tiny" / copy.path.name
    read = EventAccumulator(str(folder / "member-1")).Reload()
    wanted = [(step, value) for step, name, value in expected(done) if name == "loss/held_out/member-1"]
    found = [(each.step, each.value) for each in read.Scalars("loss/held_out")]
    assert [step for step, _ in found] == [step for step, _ in wanted]
    assert [value for _, value in found] == pytest.approx([value for _, value in wanted])
    pytest.importorskip("wandb")
    ended = subprocess.run(
        [sys.executable, "-m", "hopscope.execute.track", "wandb", str(copy.path)], input=b"", timeout=120
    )
    kept = list((copy.path.parents[1] / "trackers" / "wandb").rglob("*.wandb"))
    assert ended.returncode == 0 and len(kept) == 1 and kept[0].stat().st_size > 0
