"""A run and its copy: which side is newer, what two machines do, and what is left by whoever is killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hopscope.errors
from hopscope.errors import TimeBudgetReached, UserError
from hopscope.runs import copies, find_run, find_runs, save_checkpoint, seals
from hopscope.runs.copies import CopyWarning, RunCopy, fetched, folder_of
from hopscope.runs.files import write_atomic
from hopscope.runs.storage import Storage, url_of


@pytest.fixture
def on(tmp_path, monkeypatch):
    """The run `study/abc` and its copy, as a machine of that name sees them."""

    def machine(name, url=None, say=None):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return RunCopy(url or f"faulty://{tmp_path}/store", "study", "0123456789ab", say)

    return machine


@pytest.fixture
def write(faulty_module):
    return lambda copy, **files: faulty_module.write(copy.path, files)


@pytest.fixture
def seen(on, faulty_module):
    """Fetches the copy with a machine, a new one by default; returns the files."""

    def files(machine="new"):
        copy = on(machine)
        copy.fetch()
        return faulty_module.contents(copy.path)

    return files


def push(copy):
    with copy.kept():
        copy.begin()


def test_what_a_command_leaves_is_what_others_find(on, write, seen):
    write(on("one"), a="1", b="2")
    push(on("one"))
    assert seen() == {"a": "1", "b": "2"}
    with on("one").kept() as copy:
        copy.begin()
        write(copy, a="1", c="7")
    assert seen() == seen("another") == {"a": "1", "c": "7"}


def test_what_was_lost_here_is_fetched_and_not_taken_from_the_copy_too(on, write, seen):
    files = {"a": "1", "units/u/x": "2", "units/u/checkpoints/3": "3"}
    write(on("one"), **files)
    push(on("one"))
    shutil.rmtree(on("one").path / "units")
    told = []
    with on("one", say=told.append).kept() as copy:
        copy.begin()
    assert seen() == seen("one") == files
    (line,) = told
    assert "units/u/checkpoints/3, units/u/x lost or damaged: fetched again" in line


def test_what_was_damaged_here_does_not_damage_the_copy(on, seen):
    path = on("one").path
    seals.begin(path)
    write_atomic(path / "a", b"right")
    save_checkpoint(path / "step-000000001.safetensors", {"w": np.zeros(3, np.float32)}, {"step": 1})
    push(on("one"))
    whole = (path / "step-000000001.safetensors").read_bytes()
    (path / "a").write_bytes(b"wrong")
    (path / "step-000000001.safetensors").write_bytes(whole[:-1] + b"!")
    with on("one", say=lambda line: None).kept() as copy:
        copy.begin()
    assert ((path / "a").read_bytes(), (path / "step-000000001.safetensors").read_bytes()) == (
        b"right",
        whole,
    )
    # What a command wrote is no damage.
    write_atomic(path / "a", b"newer")
    push(on("one"))
    on("two").fetch()
    assert (on("two").path / "a").read_bytes() == b"newer"


def test_a_folder_behind_a_link_is_copied_too(on, write, seen, tmp_path):
    write(on("one"), a="1", **{"units/u/x": "2"})
    push(on("one"))
    units = on("one").path / "units"
    units.rename(tmp_path / "elsewhere")
    units.symlink_to(tmp_path / "elsewhere")
    (units / "u" / "round").symlink_to(units)
    push(on("one"))
    assert seen() == {"a": "1", "units/u/x": "2"}


def test_a_run_goes_on_on_another_machine_and_back(on, write, seen):
    write(on("one"), a="1")
    push(on("one"))
    for there, text in (("two", "2"), ("one", "3"), ("two", "5")):
        with on(there).kept() as copy:
            copy.begin()
            (copy.path / "a").write_text(text)
        assert seen() == {"a": text}


def test_both_have_changed(on, write, seen):
    write(on("one"), a="1")
    push(on("one"))
    seen("two")
    write(on("one"), a="2")
    push(on("one"))
    write(on("two"), a="3")
    with pytest.raises(
        UserError, match=r"found generation 2, made by .*, and both have changed; nothing is overwritten"
    ):
        push(on("two"))
    assert seen() == {"a": "2"}
    assert (on("two").path / "a").read_text() == "3"
    on("two").path.rename(on("two").path.with_name("away"))  # as the line says
    assert seen("two") == {"a": "2"}


def test_a_page_that_was_made_anew_is_no_change(on, write, seen):
    write(on("one"), a="1", **{"report.html": "as it was"})
    push(on("one"))
    seen("two")
    (on("two").path / "report.html").write_text("made anew")
    write(on("one"), a="2")
    push(on("one"))
    assert seen("two") == {"a": "2"}


@pytest.mark.parametrize("moment", ["cp_file", "xb"])
def test_two_commands_at_the_same_time(on, write, seen, faulty, moment):
    """One makes a generation while the other uploads, or is about to say that it has uploaded."""
    write(on("one"), a="1")
    push(on("one"))
    seen("two")
    write(on("two"), a="2")
    write(on("one"), a="3")
    one, two = on("one"), on("two")

    def meanwhile(operation, *arguments):
        if moment in (operation, *arguments):
            faulty(None)
            push(one)

    faulty(meanwhile)
    with pytest.raises(UserError, match="both have changed; nothing is overwritten"):
        push(two)
    assert seen() == {"a": "3"}
    assert (two.path / "a").read_text() == "2"
    write(on("one"), a="5")
    push(on("one"))
    assert seen() == {"a": "5"}


def test_one_machine_at_a_time(on, write):
    write(on("one"), a="1")
    with on("one").kept(), pytest.raises(UserError, match="working on this copy of a run"):
        on("one").fetch()


def test_a_run_that_was_refused_is_not_copied(on, write, seen):
    """A damaged folder does not take the place of a sound copy."""
    write(on("one"), a="1")
    push(on("one"))
    write(on("one"), a="damaged")
    with pytest.raises(UserError, match="refused"), on("one").kept():
        raise UserError("refused")
    assert seen() == {"a": "1"}


@pytest.mark.parametrize(
    "error", [TimeBudgetReached("late"), KeyboardInterrupt(), UserError("a fault"), ValueError()]
)
def test_however_a_command_ends_the_copy_is_whole(on, write, seen, error):
    write(on("one"), a="1")
    with pytest.raises(type(error)), on("one").kept() as copy:
        copy.begin()
        (copy.path / "a").write_text("2")
        raise error
    assert seen() == {"a": "2"}


@pytest.mark.parametrize(
    "error", [None, TimeBudgetReached("late"), KeyboardInterrupt(), UserError("a fault")]
)
def test_the_last_copying_fails(on, write, seen, faulty, error):
    """It is the command's error, unless that had one of its own; what is done is copied by the next command."""
    write(on("one"), a="1")
    said = []
    expected = (
        "a fault"
        if isinstance(error, UserError)
        else "not yours; .*kept in .* the same command goes on and copies it"
    )
    with pytest.raises(UserError, match=expected), on("one", say=said.append).kept() as copy:
        copy.begin()
        (copy.path / "a").write_text("2")
        faulty(_fails)
        if error is not None:
            raise error
    assert len(said) == isinstance(error, UserError)
    faulty(None)
    assert seen() == {"a": "1"}
    with on("one").kept():
        pass
    assert seen() == {"a": "2"}


def _fails(*_):
    raise PermissionError("not yours")


def test_units_are_copied_while_others_train(on, write, seen):
    write(on("one"), a="1")
    with on("one").kept() as copy:
        copy.begin()
        for name in ("units/u/DONE", "units/v/half"):
            (copy.path / name).parent.mkdir(parents=True)
            (copy.path / name).touch()
        copy.send(copy.path / "units" / "u")
        while (sender := copy._sender).is_alive():
            sender.join()
        assert seen() == {"a": "1", "units/u/DONE": ""}
    assert "units/v/half" in seen("another")


def test_a_storage_that_fails_half_way(on, write, seen, faulty):
    """Training goes on, which is told once, and the end makes good for it."""
    write(on("one"), a="1")
    said = []
    with on("one", say=said.append).kept() as copy:
        copy.begin()
        (copy.path / "units" / "u").mkdir(parents=True)
        (copy.path / "units" / "u" / "DONE").touch()
        faulty(_fails)
        copy.send(copy.path / "units" / "u")
        while not copy._fault:
            pass
        copy.send(copy.path / "units" / "u")
        copy.look()
        copy.look()
        faulty(None)
    (line,) = said
    assert line.startswith("hopscope: warning: faulty://") and line.endswith("is copied at the end")
    assert seen() == {"a": "1", "units/u/DONE": ""}


def test_rights_that_are_missing_are_told_before_training(on, write, faulty):
    write(on("one"), a="1")

    def read_only(operation, *arguments):
        if operation == "cp_file":
            raise PermissionError("not yours")

    with pytest.raises(UserError, match="not yours"), on("one").kept() as copy:
        faulty(read_only)
        copy.begin()
        raise AssertionError


def test_damage_at_the_url_is_told(on, write, seen, tmp_path):
    write(on("one"), a="1", b="2")
    push(on("one"))
    (tmp_path / "store" / "study" / "0123456789ab" / "a").write_text("7")
    with pytest.warns(CopyWarning, match="expected whole files, found a damaged or gone: left out"):
        assert seen() == {"b": "2"}


def test_what_is_known_is_damaged(on, write, seen):
    write(on("one"), a="1")
    push(on("one"))
    (known,) = on("one").root.rglob("known.json")
    for text in ("", "[]", '{"id": 7}', '{"files": {"../x": ["", 1]}}'):
        known.write_text(text)
        assert seen("one") == {"a": "1"}


def test_a_file_that_changed_at_once_is_noticed(on, write, seen, monkeypatch):
    """Its time and size say nothing then."""
    monkeypatch.setattr(copies, "_COARSE_NS", 10**12)  # however slow this machine is
    write(on("one"), a="1")
    with on("one").kept() as copy:
        copy.begin()
        state = (copy.path / "a").stat()
        (copy.path / "a").write_text("2")
        os.utime(copy.path / "a", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert seen() == {"a": "2"}


def test_the_copy_was_deleted(on, write, seen, tmp_path):
    write(on("one"), a="1")
    push(on("one"))
    shutil.rmtree(tmp_path / "store")
    push(on("one"))
    assert seen() == {"a": "1"}


def test_folders_of_urls(on, write, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder_of("s3://bucket/a") != folder_of("s3://bucket/b")
    assert folder_of("s3://bucket/a").name.startswith("s3-bucket-a-")
    copy = on("one", url="memory://somewhere/else")
    write(copy, a="1")
    push(copy)
    told = copy.root / "url.txt"
    assert told.read_text() == "memory://somewhere/else\n"
    before = told.stat()
    push(copy)  # another command may be about to write the file: it is left alone where it says the same
    assert (told.stat().st_ino, told.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    told.write_text("")
    push(copy)
    assert told.read_text() == "memory://somewhere/else\n"


def test_a_password_is_not_written_down(on, write):
    said = []
    copy = on("one", url="memory://me:pass-word@somewhere", say=said.append)
    write(copy, a="1")
    push(copy)
    texts = [path.read_text() for path in copy.root.rglob("*") if path.is_file()]
    assert not [text for text in [str(copy.path), copy.url, *texts, *said] if "pass-word" in text]


@pytest.mark.parametrize("tail", ["", "/study", "/study/0123456789ab"])
def test_readers_find_a_run_at_its_url(on, write, tail, tmp_path, make_run):
    url = url_of(f"memory://{tmp_path}/readers")
    made = make_run()
    study, run_hash = made.study, made.hash
    on("one")  # before the copy: that is where it is
    copy = RunCopy(url, study, run_hash)
    shutil.copytree(made.path, copy.path)
    push(copy)
    on("two")
    there = url + tail.replace("study", study).replace("0123456789ab", run_hash)
    assert find_run(Path(there)).config == find_runs([Path(there)])[0].config == made.config
    assert find_run(Path(there)).path == folder_of(url) / study / run_hash


def test_readers_find_several_runs(on, write, tmp_path):
    url = f"memory://{tmp_path}/several"
    on("one")
    for name in "ab":
        copy = RunCopy(url, "study", name * 12)
        write(copy, **{"config.json": "{}"})
        push(copy)
    on("two")
    assert fetched(url) == folder_of(url)
    assert fetched(f"{url}/study") == folder_of(url) / "study"
    with pytest.raises(UserError, match="expected exactly one run, found 2"):
        find_run(Path(url))


def test_nothing_is_at_the_url(on, tmp_path):
    on("one")
    Storage("memory://alone").create(".copy/000001.json", b"{}")  # below which there is no study
    with pytest.raises(UserError, match="found none"):
        find_run(Path("memory://alone"))
    with pytest.raises(UserError, match="expected a copy of a run, or a root of such copies, found none"):
        find_run(Path(f"memory://{tmp_path}/nothing"))


def test_nobody_pays_for_fsspec(start_python):
    code = "import sys, hopscope.executors.local, hopscope.runs.locate; print('fsspec.core' in sys.modules)"
    assert start_python(code).communicate()[0] == "False\n"


@pytest.mark.extras
def test_killed_at_every_operation(tmp_path, faulty_module):
    """Whichever was the last operation, a copy is a whole generation, and the same command goes on."""
    source = Path(hopscope.errors.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, faulty_module.__file__, tmp_path],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    for what, least in (("push", 30), ("fetch", 8)):
        turn = came[what].index("after")
        assert came[what] == ["before"] * turn + ["after"] * (len(came[what]) - turn)
        assert len(came[what]) >= least
