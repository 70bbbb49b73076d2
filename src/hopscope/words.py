"""Words that pages, figures and claims share."""

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
