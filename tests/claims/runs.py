"""Members with seeds, and claims about them, made up for tests: judging needs no more of a run."""

import math
from types import SimpleNamespace

import pandas as pd

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.judge import judge

HIGH = at_least(0.9, "fraction")
NAN, NEVER = math.nan, math.inf
GOOD = [1.0] * 10


def members(n, copies=1):
    """`n` seeds, each of which occurs in `copies` members."""
    numbers = list(range(n * copies))
    return SimpleNamespace(members=numbers, seeds={member: 100 + member % n for member in numbers})


def series(values):
    return pd.Series([*values], dtype=float)


def of(values, *samples, **more):
    return lambda evidence: Samples(series(values), *samples, **more)


def claim(value=None, must=HIGH, **fields):
    function = value if callable(value) or value is None else lambda evidence: value
    texts = {"id": "C1", "statement": "s", "source": "this file", "protocol": "p"}
    return Claim(**{**texts, "value": function, "must": must, **fields})


def judged(value, must=HIGH, run=None, completion=None, **fields):
    """A claim judged on values of ten seeds, or of the run given."""
    return judge(claim(value, must, **fields), run or members(10), completion=completion)


def measured(values, must=HIGH, **fields):
    """A claim judged on one value of each of as many seeds."""
    return judged(series(values), must, members(len(values)), **fields)
