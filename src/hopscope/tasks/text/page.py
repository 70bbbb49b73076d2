"""From sentences to characters: the prompt, and where in it everything stands."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hopscope.tasks.text.values import Alternative, Fact, Mention

Sentence = tuple[str, ...]
"""A line in pieces: those at odd places are mentions of symbols as they are written, the others join them."""


@dataclass(frozen=True, slots=True)
class Page:
    """A question as it is written.

    Attributes:
        sentences: the lines of the prompt; the last is the question itself.
        answer: the correct answer.
        acceptable: all answers that make sense.
    """

    sentences: list[Sentence]
    answer: str
    acceptable: tuple[str, ...]

    def prompt(self) -> str:
        """The text; lines are separated, not ended, by a line break."""
        return "\n".join(map("".join, self.sentences))


class Meaning(NamedTuple):
    """The meaning of a line.

    Attributes:
        chain: as in `Fact`.
        step: as in `Fact`.
        symbols: canonical names of the mentions, in their order.
        found: which of them is found; the others are given.
    """

    chain: int | None
    step: int
    symbols: tuple[str, ...]
    found: int


def locate(
    sentences: list[Sentence], meanings: Iterable[Meaning], query: tuple[str, ...]
) -> tuple[tuple[Fact, ...], tuple[Mention, ...]]:
    """Find the places of all facts, and of what the question asks about.

    Args:
        sentences: of the page, the question last.
        meanings: one for each sentence but the question.
        query: canonical names of the question's mentions.
    """
    facts: list[Fact] = []
    start = 0
    for sentence, meaning in zip(sentences[:-1], meanings, strict=True):
        mentions = _mentions(sentence, meaning.symbols, start)
        end = start + sum(map(len, sentence))
        given = tuple(mention for place, mention in enumerate(mentions) if place != meaning.found)
        facts.append(Fact(meaning.chain, meaning.step, given, mentions[meaning.found], start, end))
        start = end + 1
    return tuple(facts), _mentions(sentences[-1], query, start)


def alternatives(
    page: Page, answers: tuple[str, ...], lost: dict[str, tuple[int, ...]]
) -> tuple[Alternative, ...]:
    """One for each wrong acceptable answer; `lost` says at which steps the way to it may have been lost."""
    chains = {answer: chain for chain, answer in enumerate(answers)}
    return tuple(
        Alternative(answer, chains.get(answer), lost[answer])
        for answer in page.acceptable
        if answer != page.answer
    )


def _mentions(sentence: Sentence, symbols: tuple[str, ...], start: int) -> tuple[Mention, ...]:
    found: list[Mention] = []
    for place, piece in enumerate(sentence):
        if place % 2:
            found.append(Mention(symbols[place // 2], start, start + len(piece)))
        start += len(piece)
    return tuple(found)
