"""Which chain was followed, and how skill survives a hop: on answers whose every count is known."""

import numpy as np
import pytest
from tests.studies.llm.made_up import asked, cells

from hopscope.claims.intervals import ratio_interval, wilson
from hopscope.language.questions.answers import by_chance
from hopscope.language.questions.survival import skill, survivals
from hopscope.studies.llm.config import LanguageModelConfig

CONFIG = LanguageModelConfig(model=("a/b",), formulations=("equations",), depths=(1, 3), count=23)


def told_below(question, step):
    """The answer of the chain whose line of a step stands directly below the asked one's; None at the last line.

    From the prompt alone: lines are read as text, and followed to their end.
    """
    lines = [line.split(" = ") for line in question.prompt.split("\n")[:-1]]
    known = dict(lines)
    n = question.chains
    block = lines[len(lines) - step * n : len(lines) - (step - 1) * n]
    name = question.prompt.rsplit("value of ", 1)[1].split("?")[0]
    for _ in range(step - 1):
        name = known[name]
    place = [left for left, _ in block].index(name)
    if place == n - 1:
        return None
    value = block[place + 1][0]
    while value in known:
        value = known[value]
    return value


@pytest.mark.parametrize(("step", "field"), [(1, "from_first_line"), (3, "from_answer_line")])
def test_the_chain_of_the_next_line_is_one_further_down(step, field):
    def say(model, question, number):
        step_here = min(step, question.depth)
        return [told_below(question, step_here) or question.answer]

    for cell in cells(CONFIG, say):
        found = [q for q in asked(CONFIG).values() if q.depth == cell.depth]
        slipped = sum(told_below(q, min(step, q.depth)) is not None for q in found)
        assert 0 < slipped < 23
        assert getattr(cell, field) == {"1": slipped}
        assert (cell.wrong, cell.lost_chain, cell.chains) == (slipped, slipped, 4)


def test_functions_and_relatives_have_their_offsets():
    config = CONFIG.model_copy(update={"formulations": ("functions", "relatives")})

    def say(model, question, number):
        chain = question.structure.chain
        return [question.structure.answers[chain + 1 if chain < 3 else 0]]

    functions, relatives = cells(config, say)
    last = sum(q.structure.chain == 3 for q in asked(config).values() if q.formulation == "functions")
    assert functions.from_first_line == {"-3": last, "1": 23 - last}
    # Jobs are told in the order of the persons.
    assert set(relatives.from_first_line) <= {"-3", "1"} and sum(relatives.from_first_line.values()) == 23


def test_chance_is_a_distribution():
    for chains in (2, 3, 5, 7):
        offsets = [offset for offset in range(1 - chains, chains) if offset]
        assert sum(by_chance(offset, chains) for offset in offsets) == pytest.approx(1)
    pairs = [(i, j) for i in range(5) for j in range(5) if i != j]
    assert by_chance(-2, 5) == pytest.approx(sum(j - i == -2 for i, j in pairs) / len(pairs))


def test_survival_is_the_ratio_of_skills():
    config = CONFIG.model_copy(update={"depths": (1, 2, 4), "count": 20})
    right = {1: 20, 2: 15, 4: 20}

    def say(model, question, number):
        correct = number % 20 < right[question.depth]
        return [question.answer if correct else question.structure.alternatives[0].answer]

    one, two = survivals(cells(config, say))  # D = 4 has no neighbour
    assert (one.before, one.value, one.skill) == (None, 1.0, 1.0)
    assert one.interval == tuple(skill(end, 0.25) for end in wilson(20, 20))
    assert two.value == pytest.approx((0.75 - 0.25) / 0.75) and two.before is one.cell
    low, high = two.interval
    assert low < two.value < high


def test_no_skill_before_leaves_nothing_to_divide_by():
    config = CONFIG.model_copy(update={"depths": (1, 2)})
    _, two = survivals(cells(config, lambda m, q, n: [q.structure.alternatives[0].answer]))
    assert (two.value, two.interval) == (None, None)


def test_the_interval_of_a_ratio_covers():
    generator, n, (p, q) = np.random.Generator(np.random.Philox(key=7)), 211, (0.8, 0.9)
    draws = generator.binomial(n, [[p, q]] * 400)

    def ends(count):
        low, high = wilson(int(count), n)
        return count / n, low, high

    found = [ratio_interval(ends(a), ends(b)) for a, b in draws]
    covered = sum(low <= p / q <= high for low, high in found)
    assert 0.91 < covered / 400 < 0.985
    assert ratio_interval((0.5, 0.4, 0.6), (0.1, -0.1, 0.3)) is None
