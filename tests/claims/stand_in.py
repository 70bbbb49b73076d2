"""A stand-in for an evidence table: judging needs to know members and seeds only."""

import re
from dataclasses import dataclass

import pandas as pd

from hopscope.claims import Claim, at_least


@dataclass(frozen=True)
class Members:
    """Members with their seeds."""

    members: list[int]
    seeds: dict[int, int]


def members(n: int, *, copies: int = 1) -> Members:
    """`n` seeds, each of which occurs in `copies` members."""
    numbers = list(range(n * copies))
    return Members(numbers, {member: 100 + member % n for member in numbers})


def series(values, start=0) -> pd.Series:
    """One number for each member from `start` on."""
    return pd.Series(list(values), index=range(start, start + len(values)), dtype=float)


def numbers(words: str) -> list[float]:
    """All numbers of a verdict's words, in their order."""
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?", words)]


def claim(value=None, must=None, **fields) -> Claim:
    """A claim whose value function returns `value`, unless it is a function itself."""
    function = value if callable(value) or value is None else (lambda evidence: value)
    texts = {"id": "C1", "statement": "s", "source": "this file", "protocol": "p", **fields}
    return Claim(value=function, must=must or at_least(0.9, "fraction"), **texts)
