"""HTML for notebooks: it needs no network and runs no script, and every word of a study or a file is escaped."""

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from html import escape

from hopscope.errors import printable

_STYLE = "text-align: left; vertical-align: top; white-space: pre-line"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells are written as text; a line break within a cell is kept."""
    head = "".join(f'<th style="text-align: left">{_cell(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_STYLE}">{_cell(value)}</td>' for value in row) + "</tr>"
        for row in rows
    )
    return f'<table style="{_STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def paragraph(text: str, *, strong: bool = False) -> str:
    """A line of plain text."""
    return f"<p><b>{_cell(text)}</b></p>" if strong else f"<p>{_cell(text)}</p>"


def folded(summary: str, content: str) -> str:
    """HTML behind a line of plain text, which opens it."""
    return f"<details><summary>{_cell(summary)}</summary>{content}</details>"


def heat_map(shares: Sequence[bytes], caption: str, *, side: int = 132) -> str:
    """A map of shares from 0 (white) to 255 (dark), a row of bytes for each of its rows, with a caption.

    Args:
        shares: the rows, from above, all of one length.
        caption: plain text under the map.
        side: its height on the screen.
    """
    wide, tall = len(shares[0]), len(shares)
    picture = base64.b64encode(_png([row.translate(_INVERTED) for row in shares])).decode()
    size = f"height: {side}px; width: {round(side * wide / tall)}px"
    return (
        '<figure style="display: inline-block; margin: 4px; font-size: smaller">'
        f'<img alt="{_cell(caption)}" src="data:image/png;base64,{picture}" '
        f'style="{size}; max-width: none; image-rendering: pixelated; border: 1px solid #8a94a0">'
        f"<figcaption>{_cell(caption)}</figcaption></figure>"
    )


_INVERTED = bytes(range(255, -1, -1))


def _cell(value: object) -> str:
    return escape("\n".join(map(printable, str(value).split("\n"))))


def _png(rows: Sequence[bytes]) -> bytes:
    """An 8-bit grey picture."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    pieces = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in pieces
    )
