import contextlib
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs import CheckpointDamaged, load_checkpoint, save_checkpoint, write_atomic

METADATA = {"step": 13, "stream": {"b": [2, 3], "a": 0.1}, "unit": "größe", "none": None}
DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint32", "bool"]
NUMBERS = [np.arange(np.prod(shape, dtype=int)).reshape(shape) for shape in ((), (0, 3), (2, 3, 5))]
TENSORS = {f"{dtype} {each.ndim}": each.astype(dtype) for dtype in DTYPES for each in NUMBERS}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("a") / "deep" / "step.safetensors"
    save_checkpoint(path, TENSORS, METADATA)
    return path.read_bytes()


def same(path):
    tensors, metadata = load_checkpoint(path)
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], array, strict=True)
    return metadata == METADATA and tensors.keys() == TENSORS.keys()


def assert_damaged(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointDamaged) as caught:
        load_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: expected a whole checkpoint, found ")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - as a pool of processes does
    assert (str(copy), type(copy)) == (str(caught.value), CheckpointDamaged)


def test_what_was_saved_comes_back_and_memory_layout_does_not_show(tmp_path, written):
    turned = {name: np.array(each, each.dtype.newbyteorder(">"), order="F") for name, each in TENSORS.items()}
    save_checkpoint(tmp_path / "a", turned, METADATA)
    assert (tmp_path / "a").read_bytes() == written
    assert same(tmp_path / "a")
    assert set(safetensors.numpy.load_file(tmp_path / "a")) == set(TENSORS)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_flipped_byte_is_told_or_changes_nothing(written, tmp_path_factory, at, flip):
    path, at = tmp_path_factory.getbasetemp() / "flipped", at % len(written)
    altered = written[:at] + bytes([written[at] ^ flip]) + written[at + 1 :]
    if at >= 8 + struct.unpack_from("<Q", written)[0]:
        return assert_damaged(path, altered)
    path.write_bytes(altered)
    with contextlib.suppress(CheckpointDamaged):
        assert same(path)
    return None


def test_what_was_cut_short_or_is_of_another_program_is_told(tmp_path, written):
    for length in (*range(0, len(written), 37), len(written) - 1):
        assert_damaged(tmp_path / "a", written[:length])
    foreign = [None, {"hopscope": "[]"}, {"hopscope": "0" * 64 + " {}"}, {"hopscope": "[" * 9999}]
    others = [safetensors.numpy.save({"a": np.zeros(3)}, each) for each in foreign]
    empty = [struct.pack("<Q", 2) + each for each in (b"{}", b"[]")]
    for content in (written + b"\0", b"\xff" * 64, *empty, *others):
        assert_damaged(tmp_path / "a", content)


@pytest.mark.parametrize("place", ["missing", "folder"])
def test_what_cannot_be_read_is_not_called_damaged(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"{place}: expected a readable file") as caught:
        load_checkpoint(tmp_path / place)
    assert type(caught.value) is UserError


FULL = """
import resource, sys, numpy as np
from pathlib import Path
from hopscope.runs import load_checkpoint, save_checkpoint
path = Path(sys.argv[1])
save_checkpoint(path, {"a": np.zeros(101)}, {"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_checkpoint(path, {"a": np.ones(1013)}, {"step": 2})
except Exception as error:
    print(type(error).__name__, error)
print(load_checkpoint(path)[1], [each.name for each in path.parent.iterdir()])
"""


def test_a_file_that_does_not_fit_is_told_and_leaves_the_one_before(tmp_path):
    command = [sys.executable, "-c", FULL, tmp_path / "a"]
    told, left = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert told.startswith(f"UserError cannot write {tmp_path / 'a'}: expected a writable folder with free ")
    assert left == "{'step': 1} ['a']"


@pytest.mark.parametrize("place", ["file/a", "/proc/a", "folder"])
def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="nothing written before is lost"):
        write_atomic(tmp_path / place, b"a")
    assert not list(tmp_path.rglob("*.tmp"))
