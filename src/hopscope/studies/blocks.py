"""Sections and blocks of a story (their shapes are those of the run folder's documentation)."""

from collections.abc import Sequence
from typing import Any

Block = dict[str, Any]


def section(name: str, heading: str, *blocks: Block) -> Block:
    """A section with a heading."""
    return {"id": name, "heading": heading, "blocks": list(blocks)}


def text(words: str) -> Block:
    """Paragraphs; blank lines part them."""
    return {"kind": "text", "text": words}


def figure(name: str, caption: str, alt: str) -> Block:
    """A figure of the run."""
    return {"kind": "figure", "name": name, "caption": caption, "alt": alt}


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Block:
    """A table: every row has a cell for each column."""
    assert all(len(row) == len(columns) for row in rows), columns
    return {
        "kind": "table",
        "columns": list(columns),
        "rows": [list(row) for row in rows],
        "caption": caption,
    }
