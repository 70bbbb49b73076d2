import dataclasses

import pytest
from pydantic import BaseModel

from hopscope.claims import Claim, Samples, at_least, at_most, between
from hopscope.errors import UserError

from .stand_in import claim, series

TEXTS = {"statement": "s", "source": "this file", "protocol": "p"}


def test_a_claim_is_a_value():
    made = claim(series([1.0]))
    assert (made.need, made.rule, made.source_n, made.seeds_needed) == ("all", "always", 1, 10)
    assert made.criteria == {"": at_least(0.9, "fraction")} and made.rules == {"": "always"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.id = "C2"
    parts = claim(series([1.0]), {"a": at_least(1), "b": at_most(2)}, rule="mean")
    assert parts.rules == {"a": "mean", "b": "mean"}
    positional = Claim("C1", "s", "this file", "p", len, at_least(1))
    assert (positional.value, positional.must) == (len, at_least(1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"must": 0.99},
            "must: expected a criterion such as hopscope.at_least(0.99), or one for each",
        ),
        ({"must": None}, "must: expected a criterion"),
        ({"must": {}}, "must: expected a criterion"),
        ({"must": {"a": 1}}, "must: expected a criterion"),
        ({"must_not": "nothing"}, "must_not: expected a criterion"),
        ({"value": None}, "value: expected a function of the evidence (or readings), found None"),
        ({"value": 3}, "value: expected a function of the evidence, found 3"),
        ({"at_scale": "no"}, "at_scale: expected a function of the evidence, found 'no'"),
        (
            {"readings": {"a": 1}},
            "readings: expected a mapping from names to functions of the evidence",
        ),
        ({"readings": {}}, "readings: expected at least one, found {}"),
        ({"controls": len}, "controls: expected a mapping from names to functions"),
        ({"rule": "sometimes"}, "rule: expected one of always, mean, effect, found 'sometimes'"),
        ({"rule": {"a": "mean"}}, "rule: expected a rule, or one for each part (), found {'a': 'mean'}"),
        ({"need": "most"}, "need: expected one of all, any, agreement, found 'most'"),
        ({"source_n": 0}, "source_n: expected a whole number of 1 or more, found 0"),
        ({"seeds_needed": 1}, "seeds_needed: expected a whole number of 2 or more, found 1"),
        ({"seeds_needed": 8.0}, "seeds_needed: expected a whole number of 2 or more, found 8.0"),
        ({"statement": None}, "statement: expected words, found None"),
        ({"id": ""}, "id: expected words, found ''"),
    ],
)
def test_a_mistake_is_named_when_the_claim_is_made(fields, message):
    with pytest.raises(UserError) as caught:
        Claim(**{"id": "C1", **TEXTS, "value": len, "must": at_least(1), **fields})
    assert str(caught.value).startswith(f"claim {fields.get('id', 'C1')!r}: {message}")
    assert "\n" not in str(caught.value)


def test_criteria_have_units():
    assert at_least(0.999, "fraction").words() == "≥ 99.9 %"
    assert at_most(1000, "steps").words() == "≤ 1000 steps"
    assert between(0.1, 0.9, "fraction").words() == "10 % to 90 %"
    assert between(2, 5, "layers").words() == "2 to 5 layers"
    assert at_most(12.5, "steps").show(12.5) == "12.5 steps"
    wrong = [(at_least, "high"), (at_most, float("nan")), (between, 2, 1), (at_least, 1, "")]
    for function, *arguments in wrong:
        with pytest.raises(UserError) as caught:
            function(*arguments)
        assert str(caught.value).startswith("criterion: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], "cat"), "expected a unit of member, seed, case, question, pair, run, found 'cat'"),
        (([1.0, 2.0], "run", [1]), "expected one cluster for each of 2 values, found 1"),
        ((0.5,), "expected numbers, one for each thing that was measured, found float 0.5"),
        (("high",), "found str 'high'"),
        ((["high"],), "expected a number, found str 'high'"),
        (([[1, 2, 3]],), "expected a number, or a pair of them, found list [1, 2, 3]"),
        (([[1, 2], 3],), "expected numbers or pairs of numbers, found both"),
        (({"a": [1]},), "expected numbers, one for each thing"),
    ],
)
def test_samples_are_numbers(arguments, message):
    with pytest.raises(UserError) as caught:
        Samples(*arguments)
    assert message in str(caught.value)


def test_samples_may_have_errors_and_an_interval():
    with pytest.raises(UserError, match="expected one error for each of 2 values, found 1"):
        Samples([1.0, 2.0], error=[0.1])
    with pytest.raises(UserError, match=r"expected evaluation errors of 0 or more, found \[-0.1, -0.1\]"):
        Samples([1.0, 2.0], error=-0.1)
    assert Samples([1.0, None], error=[0.1, float("nan")]).error[0] == 0.1
    for wrong in ((0.9, 0.1), (float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(UserError, match="expected an interval"):
            Samples([1.0], interval=wrong)
    assert Samples(series([1.0, float("nan")], start=5)).members == (5, 6)
    assert Samples([True, 2]).values == (1.0, 2.0)


def test_a_series_of_another_unit_is_not_over_members():
    assert Samples(series([1.0, 2.0], start=5)).members == (5, 6)
    assert Samples(series([1.0, 2.0], start=5), "seed").members is None


def test_a_claim_may_stand_in_a_pydantic_model():
    class Holder(BaseModel):
        claims: tuple[Claim, ...] = ()

    made = claim(series([1.0]), {"a": at_least(1)}, readings={"b": len}, at_scale=str)
    (held,) = Holder(claims=[made]).claims
    assert held is made
