import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.runs import hashing
from hopscope.runs.hashing import config_hash, content_hash, source_hash


def test_content_hash_is_the_start_of_a_sha256():
    # printf '{"a":1}' | sha256sum
    assert content_hash({"a": 1}) == "015abd7f5cc5"


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.data())
def test_content_hash_follows_values_and_not_their_order(value, data):
    assert content_hash(dict(reversed(value.items()))) == content_hash(value)
    key = data.draw(st.sampled_from(sorted(value)))
    assert content_hash(value | {key: value[key] + 1}) != content_hash(value)


def test_content_hash_refuses_nan():
    with pytest.raises(ValueError, match="JSON compliant"):
        content_hash(float("nan"))


def test_config_hash_covers_study_results_version_and_config(monkeypatch):
    hashes = {
        config_hash("depth", {"a": 1}),
        config_hash("circuit", {"a": 1}),
        config_hash("depth", {"a": 2}),
    }
    monkeypatch.setattr(hashing, "RESULTS_VERSION", 17)
    assert len(hashes | {config_hash("depth", {"a": 1})}) == 4


def test_source_hash_covers_names_and_bytes_of_python_files_alone(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "a.py").write_text("x = 1\n")
    (package / "inner" / "b.py").write_text("")
    first = source_hash(package)
    shutil.copytree(package, tmp_path / "copy")
    (tmp_path / "copy" / "note.txt").write_text("not source")
    assert source_hash(tmp_path / "copy") == first
    (package / "a.py").write_text("x = 2\n")
    changed = source_hash(package)
    (package / "a.py").write_text("x = 1\n")
    (package / "inner" / "b.py").rename(package / "inner" / "c.py")
    assert len({first, changed, source_hash(package)}) == 3


def test_source_hash_does_not_see_the_order_of_the_file_system(tmp_path, monkeypatch):
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(name)
    first = source_hash(tmp_path)
    found = sorted(tmp_path.rglob("*.py"))
    orders = []
    monkeypatch.setattr(Path, "rglob", lambda *_: orders.pop())
    orders += [found, found[::-1], found[1:] + found[:1]]
    assert {source_hash(tmp_path) for _ in range(3)} == {first}


def test_source_hash_is_of_this_package_by_default():
    assert source_hash() == source_hash(Path(hashing.__file__).parent.parent)


def test_the_source_of_this_package_is_read_once_a_process(monkeypatch):
    found = source_hash()
    monkeypatch.setattr(Path, "rglob", None)
    assert source_hash() == found
