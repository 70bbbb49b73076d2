"""Word-level tokens: places, order, and a vocabulary that holds every question."""

import pytest

from hopscope.errors import UserError
from hopscope.tasks.text import TextConfig, questions
from hopscope.tasks.text.tokens import (
    END,
    PADDING,
    equations_vocabulary,
    numbered,
    question_words,
    read_words,
    tokenized,
)


def test_tokens_are_where_they_are_said_to_be():
    text = "b = 12\nWhat is the value of aa? Say, please."
    found = tokenized(text)
    assert [each.token for each in found] == [
        "b", "=", "12", "What", "is", "the", "value", "of", "aa", "?", "Say", ",", "please", "."
    ]  # fmt: skip
    assert all(text[each.start : each.end] == each.token for each in found)


@pytest.mark.parametrize(("chains", "depth"), [(2, 1), (3, 5), (7, 13)])
def test_the_vocabulary_holds_every_question(chains, depth):
    vocabulary = equations_vocabulary(chains, depth)
    assert vocabulary[:2] == (PADDING, END)
    assert len(set(vocabulary)) == len(vocabulary)
    for steps in {1, depth}:
        config = TextConfig(formulation="equations", depth=steps, chains=chains)
        for question in questions(config, 5, 0):
            words = [each.token for each in tokenized(question.prompt)]
            assert set(words) <= set(vocabulary)
            assert set(question.acceptable) <= set(vocabulary)
            before, behind = question_words(chains, steps)
            place = len(words) - len(behind) - 1
            assert tuple(words[place - len(before) : place]) == before
            assert tuple(words[place + 1 :]) == behind
            assert words[place] == question.structure.query[0].symbol


def test_words_are_read_as_their_numbers():
    numbers = numbered(("<pad>", "b", "=", "a"))
    assert numbers == {"<pad>": 0, "b": 1, "=": 2, "a": 3}
    assert read_words("a = b\nb", numbers, "names") == [3, 2, 1, 1]


def test_the_first_five_unknown_words_are_named_once_in_one_line():
    with pytest.raises(
        UserError, match="expected names of mine, found 'c', 'd', 'e', 'f', 'g'; ask"
    ) as error:
        read_words("h g f\nf e d c a", {"a": 0}, "names of mine")
    assert "\n" not in str(error.value)
