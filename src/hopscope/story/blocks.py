"""Sections and blocks of a story (their shapes are those of the run folder's documentation)."""

from collections.abc import Sequence
from typing import Any

Block = dict[str, Any]


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
