"""JSON has one spelling for each value, and no record of a run holds what could not be written again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs import RunFolder
from hopscope.runs.checkpoint import canonical_json, indented, read_record, write_atomic

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=7,
)
FOREIGN = [
    b"[" * 20_000 + b"]" * 20_000, b"[" * 20_000, b'{"a":' * 3_000 + b"7" + b"}" * 3_000, b"NaN", b"[-Infinity]",
    b'{"files": NaN}', b'{"files": [[]]}', b"1e999", b"7" * 5_000, b'"\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b"",
    b"\xef\xbb\xbf{}", '{"files": 3}'.encode("utf-16"), b"{'a': 3}", b"[3,]", b"null", b"[null]", b"{}", b"[[[]]]",
    b'{"format": 2}', b'{"format": 2, "sha256": 7}', b'{"format": [], "sha256": NaN, "study": "tiny"}',
]  # fmt: skip


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value):
    text = canonical_json(value)
    assert json.loads(text) == value and canonical_json(json.loads(text)) == text


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_json_does_not_know_is_never_written(number, tmp_path):
    for write in (canonical_json, lambda value: write_atomic(tmp_path / "a.json", indented(value))):
        with pytest.raises(ValueError, match="JSON compliant"):
            write({"a": [number]})
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("content", FOREIGN, ids=lambda content: repr(content[:17]))
def test_what_no_record_holds_is_told_in_one_line(content, tmp_path):
    path = tmp_path / "0123456789ab" / "config.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        _ = RunFolder(path.parent).config
    assert str(caught.value).startswith(str(path)[:-12]) and "\n" not in str(caught.value)
    assert read_record(path) == {}
