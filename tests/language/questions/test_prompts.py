"""How a question is put: the paper's way unless told otherwise, and what each change adds."""

import pytest

from hopscope.language.questions.prompts import as_it_is, placer, putter
from hopscope.language.questions.sets import QuestionSet
from hopscope.tasks.text import FORMULATIONS, TextConfig, question

CONFIG = TextConfig(formulation="equations", depth=2, chains=3)
ASKED = question(CONFIG, 5, 7)


def test_the_paper_s_way_is_the_prompt_itself():
    assert putter(CONFIG, 7)(ASKED) == ASKED.prompt
    asked = QuestionSet(formulations=("equations", "relatives"), depths=(1, 2), chains=3, count=3)
    assert [prompt for _, prompt in asked.prompts()] == [one.prompt for one in asked.questions()]


@pytest.mark.parametrize(
    ("formulation", "stem"),
    [
        ("equations", "{} ="),
        ("lives_with", "{} lives in"),
        ("kingdoms", "The person who has {} is"),
        ("functions", "{}({}) ="),
        ("relatives", "{} lives in"),
    ],
)
def test_a_completion_ends_where_the_answer_follows(formulation, stem):
    config = TextConfig(formulation=formulation)
    one = question(config, 2, 0)
    facts, asked = one.prompt.rsplit("\n", 1)
    told = putter(config, 0, complete=True)(one)
    named = [one.prompt[mention.start : mention.end] for mention in one.structure.query]
    assert told == f"{facts}\n{stem.format(*named)}"
    assert all(name in asked for name in named)
    assert formulation in FORMULATIONS


def test_examples_are_solved_and_are_other_questions():
    put = putter(CONFIG, 7, few_shot=2)
    first, second, asked = put(ASKED).split("\n\n")
    assert asked == ASKED.prompt
    for shot in (first, second):
        problem, answer = shot.rsplit("\n", 1)
        assert problem != ASKED.prompt and problem.split("\n")[-1].startswith("What is the value of ")
        # The example is solved rightly: its chain is followed in plain Python.
        facts = dict(line.split(" = ") for line in problem.split("\n")[:-1])
        name = problem.split("value of ")[1].split("?")[0]
        while name in facts:
            name = facts[name]
        assert name == answer
    completed = putter(CONFIG, 7, few_shot=1, complete=True)(ASKED).split("\n\n")
    assert completed[0].split("\n")[-1].split(" = ")[1] in ("0", "1", "2")


def test_an_example_is_never_the_question_itself():
    small = TextConfig(formulation="equations", depth=1, chains=2)
    shot = putter(small, 0, few_shot=1)
    for index in range(8):
        one = question(small, index, 0)
        assert shot(one).count(one.prompt) == 1


def test_filler_and_repeats():
    told = putter(CONFIG, 7, filler=3, repeats=2)(ASKED)
    assert told == f"{ASKED.prompt}\n\n{ASKED.prompt}\n. . ."
    completed = putter(CONFIG, 7, filler=3, repeats=2, complete=True)(ASKED)
    facts = ASKED.prompt.rsplit("\n", 1)[0]
    assert completed.startswith(f"{facts}\n\n{facts}\n. . .\n") and completed.endswith(" =")


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"complete": True},
        {"repeats": 3, "filler": 2},
        {"repeats": 2, "few_shot": 1, "filler": 5, "complete": True},
        {"few_shot": 2},
    ],
)
def test_a_placed_question_says_where_its_parts_stand(formulation, changes):
    config = TextConfig(formulation=formulation)
    one = question(config, 3, 7)
    placed = placer(config, 7, **changes)(one)
    assert placed.text == putter(config, 7, **changes)(one)
    assert len(placed.tellings) == changes.get("repeats", 1)
    mentions = [mention for fact in one.structure.facts for mention in (*fact.given, fact.found)]
    for start in placed.tellings:
        for mention in mentions:
            written = one.prompt[mention.start : mention.end]
            assert placed.text[start + mention.start : start + mention.end] == written
    # The last telling is the question's own, behind all examples.
    facts = one.prompt.rsplit("\n", 1)[0]
    assert placed.text.rfind(facts) == placed.tellings[-1]
    named = [(mention.symbol, placed.text[mention.start : mention.end]) for mention in placed.query]
    assert named == [(m.symbol, one.prompt[m.start : m.end]) for m in one.structure.query]
    assert all(mention.start > placed.tellings[-1] + len(facts) for mention in placed.query)
    assert placed.joiner == ("\n" if changes == {"few_shot": 2} else " ")


def test_a_question_as_it_is():
    assert as_it_is(ASKED) == placer(CONFIG, 7)(ASKED)
