"""Run folders: one command at a time, whole or told in a line, readable where nothing can be written."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hopscope.errors import UserError
from hopscope.runs import Evidence, RunFolder, runs_in
from hopscope.runs.checkpoint import sha256

from .conftest import TINY, told


def test_a_run_is_named_by_its_identity(tmp_path):
    one, two = (RunFolder.named(tmp_path, "s", {"b": back, "a": {"x": 0.5}}) for back in (3, 5))
    assert one == RunFolder.named(tmp_path, "s", {"a": {"x": 0.5}, "b": 3}) != two
    assert one.path.parent == tmp_path / "s" and len(one.path.name) == 12 and not one.path.exists()


def test_what_a_run_is_and_that_it_keeps_it(run):
    assert run.config == TINY.CONFIG == run.create({**TINY.CONFIG, "units": []}).config and run.is_done
    assert [member.seed for member in run.members] == [11, 13, 17, 19, 23]
    assert [unit.job for unit in run.units] == TINY.JOBS and [unit.name for unit in run.units] == [
        *TINY.UNITS
    ]
    assert run.unit("b").members == tuple(run.members[3:])
    with told("expected one of the units zwölf a, b, found c; take one"):
        run.unit("c")
    with told("expected the run that is asked for, found another"):
        run.create({**TINY.CONFIG, "identity": {}})


@pytest.mark.parametrize("place", [".", "..", "../.."])
def test_a_run_is_found_in_its_folder_or_under_a_root(place, run, tmp_path):
    (run.path.parent.parent / "model").mkdir()
    (run.path.parent.parent / "model" / "config.json").write_text('{"architectures": []}')
    assert [each.path.resolve() for each in runs_in(run.path / place)] == [run.path.resolve()]
    assert RunFolder.opened(run.path / place).path.resolve() == run.path.resolve()
    other = shutil.copytree(run.path, run.path.parent / "000000000000")
    if place != ".":
        assert len(runs_in(run.path / place)) == 2
        with told(f"expected exactly one run, found 2; give one of .*{other.name}, "):
            RunFolder.opened(run.path / place)


def test_a_root_without_a_run_and_a_run_of_an_earlier_version(run, tmp_path):
    for name in ("laptop", "7114615b6252"):
        path = tmp_path / name
        path.mkdir()
        file = run.path / "config.json"
        for place, found in ((path, "no run"), (path / "a", "nothing there"), (file, "a file")):
            with told(f"expected a run, or a root of runs, found {found}"):
                RunFolder.opened(place)
        (path / "config.json").write_text('{\n "schema_version": 1,\n "study": "depth",\n "config": {}\n}\n')
        with pytest.raises(UserError) as caught:
            RunFolder.opened(path)
        assert str(caught.value) == f"{path}: made by an earlier version; run it again"


@pytest.mark.parametrize("change", ["member", "cut", "empty", "list", "deep"])
def test_a_configuration_that_was_altered_is_told(change, run):
    path = run.path / "config.json"
    text = path.read_text(encoding="utf-8")
    member = text.replace('"seed": 13', '"seed": 12')
    altered = {"member": member, "cut": text[:300], "empty": "", "list": "[]"}
    path.write_text(altered.get(change, "[" * 10**5), encoding="utf-8")
    for ask in (lambda: RunFolder.opened(run.path), lambda: run.members, lambda: Evidence.read(run).config):
        with pytest.raises(UserError, match=r"config\.json: expected .* found ") as caught:
            ask()
        assert "\n" not in str(caught.value) and caught.value.exit_status == 2


def test_units_without_their_record_are_no_new_run(run):
    config = run.config
    (run.path / "config.json").unlink()
    with told(
        r"expected the record of a run, with its rules, found none beside its units; restore it, or move"
    ):
        run.create(config)


@pytest.mark.parametrize("name", ["evidence.parquet", "claims.json", "config.json"])
def test_an_altered_file_of_a_finished_run_is_told(name, run):
    content = run.read(name)
    assert content == (run.path / name).read_bytes()
    (run.path / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with told(f"{name}: expected the content that was written, found another .*; delete it"):
        run.read(name)
    (run.path / name).unlink()
    with told(f"{name}: expected a readable file, found: No such file"):
        run.read(name)
    assert not run.is_done


def test_the_manifest_has_every_file_and_follows(run, monkeypatch):
    def files():
        return json.loads((run.path / "manifest.json").read_bytes())["files"]

    before, content = files(), TINY.content(run)
    assert before == {name: sha256(content[name]) for name in content.keys() - {"manifest.json"}}
    run.write("figures/löss.csv", "a,b\n")
    assert run.is_done and run.read("figures/löss.csv") == b"a,b\n"
    assert files().keys() == {*before, "figures/löss.csv"}
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(122, "Disk quota exceeded")))
    with told(r"cannot write .*claims\.json: expected .*found: Disk quota exceeded"):
        run.write("claims.json", "[1]")
    monkeypatch.undo()
    assert run.read("claims.json") == content["claims.json"]
    assert run.is_done, "what could not be written left the run as it was"
    (run.path / "units" / "b" / "unit.json").unlink()
    with told("b: expected a whole unit, found none; run the same command again"):
        run.finish()
    assert not run.is_done


SECOND = """
import sys
from hopscope.errors import HopscopeError
from hopscope.runs import RunFolder
try:
    run = RunFolder(__import__("pathlib").Path(sys.argv[1]))
    with (run.units[0] if len(sys.argv) > 2 else run).locked():
        print("at work", flush=True)
        sys.stdin.read()
except HopscopeError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_status)
"""


@pytest.mark.parametrize("unit", [[], ["unit"]])
def test_two_commands_never_work_on_one_run(run, unit):
    command = [sys.executable, "-c", SECOND, run.path, *unit]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "at work\n"
    second = subprocess.run(command, input="", capture_output=True, text=True)
    assert second.returncode == 2 and second.stdout == "" and second.stderr.count("\n") == 1
    assert second.stderr.endswith("found another hopscope command at work; wait for it, or stop it\n")
    assert Evidence.read(run).last("norm").notna().all(), "who only reads does not wait"
    first.kill()
    first.communicate()
    third = subprocess.run(command, input="", capture_output=True, text=True)
    assert (third.returncode, third.stdout) == (0, "at work\n")


def test_one_thread_may_lock_a_run_again(tmp_path):
    run = RunFolder.named(tmp_path / "neu", "s", {})
    with run.locked(), run.locked():
        assert run.create({"study": "s", "identity": {}}) == run


READ_ONLY = """
import os, sys
from pathlib import Path
from hopscope.errors import UserError
from hopscope.runs import Evidence, RunFolder
run = RunFolder.opened(Path(sys.argv[1]))
Evidence.read(run).last("norm"), run.units[0].locked().__enter__()  # what is imported late
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
evidence, unit = Evidence.read(run), run.units[0]
print(len(evidence.last("norm")), len(unit.weights(7)) > 3, run.is_done, unit.is_whole, len(run.read("claims.json")))
print(len(evidence.arrays(evidence.rows("largest")["file"][0])))
for act in (lambda: run.write("claims.json", ""), lambda: run.locked().__enter__(), unit.seal):
    try:
        act()
    except UserError as error:
        print(error)
"""


def test_a_folder_that_cannot_be_written_can_be_read(finished):
    # Below /tmp itself: the folders of pytest are closed to other users.
    place = Path(tempfile.gettempdir()) / f"hopscope read only {os.getpid()}"
    shutil.copytree(finished.path, place / finished.path.name)
    try:
        for path in place.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        command = [sys.executable, "-c", READ_ONLY, place]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755)
        shutil.rmtree(place)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["5 True True True 3", "1"] and len(lines) == 5
    assert all("found: Permission denied; nothing written before is lost" in each for each in lines[2:])
