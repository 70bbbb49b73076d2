import hashlib
import json
import pickle
import struct

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs.checkpoints import CheckpointDamaged, load_checkpoint, save_checkpoint, strip_checkpoint

METADATA = {"step": 13, "samples": 10**12, "stream": {"b": [2, 3], "a": 0.1}, "unit": "größe"}


@pytest.fixture
def path(tmp_path, arrays):
    save_checkpoint(tmp_path / "step.safetensors", arrays, METADATA)
    return tmp_path / "step.safetensors"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A checkpoint and where its data section starts."""
    path = tmp_path_factory.mktemp("small") / "a.safetensors"
    tensors = {"weights/a": np.arange(6, dtype=np.float32).reshape(2, 3), "optimiser/a": np.arange(5)}
    save_checkpoint(path, tensors, METADATA)
    whole = path.read_bytes()
    return path, whole, 8 + struct.unpack_from("<Q", whole)[0]


def assert_damaged(path, content):
    path.write_bytes(content)
    with pytest.raises(CheckpointDamaged) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_arrays_and_metadata_come_back(path, arrays):
    tensors, metadata = load_checkpoint(path)
    assert metadata == METADATA
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name], array, strict=True)
        assert tensors[name].flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint32", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 5)])
def test_every_dtype_and_shape_comes_back(tmp_path, dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    save_checkpoint(tmp_path / "a", {"weights/a": array}, METADATA)
    np.testing.assert_array_equal(load_checkpoint(tmp_path / "a")[0]["weights/a"], array, strict=True)


def test_memory_layout_does_not_show(path, arrays, tmp_path):
    key = arrays["weights/key"]
    strided = np.repeat(key, 2, axis=2)[:, :, ::2]
    turned = np.ascontiguousarray(key.transpose(2, 0, 1)).transpose(1, 2, 0)
    for number, same in enumerate((strided, turned, key.astype(">f4"))):
        save_checkpoint(tmp_path / f"{number}", arrays | {"weights/key": same}, METADATA)
        assert (tmp_path / f"{number}").read_bytes() == path.read_bytes()


def test_metadata_are_as_the_format_says(path, arrays):
    with safetensors.safe_open(path, framework="np") as file:
        assert list(file.metadata()) == ["hopscope"]
        found = json.loads(file.metadata()["hopscope"])
    assert found["schema_version"] == 1
    assert METADATA.items() <= found.items()
    # The checksum once more, from the description of the format.
    digest = hashlib.sha256()
    for name in sorted(arrays):
        shape = ",".join(map(str, arrays[name].shape))
        digest.update(f'["{name}","{arrays[name].dtype}",[{shape}]]'.encode() + arrays[name].tobytes())
    assert found["sha256"] == digest.hexdigest()


@pytest.mark.parametrize("metadata", [{}, {"step": 1, "sha256": "0"}, {"step": 1, "schema_version": 1}])
def test_metadata_lack_nothing_and_use_no_reserved_key(tmp_path, metadata):
    with pytest.raises(ValueError, match="expected metadata with step"):
        save_checkpoint(tmp_path / "a", {}, metadata)
    assert list(tmp_path.iterdir()) == []


@given(data=st.data())
def test_any_altered_byte_of_the_arrays_is_noticed(small, data):
    path, whole, start = small
    at = data.draw(st.integers(start, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    error = assert_damaged(path, whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
    assert error.reason == "arrays that do not match their checksum"


@given(data=st.data())
def test_an_altered_header_is_noticed_or_changes_nothing(small, data):
    path, whole, start = small
    at = data.draw(st.integers(0, start - 1))
    flip = data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    tensors, _ = load_checkpoint(path)
    path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
    try:
        found, metadata = load_checkpoint(path)
    except CheckpointDamaged:
        return
    assert metadata == METADATA
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_altered_metadata_are_noticed(small):
    path, whole, _ = small
    assert whole.count(b'\\"step\\":13') == 1
    error = assert_damaged(path, whole.replace(b'\\"step\\":13', b'\\"step\\":17'))
    assert error.reason == "metadata that do not match their checksum"


def test_a_checkpoint_cut_short_anywhere_is_refused(small):
    path, whole, _ = small
    for length in range(len(whole)):
        assert_damaged(path, whole[:length])
    assert_damaged(path, whole + b"\0")


@pytest.mark.parametrize(
    "content",
    [
        b"not a checkpoint at all",
        b"\xff" * 64,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        safetensors.numpy.save({"a": np.zeros(3)}),
        safetensors.numpy.save({"a": np.zeros(3)}, {"hopscope": "[]"}),
        safetensors.numpy.save({"a": np.zeros(3)}, {"hopscope": '{"schema_version":1}'}),
    ],
)
def test_what_is_no_checkpoint_of_ours_is_refused(tmp_path, content):
    assert_damaged(tmp_path / "a", content)


def test_a_newer_schema_is_refused(tmp_path):
    content = safetensors.numpy.save({"a": np.zeros(3)}, {"hopscope": '{"schema_version":2,"step":3}'})
    error = assert_damaged(tmp_path / "a", content)
    assert "newer Hopscope (schema 2, this one reads up to 1): upgrade Hopscope" in str(error)


def test_a_missing_checkpoint_is_not_a_damaged_one(tmp_path):
    with pytest.raises(UserError, match="found none") as caught:
        load_checkpoint(tmp_path / "a")
    assert not isinstance(caught.value, CheckpointDamaged)


def test_the_error_crosses_processes(tmp_path):
    error = CheckpointDamaged(tmp_path, "half of it")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - as a pool of processes does
    assert (str(copy), copy.path, copy.reason) == (str(error), error.path, error.reason)


def test_stripping_keeps_the_weights_alone(path, arrays):
    strip_checkpoint(path)
    tensors, metadata = load_checkpoint(path)
    assert metadata == METADATA
    assert sorted(tensors) == ["weights/key", "weights/value"]
    np.testing.assert_array_equal(tensors["weights/key"], arrays["weights/key"], strict=True)


def test_stripping_twice_writes_nothing(path, monkeypatch):
    strip_checkpoint(path)
    monkeypatch.setattr("os.replace", None)
    strip_checkpoint(path)


def test_a_damaged_checkpoint_is_not_stripped(path):
    damaged = path.read_bytes()[:-1] + b"\x7f"
    path.write_bytes(damaged)
    with pytest.raises(CheckpointDamaged):
        strip_checkpoint(path)
    assert path.read_bytes() == damaged
