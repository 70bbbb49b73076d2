"""Generations at a URL: records, and what two commands do to each other."""

import json

import pytest

from hopscope.errors import UserError
from hopscope.runs.generations import (
    Generation,
    Overtaken,
    download,
    entry_of,
    make_generation,
    newest_at,
    read_generation,
    settle,
)
from hopscope.runs.storage import Storage


@pytest.fixture
def there(tmp_path):
    return Storage(f"file://{tmp_path}/store")


@pytest.fixture
def make(there, tmp_path):
    """Makes a generation of files, after what is there or after what it is told."""

    def made(files, newest=None):
        newest = newest or newest_at(there)
        folder = tmp_path / "here"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        generation = Generation.following(
            newest.number + 1, {name: entry_of(folder / name) for name in files}
        )
        make_generation(there, generation, newest.files, folder)
        return generation

    return made


def fetched(there, to):
    assert download(there, newest_at(there).generation, to, {}) == []
    return {path.relative_to(to).as_posix(): path.read_text() for path in to.rglob("*") if path.is_file()}


def test_one_follows_the_other(there, make, tmp_path):
    assert newest_at(there) == (None, [], 0)
    first, second = {"a": "1", "b/c": "7"}, {"a": "2", "d": "11"}
    for files in (first, second):
        make(files)
        assert fetched(there, tmp_path / "back") == files  # before it is settled
        settle(there, newest_at(there))
        assert fetched(there, tmp_path / "back") == files
        assert [name for name in there.names() if name[0] != "."] == sorted(files)
    assert there.names(".copy") == [".copy/000002.json"]


def test_who_comes_second_overwrites_nothing(there, make, tmp_path):
    make({"a": "1"})
    known = newest_at(there)
    make({"a": "2"})
    with pytest.raises(Overtaken) as caught:
        make({"a": "3"}, known)
    assert caught.value.by == newest_at(there)
    settle(there, newest_at(there))
    with pytest.raises(Overtaken):  # though the record of that number is gone by now, or was never there
        make({"a": "5"}, known)
    assert fetched(there, tmp_path / "back") == {"a": "2"}
    settle(there, newest_at(there))
    assert there.names() == [".copy/000002.json", "a"]


def test_a_number_that_is_free_again_is_not_taken(there, make, tmp_path):
    make({"a": "1"})
    known = newest_at(there)
    for text in "23":
        make({"a": text})
        settle(there, newest_at(there))
    assert there.names(".copy") == [".copy/000003.json"]
    with pytest.raises(Overtaken):
        make({"a": "5"}, known)
    assert there.names(".copy")[-1] == ".copy/000003.json"
    assert fetched(there, tmp_path / "back") == {"a": "3"}


def test_a_record_that_was_cut_is_none(there, make, tmp_path):
    make({"a": "1"})
    there.create(".copy/000002.json", b'{"number": 2,')
    assert newest_at(there).generation.number == 1 and newest_at(there).number == 2
    assert make({"a": "2"}).number == 3


def test_files_without_a_record_are_not_touched(there):
    there.create("config.json", b"{}")
    with pytest.raises(
        UserError, match=r"found config\.json without one that can be read; nothing is overwritten"
    ):
        newest_at(there)


def test_files_that_change_while_they_are_uploaded(there, make, tmp_path, monkeypatch):
    real = there.upload
    monkeypatch.setattr(
        there, "upload", lambda files: (real(files), (tmp_path / "here" / "a").write_text("2"))
    )
    with pytest.raises(UserError, match="expected files at rest"):
        make({"a": "1"})
    assert newest_at(there).generation is None


def test_damaged_files_are_left_out(there, make, tmp_path):
    generation = make({"a": "1", "b": "2", "c": "3"})
    settle(there, newest_at(there))
    (tmp_path / "store" / "a").write_text("7")
    (tmp_path / "store" / "b").unlink()
    assert download(there, generation, tmp_path / "back", {}) == ["a", "b"]
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["c"]


WHOLE = {"number": 1, "id": "0123456789ab", "by": "host", "time": "now", "files": {"a/b": ["0" * 64, 7]}}


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 0},
        {"id": "../../../etc"},
        {"id": "0123456789ab\n"},
        {"more": 1},
        *(
            {"files": {name: ["0" * 64, 7]}}
            for name in ("../a", "/a", "a//b", "a/./b", "", ".copy/x", "a\0b", "..")
        ),
        {"files": {"a": ["0" * 64, 7], "a/b": ["0" * 64, 7]}},
        {"files": {"a": ["0", 7]}},
        {"files": {"a": ["0" * 64, -1]}},
    ],
)
def test_records_of_other_kinds(changes):
    assert read_generation(json.dumps(WHOLE).encode()).files == {"a/b": ("0" * 64, 7)}
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read_generation(json.dumps(WHOLE | changes).encode())
