"""Texts as tokens of somebody else's tokenizer, and answers as the tokens that follow a text."""

from collections.abc import Sequence
from typing import Any

Spans = Sequence[tuple[int, int]]
"""First character of each token, and one past its last."""

Tokens = tuple[int, ...]


def encoded(tokenizer: Any, text: str, *, special: bool) -> tuple[Tokens, Spans]:
    """Tokens and their characters.

    Args:
        tokenizer: a fast tokenizer of transformers.
        text: a prompt, or a chat that its template has written.
        special: whether the tokenizer's own marks are added, which a chat has already; those that it puts at the end
            of every text are left out.
    """
    found = tokenizer(
        text, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    length = len(found["input_ids"])
    while length and special and found["special_tokens_mask"][length - 1]:
        length -= 1
    return tuple(found["input_ids"][:length]), [tuple(span) for span in found["offset_mapping"][:length]]


def continuations(
    tokenizer: Any,
    text: str,
    ids: Tokens,
    answers: Sequence[str],
    joiners: Sequence[str] = (" ", ""),
    *,
    special: bool,
) -> tuple[str, tuple[Tokens, ...]] | None:
    """Tokens of each answer where it follows a text, after the first joiner that leaves the text's own tokens.

    Args:
        tokenizer: a fast tokenizer of transformers.
        text: what the answers follow.
        ids: its tokens.
        answers: what may follow.
        joiners: what may stand in between.
        special: as in `encoded`.

    Returns:
        The joiner, and tokens; None if the text's own tokens change after every joiner, or some token is unknown.
    """
    for joiner in joiners:
        found = []
        for answer in answers:
            longer, _ = encoded(tokenizer, text + joiner + answer, special=special)
            rest = longer[len(ids) :]
            if not rest or longer[: len(ids)] != ids or tokenizer.unk_token_id in rest:
                break
            found.append(rest)
        else:
            return joiner, tuple(found)
    return None
