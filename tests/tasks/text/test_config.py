"""Which questions can be written, and what is said where they cannot."""

import re

import pytest
from pydantic import ValidationError

from hopscope.config import validation_line
from hopscope.tasks.text import FORMULATIONS, TextConfig, question
from hopscope.tasks.text import names as words


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"formulation": "riddles"}, r"formulation: expected 'equations', .* or 'relatives', found 'riddles'"),
        ({}, "formulation: expected .*"),
        ({"formulation": "equations", "depth": 0}, "depth: expected at least 1, found 0; .*"),
        ({"formulation": "lives_with", "depth": -2}, "depth: expected at least 1, found -2; .*"),
        ({"formulation": "equations", "chains": 1}, "chains: expected at least 2, found 1; .*"),
        ({"formulation": "kingdoms", "chains": 0}, "chains: expected at least 2, found 0; .*"),
        ({"formulation": "kingdoms", "depth": 4}, "depth: expected 5 for kingdoms, found 4; leave it out"),
        ({"formulation": "functions", "depth": 1}, "depth: expected 2 for functions, found 1; leave it out"),
        ({"formulation": "relatives", "depth": 0}, "depth: expected 4 for relatives, found 0; leave it out"),
        ({"formulation": "functions", "chains": 5}, "chains: expected 4 for functions, found 5; leave it out"),
        ({"formulation": "relatives", "chains": 2}, "chains: expected 4 for relatives, found 2; leave it out"),
        ({"formulation": "kingdoms", "chains": 27}, r"chains: expected at most 26 .*kingdoms.* found 27; take fewer"),
        ({"formulation": "lives_with", "depth": 1, "chains": 76}, "chains: .* at most 75 .*cities.* found 76; .*"),
        (
            {"formulation": "equations", "depth": 27, "chains": 27},
            r"depth: expected depth · chains at most 702 \(.* from a to zz\), found 27 · 27 = 729; .*",
        ),
        (
            {"formulation": "lives_with", "depth": 91},
            r"depth: expected depth · chains at most 363 \(.* people .*\), found 91 · 4 = 364; .*",
        ),
        ({"formulation": "equations", "depth": "deep"}, "depth: expected .* found 'deep'"),
        ({"formulation": "equations", "steps": 3}, "no field 'steps'"),
    ],
)  # fmt: skip
def test_refused_in_one_line(given, line):
    with pytest.raises(ValidationError) as refused:
        TextConfig(**given)
    assert re.fullmatch(line, validation_line(refused.value)), validation_line(refused.value)


@pytest.mark.parametrize(
    "largest",
    [
        TextConfig(formulation="equations", depth=27, chains=26),
        TextConfig(formulation="equations", depth=1, chains=702),
        TextConfig(formulation="equations", depth=351, chains=2),
        TextConfig(formulation="lives_with", depth=4, chains=75),
        TextConfig(formulation="lives_with", depth=121, chains=3),
        TextConfig(formulation="kingdoms", chains=26),
    ],
    ids=lambda config: f"{config.formulation}-{config.depth}",
)
def test_the_limits_can_be_reached(largest):
    one = question(largest, 0, seed=0)
    assert len(one.structure.facts) == largest.steps * largest.chains
    assert len({fact.given[0].symbol for fact in one.structure.facts}) == largest.steps * largest.chains


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_own_depth_may_be_named(formulation):
    config = TextConfig(formulation=formulation)
    assert config == TextConfig(formulation=formulation, depth=config.depth, chains=4)
    assert config.steps == config.depth
    assert TextConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize(
    "lists",
    [
        ["PEOPLE", "CITIES"],
        ["PEOPLE", "KINGDOMS", "CREEDS", "FOODS", "ELEMENTS", "DISEASES"],
        ["ASKED_ABOUT", "RELATIONS", "JOBS", "WOMEN", "MEN", "COUNTRIES"],
        ["LETTERS"],
    ],
    ids=lambda lists: lists[0],
)
def test_no_word_has_two_meanings(lists):
    everything = [word.lower() for name in lists for word in getattr(words, name)]
    assert len(everything) == len(set(everything))
    assert all(word.isascii() and word.isalpha() for word in everything)


def test_words_inflect():
    assert all(land.endswith("a") for land in words.KINGDOMS)
    assert all(creed.endswith("ism") and creed.islower() for creed in words.CREEDS)
    assert all(food.islower() for food in words.FOODS)
    assert min(len(words.PEOPLE), len(words.KINGDOMS)) >= 26
    assert {
        len(getattr(words, name)) for name in ("KINGDOMS", "CREEDS", "FOODS", "ELEMENTS", "DISEASES")
    } == {26}
    assert (words.LETTERS[25:28], words.LETTERS[-1], len(words.LETTERS)) == (("z", "aa", "ab"), "zz", 702)
