"""Streams of questions: different, repeatable, and refused where there are not enough."""

import hashlib
import json
from dataclasses import fields
from itertools import islice
from math import factorial

import pytest

from hopscope.errors import UserError
from hopscope.tasks.text import FORMULATIONS, Question, TextConfig, question, questions, records, space
from hopscope.tasks.text.draws import Draws
from hopscope.tasks.text.generate import form

from .solvers import SOLVERS

GOLDEN = {
    "equations": "399b7081f9e65e8669e99ae8a68c8178c8e079dab6fd686df19075e5fce5579c",
    "lives_with": "6f74f318b408d85b7753c5dbbfaa806f29455897d4e6e9c86ee2f93fcf6d56b2",
    "kingdoms": "540f675609963662c0ea47ee400c004be69a46b692e821c451b270ff655a705a",
    "functions": "0ec2326ee4bb2f7b7dff43dd206ead1d1cdcafef988d15ae5fbf3bf2944b2243",
    "relatives": "6e781317c644ea0348dc8196d42e5ed9c7aef29690fdd60d647c655bcd16371b",
    "largest": "a49cb91993df0779a5338d635bf9e90bc97e908ac7d10c21f75d003c87318b01",
}
"""SHA-256 of questions; recorded with Python 3.11, the same with 3.12 and 3.13."""

ANY = [
    TextConfig(formulation="equations"),
    TextConfig(formulation="equations", depth=1, chains=7),
    TextConfig(formulation="equations", depth=64, chains=3),
    TextConfig(formulation="lives_with"),
    TextConfig(formulation="lives_with", depth=2, chains=53),
    TextConfig(formulation="kingdoms"),
    TextConfig(formulation="kingdoms", chains=26),
    TextConfig(formulation="functions"),
    TextConfig(formulation="relatives"),
]


def record_of(question):
    """A question without its structure, as JSON has it."""
    named = {field.name: getattr(question, field.name) for field in fields(question)}
    del named["structure"]
    return named | {"acceptable": list(question.acceptable)}


def named(config):
    return f"{config.formulation}-{config.depth}-{config.chains}"


@pytest.mark.parametrize("config", ANY, ids=named)
def test_a_solver_that_reads_only_the_prompt_gets_every_answer(config):
    for record in records(config, 200, seed=3):
        assert SOLVERS[config.formulation](record["prompt"]) == record["answer"], record["id"]


@pytest.mark.parametrize("config", ANY[::2], ids=named)
def test_no_two_of_a_thousand_are_equal(config):
    prompts = {record["prompt"] for record in records(config, 1000, seed=0)}
    assert len(prompts) == 1000


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_question_depends_on_its_index_only(formulation):
    config = TextConfig(formulation=formulation)
    seven = list(questions(config, 7, seed=5))
    assert all(isinstance(one, Question) for one in seven)
    assert list(questions(config, 3, seed=5)) == seven[:3]
    assert list(questions(config, 3, seed=5, start=4)) == seven[4:]
    assert question(config, 6, seed=5) == seven[6]
    assert list(records(config, 7, seed=5)) == [record_of(one) for one in seven]
    assert list(records(config, 2, seed=5, start=5)) == [record_of(one) for one in seven[5:]]
    assert not {one.prompt for one in seven} & {record["prompt"] for record in records(config, 7, seed=6)}


@pytest.mark.parametrize("config", ANY, ids=named)
def test_a_draw_takes_the_words_that_it_says(config):
    written = form(config)
    draws = Draws("some address", written.words)
    written.draw(draws)
    with pytest.raises(StopIteration):
        draws.below(2)
    with pytest.raises(StopIteration):
        written.draw(Draws("some address", written.words - 1))


def test_ids_name_shape_seed_and_index():
    config = TextConfig(formulation="equations")
    assert [one.id for one in questions(config, 2, 0, start=16)] == [
        "equations-d5-n4-s0-000016",
        "equations-d5-n4-s0-000017",
    ]


def test_they_come_one_after_the_other():
    assert len(list(islice(questions(TextConfig(formulation="relatives"), 10**15, seed=0), 3))) == 3


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ({"formulation": "equations", "depth": 1, "chains": 2}, 8),
        ({"formulation": "lives_with", "depth": 2, "chains": 2}, 32),
        ({"formulation": "equations", "depth": 1, "chains": 3}, 108),
        ({"formulation": "equations", "depth": 3, "chains": 2}, 128),
    ],
)
def test_small_spaces_are_used_up(shape, size):
    """Repeats are drawn again until every question has come up once, and the first do not depend on the count."""
    config = TextConfig(**shape)
    assert space(config) == size
    all_of_them = [record["prompt"] for record in records(config, size, seed=2)]
    assert len(set(all_of_them)) == size
    assert [record["prompt"] for record in records(config, size // 2, seed=2)] == all_of_them[: size // 2]
    last = next(records(config, 1, seed=2, start=size - 1))
    assert last["prompt"] == all_of_them[-1]
    for count, start in ((size + 1, 0), (1, size), (2, size - 1)):
        with pytest.raises(UserError, match=f"count: expected at most {size}, .* found {count}"):
            records(config, count, seed=2, start=start)


def test_sizes_of_large_spaces():
    of = {name: space(TextConfig(formulation=name)) for name in FORMULATIONS}
    assert of["equations"] == of["lives_with"] == of["kingdoms"] == 24**10 * 4
    assert of["functions"] == 24**4 * 24 * 24 * 16
    assert of["relatives"] == factorial(16) ** 2 * factorial(8) ** 2 * 24 * 24 * 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 0}, "count: expected at least 1, found 0"),
        ({"count": -7}, "count: expected at least 1, found -7"),
        ({"start": -1}, "start: expected at least 0, found -1"),
        ({"seed": -1}, "seed: expected at least 0, found -1"),
        ({"seed": 2**63}, r"seed: expected at most 2\*\*63 - 1, found 9223372036854775808"),
    ],
)
@pytest.mark.parametrize("make", [questions, records])
def test_numbers_out_of_range_are_refused_at_the_call(make, change, words):
    numbers = {"count": 1, "seed": 0, "start": 0} | change
    with pytest.raises(UserError, match=words):
        make(TextConfig(formulation="relatives"), **numbers)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_same_on_any_machine(formulation):
    """Recorded once: other prompts under a seed would be another benchmark."""
    lines = "\n".join(
        json.dumps(record) for record in records(TextConfig(formulation=formulation), 20, seed=17)
    )
    assert hashlib.sha256(lines.encode()).hexdigest() == GOLDEN[formulation]


def test_the_largest_shape_and_seed_are_the_same_too():
    config = TextConfig(formulation="equations", depth=27, chains=26)
    (record,) = records(config, 1, seed=2**63 - 1)
    assert hashlib.sha256(record["prompt"].encode()).hexdigest() == GOLDEN["largest"]
