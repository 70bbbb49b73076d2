"""Storage by URL: real file systems of fsspec, and one that fails as it is told."""

import sys
import threading
import time
from pathlib import Path

import pytest

from hopscope.errors import UserError
from hopscope.runs import storage
from hopscope.runs.storage import Gone, Storage, StorageError, shown, url_of


@pytest.fixture(params=["memory", "file", "faulty"])
def there(request, faulty, tmp_path):
    """Storage of three kinds: one with keys, two with folders."""
    return Storage(f"{request.param}://{tmp_path}/store")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://bucket/runs/", "s3://bucket/runs"),
        ("gs://bucket", "gs://bucket"),
        ("file:///tmp/runs", "file:///tmp/runs"),
        ("memory://x", "memory://x"),
        ("ftp://me:word@host/runs", "ftp://me:word@host/runs"),
        ("runs", None),
        ("../a:b/c", None),
        ("C:/runs", None),
        ("/s3://x", None),
    ],
)
def test_urls_and_folders(path, url):
    assert url_of(path) == url_of(Path(path)) == url


def test_a_password_is_not_shown():
    assert shown("ftp://me:word@host/a:b@c") == "ftp://me:…@host/a:b@c"
    assert shown("s3://bucket/a:b@c") == "s3://bucket/a:b@c"


def test_files_go_there_and_back(there, tmp_path):
    assert there.names() == there.names("a") == []
    (tmp_path / "here").write_bytes(b"seven\n")
    there.upload({"a/b/c": tmp_path / "here", "d": tmp_path / "here"})
    assert there.names() == ["a/b/c", "d"]
    assert there.names("a/b") == ["a/b/c"]
    assert there.names(depth=1) == ["d"]
    there.copy({"a/b/c": "e/f"}, 6)
    there.download({"e/f": tmp_path / "back"}, 6)
    assert (tmp_path / "back").read_bytes() == there.read("d") == b"seven\n"
    there.remove("a", files=1)
    there.remove("d")
    there.remove("d")
    assert there.names() == ["e/f"]
    with pytest.raises(Gone):
        there.read("d")


def test_one_creates_what_two_want(there):
    assert [there.create("a/7", text) for text in (b"first", b"second")] == [True, False]
    assert there.read("a/7") == b"first"


def test_storage_that_cannot_create_is_asked_first(faulty, tmp_path, monkeypatch):
    there = Storage(f"faulty://{tmp_path}")

    def open_only_to_overwrite(operation, *arguments):
        if "xb" in arguments:
            raise NotImplementedError

    faulty(open_only_to_overwrite)
    test_one_creates_what_two_want(there)


def test_storage_that_cannot_copy_is_read_and_written(faulty, tmp_path, monkeypatch):
    there = Storage(f"memory://{tmp_path}/other")
    there.create("a", b"seven")
    monkeypatch.setattr(type(there._system), "cp_file", lambda *_: _not_implemented())
    there.copy({"a": "b"}, 5)
    assert there.read("b") == b"seven"


def _not_implemented():
    raise NotImplementedError


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("gs://bucket", "expected the package that serves it, found none: ImportError: Please install gcsfs"),
        ("nonsense://x", "expected a URL that fsspec can open, such as s3://BUCKET/FOLDER, found none"),
        ("simplecache::s3://x", "expected the URL of one storage"),
    ],
)
def test_what_nothing_serves(url, found, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UserError) as caught:
        Storage(url)
    assert str(caught.value).startswith(f"{url}: {found}") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "not\nyours"), RuntimeError(), FileNotFoundError("no bucket")]
)
def test_every_failure_is_one_line(faulty, error, tmp_path):
    def fail(*_):
        raise error

    faulty(fail)
    with pytest.raises(StorageError, match=f"expected .*, found.*: {type(error).__name__}") as caught:
        Storage(f"faulty://{tmp_path}").names()
    assert "\n" not in str(caught.value)


def test_storage_that_does_not_answer(faulty, tmp_path, monkeypatch):
    """A package that waits for minutes does not make the command wait, nor Python at its end."""
    monkeypatch.setattr(storage, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(storage, "MOST_LISTED", 0)
    answer = threading.Event()
    faulty(lambda *_: answer.wait())
    began = time.monotonic()
    with pytest.raises(StorageError, match="no answer in 0 s"):
        Storage(f"faulty://{tmp_path}").names()
    assert time.monotonic() - began < 5
    answer.set()


def test_many_small_files_may_take_their_time(faulty, tmp_path, monkeypatch):
    (tmp_path / "here").touch()
    faulty(lambda operation, *_: time.sleep(0.3 * (operation == "cp_file")))
    there = Storage(f"faulty://{tmp_path}/store")
    monkeypatch.setattr(storage, "ANSWER_SECONDS", 0.1)
    there.upload({"a": tmp_path / "here", "b": tmp_path / "here"})
    assert there.names() == ["a", "b"]


@pytest.mark.extras
def test_nobody_listens(monkeypatch):
    """As s3fs says it, which tries five times."""
    pytest.importorskip("s3fs")
    for name, value in {
        "ENDPOINT_URL": "http://127.0.0.1:9",
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    began = time.monotonic()
    with pytest.raises(StorageError, match=r"Could not connect to the endpoint|no answer"):
        Storage("s3://bucket").names()
    assert time.monotonic() - began < storage.ANSWER_SECONDS + 5
