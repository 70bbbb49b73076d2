"""The text of a page while its template is filled in: places are held for numbers and blocks, until it is cut up."""

import re
from collections.abc import Iterator
from typing import Any

Block = dict[str, Any]
"""A part of a section; its fields are those of the run folder's documentation."""

DASH = "–"
"""Stands where there is no number."""

_NUMBER, _BLOCK = "\ue000{}\ue001", "\ue002{}\ue003"
"""Characters for private use, which no template has, around the place of a number or block."""

_HELD_NUMBER, _HELD_BLOCK = re.compile("\ue000(\\d+)\ue001"), re.compile("\ue002(\\d+)\ue003")

_OTHER = re.compile(r"[-*+>|#]\s|\d+[.)]\s|```|~~~|\|")
"""How a paragraph does not begin: as a list, quotation, table, heading or code."""


class PageText:
    """Numbers and blocks of one page, and how filled text becomes the text of a story.

    Attributes:
        numbers: name → value, text, file and key of those that the page says; a key is readable and can be followed
            in the file.
        blocks: figures, tables and verdicts, in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, dict[str, Any]] = {}
        self.blocks: list[Block] = []

    def number(self, value: float, text: str, file: str, key: str) -> str:
        """Register a number; returns what holds its place."""
        place = len(self.numbers)
        self.numbers[f"n{place}"] = {"value": value, "text": text, "file": file, "key": key}
        return _NUMBER.format(place)

    def block(self, block: Block) -> str:
        """Register a block; returns what holds its place, a paragraph of its own."""
        self.blocks.append(block)
        return f"\n\n{_BLOCK.format(len(self.blocks) - 1)}\n\n"

    def literal(self, text: str) -> str:
        """A text as the story writes it: its braces mean themselves."""
        return text.replace("{", "\\{")

    def story(self, text: str) -> str:
        """Filled text as the story writes it: a number by its key, and braces that mean themselves."""
        return _HELD_NUMBER.sub(r"{n\1}", self.literal(text))

    def plain(self, text: str) -> str:
        """Filled text with the numbers written out."""
        return _HELD_NUMBER.sub(lambda found: str(self.numbers[f"n{found[1]}"]["text"]), text)

    def is_words(self, text: str) -> bool:
        """Whether filled text is a paragraph of words: no block, no list, no table and no code."""
        return bool(text.strip()) and not _HELD_BLOCK.search(text) and not _OTHER.match(text.strip())

    def pieces(self, text: str) -> Iterator[Block]:
        """The blocks of filled text, with the Markdown between them, in order."""
        for at, piece in enumerate(_HELD_BLOCK.split(text)):
            if at % 2:
                yield self.blocks[int(piece)]
            elif piece.strip():
                yield {"kind": "markdown", "text": self.story(piece.strip("\n"))}


def chain_example() -> Block:
    """Two chains of two steps, as a model sees them."""
    order = (("XQ", 2), ("YR", 2), ("BY", 1), ("AX", 1))
    cells = [
        {"token": token, "role": role, "note": f"step {step}"}
        for pair, step in order
        for token, role in zip(pair, ("first", "second"), strict=True)
    ]
    cells += [{"token": token, "role": "query", "note": "asked"} for token in "BA"]
    caption = "Two chains of two steps, A → X → Q and B → Y → R. Query B is asked for Y, and for R."
    return {"kind": "sequence", "cells": cells, "caption": caption}
