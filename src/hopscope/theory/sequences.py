"""A sequence x₁ y₁ x₂ y₂ … of the permutation lookup task, read question by question as a person would read it.

No tensors: what is seen, which values are used, what recall and elimination answer, and what the
ideal observer holds of each value (presentation, sections 6, 7 and 9).
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from hopscope.errors import UserError


@dataclass(frozen=True)
class Question:
    """One question of a sequence: which y belongs to this x?

    Attributes:
        x: the token asked about.
        seen: every token up to and with x.
        used: the values shown before x, each once, in order.
        target: the right value; None where the last y is not given and several would fit.
        recall: the value that stood beside an earlier copy of x; None where there is none.
        elimination: the only value not used yet; None while several are left.
        ideal: probability of the values 1 … V under the posterior that holds all mappings equally likely.
    """

    x: int
    seen: tuple[int, ...]
    used: tuple[int, ...]
    target: int | None
    recall: int | None
    elimination: int | None
    ideal: tuple[float, ...]


@dataclass(frozen=True)
class Reading:
    """A whole sequence.

    Attributes:
        tokens: x₁ y₁ …, 2V of them, or 2V - 1 where the last y is not given.
        questions: one for each x.
        mapping: the values of 1 … V; None where the pairs leave more than one mapping.
    """

    tokens: tuple[int, ...]
    questions: tuple[Question, ...]
    mapping: tuple[int, ...] | None


def read_sequence(tokens: Sequence[SupportsIndex], values: int) -> Reading:
    """Read a sequence of the permutation lookup task with V = `values`.

    With one x repeated, V - 1 pairs are shown; the missing one is implied, because its y is the unused value.

    Raises:
        UserError: the length is neither 2V nor 2V - 1, a token is not one of 1 … V, an x has two different y, or two
            different x have the same y.
    """
    given = _checked(tokens, values)
    shown = _pairs(given)
    mapping = _completed(shown, values)
    return Reading(
        given, tuple(_question(given, at, mapping, values) for at in range(0, len(given), 2)), mapping
    )


def _question(tokens: tuple[int, ...], at: int, mapping: tuple[int, ...] | None, values: int) -> Question:
    x, xs, ys = tokens[at], tokens[0:at:2], tokens[1:at:2]
    recall = ys[xs.index(x)] if x in xs else None
    unused = [value for value in range(1, values + 1) if value not in ys]
    target = tokens[at + 1] if at + 1 < len(tokens) else recall
    if target is None and mapping is not None:
        target = mapping[x - 1]
    possible = unused if recall is None else [recall]
    return Question(
        x=x,
        seen=tokens[: at + 1],
        used=tuple(dict.fromkeys(ys)),
        target=target,
        recall=recall,
        elimination=unused[0] if len(unused) == 1 else None,
        ideal=tuple(1 / len(possible) if value in possible else 0.0 for value in range(1, values + 1)),
    )


def _checked(tokens: Sequence[SupportsIndex], values: int) -> tuple[int, ...]:
    length = 2 * values
    if len(tokens) not in (length - 1, length):
        raise UserError(
            f"sequence: expected {length} tokens x y x y … for V = {values}, or {length - 1} without the last y, "
            f"found {len(tokens)}; give {values} pairs"
        )
    for place, token in enumerate(tokens, start=1):
        if not _is_value(token, values):
            raise UserError(
                f"sequence: expected whole numbers from 1 to {values}, found {token!r} at place {place}; "
                "change that token"
            )
    return tuple(operator.index(token) for token in tokens)


def _is_value(token: SupportsIndex, values: int) -> bool:
    try:
        return 1 <= operator.index(token) <= values
    except TypeError:
        return False


def _pairs(tokens: tuple[int, ...]) -> dict[int, int]:
    shown: dict[int, int] = {}
    # An odd number of tokens ends with an x that has no y.
    for x, y in zip(tokens[::2], tokens[1::2], strict=False):
        if x in shown and shown[x] != y:
            raise UserError(
                f"sequence: expected one y for each x, found {x}→{shown[x]} and then {x}→{y}; "
                f"write {shown[x]} beside each {x}"
            )
        other = next((earlier for earlier, value in shown.items() if value == y), x)
        if other != x:
            raise UserError(
                f"sequence: expected another y for every x, found {other}→{y} and then {x}→{y}; "
                f"write a value that is not used yet beside {x}"
            )
        shown[x] = y
    return shown


def _completed(shown: dict[int, int], values: int) -> tuple[int, ...] | None:
    every = range(1, values + 1)
    if len(shown) < values - 1:
        return None
    unused = [value for value in every if value not in shown.values()]
    return tuple(shown[x] if x in shown else unused[0] for x in every)
