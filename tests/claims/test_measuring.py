from functools import partial

import pandas as pd
import pytest

from hopscope.claims import Samples, at_least, judge
from hopscope.errors import UserError

from .stand_in import claim, members, series

MUST = {"a": at_least(1), "b": at_least(1)}


def refusal(value=None, must=None, **fields):
    with pytest.raises(UserError) as caught:
        judge(claim(value, must, **fields), members(3))
    text = str(caught.value)
    assert text.startswith("claim 'C1': ") and "\n" not in text
    return text.removeprefix("claim 'C1': ")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [1.0, 2.0],
            "value: expected one number for each of 3 members (a series names its members), found 2 numbers",
        ),
        (
            [],
            "value: expected one number for each of 3 members (a series names its members), found 0 numbers",
        ),
        (series([1.0], start=7), "value: expected members of the run (0, 1, 2), found member 7"),
        (Samples(series([1.0], start=7)), "value: expected members of the run (0, 1, 2), found member 7"),
        (pd.Series([1.0, 2.0], index=[1, 1]), "value: expected each member once, found member 1 twice"),
        (pd.Series([1.0], index=["a"]), "value: expected members of the run (0, 1, 2), found member 'a'"),
        (0.5, "value: expected numbers, one for each thing that was measured, found float 0.5"),
        (["x", 1, 2], "value: expected a number, found str 'x'"),
        ({"a": [1.0] * 3}, "value: expected numbers, since `must` has no parts, found parts 'a'"),
        ([[1, 2]] * 3, "value: expected numbers under the rule 'always', found pairs of numbers"),
    ],
)
def test_what_a_value_function_returns_is_checked(value, message):
    assert message in refusal(lambda evidence: value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0] * 3, "value: expected numbers for each part of `must` (a, b), found list [1.0, 1.0, 1.0]"),
        ({"a": [1.0] * 3}, "value: expected numbers for each part of `must` (a, b), found parts 'a'"),
        ({"a": [1.0] * 3, "b": [1.0] * 3, "c": [1.0] * 3}, "found parts 'a', 'b', 'c'"),
        ({"a": [1.0] * 3, "b": [1.0]}, "value, part 'b': expected one number for each of 3 members"),
    ],
)
def test_parts_must_be_those_of_must(value, message):
    assert message in refusal(value, MUST)


def fails(evidence):
    table = {"accuracy": 1.0}
    return table["recall"]


def asks(evidence, metric="recall"):
    raise UserError(f"metric: expected one of loss, found {metric!r}")


def test_a_function_that_fails_is_named_with_its_line():
    line = fails.__code__.co_firstlineno + 2
    said = refusal(fails)
    assert said.startswith("value: ") and f"KeyError: 'recall' (test_measuring.py, line {line}); mend" in said
    line = asks.__code__.co_firstlineno + 1
    known = f"metric: expected one of loss, found 'recall' (test_measuring.py, line {line})"
    assert refusal(asks) == f"value: {known}"
    assert refusal(partial(asks, metric="recall")) == f"value: {known}"
    assert refusal(None, readings={"batch 64": asks}) == f"reading 'batch 64': {known}"
    assert refusal([1.0] * 3, at_scale=asks) == f"at_scale: {known}"
    assert refusal([1.0] * 3, controls={"c": asks}) == f"control 'c': {known}"
    assert "KeyError" in refusal(lambda evidence: {}["x\ny"])


def deep(evidence):
    return pd.Series([1.0]).loc[3]


def test_the_line_is_that_of_the_users_file():
    assert f"KeyError: 3 (test_measuring.py, line {deep.__code__.co_firstlineno + 1})" in refusal(deep)
    assert "ZeroDivisionError" in refusal(lambda evidence: [1.0, 2.0, 1 / 0])


def test_at_scale_and_readings_must_return_what_they_should():
    said = refusal([1.0] * 3, at_scale=lambda evidence: ["x"])
    assert said.startswith("at_scale: expected words") and said.endswith("found list ['x']")
    for wrong in ({}, {"a": 1}, 3):
        text = refusal(None, readings=lambda evidence, wrong=wrong: wrong)
        assert text.startswith("readings: expected a mapping from names to functions of the evidence, found ")
    assert refusal(None, readings={"batch 64": lambda evidence: [1.0]}).startswith(
        "reading 'batch 64': expected one number"
    )
