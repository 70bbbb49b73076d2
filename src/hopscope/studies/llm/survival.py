"""How much of a skill survives one more hop, from accuracies at neighbouring depths.

Skill is accuracy above guessing, (a - g) / (1 - g): 0 for a guess, 1 if all is right.  If every hop is lost
independently of the others, and a lost reading ends in a blind guess among the acceptable answers, then skill at depth
D is the product of D factors, and skill(D) / skill(D - 1) is the chance that the added hop is read right.
"""

from dataclasses import dataclass
from math import sqrt

from hopscope.claims.intervals import Interval
from hopscope.studies.llm.cells import Cell


@dataclass(frozen=True)
class Survival:
    """What one more hop leaves.

    Attributes:
        cell: of depth D.
        before: of depth D - 1; None at D = 1, where there is no hop before.
        skill: at depth D.
        skill_before: at depth D - 1; None at D = 1.
        value: skill(D) / skill(D - 1), at D = 1 the skill itself; None where the skill before is none.
        interval: 95 %; None where the skill before is too small for one.
    """

    cell: Cell
    before: Cell | None
    skill: float
    skill_before: float | None
    value: float | None
    interval: Interval | None


def survivals(cells: list[Cell]) -> list[Survival]:
    """For each depth of one model's equations whose neighbour below was asked too (D = 1 needs none)."""
    by_depth = {cell.depth: cell for cell in cells if cell.accuracy.value is not None}
    return [
        _survival(cell, by_depth.get(depth - 1))
        for depth, cell in sorted(by_depth.items())
        if depth == 1 or depth - 1 in by_depth
    ]


def skill(value: float, guess: float) -> float:
    """Accuracy above guessing."""
    return (value - guess) / (1 - guess)


def _survival(cell: Cell, before: Cell | None) -> Survival:
    now = _skills(cell)
    if before is None:
        return Survival(cell, None, now[0], None, now[0], now[1:])
    earlier = _skills(before)
    if earlier[0] <= 0:
        return Survival(cell, before, now[0], earlier[0], None, None)
    return Survival(cell, before, now[0], earlier[0], now[0] / earlier[0], ratio_interval(now, earlier))


def _skills(cell: Cell) -> tuple[float, float, float]:
    """Skill with the ends of its interval: a linear function of the accuracy, so its ends are those of Wilson's."""
    accuracy = cell.accuracy
    assert accuracy.value is not None and accuracy.low is not None and accuracy.high is not None
    low, high = skill(accuracy.low, cell.guess), skill(accuracy.high, cell.guess)
    return skill(accuracy.value, cell.guess), low, high


def ratio_interval(above: tuple[float, float, float], below: tuple[float, float, float]) -> Interval | None:
    """Interval of the ratio of two independent estimates, from their own (MOVER-R: Donner and Zou 2012, Stat Methods
    Med Res 21, 347–359).

    Args:
        above: estimate, low and high end of the numerator.
        below: of the denominator.

    Returns:
        (low, high), or None where the denominator is too near to 0 for its interval: the ratio then has no bounds.
    """
    (a, a_low, a_high), (b, b_low, b_high) = above, below
    if b_low <= 0 or b_high >= 2 * b:
        return None
    product = a * b
    low = (product - sqrt(max(0.0, product**2 - a_low * b_high * (2 * a - a_low) * (2 * b - b_high)))) / (
        b_high * (2 * b - b_high)
    )
    high = (product + sqrt(max(0.0, product**2 - a_high * b_low * (2 * a - a_high) * (2 * b - b_low)))) / (
        b_low * (2 * b - b_low)
    )
    return low, high
