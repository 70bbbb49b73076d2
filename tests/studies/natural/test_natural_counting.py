"""Counting hops in texts: planted structure is found, words in random order show nothing, and texts are named."""

import hashlib
import random

import numpy as np
import pytest

import hopscope as hs
from hopscope.language.corpus.depth import labelled
from hopscope.language.corpus.steps import histogram
from hopscope.studies.natural.counting import (
    BLOCK,
    DEFINITIONS,
    USUAL,
    WORDS,
    beyond_chance,
    count,
    two_hop_shares,
)
from hopscope.studies.natural.texts import Text, texts

NAMES = [f"w{chr(97 + one)}{chr(97 + two)}" for one in range(23) for two in range(19)]


def text(words):
    return Text("made up", "a test", " ".join(words), "")


def random_words(number, seed=2):
    drawn = random.Random(seed)
    return [drawn.choice(NAMES) for _ in range(number)]


def chains(number, hops, seed=3):
    """Groups of pairs, deepest first, then the first word of the chain and its last: x_{D-1} x_D … x_0 x_1, x_0 x_D."""
    drawn = random.Random(seed)
    words = []
    while len(words) < number:
        chain = drawn.sample(NAMES, hops + 1)
        for step in range(hops, 0, -1):
            words += [chain[step - 1], chain[step], drawn.choice(NAMES)]
        words += [chain[0], chain[-1]]
    return words


def means(words, definition=USUAL):
    own, chance, control = count(text(words), definition)
    return beyond_chance(own, chance).mean(0), beyond_chance(control, chance).mean(0)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("definition", [USUAL, WORDS[1], WORDS[3], DEFINITIONS[4]])
def test_planted_chains_are_found_at_their_depth(hops, definition):
    found, control = means(chains(6_000, hops), definition)
    planted = 1 / (3 * hops + 2)
    assert found[hops - 1] == pytest.approx(planted, rel=0.3)
    assert max(abs(found[hop - 1]) for hop in (1, 2, 3) if hop != hops) < planted / 3
    assert abs(control).max() < planted / 5


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)
def test_random_words_ask_for_nothing_beyond_chance(definition):
    found, _ = means(random_words(6_000), definition)
    assert abs(found).max() < 0.012


def test_what_one_hop_finds_is_not_missing_from_two():
    """Half of the words need one hop; of the others two hops find as many as in the shuffled text."""
    own, chance = np.array([[1000.0, 1000, 500, 50, 0]]), np.array([[1000.0, 1000, 0, 100, 0]])
    assert beyond_chance(own, chance)[0].tolist() == pytest.approx([0.5, 0.0, 0.0])
    nothing = np.zeros((1, 5))
    assert beyond_chance(nothing, nothing).tolist() == [[0.0, 0.0, 0.0]]


def test_blocks_are_pieces_of_one_count():
    words = chains(4_300, 2)
    for definition in DEFINITIONS:
        own, chance, control = count(text(words), definition)
        assert own.shape == chance.shape == control.shape == (len(words) // BLOCK, 5)
        assert own[:, 0].sum() == pytest.approx(chance[:, 0].sum())
    labels = labelled(text(words).text, DEFINITIONS[-1].window, 3)[1]
    counted = histogram(labels, 3)
    assert own[:, 2:].sum(0).tolist() == [counted[str(hop)] for hop in (1, 2, 3)]
    assert own[:, 1].sum() == len(labels) - counted["new"] - counted["repeated"]


def test_texts_of_python_and_files(tmp_path):
    file = tmp_path / "a book.txt"
    file.write_text("One, two: three!\nIt’s four five", encoding="utf-8")
    reference, strings, book = texts([str(file)], 5)
    assert (reference.name, strings.name, book.name) == (
        "language reference", "documentation strings", "a book",
    )  # fmt: skip
    assert "pydoc_data.topics" in reference.origin and len(reference.words) == len(strings.words) == 5
    assert book.text == "One, two: three!\nIt’s four" and book.words == (
        "one",
        "two",
        "three",
        "it's",
        "four",
    )
    assert book.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert len(texts([], 50_000)[1].words) == 50_000


def test_texts_that_cannot_be_told_apart_or_read_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(hs.UserError, match="different names"):
        texts([str(tmp_path / "a.txt")] * 2, 5)
    with pytest.raises(hs.UserError, match="readable file"):
        texts([str(tmp_path / "none.txt")], 5)


def test_shares_of_two_hops_for_training(tmp_path):
    file = tmp_path / "chains.txt"
    file.write_text(" ".join(chains(12_000, 2)))
    found = two_hop_shares((str(file),), 6_000)
    assert set(found) == {each.name for each in WORDS}
    plain = two_hop_shares((), 6_000)
    assert all(0.0 <= plain[name] < share < 0.9 for name, share in found.items())
