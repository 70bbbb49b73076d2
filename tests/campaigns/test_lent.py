"""Models that are trained together on a lent machine (here the CPU): each a unit of its own, taken into a campaign."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hopscope.executors.local import run_study
from hopscope.runs import RunFolder
from hopscope.runs.metrics import read_parts
from hopscope.runs.thinning import steps_left_out
from hopscope.studies import find_study
from hopscope.training.budget import TimeBudget
from hopscope.training.trainer import Progress

ROOT = Path(__file__).resolve().parents[2]
STEPS = 67
FIELDS = {
    "seeds": 3, "members_per_unit": 1, "crossed": 0, "clamped": 0, "training_steps": STEPS, "checkpoint_every": 13,
}  # fmt: skip
QUEUE = {
    "readings": {
        "small": {"study": "emergence", "preset": "smoke", "weights": 0, "fields": FIELDS},
        "pairs": {"study": "emergence", "preset": "smoke", "fields": FIELDS | {"members_per_unit": 3}},
    },
    "order": [["small", [0, 1, 2]]],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the queue is."""
    found = tmp_path_factory.mktemp("lent")
    (found / "queue.json").write_text(json.dumps(QUEUE), encoding="utf-8")
    return found


def call(script, *words):
    done = subprocess.run(
        [sys.executable, str(ROOT / "campaigns" / script), *map(str, words)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def lend(folder, models, pack, *more):
    """Train on a machine of its own."""
    given = ["--home", folder / f"on-{pack}", "--pack", folder / pack, "--queue", folder / "queue.json"]
    return call("lent.py", models, *given, "--device", "cpu", "--commit", "c0ffee", *more)


@pytest.fixture(scope="module")
def packs(folder):
    """Seeds 1 and 2 trained together, and seed 0 alone."""
    for models, pack in (("small:1,2", "two"), ("small:0", "one")):
        done = lend(folder, models, pack)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert {each["whole"] for each in said if each["kind"] == "read"} == {True}
    return folder


@pytest.mark.extras
@pytest.mark.long
def test_members_get_what_they_get_alone_and_are_taken_into_the_campaign(packs):
    home, study = packs / "home", find_study("emergence")
    home.mkdir()
    (home / "source").symlink_to(ROOT)
    begun = ["--python", sys.executable, "--queue", packs / "queue.json", "--results", packs / "results"]
    where = ["--home", home]
    assert call("background.py", "start", *where, *begun, "--cores", "1").returncode == 0
    done = call("background.py", "accept", *where, "--pack", packs / "two")
    assert done.returncode == 2 and "a trainer is at work: stop it first" in done.stderr
    call("background.py", "stop", *where)
    for pack, seeds in (("two", (1, 2)), ("one", (0,))):
        done = call("background.py", "accept", *where, "--pack", packs / pack)
        assert [f"took small seed {seed}" in done.stdout for seed in seeds] == [True] * len(seeds), (
            done.stderr
        )
    assert "0 new" in call("background.py", "accept", *where, "--pack", packs / "two").stdout
    assert call("background.py", "status", *where).stdout.count("trained, read") == 3
    assert "3 new" in call("background.py", "collect", *where).stdout

    whole = run_study(
        study, study.configured("smoke", FIELDS), out=packs / "whole", preset="smoke", threads=2
    )
    collected = RunFolder.open(packs / "results" / "small")
    ours, theirs = (run.metrics().to_pandas() for run in (collected, whole))
    keys = ["member", "step", "split", "metric"]
    pairs = ours.merge(theirs, on=keys, suffixes=("", "_alone"))
    assert len(pairs) == len(ours) == len(theirs) > 0
    losses = pairs[pairs["metric"].str.startswith("loss")]
    assert np.allclose(losses["value"], losses["value_alone"], atol=1e-4)
    for record in collected.members:
        unit = collected.unit(record.unit)
        told = json.loads((unit.path / "collected.json").read_text(encoding="utf-8"))["campaign"]["together"]
        assert told["members"] == ([0] if record.member == 0 else [1, 2])
        assert told["device"] == "cpu" and told["commit"] == "c0ffee" and "torch" in told["versions"]
        # Every checkpoint was followed where they were, and none is here.
        assert steps_left_out(unit) == [step for step, _ in whole.unit(record.unit).checkpoints()]
        formation = unit.read_analysis(f"formation-{record.member}", STEPS)
        assert formation["checkpoints"] == steps_left_out(unit)
    done = call("background.py", "conclude", *where, "--reading", "small")
    assert done.returncode == 0, done.stderr
    concluded = Path(done.stdout.splitlines()[-1].partition(": ")[2])
    trained = json.loads((concluded / "campaign.json").read_text(encoding="utf-8"))["trained"]
    assert [each["members"] for each in trained] == [[0], [1, 2]]


@pytest.mark.extras
@pytest.mark.long
def test_a_model_that_was_not_read_in_time_is_read_where_it_is_taken(packs, packing, tmp_path):
    runs = tmp_path / "lent" / "runs"
    shutil.copytree(packs / "on-one" / "runs", runs)
    (unit,) = [path.parent for path in runs.glob("*/*/units/*/DONE")]
    (unit / "DONE").unlink()
    shutil.rmtree(unit / "analysis")
    packing.pack(runs, tmp_path / "unread", packing.Limits(), 1, {})

    home = tmp_path / "home"
    home.mkdir()
    (home / "source").symlink_to(ROOT)
    queue = tmp_path / "queue.json"
    queue.write_text(json.dumps(QUEUE | {"order": [["small", [0]]]}), encoding="utf-8")
    begun = ["--python", sys.executable, "--queue", queue, "--results", tmp_path / "results", "--cores", "1"]
    call("background.py", "start", "--home", home, *begun)
    call("background.py", "stop", "--home", home)
    done = call("background.py", "accept", "--home", home, "--pack", tmp_path / "unread")
    assert "took small seed 0, to be read here" in done.stdout, done.stderr
    call("background.py", "start", "--home", home)
    deadline = time.monotonic() + 120
    while "trained, read" not in call("background.py", "status", "--home", home).stdout:
        assert time.monotonic() < deadline
        time.sleep(1)
    (taken,) = (home / "runs").glob(f"*/*/units/{unit.name}")
    formation = json.loads((taken / "analysis" / f"formation-0-step-{STEPS:09d}.json").read_text("utf-8"))
    assert formation["checkpoints"] == [STEPS]


@pytest.mark.extras
@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("large:0", "expected a reading of the queue (small, pairs), found 'large'"),
        ("small:3", "small: expected members 0 to 2, each a unit, found 3"),
        ("pairs:0", "pairs: expected members 0 to 2, each a unit, found 0"),
        ("small", "small: expected members as small:0,1, found ''"),
        ("small:0,x", "small: expected members as small:0,1, found '0,x'"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(folder, models, words):
    done = lend(folder, models, "none")
    assert done.returncode == 2 and words in done.stderr
    assert not (folder / "none").exists()


@pytest.mark.extras
def test_a_damaged_queue_is_one_clear_line(folder, tmp_path):
    queue = tmp_path / "queue.json"
    queue.write_text("{", encoding="utf-8")
    done = call("lent.py", "small:0", "--home", tmp_path, "--device", "cpu", "--queue", queue)
    assert done.returncode == 2 and f"{queue}: expected" in done.stderr


def going(lent, within, seconds):
    """A trainer some way through its training, as far as reports ask for it."""
    trainer = object.__new__(lent.SplittingTrainer)
    now = time.monotonic()
    trainer._within, trainer._begun, trainer._started = within, (now - seconds, 100), now - seconds - 5.0
    return trainer


def test_training_that_would_end_too_late_breaks_off(lent):
    report = Progress(step=300, steps=10_300, losses=[0.7], samples_per_second=1.0, diverged=[])
    # 200 steps took 2 s, so 10,000 more take 100 s, and 7 s are over.
    with pytest.raises(lent.TooSlow, match="107 s, 106 s are there"):
        going(lent, 106.0, 2.0).report(report)
    in_time = going(lent, 108.0, 2.0)
    in_time.report(report)
    assert in_time._within is None  # it is asked once


@pytest.mark.extras
def test_training_that_was_stopped_goes_on_to_the_same_weights(lent, folder, tmp_path):
    def trained(home, seconds):
        reading = lent.reading_of(tmp_path / home, folder / "queue.json", "small", [0, 2])
        for group in reading.begun_alike():
            assert list(group.units) == [0, 2]
            lent.train_together(group, "cpu", TimeBudget(seconds), None, None)
        return reading

    stopped = trained("stopped", 1e-9)
    steps = {number: max(dict(unit.checkpoints())) for number, unit in stopped.units.items()}
    assert steps == {0: 1, 2: 1} and not stopped.trained()
    # Stopped once more, at the next checkpoint, then trained to the end: nobody can tell.
    assert trained("stopped", 1e-9).units[0].resume_point()[0] == 2
    again, whole = trained("stopped", 600.0), trained("whole", 600.0)
    assert list(again.trained()) == [0, 2]
    for number, unit in again.units.items():
        other = whole.units[number]
        assert unit.has_record_of(STEPS) and unit.checkpoints()[0][0] == 0
        (_, ours, _), (_, theirs, _) = unit.checkpoint(STEPS), other.checkpoint(STEPS)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
        # The moments of a model that is trained are of no use to anybody.
        assert not any(ours[f"optimiser/{name}_moment"].any() for name in ("first", "second"))
        records = [read_parts([each.path]).to_pandas() for each in (unit, other)]
        assert records[0].equals(records[1])
    assert not list(again.begun_alike())
