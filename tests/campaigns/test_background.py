"""A campaign in the background: begun, paused, killed, gone on with, collected, and finished by `hopscope run`."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hopscope.cli.listing import read_ledger
from hopscope.executors.local import run_study
from hopscope.runs import RunFolder, UnitFolder, content_hash, load_checkpoint
from hopscope.runs.thinning import steps_left_out, steps_rounded
from hopscope.studies import find_study

ROOT = Path(__file__).resolve().parents[2]
STEPS = 67
FIELDS = {
    "seeds": 3, "members_per_unit": 1, "crossed": 0, "clamped": 0, "training_steps": STEPS, "checkpoint_every": 13,
}  # fmt: skip
QUEUE = {
    "protocols": "docs/claims.md",
    "readings": {"small": {"study": "emergence", "preset": "smoke", "weights": 1, "fields": FIELDS}},
    "order": [["small", [2, 0, 1]]],
}
PATIENCE_SECONDS = 300.0


def wait_for(holds):
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def home(tmp_path):
    """A campaign's folder whose source is this tree; whatever is at work is ended with the test."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "source").symlink_to(ROOT)
    (tmp_path / "queue.json").write_text(json.dumps(QUEUE), encoding="utf-8")
    yield folder
    call(folder, "stop")


def call(home, command, *more):
    done = subprocess.run(
        [sys.executable, str(ROOT / "campaigns" / "background.py"), command, "--home", str(home), *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def begin(home, *more):
    given = ["--python", sys.executable, "--queue", str(home.parent / "queue.json"), "--cores", "2"]
    done = call(home, "start", *given, "--results", str(home.parent / "results"), *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def conclude(home):
    done = call(home, "conclude", "--reading", "small")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1].partition(": ")[2])


def state(home):
    return json.loads((home / "state.json").read_text(encoding="utf-8"))


def last_checkpoints(root):
    return {path.parents[1].name: path.read_bytes() for path in root.rglob(f"step-{STEPS:09d}.safetensors")}


@pytest.mark.soak
def test_a_campaign_that_was_killed_goes_on_and_ends_as_one_that_was_not(home, tmp_path):
    assert "started" in begin(home)
    assert "at work already" in call(home, "start").stdout
    wait_for(lambda: any(home.rglob("step-000000013.safetensors")))
    assert call(home, "pause").returncode == 0
    stopped = state(home)
    assert stopped["paused"] is True and stopped["workers"]
    for worker in stopped["workers"]:
        assert Path(f"/proc/{worker['pid']}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        group = Path(f"/proc/{worker['pid']}/autogroup")  # where Linux shares cores among sessions first
        assert not group.exists() or group.read_text().split()[-1] == "19"
    assert "paused in" in call(home, "status").stdout
    os.kill(stopped["pid"], signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{worker['pid']}").exists() for worker in stopped["workers"]))
    assert "not at work" in call(home, "status").stdout
    call(home, "start")
    assert state(home)["pid"] != stopped["pid"] and state(home)["paused"] is False
    wait_for(lambda: len(last_checkpoints(home)) == 3)
    wait_for(lambda: "every model is trained" in (home / "log.txt").read_text(encoding="utf-8"))
    told = call(home, "status").stdout
    assert [line.split()[2] for line in told.splitlines()[1:]] == ["2", "0", "1"]
    assert told.count("trained, read") == 3

    study = find_study("emergence")
    config = study.configured("smoke", FIELDS)
    found = last_checkpoints(home)
    whole = run_study(study, config, out=tmp_path / "whole", preset="smoke", threads=2)
    assert found == last_checkpoints(whole.path)
    # What was trained and read is concluded by the command that trains.
    run = run_study(study, config, out=home / "runs", preset="smoke", threads=2)
    assert run.is_done and found == last_checkpoints(run.path)
    for name in ("claims.json", "evidence.parquet"):
        theirs = (whole.path / name).read_bytes()
        assert name == "claims.json" or (run.path / name).read_bytes() == theirs
    campaign = json.loads((run.path / "campaign.json").read_text(encoding="utf-8"))
    assert campaign["reading"] == "small" and campaign["protocols"]["file"] == "docs/claims.md"
    assert len(campaign["protocols"]["sha256"]) == 64 and len(campaign["protocols"]["commit"]) == 40


@pytest.mark.extras
def test_what_is_trained_is_collected_once_and_for_all(home):
    begin(home)
    wait_for(lambda: len(last_checkpoints(home)) == 3)
    wait_for(lambda: "every model is trained" in (home / "log.txt").read_text(encoding="utf-8"))
    results = home.parent / "results" / "small"
    done = call(home, "conclude", "--reading", "small")
    assert done.returncode == 2 and "expected collected models from seed 0 on" in done.stderr
    assert "3 new" in call(home, "collect").stdout
    kept = {path.relative_to(results): path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert "0 new" in call(home, "collect").stdout
    assert {path: (results / path).read_bytes() for path in kept} == kept
    run = RunFolder.open(results)
    readings = [path.name.partition("-")[0] for path in results.rglob("analysis/*.json")]
    # Each model is read under both proofs.
    assert readings.count("circuit") == 6 and readings.count("formation") == 3
    trained = RunFolder.open(next((home / "runs" / "emergence").iterdir()))
    ours, theirs = run.metrics(), trained.metrics()
    assert ours.num_rows > 0 and ours.equals(theirs)
    weights = {}
    for record in run.members:
        unit = UnitFolder(results / "units" / record.unit)
        weights[record.member] = [step for step, _ in unit.checkpoints()]
    assert weights == {0: [STEPS], 1: [], 2: []}
    arrays, _ = load_checkpoint(run.unit(run.members[0].unit).checkpoint_path(STEPS))
    assert {str(array.dtype) for array in arrays.values()} == {"float16"}
    # Of maps, the last ones; they and the rest are judged as the run itself is.
    for record in run.members:
        kept = run.unit(record.unit).read_analysis(f"maps-{record.member}", STEPS)
        made = trained.unit(record.unit).read_analysis(f"maps-{record.member}", STEPS)
        assert kept["steps"].tolist() == [STEPS] and (kept["maps"] == made["maps"][-1:]).all()
    study = find_study("emergence")
    whole = run_study(study, study.configured("smoke", FIELDS), out=home / "runs", preset="smoke", threads=2)
    concluded = conclude(home)
    assert (concluded / "DONE").is_file() and (concluded / "report.html").is_file()
    told = json.loads((concluded / "campaign.json").read_text(encoding="utf-8"))
    (trained_by,) = told["trained"]
    assert told["reading"] == "small" and trained_by["members"] == [0, 1, 2]
    assert trained_by["campaign"]["protocols"]["file"] == "docs/claims.md"
    evidence = (whole.path / "evidence.parquet").read_bytes()
    assert (concluded / "evidence.parquet").read_bytes() == evidence
    verdicts = [[claim.id, claim.verdict] for claim in read_ledger(whole)]
    assert [[claim.id, claim.verdict] for claim in read_ledger(RunFolder.open(concluded))] == verdicts
    # Maps that were not kept are made from the weights that were.
    first = results / "units" / run.members[0].unit
    maps = first / "analysis" / f"maps-0-step-{STEPS:09d}.npz"
    before = run.unit(run.members[0].unit).read_analysis("maps-0", STEPS)["maps"].astype(int)
    maps.unlink()
    again = RunFolder.open(conclude(home)).unit(first.name).read_analysis("maps-0", STEPS)["maps"].astype(int)
    assert not maps.exists() and abs(again - before).max() <= 1
    # With two of three, a run of two seeds; without the first, none.
    for number, seeds in ((2, 2), (0, 0)):
        aside = results / "units" / run.members[number].unit
        aside.rename(results / f"aside-{number}")
        if seeds:
            assert len(RunFolder.open(conclude(home)).members) == seeds
        else:
            done = call(home, "conclude", "--reading", "small")
            assert done.returncode == 2 and "expected collected models from seed 0 on" in done.stderr
        (results / f"aside-{number}").rename(aside)
    done = call(home, "conclude", "--reading", "large")
    assert done.returncode == 2 and "expected a reading of the queue (small), found 'large'" in done.stderr
    # Weights that the queue no longer keeps go, and nothing else does.
    call(home, "collect")  # brings the maps back that were deleted above
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    fewer = QUEUE | {"readings": {"small": QUEUE["readings"]["small"] | {"weights": 0}}}
    (home.parent / "queue.json").write_text(json.dumps(fewer), encoding="utf-8")
    for _ in range(2):
        assert "0 new" in call(home, "collect").stdout
        after = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
        assert set(before) - set(after) == {UnitFolder(first).checkpoint_path(STEPS)}
        assert [path for path in after if after[path] != before[path]] == [first / "thinned.json"]
        assert STEPS in steps_left_out(UnitFolder(first)) and steps_rounded(UnitFolder(first)) == []
    # Another machine, with nothing but what was collected, trains none of them again.
    for path in (home / "runs").rglob("*.safetensors"):
        path.unlink()
    begin(home)
    wait_for(lambda: (home / "log.txt").read_text(encoding="utf-8").count("every model is trained") == 2)
    assert call(home, "status").stdout.count("collected") == 3
    assert not list((home / "runs").rglob("*.safetensors"))


@pytest.mark.soak
def test_a_model_that_fails_is_given_up_and_the_others_go_on(home):
    begin(home)
    wait_for(lambda: (home / "models.json").is_file())
    call(home, "stop")
    models = json.loads((home / "models.json").read_text(encoding="utf-8"))["models"]
    broken = home / models[0]["folder"]
    (broken / "checkpoints").mkdir(exist_ok=True)
    (broken / "metrics").rename(broken / "was") if (broken / "metrics").exists() else None
    (broken / "metrics").write_text("in the way", encoding="utf-8")
    begin(home)
    wait_for(lambda: "given up" in (home / "log.txt").read_text(encoding="utf-8"))
    told = call(home, "status").stdout.splitlines()
    assert "failed at step" in told[1] and all(line.endswith("trained, read") for line in told[2:])
    assert (home / "log.txt").read_text(encoding="utf-8").count("failed small seed 2") == 3


@pytest.mark.parametrize("command", ["status", "pause", "resume", "stop", "collect", "conclude"])
def test_without_a_campaign_there_is_one_line(tmp_path, command):
    done = call(tmp_path / "none", command)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "expected a campaign, found none; start one" in done.stderr


def test_a_commit_that_does_not_exist_is_one_line(home):
    done = call(home, "start", "--commit", "nothing", "--python", sys.executable)
    assert done.returncode == 2 and done.stderr.startswith("campaign: git rev-parse nothing")
    assert not (home / "campaign.json").exists()


def test_the_queue_of_the_papers_models_can_be_prepared():
    queue = json.loads((ROOT / "campaigns" / "paper_models.json").read_text(encoding="utf-8"))
    assert (ROOT / queue["protocols"]).is_file()
    asked = [(name, member) for name, members in queue["order"] for member in members]
    assert len(set(asked)) == len(asked) == 8 + 8 + 2 + 8 + 4 * 8
    for name, reading in queue["readings"].items():
        study = find_study(reading["study"])
        config = study.configured(reading["preset"], reading["fields"])
        jobs = study.jobs(config)
        assert all(len(job.members) == 1 for job in jobs)
        assert sorted(member for of, member in asked if of == name) == list(range(len(jobs)))
        assert not [words for words in config.protocol_deviations if "beta2" not in words]
        # What was collected is never trained again: the queue still names the same models.
        named = {content_hash(job.model_dump(mode="json")) for job in jobs}
        collected = ROOT / "docs" / "results" / "campaign" / name / "units"
        assert {path.name for path in collected.glob("*")} <= named


MODEL = {
    "reading": "small", "member": 3, "unit": "0123456789ab", "steps": 67, "batch": 8,
    "folder": "runs/emergence/0123456789ab/units/0123456789ab",
}  # fmt: skip
DAMAGED = {
    "no commit": ("campaign.json", {"queue": "q", "cores": 2}),
    "cores in words": ("campaign.json", {"queue": "q", "cores": "two", "commit": "c"}),
    "results of another kind": ("campaign.json", {"queue": "q", "cores": 2, "commit": "c", "results": 7}),
    "no list": ("models.json", {"models": 7}),
    "no model": ("models.json", {"models": [None]}),
    "steps in words": ("models.json", {"models": [{**MODEL, "steps": "many"}]}),
    "a folder outside": ("models.json", {"models": [{**MODEL, "folder": "../../outside"}]}),
    "a unit outside": ("models.json", {"models": [{**MODEL, "unit": "../outside"}]}),
}


@pytest.fixture
def begun(tmp_path):
    """The folder of a campaign that nobody trains."""
    for name, value in (
        (
            "campaign.json",
            {"queue": "q", "cores": 2, "commit": "c" * 40, "results": str(tmp_path / "results")},
        ),
        ("models.json", {"models": [MODEL]}),
    ):
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    return tmp_path


def test_a_model_that_waits_is_said(begun):
    assert "small            seed 3  waits" in call(begun, "status").stdout


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_one_line(begun, name):
    file, value = DAMAGED[name]
    (begun / file).write_text(json.dumps(value), encoding="utf-8")
    done = call(begun, "status")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"campaign: {begun / file}: expected" in done.stderr


@pytest.mark.parametrize(
    "content", ["[" * 20_000, "7", "{", '{"workers": 7}', '{"workers": [7]}', '{"failed": []}']
)
def test_what_the_trainer_said_may_be_damaged(begun, content):
    (begun / "state.json").write_text(content, encoding="utf-8")
    assert "small            seed 3  waits" in call(begun, "status").stdout


@pytest.mark.parametrize("pid", [-1, 0, 1, "7", None, "own", 2**30])
def test_no_other_process_is_ended_than_the_trainer(begun, pid):
    pid = os.getpid() if pid == "own" else pid
    (begun / "state.json").write_text(json.dumps({"pid": pid}), encoding="utf-8")
    with (begun / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = call(begun, "stop")
    assert done.returncode == 2
    assert "state.json: expected the trainer's process, found none" in done.stderr


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ("16", 2.0),
        ("0", None),
        ("-8", None),
        ("NaN", None),
        ("1e999", None),
        ("9" * 400, None),
        ('"x"', None),
    ],
)
def test_a_rate_is_a_number_that_something_can_be_divided_by(begun, said, rate, background):
    log = begun / "log.jsonl"
    log.write_text(
        '{"samples_per_second": 24}\n' * (rate is not None)
        + f'{{"samples_per_second": {said}}}\n'
        + "[" * 20_000
    )
    assert background._rate(log, 8) == rate
