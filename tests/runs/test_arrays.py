import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from hopscope.runs.arrays import npz_arrays, npz_bytes, plain


def test_arrays_come_back_as_they_were(arrays):
    given = arrays | {"scalar": np.array(2.5), "empty": np.zeros((0, 3)), "flags": np.array([True, False])}
    found = npz_arrays(npz_bytes(given))
    assert list(found) == sorted(given)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_numpy_reads_the_archive(arrays, tmp_path):
    (tmp_path / "a.npz").write_bytes(npz_bytes(arrays))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        np.testing.assert_array_equal(found["weights/key"], arrays["weights/key"], strict=True)


def test_bytes_follow_values_and_not_memory_layout(arrays):
    key = arrays["weights/key"]
    other = dict(reversed((arrays | {"weights/key": np.asfortranarray(key).astype(">f4")}).items()))
    assert npz_bytes(other) == npz_bytes(arrays)


def test_no_clock_is_in_the_archive(arrays):
    with zipfile.ZipFile(io.BytesIO(npz_bytes(arrays))) as file:
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_plain_keeps_shape_and_values():
    transposed = np.arange(6).reshape(2, 3).T
    assert plain(transposed).flags.c_contiguous
    np.testing.assert_array_equal(plain(transposed), transposed, strict=True)
    assert plain(np.array(7.0)).shape == ()


def test_python_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        npz_bytes({"a": np.array([{}], dtype=object)})
    np.savez(tmp_path / "a.npz", a=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        npz_arrays((tmp_path / "a.npz").read_bytes())


def test_archives_cut_short_or_altered_are_refused(arrays):
    whole = npz_bytes(arrays)
    for length in range(0, len(whole), 7):
        with pytest.raises(ValueError):
            npz_arrays(whole[:length])
    at = whole.index(arrays["weights/value"].tobytes())
    with pytest.raises(ValueError, match="Bad CRC-32"):
        npz_arrays(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


def archive(*, header=None, content=b"", kind=zipfile.ZIP_STORED):
    """One array whose header says what it will."""
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        array, header or {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as file:
        file.writestr("a.npy", array.getvalue() + content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (archive(), "an array of 8000000000000 bytes, 0 of which are there"),
        (archive(content=bytes(1 << 24), kind=zipfile.ZIP_DEFLATED), "compressed"),
    ],
)  # fmt: skip
def test_an_archive_cannot_ask_for_more_memory_than_it_has_bytes(content, words):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words):
            npz_arrays(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
