"""JSON from outside: what cannot be written again, or breaks what comes after, is a `ValueError`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.strict_json import MOST_NESTED, canonical_json, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=7,
)


@given(VALUES)
def test_a_value_is_read_as_it_was_written(value):
    assert parse_json(canonical_json(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 20_000 + b"]" * 20_000, b"[" * 20_000, b'{"a":' * 3_000 + b"7" + b"}" * 3_000, b"[" * 101 + b"]" * 101,
        b"NaN", b"[-Infinity]", b"1e999", b"[-2E+400]", b"7" * 5_000, b'"\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b"",
        b"\xef\xbb\xbf{}", '{"a": 3}'.encode("utf-16"), b"{'a': 3}", b"[3,]",
    ],
    ids=lambda text: repr(text[:17]),
)  # fmt: skip
def test_what_no_record_holds_is_refused(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_large_numbers_and_pairs_of_surrogates_are_whole():
    assert parse_json(b'[1e300, 3E+005, "\\ud83d\\ude00", "1e999"]') == [1e300, 3e5, "😀", "1e999"]
    assert parse_json("9" * 400) == int("9" * 400)


def test_what_is_nested_as_deeply_as_may_be_can_be_written_again():
    text = "[" * MOST_NESTED + "]" * MOST_NESTED
    assert canonical_json(parse_json(text)) == text
