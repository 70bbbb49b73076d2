"""What an ideal observer of the permutation lookup task knows, and the lowest losses that it can reach.

A sequence x₁ y₁ x₂ y₂ … shows a mapping from symbols 1 … V to values 1 … V, pair by pair; the observer predicts each y
from its x and the pairs before it.  Its prior is uniform over all V! permutations, or over the mappings it was trained
on.  Losses are in nats, averaged over the V predictions of a sequence.  r is the share of sequences whose last x copies
one of the others, each equally often.  All functions raise `UserError` for what is no such number or sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Question:
    """One question of a sequence: which y belongs to this x?"""

    x: int
    seen: tuple[int, ...]  # every token up to and with x
    used: tuple[int, ...]  # the values shown before x, each once, in order
    target: int | None  # the right value; None where the last y is not given and several would fit
    recall: int | None  # the value that stood beside an earlier copy of x
    elimination: int | None  # the only value not used yet; None while several are left
    ideal: tuple[float, ...]  # posterior probability of the values 1 … V if all mappings are equally likely


def read_sequence(tokens: Sequence[int], values: int) -> tuple[list[Question], tuple[int, ...] | None]:
    """Read a sequence of 2V tokens, or 2V − 1 without the last y, as a person would (presentation, sections 6 to 9).

    Returns:
        A question for each x; the values of 1 … V, or None where the pairs leave more than one mapping.

    Raises:
        UserError: the length or a token is wrong, an x has two different y, or two different x have the same y.
    """
    every = range(1, whole("values", values) + 1)
    if len(tokens) not in (2 * values - 1, 2 * values) or not all(token in every for token in tokens):
        raise UserError(
            f"sequence: expected {values} pairs x y x y … of whole numbers from 1 to {values}, the last y left out or "
            f"not, found {' '.join(map(str, tokens)) or 'nothing'}; give {2 * values} or {2 * values - 1} such numbers"
        )
    given, shown, questions = tuple(map(int, tokens)), dict[int, int](), list[Question]()
    for at, x in enumerate(given[::2]):
        y = given[2 * at + 1] if 2 * at + 1 < len(given) else None
        recall, unused = shown.get(x), [value for value in every if value not in shown.values()]
        elimination, possible = unused[0] if len(unused) == 1 else None, [recall] if recall else unused
        ideal = tuple(1 / len(possible) if value in possible else 0.0 for value in every)
        target, seen, used = y or recall or elimination, given[: 2 * at + 1], tuple(shown.values())
        questions.append(Question(x, seen, used, target, recall, elimination, ideal))
        for other, value in shown.items() if y else ():
            if (other == x) != (value == y):
                raise UserError(
                    f"sequence: expected one y for each x and another for every x, found {other}→{value} and then "
                    f"{x}→{y}; change one of the two pairs"
                )
        shown |= {x: y} if y else {}
    unused = [value for value in every if value not in shown.values()]
    return questions, tuple(shown.get(x) or unused[0] for x in every) if len(unused) <= 1 else None
