"""Words that pages, figures and claims share."""

import re
from collections.abc import Iterable

_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def lowered(name: str) -> str:
    """A name with its digits as an index: `x2` as x₂."""
    return name.translate(_LOWERED)


def symbol(step: int) -> str:
    """The name of a chain's symbol, such as x₃."""
    return lowered(f"x{step}")


def symbols(steps: Iterable[int]) -> list[str]:
    """The names of several symbols, such as x₁ and x₂."""
    return [symbol(step) for step in steps]


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 seed` or `3 seeds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def heads_in_short(text: str) -> str:
    """A text in which each `layer 2, head 0` is written as pages write it: `head 2.0`."""
    return re.sub(r"layer (\d+), head (\d+)", r"head \1.\2", text)
