"""Elements of drawings that are written by hand: numbers, texts and boxes that come out the same everywhere."""

import re

from markupsafe import escape

from hopscope.report.theme import INK

FONT = "Arial, Helvetica, sans-serif"

_DIGITS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_JOINER = "\N{WORD JOINER}"
"""Without width: an empty element would not lift the line again."""


def number(value: float) -> str:
    """A number in at most two decimals: the same everywhere, whatever the last bits of a sum are."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    fill: str,
    opacity: float = 1.0,
    rounded: float = 0.0,
    stroke: str = "",
) -> str:
    """A rectangle from its upper left corner."""
    more = f' rx="{number(rounded)}"' if rounded else ""
    more += f' fill-opacity="{opacity:g}"' if opacity < 1.0 else ""
    more += f' stroke="{stroke}" stroke-width="1.2"' if stroke else ""
    size = f'width="{number(width)}" height="{number(height)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" {size} fill="{fill}"{more}/>'


def line(
    start: tuple[float, float], end: tuple[float, float], *, stroke: str, width: float = 1.0, dash: str = ""
) -> str:
    """A straight line between two points."""
    (x1, y1), (x2, y2) = start, end
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f'<line {ends} stroke="{stroke}" stroke-width="{number(width)}"{dashes}/>'


def stroke(way: str, colour: str, width: float, more: str = "") -> str:
    """An unfilled way; `more` are further attributes, with a space before them."""
    return f'<path{more} d="{way}" fill="none" stroke="{colour}" stroke-width="{number(width)}"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    fill: str = INK,
    size: float = 11.5,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    """Escaped words at a point of their base line; nothing for no words."""
    if not words:
        return ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" fill="{fill}" font-size="{number(size)}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{lowered(words)}</text>'
    )


def text_width(words: str, size: float = 11.5) -> float:
    """About how wide words are in a sans-serif face; a little too wide rather than too narrow."""
    narrow, low = ".,:;il'’|·", "₀₁₂₃₄₅₆₇₈₉ "
    units = sum(0.35 if c in narrow else 0.46 if c in low else 0.76 if c.isupper() else 0.64 for c in words)
    return units * size


def escaped(words: str) -> str:
    """Words that are nothing but words in any markup."""
    return str(escape(words))


def lowered(words: str) -> str:
    """Escaped text with its index digits as small ones: many faces have no sign for them, and borrow another's."""
    small = f'<tspan font-size="72%" dy="2.5">{{}}</tspan><tspan dy="-2.5">{_JOINER}</tspan>'
    pieces = re.split("([₀-₉]+)", words)
    return "".join(
        small.format(piece.translate(_DIGITS)) if at % 2 else escaped(piece)
        for at, piece in enumerate(pieces)
    )
