"""How much of a skill survives one more hop, from accuracies at neighbouring depths.

Skill is accuracy above guessing, (a - g) / (1 - g): 0 for a guess, 1 if all is right.  If every hop is lost
independently of the others, and a lost reading ends in a blind guess among the acceptable answers, then skill at depth
D is the product of D factors, and skill(D) / skill(D - 1) is the chance that the added hop is read right.
"""

from dataclasses import dataclass

from hopscope.claims.intervals import Interval, ratio_interval
from hopscope.language.questions.answers import Tally


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

    cell: Tally
    before: Tally | None
    skill: float
    skill_before: float | None
    value: float | None
    interval: Interval | None


def survivals(cells: list[Tally]) -> list[Survival]:
    """For each depth of one model's equations whose neighbour below was asked too (D = 1 needs none)."""
    by_depth = {cell.depth: cell for cell in cells if cell.accuracy.value is not None}
    return [
        _survival(cell, by_depth.get(depth - 1))
        for depth, cell in sorted(by_depth.items())
        if depth == 1 or depth - 1 in by_depth
    ]


def skill(value: float, guess: float) -> float:
    """Accuracy above guessing, as a share of what guessing leaves."""
    return (value - guess) / (1 - guess)


def _survival(cell: Tally, before: Tally | None) -> Survival:
    now = _skills(cell)
    if before is None:
        return Survival(cell, None, now[0], None, now[0], now[1:])
    earlier = _skills(before)
    if earlier[0] <= 0:
        return Survival(cell, before, now[0], earlier[0], None, None)
    return Survival(cell, before, now[0], earlier[0], now[0] / earlier[0], ratio_interval(now, earlier))


def _skills(cell: Tally) -> tuple[float, float, float]:
    """Skill with the ends of its interval: a linear function of the accuracy, so its ends are those of Wilson's."""
    accuracy = cell.accuracy
    assert accuracy.value is not None and accuracy.low is not None and accuracy.high is not None
    low, high = skill(accuracy.low, cell.guess), skill(accuracy.high, cell.guess)
    return skill(accuracy.value, cell.guess), low, high
