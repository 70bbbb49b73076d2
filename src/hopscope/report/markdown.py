"""Markdown of a user's page as HTML: no HTML of their own, no pictures, and numbers that tell where they came from."""

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from hopscope.report.prose import tie

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Characters for private use, which hold the place of a number while the words around it are read."""

_HELD = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_LOWEST = 6


def to_html(words: Sequence[str], numbers: Sequence[tuple[Markup, str]], level: int) -> Markup:
    """Markdown with numbers as HTML.

    Args:
        words: the Markdown around the numbers: one piece more than there are numbers.
        numbers: each as HTML, and as plain text for attributes.
        level: what a heading of one sign becomes.
    """
    pieces = [piece.replace(_OPEN, "").replace(_CLOSE, "") for piece in words]
    held = [f"{_OPEN}{at}{_CLOSE}" for at in range(len(numbers))]
    text = "".join(piece + place for piece, place in zip(pieces, [*held, ""], strict=True))
    tokens = _reader().parse(text)
    for token in _all(tokens):
        _prepare(token, numbers, level)
    html: str = _reader().renderer.render(tokens, _reader().options, {})
    return Markup(_HELD.sub(lambda found: str(numbers[int(found[1])][0]), html))


@cache
def _reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    # A page fetches nothing, so it has no pictures; indented text is a condition's body, and no code.
    reader.disable(["image", "code"])
    reader.add_render_rule("text", _text)
    reader.add_render_rule("table_open", _table_open)
    reader.add_render_rule("table_close", _table_close)
    return reader


def _all(tokens: "Sequence[Token]") -> "list[Token]":
    return [each for token in tokens for each in (token, *_all(token.children or []))]


def _prepare(token: "Token", numbers: Sequence[tuple[Markup, str]], level: int) -> None:
    """Headings one step below those around them, and no markup inside attributes."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1:]) + level - 1, _LOWEST)}"
    for name, value in token.attrs.items():
        token.attrs[name] = _HELD.sub(lambda found: numbers[int(found[1])][1], str(value))


# Rules of markdown-it are called with itself in front, as it binds them.


def _text(renderer: Any, tokens: "Sequence[Token]", at: int, options: Any, env: Any) -> str:
    return str(escape(tie(tokens[at].content)))


def _table_open(renderer: Any, tokens: "Sequence[Token]", at: int, options: Any, env: Any) -> str:
    return '<div class="scroll" role="group" aria-label="Table">\n<table>\n'


def _table_close(renderer: Any, tokens: "Sequence[Token]", at: int, options: Any, env: Any) -> str:
    return "</table>\n</div>\n"
