"""What an ideal observer of the permutation lookup task knows: exact posteriors, unbeatable losses.

A sequence x₁y₁ … shows a mapping from symbols to values, pair by pair; the observer predicts each y from its
x and the pairs before it.  What it knows depends on its prior: *uniform* over all V! permutations, or uniform
over the mappings it was trained on.  Losses are in nats, averaged over the V predictions of a sequence.

These functions are slow, plain references: enumeration and counting, no tensors.  Tokens are 1 … V.
"""

import math
from collections.abc import Sequence

Mapping = Sequence[int]
"""The value of symbol 1, of symbol 2, …"""


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


def uniform_posterior(xs: Sequence[int], ys: Sequence[int], x_query: int, values: int) -> list[float]:
    """Return P(y | prefix) under a uniform prior over all permutations.

    One-hot if the queried symbol was shown before, otherwise uniform over the unused values.

    Args:
        xs: symbols shown so far; a symbol may be shown again.
        ys: their values.
        x_query: symbol whose value is asked.
        values: V.

    Returns:
        V probabilities, of values 1 … V.

    Raises:
        ValueError: a symbol or value lies outside 1 … V, lengths differ, or the pairs fit no permutation.
    """
    shown = _pairs(xs, ys, x_query, values)
    if x_query in shown:
        return [1.0 if value == shown[x_query] else 0.0 for value in range(1, values + 1)]
    unused = set(range(1, values + 1)) - set(shown.values())
    return [1 / len(unused) if value in unused else 0.0 for value in range(1, values + 1)]


def mappings_posterior(
    xs: Sequence[int], ys: Sequence[int], x_query: int, mappings: Sequence[Mapping], values: int
) -> list[float] | None:
    """Return P(y | prefix) under a uniform prior over the given mappings.

    Args:
        xs: symbols shown so far; a symbol may be shown again.
        ys: their values.
        x_query: symbol whose value is asked.
        mappings: permutations of 1 … V; entry x − 1 is the value of symbol x.
        values: V.

    Returns:
        V probabilities, of values 1 … V; None if no mapping fits the prefix, where this observer knows
        nothing.

    Raises:
        ValueError: as in `uniform_posterior`, or a mapping is no permutation of 1 … V.
    """
    shown = _pairs(xs, ys, x_query, values)
    counts = [0] * values
    for mapping in mappings:
        if sorted(mapping) != list(range(1, values + 1)):
            raise ValueError(f"not a mapping: expected a permutation of 1 to {values}, found {list(mapping)}")
        if all(mapping[x - 1] == y for x, y in shown.items()):
            counts[mapping[x_query - 1] - 1] += 1
    fitting = sum(counts)
    return [count / fitting for count in counts] if fitting else None


def _pairs(xs: Sequence[int], ys: Sequence[int], x_query: int, values: int) -> dict[int, int]:
    _check_count("values", values)
    for token in (*xs, *ys, x_query):
        if not 1 <= token <= values:
            raise ValueError(f"token out of range: expected 1 to {values}, found {token}")
    if len(xs) != len(ys):
        raise ValueError(f"one y for each x: expected {len(xs)} values, found {len(ys)}")
    pairs = set(zip(xs, ys, strict=True))
    if not len(pairs) == len({x for x, _ in pairs}) == len({y for _, y in pairs}):
        raise ValueError(
            f"pairs fit no permutation: expected one y for each x, found x {list(xs)}, y {list(ys)}"
        )
    return dict(pairs)


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
