"""Retrieval steps of a text: the definition on small cases, a slow reference, chance and Zipf's law."""

import json
import math
from itertools import product
from pathlib import Path

import pytest

from hopscope.errors import UserError
from hopscope.language.corpus.depth import exponent, measure, shuffled, zipf_shares
from hopscope.language.corpus.steps import FUNCTION_WORDS, names, sentences, steps
from hopscope.tasks.text import TextConfig, questions
from hopscope.tasks.text.draws import Draws

LLAMA = Path(__file__).parents[3] / "docs" / "examples" / "llama.json"


def labels(text, **settings):
    (first, *rest), found = (
        [w for s in sentences(text) for w in s],
        list(steps(sentences(text), 256, **settings)),
    )
    assert first and len(rest) == len(found)
    return list(zip(rest, found, strict=True))


def test_the_llamas_need_two_steps():
    text = json.loads(LLAMA.read_text(encoding="utf-8"))["text"] + " herd gathering around."
    assert dict(labels(text))["herd"] == "2"


def test_words():
    assert sentences("The llamas’ herd! It's Anna's glass, isn't it? I see Crias.") == [
        ("llama", "herd"),
        ("anna", "glass", "see", "cria"),
    ]
    # An article is followed by a word; a name need not be.
    assert sentences("b = a\na = 2\nA cria is a baby", "lines") == [("b", "a"), ("a", "2"), ("cria", "baby")]
    assert sentences("one line\nthe same sentence.\n\nNext") == [("line", "sentence"), ("next",)]
    assert all(word == word.casefold() for word in FUNCTION_WORDS)


def test_every_label():
    text = "Anna knows Bert. Bert paints ships. Ships need Tar. Anna likes Anna, Bert, ships, tar and zebras."
    found = labels(text)[-6:]
    assert found == [
        ("like", "new"), ("anna", "repeated"), ("bert", "1"), ("ship", "1"), ("tar", "1"), ("zebra", "new"),
    ]  # fmt: skip
    chain = "Anna knows Bert. Carl knew Dora. Bert paints ships. Ships need tar. Anna "
    assert labels(chain + "tar")[-1] == ("tar", "3")
    assert labels(chain + "tar", limit=2)[-1] == ("tar", "unlinked")
    assert labels(chain + "Dora")[-1] == ("dora", "unlinked")
    assert labels(chain + "xyz Bert")[-1] == ("bert", "1")


def test_a_word_that_is_everywhere_ties_nothing():
    pairs = [f"{chr(97 + n)}{chr(97 + n)} likes {chr(107 + n)}{chr(107 + n)}." for n in range(10)]
    assert labels(" ".join([*pairs, "Aa tt"]))[-1] == ("tt", "unlinked")
    assert labels(" ".join([*pairs[:9], "Aa ss"]))[-1] == ("ss", "2")


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_questions_show_their_depth(depth):
    """Only the answers are retrieved; every other word is new, repeated or of another chain."""
    asked = questions(TextConfig(formulation="equations", depth=depth), 11, 0)
    text = "\n\n".join(f"{one.prompt}\nCorrect: {one.answer}" for one in asked)
    counts = measure(text, form="lines")["histogram"]
    assert {name: count for name, count in counts.items() if name.isdigit()} == {
        str(step): 11 if step == depth else 0 for step in range(1, 6)
    }


def test_people_who_live_with_each_other_show_it_too():
    asked = questions(TextConfig(formulation="lives_with", depth=4), 11, 0)
    text = "\n\n".join(f"{one.prompt}\nCorrect: {one.answer}" for one in asked)
    counts = measure(text, form="lines")["histogram"]
    assert (counts["4"], counts["2"], counts["3"], counts["5"]) == (11, 0, 0, 0)


def slow(found, window, limit):
    """The definition in plain loops: sets of sentences, nothing kept from word to word."""
    told = []
    for number, sentence in enumerate(found):
        held, size = [], 0
        for past in reversed(found[:number]):
            if held and size + len(past) > window:
                break
            held.insert(0, past)
            size += len(past)

        def ties(word, held=held):
            inside = sum(word in past for past in held)
            return inside > 0 and (len(held) < 10 or 5 * inside <= len(held))

        for place, word in enumerate(sentence):
            if number or place:
                told.append(one(word, set(sentence[:place]), held, ties, limit))
    return told


def one(word, context, held, ties, limit):
    if word in context:
        return "repeated"
    if not any(word in past for past in held):
        return "new"
    known = {other for other in context if ties(other)}
    if not known:
        for back in range(len(held) - 1, -1, -1):
            known = {w for w in held[back] if ties(w) and any(w in past for past in held[:back])}
            if known:
                if word in held[back]:
                    return "repeated"
                break
    for step in range(1, limit + 1):
        facts = [past for past in held if known & set(past)]
        if any(word in past for past in facts):
            return str(step)
        known = {w for past in facts for w in past if ties(w)}
    return "unlinked"


@pytest.mark.parametrize(("words", "window"), [(11, 13), (23, 61), (211, 97)])
def test_the_fast_way_is_the_slow_way(words, window):
    draws = Draws(f"corpus/{words}", 4000)
    text = [
        tuple(f"w{draws.below(words) * draws.below(words) // words}" for _ in range(1 + draws.below(5)))
        for _ in range(307)
    ]
    assert list(steps(text, window)) == slow(text, window, 5)
    assert len(set(slow(text, window, 5))) >= 4


def test_shuffling_moves_words_within_pieces_only():
    text = [tuple(f"{n}.{k}" for k in range(1 + n % 4)) for n in range(29)]
    mixed = list(shuffled(text, 17, "here"))
    assert [len(sentence) for sentence in mixed] == [len(sentence) for sentence in text]
    assert sorted(w for s in mixed for w in s) == sorted(w for s in text for w in s)
    assert mixed != text == [tuple(s) for s in text]
    places = {word: n for n, word in enumerate(w for s in text for w in s)}
    assert max(abs(n - places[word]) for n, word in enumerate(w for s in mixed for w in s)) < 17


@pytest.mark.parametrize(("s", "limit"), list(product([-1.5, 0.0, 0.7, 2.0], [2, 5, 7])))
def test_zipfs_exponent_is_found(s, limit):
    shares = zipf_shares(s, limit)
    assert sum(shares) == pytest.approx(1)
    assert shares[0] / shares[1] == pytest.approx(2**s)
    counts = {str(h): 1e4 * share for h, share in enumerate(shares, start=1)}
    assert exponent({**counts, "new": 17.0}, limit) == pytest.approx(s, abs=1e-6)


def test_one_number_of_steps_has_no_exponent():
    assert exponent({"1": 3, "2": 0}, 2) is None
    found = measure("Anna knows Bert. Anna saw Bert.")
    assert found["zipf"] == {"exponent": None, "interval": None, "distance": None}


def test_what_is_measured():
    draws = Draws("corpus/measured", 4000)
    lines = [" ".join(f"w{draws.below(67)}" for _ in range(2 + draws.below(3))) for _ in range(199)]
    text = "\n".join(lines)
    found = measure(text, window=31, form="lines")
    assert tuple(found["histogram"]) == tuple(found["shuffled"]) == names(5)
    assert sum(found["histogram"].values()) == found["tokens"]
    assert sum(found["shuffled"].values()) == pytest.approx(found["tokens"])
    for name, share in found["excess"].items():
        assert share == pytest.approx((found["histogram"][name] - found["shuffled"][name]) / found["tokens"])
    assert found["shuffles"] == 16
    low, high = found["zipf"]["interval"]
    assert low < found["zipf"]["exponent"] < high
    counts = [found["histogram"][str(h)] for h in range(1, 6)]
    law = zipf_shares(found["zipf"]["exponent"], 5)
    wrong = sum(max(0.0, p - c / sum(counts)) for p, c in zip(law, counts, strict=True))
    assert found["zipf"]["distance"] == pytest.approx(wrong)
    assert found == measure(text, window=31, form="lines")
    assert found["shuffled"] != measure(text, window=31, form="lines", seed=1)["shuffled"]
    assert not any(isinstance(value, float) and math.isnan(value) for value in found["excess"].values())


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("", {}, "two content words"),
        ("the llama", {}, "two content words"),
        ("llama herd", {"window": 1}, "window: expected at least 2, found 1"),
        ("llama herd", {"limit": 0}, "limit: expected at least 1, found 0"),
        ("llama herd", {"seed": -1}, "seed"),
    ],
)
def test_refused(text, settings, words):
    with pytest.raises(UserError, match=words):
        measure(text, **settings)
