"""The split of equations into trained and held-out questions."""

import itertools
import math

import pytest

from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, questions
from hopscope.tasks.text.split import held_out_mappings, held_out_questions, mapping_of


def equations(depth, chains):
    return TextConfig(formulation="equations", depth=depth, chains=chains)


@pytest.mark.parametrize(
    ("chains", "share", "count"), [(3, 0.2, 1), (3, 0.99, 5), (4, 0.2, 5), (5, 0.3, 36), (2, 0.1, 1)]
)
def test_a_share_of_the_mappings_is_held_out_but_never_all_or_none(chains, share, count):
    held = held_out_mappings(chains, share, 0)
    assert len(held) == len(set(held)) == count
    assert set(held) < set(itertools.permutations(range(chains)))


def test_the_split_is_the_same_everywhere_and_another_for_another_seed():
    assert held_out_mappings(4, 0.2, 0) == (
        (0, 1, 2, 3),
        (0, 2, 3, 1),
        (0, 3, 1, 2),
        (1, 2, 0, 3),
        (3, 0, 2, 1),
    )
    assert held_out_mappings(4, 0.2, 7) != held_out_mappings(4, 0.2, 0)


def test_the_mapping_is_what_the_names_of_the_last_round_stand_for():
    for question in questions(equations(3, 5), 20, 1):
        known = dict(line.split(" = ") for line in question.prompt.split("\n")[:-1])
        mapping = []
        for name in "klmno":
            while name in known:
                name = known[name]
            mapping.append(int(name))
        assert mapping_of(question) == tuple(mapping)


def test_held_out_questions_are_those_of_the_seed_with_a_held_out_mapping():
    held = set(held_out_mappings(3, 0.4, 5))
    found = list(held_out_questions(equations(2, 3), 13, 0, 0.4, 5))
    every = [one for one in questions(equations(2, 3), 200, 0) if mapping_of(one) in held]
    assert found == every[:13]


def test_all_of_them_can_be_asked_and_not_one_more():
    # 3 lines in 3! orders, 3 names to ask, one mapping of six.
    size = math.factorial(3) * 3
    assert len(list(held_out_questions(equations(1, 3), size, 0, 0.2, 0))) == size
    with pytest.raises(UserError, match=f"expected at most {size}, .*found {size + 1}; ask for fewer"):
        held_out_questions(equations(1, 3), size + 1, 0, 0.2, 0)


def test_bad_input_is_said_in_one_line():
    with pytest.raises(UserError, match="held_out: expected questions in equations, found kingdoms"):
        held_out_questions(TextConfig(formulation="kingdoms"), 1, 0, 0.2, 0)
    with pytest.raises(UserError, match="held_out: expected a share between 0 and 1, found"):
        held_out_questions(equations(1, 3), 1, 0, 1.5, 0)
    with pytest.raises(ValueError, match="expected a question in equations, found relatives"):
        mapping_of(next(questions(TextConfig(formulation="relatives"), 1, 0)))
