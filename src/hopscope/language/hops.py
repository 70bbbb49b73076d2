"""How many hops a text asks for: how many look-ups, one after another, lead from a word to the next one.

One hop is what an induction head does: go to an earlier occurrence of the current word, and take what followed it.  Two
hops do the same again from there (of the last occurrences: k-hop induction, Sanford et al., arXiv 2402.09268).

Or, by sentences: each is a fact that ties its content words together, and a word that was seen before is h hops from
its context (its sentence so far, or the nearest one before with words seen before it) if the shortest chain of earlier
sentences that leads to it has h of them.  So the llamas of the paper's section 3.2 are two hops from their herd.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hopscope.errors import UserError
from hopscope.language.questions import Choices
from hopscope.language.words import FUNCTION_WORDS

Labels = NDArray[np.int64]
By = Literal["words", "content", "pieces", "letters", "sentences"]
"""What is counted: words, those that are no function words, pieces of four letters, letters; or `sentences`."""

WORD = re.compile(r"\w+(?:['’]\w+)*")
"""A word of a text."""

_SENTENCE = re.compile(r"(?<=[.!…])[\"'’”)\]]*\s+|\n\s*\n")  # a question ends none: its answer needs it
_ARTICLE = re.compile(r"[aA]\s+\w")  # where no word follows, the letter is a name, as in "b = a"


def hops(
    text: str, by: By = "words", *, window: int = 512, limit: int = 3, any: bool = False, shuffle: int | None = None
) -> Labels:  # fmt: skip
    """Of each token of a text the fewest hops that lead to it: 0 where none of 1 … `limit` do, -1 where none is needed.

    Args:
        text: plain text; upper and lower case are alike.
        by: see `By`; of words, the first is left out, as nothing leads to it.
        window: tokens that are looked back over; by sentences, content words in whole sentences.
        limit: most hops.
        any: whether a hop may go to any earlier occurrence, not to the last alone.
        shuffle: number of a random order of the words, for chance: words change places within pieces of a window (of
            512 for pieces of words and letters), so that the same words stay near.
    """
    for name, found, least in (("window", window, 2), ("limit", limit, 1)):
        if found < least:
            raise UserError(f"{name}: expected at least {least}, found {found}; take a larger number")
    address = f"hopscope/natural/{by}/{window}/{shuffle}"
    if by == "sentences":
        facts = _sentences(text)
        facts = facts if shuffle is None else _mixed_sentences(facts, window, address)
        return np.array([*_by_sentences(facts, window, limit)], np.int64)
    words: Sequence[str] = _words(text, by == "content")
    if shuffle is not None:
        size = window if by in ("words", "content") else 512
        pieces = ((words[start : start + size], start) for start in range(0, len(words), size))
        words = [word for piece, start in pieces for word in _mixed(piece, f"{address}/{start}")]
    if by == "pieces":
        # A word's last piece is told from a piece within a word, as tokenisers do.
        words = [f"{word} "[at : at + 4] for word in words for at in range(0, len(word), 4)]
    known, told = dict[str, int](), " ".join(words) if by == "letters" else words
    tokens = np.array([known.setdefault(each, len(known)) for each in told], np.int64)
    return (_by_any if any else _by_last)(tokens, window, limit)


def beyond_chance(found: Labels, chance: Sequence[Labels], limit: int = 3) -> NDArray[np.float64]:
    """Share of tokens that need exactly 1 … `limit` hops, beyond chance: what `hops` found in a text and in shuffles.

    Of the tokens that fewer hops do not predict, as many are right by chance as of those of the shuffled texts; so what
    one hop predicts is not missing from two hops.
    """
    hops = range(1, limit + 1)
    need = [np.array([(each == hop).sum() for hop in hops], np.float64) for each in (found, *chance)]
    left, left_by_chance = float((found >= 0).sum()), float(np.mean([(each >= 0).sum() for each in chance]))
    by_chance, excess = np.mean(need[1:], axis=0), np.zeros(limit)
    for hop in range(limit):
        excess[hop] = need[0][hop] - (left * by_chance[hop] / left_by_chance if left_by_chance > 0 else 0.0)
        left, left_by_chance = left - need[0][hop], left_by_chance - by_chance[hop]
    return excess / max(1, len(found))


def text_of(field: str, file: str) -> str:
    """What a text file says, which a field names."""
    try:
        return Path(file).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        found = f"found {file} ({getattr(error, 'strerror', None) or 'no UTF-8'})"
        raise UserError(f"{field}: expected a text file in UTF-8, {found}; give another") from None


def _by_last(tokens: Labels, window: int, limit: int) -> Labels:
    here, order = np.arange(max(len(tokens) - 1, 0)), np.argsort(tokens, kind="stable")
    before, same = np.full(len(tokens), -1), tokens[order][1:] == tokens[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    labels, place, seen = np.zeros_like(here), here, np.ones_like(here, dtype=bool)
    for hop in range(1, limit + 1):
        found = before[place]
        seen = seen & (found >= 0) & (found >= here - window)
        place = np.where(seen, found + 1, 0)
        labels[(labels == 0) & seen & (tokens[place] == tokens[1:])] = hop
    return labels


def _by_any(tokens: Labels, window: int, limit: int) -> Labels:
    text, where, labels = tokens.tolist(), defaultdict[int, deque[int]](deque), list[int]()
    for here, (token, wanted) in enumerate(pairwise(text)):
        reached, known, label = {token}, set[int](), 0
        for hop in range(1, limit + 1):
            for places in (where[each] for each in reached):
                while places and places[0] < here - window:
                    places.popleft()  # for good
            fresh = {text[place + 1] for each in reached for place in where[each]}
            if wanted in fresh:
                label = hop
                break
            reached = fresh - known
            known |= fresh
        labels.append(label)
        where[token].append(here)
    return np.array(labels, np.int64)


def _mixed(words: Sequence[str], address: str) -> list[str]:
    return [words[place] for place in Choices(address, len(words)).permutation(len(words))]


@lru_cache(maxsize=16)  # a text is counted in many orders of the same words
def _words(text: str, content: bool) -> tuple[str, ...]:
    words = map(_folded, WORD.findall(text))
    return _content(words) if content else (*words,)


def _folded(word: str) -> str:
    return word.casefold().replace("’", "'")


def _content(words: Iterable[str]) -> tuple[str, ...]:
    # Content words, without the s of genitive, plural or third person.
    found = (word.removesuffix("'s") for word in words if word not in FUNCTION_WORDS)
    return tuple(word[:-1] if re.search("..[^s]s$", word) else word for word in found)


def _sentences(text: str) -> list[tuple[str, ...]]:
    # Content words of every sentence, in which the article and the pronoun of one letter are told from names.
    found = list[tuple[str, ...]]()
    for sentence in _SENTENCE.split(text):
        names = (each for each in WORD.finditer(sentence) if not _ARTICLE.match(sentence, each.start()))
        found.append(_content(_folded(each[0]) for each in names if each[0] != "I"))
    return [*filter(None, found)]


def _mixed_sentences(found: list[tuple[str, ...]], window: int, address: str) -> list[tuple[str, ...]]:
    # Words change places within pieces of whole sentences, which keep their lengths.
    pieces = list[list[str]]()
    for sentence in found:
        if not pieces or len(pieces[-1]) + len(sentence) > window:
            pieces.append([])
        pieces[-1] += sentence
    mixed = (word for number, piece in enumerate(pieces) for word in _mixed(piece, f"{address}/{number}"))
    return [tuple(islice(mixed, len(sentence))) for sentence in found]


def _by_sentences(found: Sequence[tuple[str, ...]], window: int, limit: int) -> Iterator[int]:
    held, where = dict[int, tuple[str, ...]](), defaultdict[str, set[int]](set)
    for number, sentence in enumerate(found):
        for at, word in enumerate(sentence):
            if number or at:
                yield _distance(word, {*sentence[:at]}, held, where, limit)
        held[number] = sentence
        for word in sentence:
            where[word].add(number)
        while sum(map(len, held.values())) > window and len(held) > 1:
            old = next(iter(held))
            for word in {*held.pop(old)}:
                where[word].remove(old)


def _distance(
    word: str, context: set[str], held: dict[int, tuple[str, ...]], where: dict[str, set[int]], limit: int
) -> int:
    def ties(each: str) -> bool:  # a word ties the sentences that hold it, if it does not stand everywhere
        return bool(where.get(each)) and (len(held) < 10 or 5 * len(where[each]) <= len(held))

    if word in context or not where.get(word):
        return -1
    goal, known = where[word], {each for each in context if ties(each)}
    if not known:  # the context is the nearest sentence with words that were seen before it
        for number, sentence in reversed(held.items()):
            known = {each for each in sentence if ties(each) and min(where[each]) < number}
            if known:
                if word in sentence:
                    return -1
                break
    seen, words, fresh = set[int](), {*known}, known
    for hop in range(1, limit + 1):
        reached = {number for each in fresh for number in where[each]}
        if reached & goal:
            return hop
        found = {each for number in reached - seen for each in held[number]} - words
        seen |= reached
        words |= found
        fresh = {each for each in found if ties(each)}
    return 0
