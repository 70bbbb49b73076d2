"""The suite of models whose circuit is known, built once for all tests that ask about it."""

from functools import cache

from hopscope.circuits.planted import Planted, planted_models


@cache
def suite() -> tuple[Planted, ...]:
    """Every planted model, in its order."""
    return tuple(planted_models())
