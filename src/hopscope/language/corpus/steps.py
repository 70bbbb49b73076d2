"""How many retrieval steps lie between a word and its context: the shortest chain of sentences that leads to it.

A sentence is taken as a fact: it ties together the content words that stand in it.  A word that has been seen before
is h steps away from where it is written now if h earlier sentences lead to it: the first shares a content word with
the context, each shares one with the next, and the last holds the word.  The context is the current sentence as far as
it has come, or, while that has no content word that was seen before, the nearest sentence before it that has.  h = 1
is what an induction head does, and the paper's llamas are h = 2 (section 3.2).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

NEW, REPEATED, UNLINKED = "new", "repeated", "unlinked"

LIMIT: Final = 5
"""Longest chain that is looked for."""

HUB_SHARE: Final = 5
"""A word that stands in more than one of so many sentences of the window ties nothing together …"""

HUB_SENTENCES: Final = 10
"""… if the window has at least so many."""

_SENTENCE = re.compile(r"(?<=[.!…])[\"'’”)\]]*\s+|\n\s*\n")
"""A question mark ends none: what follows a question on its line is its answer, and wants it as context."""
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_LONGEST_UNCUT = 3
_ARTICLE = re.compile(r"[aA]\s+\w")
"""Where no word follows, the letter is a name, as in "b = a"."""

_FUNCTION_WORDS: Final = """
about above across after again against all almost along already also although always am among an and another
any anybody anyone anything are aren't around as at away be because been before being below between both but
by can can't cannot could couldn't did didn't do does doesn't doing don't done down during each either else
enough even ever every everybody everyone everything few for from further had hadn't has hasn't have haven't
having he he's her here hers herself him himself his how however i'd i'll i'm i've if in indeed into is
isn't it it's its itself just least less let like many may me might mine more most much must my myself near
neither never no nobody none nor not nothing now of off often on once one only onto or other others ought
our ours ourselves out over own per perhaps quite rather same shall she she's should shouldn't since so some
somebody someone something sometimes still such than that that's the their theirs them themselves then there
there's therefore these they they're this those though through thus till to together too toward towards
under until up upon us very was wasn't we we're were weren't what when where whether which while who whom
whose why will with within without won't would wouldn't yes yet you you're your yours yourself yourselves
"""

FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
"""Of English: articles, pronouns, prepositions, conjunctions, auxiliaries and other words of closed classes."""

Sentence = tuple[str, ...]
"""Content words in order."""


Form = Literal["prose", "lines"]
"""Prose: a full stop or a blank line ends a sentence.  Lines: the end of the line does, as in lists and questions."""


def sentences(text: str, form: Form = "prose") -> list[Sentence]:
    """Content words of every sentence; without any, a sentence is left out.

    Words are compared without capitals, and those of more than three letters without a final s: "Crias" is "cria".
    """
    written = text.splitlines() if form == "lines" else _SENTENCE.split(text)
    found = (tuple(content(sentence)) for sentence in written)
    return [sentence for sentence in found if sentence]


def content(sentence: str) -> Iterator[str]:
    """The content words of a sentence; article and pronoun of one letter are told from names by how they stand."""
    for match in _WORD.finditer(sentence):
        word = match[0]
        plain = word.casefold().replace("’", "'")
        if plain not in FUNCTION_WORDS and word != "I" and not _ARTICLE.match(sentence, match.start()):
            yield stem(plain.removesuffix("'s"))


def stem(word: str) -> str:
    """A word without the s of plural or third person."""
    cut = len(word) > _LONGEST_UNCUT and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if cut else word


def steps(found: Iterable[Sentence], window: int, limit: int = LIMIT) -> Iterator[str]:
    """Of every content word but the first: `NEW`, `REPEATED`, "1" … str(limit), or `UNLINKED`.

    Args:
        found: sentences of one text.
        window: content words that are looked back over, in whole sentences.
        limit: longest chain that is looked for.
    """
    past = _Past(window)
    before = False
    for sentence in found:
        context: set[str] = set()
        for word in sentence:
            if before:
                yield past.distance(word, context, limit)
            context.add(word)
            before = True
        past.add(sentence)


class _Past:
    """The sentences of the window, by number, and in which of them each word stands."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._held: dict[int, Sentence] = {}
        self._words = 0
        self._added = 0
        self._where: dict[str, set[int]] = {}

    def add(self, sentence: Sentence) -> None:
        """Let a sentence in, and old ones out."""
        self._held[self._added] = sentence
        for word in sentence:
            self._where.setdefault(word, set()).add(self._added)
        self._added += 1
        self._words += len(sentence)
        while self._words > self._window and len(self._held) > 1:
            number = next(iter(self._held))
            old = self._held.pop(number)
            self._words -= len(old)
            for word in set(old):
                self._where[word].remove(number)
                if not self._where[word]:
                    del self._where[word]

    def distance(self, word: str, context: set[str], limit: int) -> str:
        """How far a word is from its context."""
        if word in context:
            return REPEATED
        goal = self._where.get(word)
        if goal is None:
            return NEW
        known = {other for other in context if self._ties(other)}
        if not known:
            nearest, known = self._nearest()
            if word in nearest:
                return REPEATED
        seen: set[int] = set()
        # Words that were followed before lead nowhere new.
        words, fresh_words = set(known), known
        for step in range(1, limit + 1):
            reached = {number for other in fresh_words for number in self._where[other]}
            if not reached.isdisjoint(goal):
                return str(step)
            fresh = reached - seen
            if not fresh:
                break
            seen |= fresh
            found = {other for number in fresh for other in self._held[number]} - words
            words |= found
            fresh_words = {other for other in found if self._ties(other)}
        return UNLINKED

    def _nearest(self) -> tuple[Sentence, set[str]]:
        """The last sentence with words that were seen before it, and these words."""
        for number, sentence in reversed(self._held.items()):
            known = {word for word in sentence if self._ties(word) and min(self._where[word]) < number}
            if known:
                return sentence, known
        return (), set()

    def _ties(self, word: str) -> bool:
        """Whether a word ties the sentences together that hold it: it stands in some, and not everywhere."""
        count, those = len(self._held), self._where.get(word, ())
        return bool(those) and (count < HUB_SENTENCES or HUB_SHARE * len(those) <= count)


def histogram(labels: Iterable[str], limit: int = LIMIT) -> dict[str, int]:
    """How often each label of `steps` occurs, all of them listed."""
    counted = Counter(labels)
    return {name: counted[name] for name in names(limit)}


def names(limit: int = LIMIT) -> Sequence[str]:
    """All labels of `steps`, in their order."""
    return (NEW, REPEATED, *map(str, range(1, limit + 1)), UNLINKED)
