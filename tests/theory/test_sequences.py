"""Sequences whose answers a person can read off, and agreement with the posterior on all sequences."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.posteriors import mappings_posterior

from hopscope.errors import UserError
from hopscope.theory.sequences import Question, read_sequence

PLAIN = [2, 3, 1, 5, 4, 4, 3, 2, 5, 1]
"""The presentation's test sequence, section 6."""
PROBE = [2, 4, 5, 3, 4, 5, 3, 2, 2, 4]
"""Its memorisation probe, section 7: x₅ repeats x₁."""


def test_the_published_sequence_is_read_as_its_page_prints_it():
    reading = read_sequence(PLAIN, 5)
    assert reading.tokens == tuple(PLAIN)
    assert reading.mapping == (5, 3, 2, 4, 1)
    assert [question.used for question in reading.questions] == [(), (3,), (3, 5), (3, 5, 4), (3, 5, 4, 2)]
    assert [question.target for question in reading.questions] == [3, 5, 4, 2, 1]
    assert [question.recall for question in reading.questions] == [None] * 5
    assert [question.elimination for question in reading.questions] == [None, None, None, None, 1]
    assert reading.questions[1] == Question(1, (2, 3, 1), (3,), 5, None, None, (0.25, 0.25, 0.0, 0.25, 0.25))
    assert reading.questions[4].ideal == (1.0, 0.0, 0.0, 0.0, 0.0)


def test_at_the_probe_recall_and_elimination_disagree():
    last = read_sequence(PROBE, 5).questions[-1]
    assert last == Question(
        x=2,
        seen=tuple(PROBE[:9]),
        used=(4, 3, 5, 2),
        target=4,
        recall=4,
        elimination=1,
        ideal=(0, 0, 0, 1, 0),
    )
    assert read_sequence(PROBE, 5).mapping == (1, 4, 2, 5, 3)


@pytest.mark.parametrize("tokens", [PLAIN, PROBE])
def test_the_last_y_may_be_left_out(tokens):
    whole, cut = read_sequence(tokens, 5), read_sequence(tokens[:-1], 5)
    assert cut.questions == whole.questions
    assert cut.mapping == whole.mapping


def test_a_repeat_in_the_middle():
    reading = read_sequence([1, 3, 1, 3, 2, 1], 3)
    assert [question.used for question in reading.questions] == [(), (3,), (3,)]
    assert [question.recall for question in reading.questions] == [None, 3, None]
    assert reading.questions[2].ideal == (0.5, 0.5, 0.0)
    assert reading.mapping == (3, 1, 2)


def test_what_the_pairs_leave_open_is_none():
    reading = read_sequence([1, 3, 1, 3, 1, 3, 2], 4)
    assert reading.mapping is None
    assert reading.questions[-1].target is None
    assert reading.questions[-1].elimination is None


def test_other_whole_numbers_are_read_too():
    assert read_sequence(torch.tensor([1, 3, 2, 2, 3, 1]), 3) == read_sequence([1, 3, 2, 2, 3, 1], 3)


@given(st.permutations([1, 2, 3, 4]), st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_the_ideal_is_the_posterior_over_every_mapping(mapping, xs):
    every = list(itertools.permutations([1, 2, 3, 4]))
    tokens = [token for x in xs for token in (x, mapping[x - 1])]
    reading = read_sequence(tokens, 4)
    for at, question in enumerate(reading.questions):
        ys = [mapping[x - 1] for x in xs[:at]]
        assert question.ideal == pytest.approx(mappings_posterior(xs[:at], ys, xs[at], every, 4))
        assert question.target == mapping[xs[at] - 1]
        assert question.recall == (question.target if xs[at] in xs[:at] else None)
        unused = {1, 2, 3, 4} - set(ys)
        assert (question.elimination is not None) == (len(unused) == 1)
        assert question.elimination is None or {question.elimination} == unused
    assert reading.mapping == (tuple(mapping) if len(set(xs)) >= 3 else None)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (PLAIN[:-2], "expected 10 tokens x y x y … for V = 5, or 9 without the last y, found 8; give 5 pairs"),
        ([*PLAIN, 3], "found 11;"),
        ([], "found 0;"),
        ([2, 6, 1, 5, 4, 4, 3, 2, 5, 1], "expected whole numbers from 1 to 5, found 6 at place 2;"),
        ([0, 3, 1, 5, 4, 4, 3, 2, 5, 1], "found 0 at place 1;"),
        ([2, 3, 1, 5, 4, 4, 3, 2, 5, 1.0], "found 1.0 at place 10;"),
        ("2315443251", "found '2' at place 1;"),
        ([2, 3, 1, 5, 2, 4, 3, 2, 5, 1], "expected one y for each x, found 2→3 and then 2→4; write 3 beside each 2"),
        ([2, 3, 1, 5, 4, 3, 3, 2, 5, 1], "expected another y for every x, found 2→3 and then 4→3; write a value"),
        ([2, 3, 1, 5, 4, 4, 3, 2, 5, 2], "found 3→2 and then 5→2;"),
    ],
)  # fmt: skip
def test_what_is_no_sequence_is_one_clear_line(tokens, words):
    with pytest.raises(UserError) as caught:
        read_sequence(tokens, 5)
    assert str(caught.value).startswith("sequence: expected ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
