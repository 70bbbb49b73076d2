"""What an ideal observer of the permutation lookup task knows, and the lowest losses that it can reach.

A sequence x₁ y₁ x₂ y₂ … shows a mapping from symbols 1 … V to values 1 … V, pair by pair; the observer predicts each y
from its x and the pairs before it.  Its prior is uniform over all V! permutations, or over the mappings it was trained
on.  Losses are in nats, averaged over the V predictions of a sequence.  r is the share of sequences whose last x copies
one of the others, each equally often.  All functions raise `UserError` for what is no such number.
"""

from math import factorial, log
from numbers import Real

from hopscope.errors import UserError
from hopscope.theory.information_flow import whole


def elimination_floor(values: int) -> float:
    """Return ln(V!)/V: the lowest mean loss on mappings known only to be permutations.

    A repeated x costs nothing, like the last of V different ones: the floor is the same with repeats at the last step.
    """
    return log(factorial(whole("values", values))) / values


def training_floor(values: int, training_mappings: int) -> float:
    """Return ln(M)/V (chain rule): the lowest mean loss on M equally likely, known mappings that are shown whole."""
    return log(whole("training_mappings", training_mappings, 1, factorial(whole("values", values)))) / values


def unbound_repeats_floor(values: int, repeat_ratio: float) -> float:
    """Return the lowest mean loss of an observer that sees that an x came back, but not which y stood beside it.

    At a repeat it is left with the V − 1 values used, all equally likely: the plateau of models that tell repeats from
    new values before they can tell one earlier pair from another.
    """
    if not (isinstance(repeat_ratio, Real) and 0 <= repeat_ratio <= 1):
        raise UserError(f"repeat_ratio: expected a share from 0 to 1, found {repeat_ratio!r}")
    return elimination_floor(values) + repeat_ratio * log(whole("values", values, 2) - 1) / values


def blind_to_repeats_floor(values: int, repeat_ratio: float) -> float:
    """Return the lowest mean loss of an observer that sees the values used, but not a repeated x.

    It gives the unused value 1 − r and each used one r/(V − 1) in the end: the plateau of models that cannot recall.
    """
    floor = unbound_repeats_floor(values, repeat_ratio)
    return floor - sum(p * log(p) for p in (repeat_ratio, 1 - repeat_ratio) if p > 0) / values
