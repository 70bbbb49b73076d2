"""Word-level tokens of questions: how a small language model of our own reads them.

A token is a word, a number or a sign; spaces and line breaks only separate.  The vocabulary of equations holds what
any question with so many chains, and at most so many steps, can contain.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hopscope.errors import UserError
from hopscope.tasks.text.linear import equations

PADDING: Final = "<pad>"
"""Token number 0, behind the end of a text."""

END: Final = "<end>"
"""Token number 1, behind an answer."""

TOKEN_PATTERN: Final = r"[A-Za-z]+|\d+|[^\sA-Za-z\d]"
"""Regular expression of one token, for other tokenizers too."""


class Token(NamedTuple):
    """One token of a text: `text[start:end]` is the token."""

    token: str
    start: int
    end: int


def tokenized(text: str) -> list[Token]:
    """The tokens of a text, in order."""
    return [Token(match.group(), *match.span()) for match in re.finditer(TOKEN_PATTERN, text)]


def numbered(vocabulary: Sequence[str]) -> dict[str, int]:
    """The number of each token."""
    return {token: number for number, token in enumerate(vocabulary)}


def read_words(text: str, numbers: Mapping[str, int], known: str) -> list[int]:
    """A text as token numbers, without padding.

    Args:
        text: of words, numbers and signs.
        numbers: of the known tokens.
        known: which these are, in words.

    Raises:
        UserError: there are others in the text.
    """
    words = [each.token for each in tokenized(text)]
    unknown = sorted(set(words) - set(numbers))
    if unknown:
        raise UserError(
            f"prompt: expected {known}, found {', '.join(map(repr, unknown[:5]))}; "
            "ask questions in equations with no more chains and steps than in training"
        )
    return [numbers[word] for word in words]


def question_words(chains: int, depth: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of the question sentence before and behind the name that is asked about."""
    before, behind = equations(depth, chains).question
    return tuple(each.token for each in tokenized(before)), tuple(each.token for each in tokenized(behind))


def equations_vocabulary(chains: int, depth: int) -> tuple[str, ...]:
    """All tokens of equations with N chains and at most D steps: padding, end, values, the sign =, names, words."""
    values, *names = equations(depth, chains).levels
    before, behind = question_words(chains, depth)
    # A name such as "a" may be a word of the question too.
    every_name = (name for level in names for name in level)
    return tuple(dict.fromkeys((PADDING, END, *values, "=", *every_name, *before, *behind)))
