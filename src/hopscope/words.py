"""Words that pages, figures and claims share."""

from collections.abc import Iterable


def symbol(step: int) -> str:
    """The name of a chain's symbol, such as x₃."""
    return "x" + str(step).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def symbols(steps: Iterable[int]) -> list[str]:
    """The names of several symbols, such as x₁ and x₂."""
    return [symbol(step) for step in steps]


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 seed` or `3 seeds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
