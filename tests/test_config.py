import math
from typing import Literal

import pytest
from pydantic import Field, ValidationError

from hopscope.config import (
    MOST_SEEDS,
    Config,
    check_seeds,
    given_of,
    in_words,
    unknown_field,
    validation_line,
    values_of,
)
from hopscope.errors import UserError


class Plan(Config):
    keys: int = Field(3, ge=2)
    rate: float = 0.5
    kind: Literal["short", "long"] = "short"


class Needy(Config):
    size: int


def test_fields_and_those_that_were_given():
    plan = Plan(rate=0.25)
    assert values_of(plan) == {"keys": 3, "rate": 0.25, "kind": "short"}
    assert given_of(plan) == {"rate": 0.25}
    with pytest.raises(ValidationError, match="frozen"):
        plan.rate = 0.1


@pytest.mark.parametrize(
    ("kind", "values", "line"),
    [
        (Plan, {"keys": 1}, "keys: expected greater than or equal to 2, found 1"),
        (Plan, {"rate": math.nan}, "rate: expected a finite number, found nan"),
        (Plan, {"kind": "wide"}, "kind: expected 'short' or 'long', found 'wide'"),
        (Plan, {"rat": 1}, "no field 'rat'; did you mean 'rate'?"),
        (Plan, {"learning": 1}, "no field 'learning'; expected one of the fields keys, rate, kind"),
        (Needy, {}, "size: expected a value, found none"),
    ],
)
def test_the_first_fault_is_told_in_one_line(kind, values, line):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(values)
    assert validation_line(caught.value, kind.model_fields) == line
    assert in_words(caught.value).startswith(f"{kind.__name__}: ")
    with pytest.raises(UserError) as made:
        kind(**values)
    assert str(made.value) == f"{kind.__name__}: {line}"


def test_other_words():
    assert unknown_field("a", ()) == "no field 'a'"
    assert in_words(OSError("two\n lines")) == "OSError: two lines"
    check_seeds("seeds", MOST_SEEDS)
    with pytest.raises(
        UserError, match="seeds: expected at most 10,000 seeds in one run, found 10001; take fewer"
    ):
        check_seeds("seeds", MOST_SEEDS + 1)
