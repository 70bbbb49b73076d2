import contextlib
import errno
import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs.files import (
    listed,
    read_json,
    remove,
    temporary_name,
    user_caches,
    write_atomic,
    write_json,
)
from hopscope.strict_json import canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=7,
)


def one_line(caught):
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_canonical_json_has_one_spelling():
    assert canonical_json({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'


@given(VALUES)
def test_canonical_json_forgets_the_order_of_keys_alone(value):
    text = canonical_json(value)
    assert json.loads(text) == value
    if isinstance(value, dict):
        assert canonical_json(dict(reversed(value.items()))) == text


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_refused(number, tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json([number])
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"a": number})
    assert list(tmp_path.iterdir()) == []


def test_written_json_keeps_the_order_and_is_read_back(tmp_path):
    value = {"z": [1, 0.1], "a": {"ü": None}}
    write_json(tmp_path / "deep" / "er" / "a.json", value)
    text = (tmp_path / "deep" / "er" / "a.json").read_text(encoding="utf-8")
    assert text == '{\n "z": [\n  1,\n  0.1\n ],\n "a": {\n  "ü": null\n }\n}\n'
    assert read_json(tmp_path / "deep" / "er" / "a.json") == value


def test_a_json_file_cut_short_anywhere_is_refused(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"study": "größe", "seeds": [2, 3, 5]})
    whole = path.read_bytes()
    # Without its last newline the value is still whole.
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="expected whole JSON") as caught:
            read_json(path)
        assert str(path) in one_line(caught)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b"[NaN]", b"[Infinity]", b"[" * 100_000, b"{} {}"])
def test_a_file_that_is_not_json_is_refused(content, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="do this") as caught:
        read_json(path, "do this")
    assert str(path) in one_line(caught)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="found none"):
        read_json(tmp_path / "no.json")
    with pytest.raises(UserError, match="Is a directory"):
        read_json(tmp_path)


def test_write_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, "größe")
    write_atomic(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_name_is_hidden_beside_and_of_one_thread(tmp_path):
    path = tmp_path / "a.json"
    assert fnmatch(temporary_name(path).name, ".a.json.*.tmp")
    assert temporary_name(path) == temporary_name(path)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(temporary_name, path).result() != temporary_name(path)


WRITES = """
import sys
from pathlib import Path
from hopscope.runs.files import write_atomic
for _ in range(60):
    write_atomic(Path(sys.argv[1]), sys.argv[2] * 200_003)
"""


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path, start_python):
    path = tmp_path / "report.html"
    writers = [start_python(WRITES, path, letter) for letter in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert path.read_text() in ("a" * 200_003, "b" * 200_003)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_somebody_writes_is_no_leftover(tmp_path):
    theirs = tmp_path / ".a.1-1.tmp"
    ours = [tmp_path / name for name in (".b.2-3.tmp", ".a.b.2-3.tmp", "a.2-3.tmp", ".a.x.tmp")]
    old = [tmp_path / ".a.2-3.tmp", tmp_path / ".a.tmp"]
    for path in (*old, *ours):
        path.write_text("torn")
    with theirs.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_atomic(tmp_path / "a", "2")
    assert set(tmp_path.iterdir()) == {tmp_path / "a", theirs, *ours}


def test_a_file_that_was_taken_for_a_leftover_is_opened_again(tmp_path, monkeypatch):
    flock = fcntl.flock

    def taken(file, how):
        monkeypatch.undo()
        temporary_name(tmp_path / "a").unlink()
        flock(file, how)

    monkeypatch.setattr("hopscope.runs.files.fcntl.flock", taken)
    write_atomic(tmp_path / "a", "2")
    assert (tmp_path / "a").read_text() == "2"


KILLED = """
import os, signal, sys
from pathlib import Path
from hopscope.runs.files import write_atomic
path, call, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
real = getattr(os, call)
calls = 0
def counted(*arguments):
    global calls
    calls += 1
    if calls == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(os, call, counted)
write_atomic(path, "new" * 70_001)
"""


@pytest.mark.parametrize(
    ("call", "count", "survives"),
    [("fsync", 1, "old"), ("replace", 1, "old"), pytest.param("fsync", 2, "new" * 70_001, id="fsync-2-new")],
)
def test_a_process_killed_while_writing_leaves_a_whole_file(tmp_path, start_python, call, count, survives):
    path = tmp_path / "a"
    path.write_text("old")
    assert start_python(KILLED, path, call, count).wait(60) == -signal.SIGKILL
    assert path.read_text() == survives
    assert len(list(tmp_path.glob(".a.*.tmp"))) == (survives == "old")
    write_atomic(path, "newest")
    assert path.read_text() == "newest"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "No space left on device.*free some disk space"),
        (errno.EACCES, "Permission denied.*you may write to"),
        (errno.EROFS, "Read-only file system.*not read-only"),
        (errno.EIO, "Input/output error.*mend this"),
    ],
)
def test_what_the_system_refuses_is_told_in_one_line(tmp_path, monkeypatch, call, code, words):
    path = tmp_path / "a"
    write_atomic(path, "old")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(UserError, match=words) as caught:
        write_atomic(path, "new")
    assert "nothing written before is lost" in one_line(caught)
    assert "the same command goes on" in one_line(caught)
    assert str(path) in one_line(caught)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_system_that_cannot_flush_folders_is_no_error(tmp_path, monkeypatch):
    real, refused = os.fsync, []

    def fsync(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - the link's target, by descriptor
            refused.append(descriptor)
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomic(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert len(refused) == 1


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(UserError, match="part of this path is a file"):
        write_atomic(tmp_path / "file" / "a", "x")
    with pytest.raises(UserError, match="part of this path is a file"):
        write_atomic(tmp_path / "file" / "a" / "b", "x")
    with pytest.raises(UserError, match="move away the folder"):
        write_atomic(tmp_path / "folder", "x")
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_that_cannot_be_written(tmp_path):
    # The kernel's own file system refuses new files even to the superuser.
    with pytest.raises(UserError, match="cannot write /proc/hopscope/a") as caught:
        write_atomic(Path("/proc/hopscope/a"), "x")
    assert "nothing written before is lost" in one_line(caught)


def test_a_file_that_cannot_be_removed(tmp_path):
    remove(tmp_path / "missing")
    with pytest.raises(UserError, match=r"Is a directory|Operation not permitted"):
        remove(tmp_path)


@pytest.fixture
def tiny_disk():
    """A real file system of 64 KiB."""
    folder = Path(tempfile.mkdtemp())
    mounted = False
    with contextlib.suppress(OSError):
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        folder.rmdir()
        pytest.skip("mounting a 64 KiB file system needs the superuser")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    shutil.rmtree(folder)


def test_a_full_disk_loses_nothing_and_can_be_gone_on_from(tiny_disk):
    write_atomic(tiny_disk / "a", b"old")
    write_atomic(tiny_disk / "ballast", b"x" * 30_011)
    for name in ("a", "b"):
        with pytest.raises(UserError, match=r"No space left on device.*free some disk space") as caught:
            write_atomic(tiny_disk / name, b"n" * 50_021)
        one_line(caught)
    assert (tiny_disk / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tiny_disk.iterdir()) == ["a", "ballast"]
    remove(tiny_disk / "ballast")
    write_atomic(tiny_disk / "a", b"n" * 50_021)
    assert (tiny_disk / "a").read_bytes() == b"n" * 50_021


def test_lists_of_names_are_cut():
    assert listed([]) == ""
    assert listed([2, 3, 5], limit=3) == "2, 3, 5"
    assert listed([2, 3, 5, 7, 11], limit=3) == "2, 3, 5 and 2 more"


@pytest.fixture
def flushed(monkeypatch):
    """Paths of the files and folders that were flushed to the disk, in order."""
    paths, fsync = [], os.fsync

    def noted(descriptor):
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))  # noqa: PTH115
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_folders_that_are_made_survive_a_power_cut(tmp_path, flushed):
    path = tmp_path / "a" / "b" / "c.json"
    write_atomic(path, "2")
    assert flushed == [tmp_path, tmp_path / "a", temporary_name(path), path.parent]
    flushed.clear()
    write_atomic(path, "3")
    assert flushed == [temporary_name(path), path.parent]


def test_what_is_removed_does_not_come_back_after_a_power_cut(tmp_path, flushed):
    (tmp_path / "DONE").touch()
    remove(tmp_path / "DONE")
    assert flushed == [tmp_path] and not any(tmp_path.iterdir())
    remove(tmp_path / "DONE")
    assert flushed == [tmp_path]


def test_caches_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert user_caches() == tmp_path / "caches" / "hopscope"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_caches() == tmp_path / ".cache" / "hopscope"
    # A container's user: no HOME, and nobody knows the number.
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 23456789)
    assert user_caches() == Path(tempfile.gettempdir()) / "hopscope-23456789"
