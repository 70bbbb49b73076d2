"""k-hop induction against loops that say what it is, and on texts whose hops are known."""

import random

import pytest

from hopscope.language.corpus.hops import by_any, by_last, numbered


def slow_last(text, window, limit):
    """Fewest hops to each next token, by the words of the definition."""
    labels = []
    for here in range(len(text) - 1):
        place, label = here, 0
        for hop in range(1, limit + 1):
            earlier = [at for at in range(max(0, here - window), place) if text[at] == text[place]]
            if not earlier:
                break
            place = earlier[-1] + 1
            if text[place] == text[here + 1]:
                label = hop
                break
        labels.append(label)
    return labels


def slow_any(text, window, limit):
    labels = []
    for here in range(len(text) - 1):
        pairs = [(text[at], text[at + 1]) for at in range(max(0, here - window), here)]
        reached, label = {text[here]}, 0
        for hop in range(1, limit + 1):
            reached = {second for first, second in pairs if first in reached}
            if text[here + 1] in reached:
                label = hop
                break
        labels.append(label)
    return labels


@pytest.mark.parametrize("window", [2, 7, 13, 1000])
@pytest.mark.parametrize("words", [2, 5, 17])
@pytest.mark.parametrize(("fast", "slow"), [(by_last, slow_last), (by_any, slow_any)])
def test_hops_are_those_of_the_definition(fast, slow, words, window):
    drawn = random.Random(words * window)
    text = [str(drawn.randrange(words)) for _ in range(211)]
    assert fast(numbered(text), window, 3).tolist() == slow(text, window, 3)


def test_a_chain_of_pairs_is_followed_to_its_end():
    text = ["c", "d", ",", "b", "c", ";", "a", "b", ".", "a"]
    for last, hops in (("b", 1), ("c", 2), ("d", 3), ("e", 0)):
        for found in (by_last, by_any):
            assert found(numbered([*text, last]), 100)[-1] == hops


def test_only_the_last_occurrence_counts_or_any():
    tokens = numbered(["a", "b", ".", "a", "c", ".", "a", "b"])
    assert by_last(tokens, 100).tolist()[-1] == 0
    assert by_any(tokens, 100).tolist()[-1] == 1


def test_texts_without_a_pair_ask_for_nothing():
    for text in ([], ["a"], ["a", "b"]):
        for found in (by_last, by_any):
            assert found(numbered(text), 5).tolist() == [0] * max(0, len(text) - 1)
