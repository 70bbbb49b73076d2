"""Which questions are asked: depths as command lines give them, and formulations that have none to choose."""

import pytest

from hopscope.errors import UserError
from hopscope.language.questions.sets import FREE_CHAINS, FREE_DEPTH, question_set, remembered
from hopscope.tasks.text import FORMULATIONS, TextConfig


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (3, (3,)),
        ("3", (3,)),
        ("1,2,3", (1, 2, 3)),
        (["1", "2"], (1, 2)),
        ([5, 2], (5, 2)),
        ((7,), (7,)),
    ],
)
def test_depths_in_every_form(given, read):
    assert question_set(formulations=("equations",), depths=given).depths == read


@pytest.mark.parametrize("given", ["one", [], "", [1, 1], [1.5], [True], True, {"a": 1}, "1,x"])
def test_depths_in_no_form(given):
    with pytest.raises(
        UserError, match=r"^depths: expected different whole numbers such as 1,2,3, found \S+"
    ):
        question_set(formulations=("equations",), depths=given)


def test_questions_by_formulation_then_depth():
    asked = question_set(formulations=("lives_with", "equations"), depths=[2, 3], chains=5, count=7, seed=11)
    found = [(question.formulation, question.depth, question.chains) for question in asked.questions()]
    expected = [("lives_with", 2, 5), ("lives_with", 3, 5), ("equations", 2, 5), ("equations", 3, 5)]
    assert found == [key for key in expected for _ in range(7)]
    ids = [question.id for question in asked.questions()]
    assert len(set(ids)) == 28 and ids[-1] == "equations-d3-n5-s11-000006"


def test_among_others_a_formulation_keeps_what_it_cannot_choose():
    asked = question_set(formulations=FORMULATIONS, depths=[1, 3], chains=5, count=2)
    found = [(config.formulation, config.steps, config.chains) for config in asked.configs()]
    assert found == [
        *(("equations", depth, 5) for depth in (1, 3)),
        *(("lives_with", depth, 5) for depth in (1, 3)),
        ("kingdoms", 5, 5),
        ("functions", 2, 4),
        ("relatives", 4, 4),
    ]


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_what_can_be_chosen_is_what_the_questions_allow(formulation):
    def allowed(**change):
        try:
            TextConfig(formulation=formulation, **change)
        except ValueError:
            return False
        return True

    assert allowed(depth=3) is (formulation in FREE_DEPTH)
    assert allowed(chains=5) is (formulation in FREE_CHAINS)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"formulations": ("sums",)}, "formulations.0: expected 'equations', 'lives_with'.* found 'sums'"),
        ({"formulations": ()}, r"^formulations: expected different ones of equations, .* found \(\)$"),
        ({"formulations": ("equations", "equations")}, r"found \('equations', 'equations'\)$"),
        ({"formulations": ("equations",), "count": 0}, "count: expected greater than or equal to 1, found 0"),
        ({"formulations": ("equations",), "count": "many"}, "count: expected a valid integer.*found 'many'"),
    ],
)
def test_sets_that_cannot_be(fields, words):
    with pytest.raises(UserError, match=words):
        question_set(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"formulations": ("kingdoms",), "depths": 3}, "depth: expected 5 for kingdoms, found 3"),
        ({"formulations": ("relatives",), "chains": 5}, "chains: expected 4 for relatives, found 5"),
        ({"formulations": ("equations",), "depths": 0}, "depth: expected at least 1, found 0"),
        ({"formulations": ("equations",), "depths": 1, "chains": 2, "count": 9}, "count: expected at most 8"),
    ],
)
def test_questions_that_cannot_be(fields, words):
    with pytest.raises(UserError, match=words):
        list(question_set(**fields).questions())


def test_a_question_is_remembered_with_its_structure():
    question = next(question_set(formulations=("relatives",), count=1, seed=5).questions())
    kept = remembered(question, 5)
    assert list(kept) == [
        "formulation",
        "depth",
        "kind",
        "chains",
        "seed",
        "acceptable",
        "alternatives",
        "symbols",
        "chain",
    ]
    assert (kept["formulation"], kept["depth"], kept["chains"], kept["seed"]) == ("relatives", 4, 4, 5)
    assert kept["kind"] == "relatives D=4"
    assert kept["acceptable"] == list(question.acceptable) and len(kept["acceptable"]) == 16
    assert {other["answer"] for other in kept["alternatives"]} == set(question.acceptable) - {question.answer}
    assert kept["symbols"][kept["chain"]][-1] == question.answer
