"""The lowest losses that an ideal observer of the permutation lookup task can reach, by what it knows.

A sequence x₁y₁ … shows a mapping from symbols to values, pair by pair; the observer predicts each y from its
x and the pairs before it.  What it knows depends on its prior: *uniform* over all V! permutations, or uniform
over the mappings it was trained on.  Losses are in nats, averaged over the V predictions of a sequence.
"""

import math


def elimination_floor(values: int) -> float:
    """Return ln(V!)/V: the lowest mean loss on mappings known only to be permutations.

    The k-th prediction chooses among V − k + 1 unused values, so its entropy is ln(V − k + 1).  A repeated x
    costs an ideal observer nothing, exactly like the last of V different ones, so the floor is the same with
    repeats at the last step.

    Raises:
        ValueError: `values` is below 1.
    """
    _check_count("values", values)
    return math.log(math.factorial(values)) / values


def training_floor(values: int, training_mappings: int) -> float:
    """Return ln(M)/V: the lowest mean loss on M equally likely, known mappings, if all V symbols are shown.

    By the chain rule the V conditional entropies sum to that of the mapping, in any order of the symbols.

    Raises:
        ValueError: `values` is below 1, or `training_mappings` is not between 1 and V!.
    """
    _check_count("values", values)
    if not 1 <= training_mappings <= math.factorial(values):
        raise ValueError(
            f"training_mappings out of range: expected 1 to {values}! = {math.factorial(values)}, "
            f"found {training_mappings}"
        )
    return math.log(training_mappings) / values


def blind_to_repeats_floor(values: int, repeat_ratio: float) -> float:
    """Return the lowest mean loss of an observer that sees the values used, but not a repeated x.

    Its best last prediction gives the unused value 1 − r and each used one r/(V − 1): the plateau of models
    that eliminate and know how often recall would be right, but cannot recall.

    Args:
        values: V, at least 2.
        repeat_ratio: r, the share of sequences whose last x copies one of the others, each equally often.

    Raises:
        ValueError: `values` is below 2, or `repeat_ratio` lies outside [0, 1].
    """
    _check_repeats(values, repeat_ratio)
    last = -_times_log(1 - repeat_ratio) - _times_log(repeat_ratio) + repeat_ratio * math.log(values - 1)
    return elimination_floor(values) + last / values


def unbound_repeats_floor(values: int, repeat_ratio: float) -> float:
    """Return the lowest mean loss of an observer that sees that an x came back, but not which y stood beside it.

    At a repeat it is left with the V − 1 values used, all equally likely: the plateau of models that tell repeats
    from new values before they can tell one earlier pair from another.

    Args:
        values: V, at least 2.
        repeat_ratio: r, the share of sequences whose last x copies one of the others, each equally often.

    Raises:
        ValueError: `values` is below 2, or `repeat_ratio` lies outside [0, 1].
    """
    _check_repeats(values, repeat_ratio)
    return elimination_floor(values) + repeat_ratio * math.log(values - 1) / values


def _check_count(name: str, count: int, least: int = 1) -> None:
    if count < least:
        raise ValueError(f"{name} out of range: expected at least {least}, found {count}")


def _check_repeats(values: int, repeat_ratio: float) -> None:
    _check_count("values", values, least=2)
    if not 0 <= repeat_ratio <= 1:
        raise ValueError(f"repeat_ratio out of range: expected 0 to 1, found {repeat_ratio}")


def _times_log(p: float) -> float:
    """Return p ln p with its limit 0 at p = 0."""
    return p * math.log(p) if p > 0 else 0.0
