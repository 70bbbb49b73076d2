"""How much of a skill survives one more hop, from accuracies at neighbouring depths.

Skill is accuracy above guessing, (a - g) / (1 - g): 0 for a guess, 1 if all is right.  If every hop is lost
independently of the others, and a lost reading ends in a blind guess among the acceptable answers, then skill at depth
D is the product of D factors, and skill(D) / skill(D - 1) is the chance that the added hop is read right.
"""

from typing import NamedTuple

from hopscope.claims.intervals import Interval, ratio_interval
from hopscope.language.questions.answers import Tally


class Survival(NamedTuple):
    """What one more hop leaves, at depth D; what is about depth D - 1 is None at D = 1.

    Attributes:
        cell, before: answers at depth D, and at depth D - 1.
        skill, skill_before: at these depths.
        value: skill(D) / skill(D - 1), at D = 1 the skill itself; None where the skill before is none.
        interval: 95 %; None where the skill before is too small for one.
    """

    cell: Tally
    before: Tally | None
    skill: float
    skill_before: float | None
    value: float | None
    interval: Interval | None


def survivals(cells: list[Tally]) -> list[Survival]:
    """For each depth of one model's equations whose neighbour below was asked too (D = 1 needs none)."""
    by_depth = {cell.depth: cell for cell in cells if cell.accuracy.value is not None}
    found = []
    for depth, cell in sorted(by_depth.items()):
        now, before = _skills(cell), by_depth.get(depth - 1)
        if before is not None:
            earlier = _skills(before)
            some = earlier[0] > 0
            ratio = now[0] / earlier[0] if some else None
            interval = ratio_interval(now, earlier) if some else None
            found.append(Survival(cell, before, now[0], earlier[0], ratio, interval))
        elif depth == 1:
            found.append(Survival(cell, None, now[0], None, now[0], now[1:]))
    return found


def skill(value: float, guess: float) -> float:
    """Accuracy above guessing, as a share of what guessing leaves."""
    return (value - guess) / (1 - guess)


def _skills(cell: Tally) -> tuple[float, float, float]:
    """Skill with the ends of its interval: a linear function of the accuracy, so its ends are those of Wilson's."""
    value, low, high = cell.accuracy.value, cell.accuracy.low, cell.accuracy.high
    assert value is not None and low is not None and high is not None
    return skill(value, cell.guess), skill(low, cell.guess), skill(high, cell.guess)
