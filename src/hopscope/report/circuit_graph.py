"""A circuit as a picture: the layered graph as SVG, for the page (whose script only changes widths) and as a file."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hopscope.report.circuit_layout import (
    MARK_WIDTH,
    TAG_HEIGHT,
    Edge,
    Layout,
    Point,
    carried_signs,
    layout,
    tag_width,
)
from hopscope.report.circuit_table import circuit_csv
from hopscope.report.circuit_words import head_name, path_words, symbol
from hopscope.report.circuits import CircuitPath, CircuitView
from hopscope.report.drawing import Say, draw_once, png_of
from hopscope.report.svg import FONT, box, escaped, line, lowered, number, stroke, text, text_width
from hopscope.report.theme import CATEGORY, INK, LIGHT, QUIET_INK
from hopscope.runs.files import is_file, write_atomic

THINNEST, THICKEST = 1.4, 9.0
"""Width of an edge without attention, and of one with all of it."""

CASING = 3.0
"""Extra width of the white line under an edge, which sets it off from the lines that it crosses."""

_ROOT = {
    "class": "circuit-graph",
    "xmlns": "http://www.w3.org/2000/svg",
    "role": "img",
    "font-family": FONT,
    "font-size": "11.5",
    "fill": INK,
}
_POSITION, _NOTHING, _STREAM, _PAPER = QUIET_INK, LIGHT["idle"], LIGHT["stream"], LIGHT["paper"]
_ORDER = {"value": 0, "elimination": 0, "recall": 1, "x": 0, "y": 1}
"""Names without a number, with their place among those with one: skills in the order of charts, and tokens."""

_DASH = 9.0
_LOOSE_WORDS = {
    "mean_map": "reads fixed positions, no role",
    "learned": "no rule fits",
    "": "reads tokens of several roles",
}
"""Words for a path that comes from no column, by its rule; the last entry is for all other rules."""

_CORNER = 9.0
"""Radius of an edge's corners."""

_HEADING = 30.0
_LEGEND_LEFT, _LEGEND_LINE = 10.0, 21.0


def symbol_colour(name: str) -> str:
    """Colour of what is carried: in every picture the same for x_k, and for depth and name k of questions."""
    index = _index(name)
    if index is not None:
        return CATEGORY[index % 6]
    return _POSITION if _is_position(name) else _NOTHING


def _index(name: str) -> int | None:
    """Number of steps from the chain's start to a symbol: k of x_k; `None` for other names."""
    if name in _ORDER:
        return _ORDER[name]
    # Records name a symbol `x_2`, and curves `x₂`: the normal form has its index as a digit.
    found = re.fullmatch(r"(?:[A-Za-z]+_?|name |D = )(\d+)", unicodedata.normalize("NFKC", name))
    return int(found[1]) if found else None


def _is_position(name: str) -> bool:
    """Whether a position code is carried, or that of tokens of one kind, such as `y position`."""
    return name == "position" or name.endswith(" position")


def path_colour(path: CircuitPath) -> str:
    """One colour for a path where there is room for one only: of the last symbol that it carries."""
    symbols = [name for name in path.brings if _index(name) is not None]
    return symbol_colour(symbols[-1] if symbols else "position" if path.brings else "")


def edge_width(attention: float, share: float) -> float:
    """Width of an edge at an attention."""
    return THINNEST + (THICKEST - THINNEST) * attention * share


def circuit_svg(view: CircuitView, *, heading: str = "", paper: str = "none") -> str:
    """The layered graph of a circuit at the checkpoint that was read.

    Args:
        view: the circuit.
        heading: a line above it.
        paper: colour behind it.

    Returns:
        An SVG element; the same view gives the same text.  Groups of a path have `data-path`, its number, and lanes
        `data-share`, the share of the path's attention that gives their width.
    """
    graph = layout(view)
    legend, legend_height = _legend(view, graph)
    top = _HEADING if heading else 0.0
    wide, tall = number(graph.width), number(top + graph.height + legend_height)
    named = " ".join(f'{name}="{value}"' for name, value in _ROOT.items())
    parts = [
        f'<svg {named} viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}">',
        f"<title>{escaped(_summary(view))}</title>",
        f'<rect width="100%" height="100%" fill="{paper}"/>',
        text(8.0, 20.0, heading, size=14, weight=600),
        f'<g transform="translate(0 {number(top)})">',
        *_background(view, graph),
        '<g class="edges">',
        *(_path(at, graph, view.shown) for at in range(len(view.paths))),
        '</g><g class="nodes">',
        *(_node(middle, width) for middle, width in graph.nodes),
        '</g><g class="tags">',
        *map(_tag, graph.tags),
        f'</g><g class="key" transform="translate(0 {number(graph.height)})">',
        *legend,
        "</g></g></svg>",
    ]
    return "".join(parts)


def write_circuit_picture(
    view: CircuitView, folder: Path, name: str, say: Say | None = None
) -> tuple[Path, Path]:
    """Write the graph of a circuit as ``<name>.svg`` and ``<name>.png``, and its paths as ``<name>.csv``.

    The same view gives the same bytes.

    Args:
        view: the circuit.
        folder: where to; it must exist.
        name: of the files, without suffix.
        say: hears, in one line, of a picture that was altered.

    Returns:
        The paths of the SVG and of the PNG.

    Raises:
        UserError: a file cannot be written.
    """
    data, table = folder / f"{name}.csv", circuit_csv(view).encode()
    if not is_file(data) or data.read_bytes() != table:
        write_atomic(data, table)
    heading = f"member {view.member}, seed {view.seed}, step {view.checkpoint:,}"
    svg = circuit_svg(view, heading=heading, paper=_PAPER)
    return draw_once(folder / name, svg, lambda: (svg, png_of(svg)), say)


def _summary(view: CircuitView) -> str:
    count = f"{len(view.paths)} path{'' if len(view.paths) == 1 else 's'}"
    sentences = " ".join(map(path_words, view.paths))
    return f"Circuit of {count} in {view.layers} layers, from the embedding (bottom) to the readout (top). {sentences}"


# Background: layers, residual streams, and what stands above and below.


def _background(view: CircuitView, graph: Layout) -> Iterable[str]:
    right = graph.width - 4.0
    for band in graph.bands:
        tall = band.bottom - band.top
        if band.layer % 2 == 0:
            yield box(4.0, band.top, right - 4.0, tall, fill=INK, opacity=0.045)
        y = (band.top + band.bottom) / 2 + 4.0
        yield text(10.0, y, f"layer {band.layer}", fill=INK if band.used else QUIET_INK, size=11)
    bottom, top = graph.bands[0].bottom, graph.bands[-1].top
    held = _held(view)
    for role, x in graph.columns.items():
        end = top - 12.0 if role in graph.readouts else top
        yield line((x, bottom + 6.0), (x, end), stroke=_STREAM, width=2.0)
        yield text(x, bottom + 21.0, role, weight=600, anchor="middle")
        yield text(x, bottom + 36.0, held.get(role, ""), fill=QUIET_INK, anchor="middle")
        if role in graph.readouts:
            yield f'<path d="M{number(x - 5)} {number(top - 11)}h10l-5 -8z" fill="{INK}"/>'
            yield text(x, top - 25.0, "readout", weight=600, anchor="middle")
    yield text(10.0, bottom + 21.0, "token", fill=QUIET_INK, size=11)
    yield text(10.0, bottom + 36.0, "holds" if held else "", fill=QUIET_INK, size=11)


def _held(view: CircuitView) -> dict[str, str]:
    """Label of the tokens of each role that all hold the same."""
    labels: dict[str, set[str]] = {}
    for token in view.tokens:
        labels.setdefault(token.role, set()).add(token.label)
    return {role: next(iter(found)) for role, found in labels.items() if len(found) == 1}


# Paths.


def _path(at: int, graph: Layout, shown: int) -> str:
    drawn = "".join(_line(edge, edge.shown.attention[shown]) for edge in graph.edges if edge.path == at)
    return f'<g class="path" data-path="{at}">{drawn}</g>'


def _line(edge: Edge, attention: float) -> str:
    way, read = _way(edge), edge.read
    width = edge_width(attention, read.share)
    share = f' data-share="{number(read.share)}"'
    parts = [stroke(way, _PAPER, width + CASING, f' class="casing"{share}')]
    for colour, dash in _lanes(edge.shown.brings):
        parts.append(stroke(way, colour, width, f' class="lane"{share}{dash}'))
    x, y = edge.start
    if edge.loose and edge.target:
        parts.append(_loose_mark(x, y + 6.0, read.rule))
    if read.every:
        way_around = f"M{number(x - 13)} {number(y - 2)}v-7h26v7"
        parts.append(stroke(way_around, path_colour(edge.shown), 2.0))
    parts.append(stroke(way, "#000000", 14.0, ' class="hit" stroke-opacity="0"'))
    return "".join(parts)


def _way(edge: Edge) -> str:
    """Up, along the lane, and up, with round corners; from a column to itself, a bow that leaves it and comes back."""
    (x0, y0), (x1, y1), y, n = edge.start, edge.end, edge.lane, number
    start = f"M{n(x0)} {n(y0)}"
    if edge.loose:
        return f"{start}V{n(y1)}"
    if edge.bow:
        away, back = n(x0 + edge.bow), n(x1 + edge.bow)
        return f"{start}Q{away} {n(y0)} {away} {n(y)}Q{back} {n(y1)} {n(x1)} {n(y1)}"
    turn = _CORNER if x1 > x0 else -_CORNER
    up = f"V{n(y + _CORNER)}Q{n(x0)} {n(y)} {n(x0 + turn)} {n(y)}"
    return f"{start}{up}H{n(x1 - turn)}Q{n(x1)} {n(y)} {n(x1)} {n(y - _CORNER)}V{n(y1)}"


def _lanes(brings: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dashes: one thing is one line (dotted for position), several take turns."""
    if not brings:
        return [(_NOTHING, ' stroke-dasharray="6 4"')]
    if len(brings) == 1:
        return [(symbol_colour(brings[0]), ' stroke-dasharray="2 3"' if _is_position(brings[0]) else "")]
    dash = f' stroke-dasharray="{number(_DASH)} {number(_DASH * (len(brings) - 1))}"'
    return [
        (symbol_colour(name), f'{dash} stroke-dashoffset="{number(-_DASH * at)}"')
        for at, name in enumerate(brings)
    ]


def _node(middle: Point, width: float) -> str:
    return box(middle[0] - width / 2, middle[1] - 4.0, width, 8.0, fill=INK, rounded=4.0)


def _tag(edge: Edge) -> str:
    path, width, x, y = edge.shown, tag_width(edge.shown), edge.tag, edge.lane
    left, top = x - width / 2, y - TAG_HEIGHT / 2
    frame = box(left, top, width, TAG_HEIGHT, fill=_PAPER, rounded=8.5, stroke=path_colour(path))
    mark = _loose_mark(left + 10.5, y, edge.read.rule) if edge.loose else ""
    x = x + MARK_WIDTH / 2 if edge.loose else x
    carried = f'<tspan dx="4">{lowered(carried_signs(path))}</tspan>' if path.brings else ""
    return (
        f'<g class="tag" data-path="{edge.path}" aria-label="{escaped(path_words(path))}">{frame}{mark}'
        f'<text x="{number(x)}" y="{number(y + 4)}" text-anchor="middle">'
        f'<tspan font-weight="700">{head_name(path)}</tspan>{carried}</text></g>'
    )


def _loose_mark(x: float, y: float, rule: str) -> str:
    """The sign where no role is named: a diamond for a mean map, a question mark for no rule, else a star."""
    if rule == "mean_map":
        return stroke(f"M{number(x)} {number(y - 4.5)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", INK, 1.3)
    return text(x, y + 4.0, "?" if rule == "learned" else "∗", weight=700, anchor="middle")


# Legend.


def _legend(view: CircuitView, graph: Layout) -> tuple[list[str], float]:
    """The signs that the graph has, and no others, line by line; and the height of all lines."""
    parts: list[str] = []
    x, y = _LEGEND_LEFT, 16.0
    for sign, words, room in _signs(view, graph):
        wide = room + text_width(words)
        if x > _LEGEND_LEFT and x + wide > graph.width:
            x, y = _LEGEND_LEFT, y + _LEGEND_LINE
        where = f"translate({number(x)} {number(y)})"
        parts.append(f'<g transform="{where}">{sign}{text(room - 4, 4.0, words, fill=QUIET_INK)}</g>')
        x += wide + 12.0
    return parts, y + 12.0


def _signs(view: CircuitView, graph: Layout) -> Iterator[tuple[str, str, float]]:
    """Signs, drawn around (0, 0) and to the right of it, with their words and where these begin."""
    brought = [path.brings for path in view.paths]
    for name in sorted(
        {name for names in brought for name in names}, key=lambda name: (name == "position", name)
    ):
        words = "p: carries a position code" if name == "position" else f"carries {symbol(name)}"
        yield _sample([name]), words, 30.0
    several = [names for names in brought if len(names) > 1]
    if several:
        yield _sample(several[0]), "carries several of them", 30.0
    if () in brought:
        yield _sample([]), "carries nothing alone", 30.0
    loose = {edge.read.rule for edge in graph.edges if edge.loose}
    for rule, words in _LOOSE_WORDS.items():
        if rule in loose or (not rule and loose - set(_LOOSE_WORDS)):
            yield _loose_mark(8.0, 0.0, rule), words, 22.0
    if any(edge.read.every for edge in graph.edges):
        yield stroke("M2 5v-6h20v6", INK, 2.0), "reads all tokens of the role", 30.0
    if view.paths:
        yield f'<path d="M0 4L22 5.5V-5.5L0 -0.5z" fill="{_NOTHING}"/>', "width: attention", 30.0


def _sample(brings: Sequence[str]) -> str:
    return "".join(stroke("M0 0h22", colour, 5.0, dash) for colour, dash in _lanes(brings))
