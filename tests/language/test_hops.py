"""Hops of texts whose look-ups are known, their chance, and the paper's llamas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.language.hops import beyond_chance, hops
from hopscope.language.questions import Questions

LLAMAS = (
    "Llamas are social animals and live with others as a herd. A cria (from Spanish for 'baby') is the name for a baby "
    "llama, alpaca, vicuña, or guanaco. Crias are typically born with all the females of the herd."
)


def slow(tokens, window, limit):
    """Fewest hops, each to the last earlier occurrence, by looking at every place."""
    labels = []
    for here in range(len(tokens) - 1):
        at, found = here, 0
        for hop in range(1, limit + 1):
            before = [place for place in range(max(0, here - window), at) if tokens[place] == tokens[at]]
            if not before:
                break
            at = before[-1] + 1
            if tokens[at] == tokens[here + 1]:
                found = hop
                break
        labels.append(found)
    return labels


@given(st.lists(st.sampled_from("pqrst"), min_size=3, max_size=29), st.integers(2, 31))
def test_hops_by_words_are_those_of_every_place(tokens, window):
    found = hops(" ".join(tokens), window=window, limit=3)
    assert found.tolist() == slow(tokens, window, 3)
    # Any occurrence reaches whatever the last one does.
    assert ((hops(" ".join(tokens), window=window, any=True) > 0) >= (found > 0)).all()


def slow_any(tokens, window, limit):
    """Fewest hops where each may go to any earlier occurrence within the window."""
    labels = []
    for here in range(len(tokens) - 1):
        reached, label = {tokens[here]}, 0
        for hop in range(1, limit + 1):
            reached = {tokens[at + 1] for at in range(max(0, here - window), here) if tokens[at] in reached}
            if tokens[here + 1] in reached:
                label = hop
                break
        labels.append(label)
    return labels


@given(st.lists(st.sampled_from("pqrst"), min_size=3, max_size=29), st.integers(2, 31))
def test_hops_by_any_occurrence_are_those_of_every_place(tokens, window):
    assert hops(" ".join(tokens), window=window, limit=3, any=True).tolist() == slow_any(tokens, window, 3)


def slow_sentences(sentences, window, limit):
    """Fewest sentences from the words before a word to one that holds it, by looking at every sentence."""
    labels = []
    for number, sentence in enumerate(sentences):
        first = number - 1
        while first > 0 and sum(map(len, sentences[first - 1 : number])) <= window:
            first -= 1
        held = range(max(0, first), number)

        def places(word, held=held):
            return [n for n in held if word in sentences[n]]

        def ties(word, held=held, places=places):
            return len(places(word)) > 0 and (len(held) < 10 or 5 * len(places(word)) <= len(held))

        for at, word in enumerate(sentence):
            before, label = {*sentence[:at]}, 0
            known = {*filter(ties, before)}
            if number == at == 0:
                continue
            if word in before or not places(word):
                labels.append(-1)
                continue
            for n in reversed(held) if not known else ():
                known = {each for each in sentences[n] if ties(each) and places(each)[0] < n}
                if known:
                    label = -1 if word in sentences[n] else 0
                    break
            for hop in range(1, limit + 1) if label == 0 else ():
                reached = {n for each in known for n in places(each)}
                if any(word in sentences[n] for n in reached):
                    label = hop
                    break
                known |= {each for n in reached for each in sentences[n] if ties(each)}
            labels.append(label)
    return labels


WORDS = [f"{letter}{letter}x" for letter in "bcdfghjklmnp"]


@given(
    st.integers(2, 12).flatmap(lambda most: st.lists(
        st.lists(st.sampled_from(WORDS[:most]), min_size=1, max_size=5), min_size=2, max_size=25)),
    st.integers(2, 40),
    st.integers(1, 5),
)  # fmt: skip
def test_hops_by_sentences_are_those_of_every_sentence(sentences, window, limit):
    text = " ".join(" ".join(each) + "." for each in sentences)
    found = hops(text, "sentences", window=window, limit=limit).tolist()
    assert found == slow_sentences(sentences, window, limit)


def test_one_two_and_three_hops():
    assert hops("a b x a b").tolist() == [0, 0, 0, 1]
    assert hops("b c x a b y a c").tolist()[-1] == 2  # a was followed by b, and b by c
    assert hops("c d x b c y a b z a d").tolist()[-1] == 3
    assert hops("b c x a b y a c", limit=1).tolist()[-1] == 0
    assert hops("b c x a b y a c", window=4).tolist()[-1] == 0
    assert hops("a b a c a b", any=True).tolist()[-1] == 1 != hops("a b a c a b").tolist()[-1]


def test_what_is_counted():
    text = "The cat’s dogs, the cat's dog"
    assert len(hops(text)) == 5 and hops(text).tolist()[-2] == 1
    assert hops(text, "content").tolist() == [0, 0, 1]  # cat dog cat dog
    assert len(hops("abcdefgh ab", "pieces")) == 2 and len(hops("ab cd", "letters")) == 4
    for name, value in (("window", 1), ("limit", 0)):
        with pytest.raises(UserError, match=f"{name}: expected at least"):
            hops(text, **{name: value})


def test_sentences_tie_their_words_together():
    assert hops(LLAMAS, "sentences", window=256, limit=5).tolist()[-1] == 2
    assert (hops(LLAMAS, "sentences", window=256, limit=1) > 0).sum() == 0
    for depth in (1, 3, 5):
        for one in Questions(formulation="equations", depth=depth, count=3).drawn():
            text = ". ".join(one.prompt.split("\n")).replace(". What", ".\n\nWhat") + f" {one.answer}."
            assert hops(text, "sentences", window=256, limit=5).tolist()[-1] == depth


@pytest.mark.parametrize("by", ["words", "content", "pieces", "letters", "sentences"])
def test_a_shuffle_keeps_the_words_and_shows_chance(by):
    text = " ".join(
        f"{word}. Then" if n % 7 == 6 else word
        for n, word in enumerate(("one two three four five six " * 97).split())
    )
    found, chance = hops(text, by, window=64), [hops(text, by, window=64, shuffle=n) for n in range(3)]
    assert all(len(each) == len(found) for each in chance)
    assert (hops(text, by, window=64, shuffle=1) == chance[1]).all() and (chance[0] != chance[1]).any()
    excess = beyond_chance(found, chance)
    assert excess.shape == (3,) and (by not in ("words", "content") or excess[0] > 0.2)
    assert np.abs(beyond_chance(chance[0], chance[:1])).max() < 1e-9
