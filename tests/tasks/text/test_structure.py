"""What holds for every question: places, chains, and how a wrong answer can come about."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.tasks.text import FORMULATIONS, TextConfig, question

from .solvers import SOLVERS

FIXED = {"kingdoms": 5, "functions": 2, "relatives": 4}


@st.composite
def asked(draw, formulations=FORMULATIONS):
    """A question of any formulation, shape and seed."""
    formulation = draw(st.sampled_from(formulations))
    chains = 4 if formulation in ("functions", "relatives") else draw(st.integers(2, 11))
    depth = FIXED.get(formulation) or draw(st.integers(1, 7))
    config = TextConfig(formulation=formulation, depth=depth, chains=chains)
    return question(config, draw(st.integers(0, 2)), draw(st.integers(0, 2**63 - 1)))


def ways_to_write(formulation, symbol):
    if formulation in ("equations", "lives_with", "functions"):
        return {symbol}
    ways = {symbol, symbol + "s", symbol + "ns", re.sub("ism$", "ists", symbol)}
    return ways | {way[0].upper() + way[1:] for way in ways}


@given(asked())
def test_every_line_is_a_fact_and_every_mention_a_word(one):
    *lines, last = one.prompt.split("\n")
    facts = one.structure.facts
    assert [one.prompt[fact.start : fact.end] for fact in facts] == lines
    begin = len(one.prompt) - len(last)
    places = [(mention, fact) for fact in facts for mention in (*fact.given, fact.found)]
    for mention, fact in [*places, *((mention, None) for mention in one.structure.query)]:
        first, end = (fact.start, fact.end) if fact else (begin, len(one.prompt))
        assert first <= mention.start < mention.end <= end
        assert one.prompt[mention.start : mention.end] in ways_to_write(one.formulation, mention.symbol)
        around = (
            one.prompt[max(first, mention.start - 1) : mention.start]
            + one.prompt[mention.end : mention.end + 1]
        )
        assert not re.search(r"\w", around)
    assert all(len({(m.start, m.end) for m in (*f.given, f.found)}) == len(f.given) + 1 for f in facts)


def follow(structure, depth, wrong=None):
    """Read from the question to the answer, step by step; `wrong` maps one fact to what is found there instead."""
    known = {mention.symbol for mention in structure.query}
    for step in range(1, depth + 1):
        read = [f for f in structure.facts if f.step == step and {m.symbol for m in f.given} <= known]
        found = [wrong[fact] if wrong and fact in wrong else fact.found.symbol for fact in read]
        known |= set(found)
    (answer,) = found
    return answer


@given(asked())
def test_facts_lead_from_the_question_to_the_answer(one):
    structure = one.structure
    assert follow(structure, one.depth) == one.answer == structure.answers[structure.chain]
    assert SOLVERS[one.formulation](one.prompt) == one.answer
    steps = Counter(fact.step for fact in structure.facts if fact.chain == structure.chain)
    expected = dict.fromkeys(range(1, one.depth + 1), 1)
    assert steps == (expected | {1: 2} if one.formulation == "functions" else expected)


@given(asked())
def test_every_chain_has_its_symbols(one):
    structure = one.structure
    assert len(structure.symbols) == len(structure.answers) == len(set(structure.answers)) == one.chains
    assert [symbols[-1] for symbols in structure.symbols] == list(structure.answers)
    assert {len(symbols) for symbols in structure.symbols} == {one.depth + 1}
    for fact in structure.facts:
        if fact.chain is None:
            assert one.formulation in ("functions", "relatives")
            continue
        before, after = structure.symbols[fact.chain][fact.step - 1 : fact.step + 1]
        given = [mention.symbol for mention in fact.given]
        if one.formulation == "functions":
            assert (given[0] in before, fact.found.symbol in after) == (True, True)
        else:
            assert (given[-1], fact.found.symbol) == (before, after)
            assert given[:-1] == ([structure.symbols[fact.chain][0]] if len(given) == 2 else [])


def kind(fact):
    return fact.step, fact.found.symbol.isdigit()


def lost_at(structure, depth):
    """Wrong answer → steps at which one wrong read leads to it; found by trying them all."""
    reads = [fact for fact in structure.facts if fact.chain == structure.chain]
    lost = {}
    for fact in reads:
        for other in structure.facts:
            if kind(other) == kind(fact) and other.found.symbol != fact.found.symbol:
                answer = follow(structure, depth, {fact: other.found.symbol})
                lost.setdefault(answer, set()).add(fact.step)
    lost.pop(structure.answers[structure.chain], None)
    return {answer: tuple(sorted(steps)) for answer, steps in lost.items()}


@settings(max_examples=60)
@given(asked())
def test_every_wrong_answer_is_explained_once(one):
    structure = one.structure
    explained = [alternative.answer for alternative in structure.alternatives]
    assert explained == [answer for answer in one.acceptable if answer != one.answer]
    assert {a.answer: a.lost for a in structure.alternatives} == lost_at(structure, one.depth)
    for alternative in structure.alternatives:
        if alternative.chain is None:
            assert one.formulation == "relatives"
            assert alternative.answer not in structure.answers
        else:
            assert structure.answers[alternative.chain] == alternative.answer


@given(asked())
def test_the_answer_is_one_of_the_acceptable(one):
    assert one.answer in one.acceptable
    assert len(set(one.acceptable)) == (16 if one.formulation == "relatives" else one.chains)


@pytest.mark.parametrize("formulation", ["equations", "lives_with"])
def test_rounds_take_names_in_turn(formulation):
    """Each of N names of a round ties to another name of the round before it."""
    one = question(TextConfig(formulation=formulation, depth=9, chains=3), 0, seed=1)
    names = [
        [fact.given[0].symbol for fact in one.structure.facts[first : first + 3]] for first in range(0, 27, 3)
    ]
    found = [
        [fact.found.symbol for fact in one.structure.facts[first : first + 3]] for first in range(0, 27, 3)
    ]
    assert sorted(found[0]) == sorted(one.acceptable)
    assert all(sorted(below) == sorted(above) for below, above in zip(names[:-1], found[1:], strict=True))
    if formulation == "equations":
        assert sorted(names[0]) == ["a", "b", "c"]
        assert sorted(names[-1]) == ["aa", "y", "z"]
    else:
        assert sorted(names[0]) == ["Alice", "Bob", "Charlie"]


def lines_of(config, count):
    return [question(config, 0, seed).prompt.split("\n")[:-1] for seed in range(count)]


def first_words(lines):
    return tuple(
        re.split(r" = | (?=lives|works|live|believe|eat|contain|cause)| is ", line)[0] for line in lines
    )


@pytest.mark.parametrize(
    ("formulation", "shuffled"),
    [("equations", 20), ("lives_with", 20), ("kingdoms", 20), ("functions", 0), ("relatives", 16)],
)
def test_which_lines_are_shuffled(formulation, shuffled):
    """In 40 questions, a shuffled place shows every subject of its round, or many; the others always the same."""
    seen = [first_words(lines) for lines in lines_of(TextConfig(formulation=formulation), 40)]
    choices = [len(set(place)) for place in zip(*seen, strict=True)]
    assert set(choices[shuffled:]) <= {1}
    assert set(choices[:shuffled]) <= (set(range(8, 17)) if formulation == "relatives" else {4})


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_every_chain_and_every_answer_comes_up(formulation):
    asked = [question(TextConfig(formulation=formulation), 0, seed) for seed in range(160)]
    assert {one.structure.chain for one in asked} == {0, 1, 2, 3}
    assert {one.answer for one in asked} == set(asked[0].acceptable)
    assert len({tuple(m.symbol for m in one.structure.query) for one in asked}) == (
        16 if formulation == "functions" else 4
    )
