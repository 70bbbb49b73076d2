"""Damaged, newer and unwritable records: one line, exit 2, and nothing that was written is lost."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hopscope.runs import RunFolder, load_checkpoint
from hopscope.runs.seals import SEALS


def checkpoint(run, step):
    (path,) = run.glob(f"units/*/checkpoints/step-{step:09d}.safetensors")
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.usefixtures("units_here")
def test_damaged_checkpoint_gives_way_to_the_one_before(unfinished, rerun, processes_module, expected):
    cut(checkpoint(unfinished, 8))
    ended = rerun()
    assert ended.status == 0, ended.stderr
    (warning,) = [line for line in ended.stderr.splitlines() if "warning" in line]
    assert warning.startswith("hopscope: warning: ")
    assert "step-000000008.safetensors" in warning
    assert "going on from step-000000004.safetensors" in warning
    damaged = [event for event in RunFolder(unfinished).events() if event["kind"] == "checkpoint_damaged"]
    assert len(damaged) == 1
    assert processes_module.record(unfinished) == expected


@pytest.mark.parametrize("name", ["config.json", "members.json", "units/*/unit.json"])
@pytest.mark.parametrize(
    "damage", [cut, lambda path: path.write_text(""), lambda path: path.write_text("[]")]
)
def test_damaged_record(unfinished, refusal, processes_module, name, damage):
    (path,) = unfinished.glob(name)
    damage(path)
    before = processes_module.record(unfinished)
    line = refusal()
    assert str(path) in line or str(path.parent) in line
    assert "expected" in line and "found" in line
    assert processes_module.record(unfinished) == before


@pytest.mark.parametrize("name", ["config.json", "units/*/unit.json"])
def test_newer_record(unfinished, refusal, name):
    (path,) = unfinished.glob(name)
    (path.parent / SEALS).unlink()
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"schema_version": record["schema_version"] + 1}))
    line = refusal()
    assert "newer Hopscope" in line
    assert "upgrade" in line


def test_a_run_that_was_concluded_by_other_claims_or_another_page_is_concluded_again(
    copy, rerun, processes_module, expected
):
    RunFolder(copy).write_json("conclusion.json", {"hash": "of another page"})
    (copy / "story.json").touch()
    before = (copy / "story.json").stat().st_mtime_ns
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert (copy / "story.json").stat().st_mtime_ns > before
    assert processes_module.record(copy) == expected


@pytest.mark.parametrize("name", ["claims.json", "conclusion.json"])
def test_damaged_conclusion_is_made_again(copy, rerun, processes_module, expected, name):
    cut(copy / name)
    ended = rerun()
    assert ended.status == 0, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "made again" in line]
    assert str(copy / name) in line
    assert processes_module.record(copy) == expected


@pytest.mark.usefixtures("units_here")
@pytest.mark.parametrize(
    "name",
    [
        "figures/loss.svg",
        "figures/*.png",
        "report.html",
        "units/*/analysis/*.npz",
        "units/*/checkpoints/step-*8.safetensors",
    ],
)
def test_what_a_finished_run_lost_is_made_anew(copy, rerun, processes_module, expected, name):
    for path in copy.glob(name):
        path.unlink()
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert processes_module.record(copy) == expected


@pytest.mark.usefixtures("units_here")
def test_damaged_last_checkpoint_of_a_finished_run(copy, rerun, processes_module, expected):
    last = max(copy.glob("units/*/checkpoints/*.safetensors"))
    cut(last)
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert "warning" in ended.stderr
    assert processes_module.record(copy) == expected


def test_broken_worker(unfinished, rerun, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("hopscope.executors.processes.sys.executable", "/bin/false")
        ended = rerun()
    assert ended.status == 2
    assert ended.stdout == ""
    assert "its worker failed" in ended.complaint


@pytest.mark.usefixtures("units_here")
def test_every_member_diverges(here, processes_module, tmp_path):
    """With the most values, besides: a run that failed is still a whole run, with a page that says so."""
    ended = here(
        "run", *processes_module.SMALL, "--V", 12, "--learning-rate", 1e30, "--out", tmp_path / "runs"
    )
    assert ended.status == 0, ended.stderr
    assert "diverged: member 0, 1" in ended.stderr
    run = RunFolder(Path(ended.last_line))
    assert {event["member"] for event in run.events() if event["kind"] == "member frozen"} == {0, 1}
    ledger = {claim["id"]: claim["verdict"] for claim in run.read_json("claims.json")}
    assert {ledger[name] for name in ("P3", "P4", "P8")} == {"not run"}
    assert "diverged: the loss was no longer finite" in (run.path / "story.json").read_text(encoding="utf-8")
    assert (run.path / "report.html").is_file()


def test_two_commands_at_once(unfinished, refusal):
    with RunFolder(unfinished).lock():
        assert "another hopscope command is working on this run" in refusal()


@pytest.mark.usefixtures("units_here")
def test_conclusions_are_made_from_what_is_on_disk(unfinished, rerun, processes_module, expected):
    ended = rerun()
    assert ended.status == 0, ended.stderr
    assert processes_module.record(unfinished) == expected


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 MiB, and a file that fills it but for a given number of bytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system of its own")

    def leave(free):
        ballast = disk / "ballast"
        ballast.unlink(missing_ok=True)
        available = shutil.disk_usage(disk).free
        ballast.write_bytes(bytes(available - free))

    yield disk, leave
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.extras
@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_full_disk(small_disk, here, processes_module, expected, small_run):
    disk, leave = small_disk
    command = ["run", *processes_module.SMALL, "--out", disk / "runs"]
    for free in (500_000, 1_000_000):  # full while training, full while concluding
        leave(free)
        ended = here(*command)
        assert ended.status == 2, ended.stderr
        assert ended.stdout == ""
        assert "No space left on device" in ended.complaint
        assert "nothing written before is lost" in ended.complaint
        assert "free some disk space" in ended.complaint
        kept = list(disk.rglob("*.safetensors"))
        assert kept, "expected the disk to hold a part of the training"
        for path in kept:
            load_checkpoint(path)
    assert len(kept) == 5
    leave(10_000_000)
    ended = here(*command)
    assert ended.status == 0, ended.stderr
    assert processes_module.record(disk / "runs" / "permutation" / small_run.name) == expected
