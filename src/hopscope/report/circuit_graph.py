"""A circuit as a picture: the layered graph as SVG, for the page (whose script only changes widths) and as a file."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from hopscope.report.circuit_layout import (
    MARK_WIDTH,
    TAG_HEIGHT,
    Edge,
    Layout,
    Node,
    Tag,
    layout,
)
from hopscope.report.circuit_words import path_words, symbol
from hopscope.report.circuits import CircuitPath, CircuitView
from hopscope.report.svg import FONT, box, escaped, line, lowered, number, stroke, text, text_width
from hopscope.report.theme import CATEGORY, INK, QUIET_INK
from hopscope.runs.files import write_atomic

THINNEST, THICKEST = 1.4, 9.0
"""Width of an edge without attention, and of one with all of it."""

PNG_SCALE = 2
"""Pixels per unit of the picture in PNG files."""

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
_POSITION, _NOTHING, _FAINT = QUIET_INK, "#8a94a0", "#d5dae0"
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
    return _POSITION if name == "position" else _NOTHING


def _index(name: str) -> int | None:
    """Number of steps from the chain's start to a symbol: k of x_k; `None` for other names."""
    if name == "value":
        return 0
    found = re.fullmatch(r"(?:[A-Za-z]+_|name |D = )(\d+)", name)
    return int(found[1]) if found else None


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
    legend = _legend(view, graph)
    top = _HEADING if heading else 0.0
    wide, tall = number(graph.width), number(top + graph.height + legend.height)
    named = " ".join(f'{name}="{value}"' for name, value in _ROOT.items())
    parts = [
        f'<svg {named} viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}">',
        f"<title>{escaped(_summary(view))}</title>",
        f'<rect width="100%" height="100%" fill="{paper}"/>',
        text(8.0, 20.0, heading, size=14, weight=600),
        f'<g transform="translate(0 {number(top)})">',
        *_background(view, graph),
        '<g class="edges">',
        *(_edge(at, path, graph, view.shown) for at, path in enumerate(view.paths)),
        '</g><g class="nodes">',
        *map(_node, graph.nodes),
        '</g><g class="tags">',
        *(_tag(tag, view.paths[tag.path], graph) for tag in graph.tags),
        f'</g><g class="key" transform="translate(0 {number(graph.height)})">',
        *legend.parts,
        "</g></g></svg>",
    ]
    return "".join(parts)


def write_circuit_picture(
    view: CircuitView, folder: Path, name: str, *, heading: str = ""
) -> tuple[Path, Path]:
    """Write the graph of a circuit as ``<name>.svg`` and ``<name>.png``; the same view gives the same bytes.

    Args:
        view: the circuit.
        folder: where to; it must exist.
        name: of the files, without suffix.
        heading: a line above the graph; by default member, seed and checkpoint.

    Returns:
        The paths of the SVG and of the PNG.
    """
    # A heavy native library that the page should not wait for.
    import vl_convert

    words = heading or f"member {view.member}, seed {view.seed}, step {view.checkpoint:,}"
    svg = circuit_svg(view, heading=words, paper="#ffffff")
    paths = (folder / f"{name}.svg", folder / f"{name}.png")
    write_atomic(paths[0], svg)
    write_atomic(paths[1], vl_convert.svg_to_png(svg, scale=PNG_SCALE))
    return paths


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
        yield text(10.0, y, f"layer {band.layer}", fill=QUIET_INK if band.used else "#8a94a0", size=11)
    bottom, top = graph.bands[0].bottom, graph.bands[-1].top
    held = _held(view)
    for role, x in graph.columns.items():
        end = top - 12.0 if role in graph.readouts else top
        yield line((x, bottom + 6.0), (x, end), stroke=_FAINT, width=2.0)
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


def _edge(at: int, path: CircuitPath, graph: Layout, shown: int) -> str:
    edges = [edge for edge in graph.edges if edge.path == at]
    drawn = "".join(_line(edge, path, path.attention[shown]) for edge in edges)
    return f'<g class="path" data-path="{at}">{drawn}</g>'


def _line(edge: Edge, path: CircuitPath, attention: float) -> str:
    way = _way(edge)
    width = edge_width(attention, edge.share)
    share = f' data-share="{number(edge.share)}"'
    parts = [stroke(way, "#ffffff", width + CASING, f' class="casing"{share}')]
    for colour, dash in _lanes(path.brings):
        parts.append(stroke(way, colour, width, f' class="lane"{share}{dash}'))
    if edge.loose and edge.target:
        parts.append(_loose_mark(edge.start[0], edge.start[1] + 6.0, path.targets[edge.target].rule))
    if edge.every:
        x, y = edge.start
        parts.append(stroke(f"M{number(x - 13)} {number(y - 2)}v-7h26v7", path_colour(path), 2.0))
    parts.append(stroke(way, "#000000", 14.0, ' class="hit" stroke-opacity="0"'))
    return "".join(parts)


def _way(edge: Edge) -> str:
    """Up, along the lane, and up, with round corners; from a column to itself, a bow that leaves it and comes back."""
    (x0, y0), (x1, y1), y = edge.start, edge.end, edge.lane
    if edge.loose:
        return _ways(("M", x0, y0), ("V", y1))
    if edge.bow:
        return _ways(
            ("M", x0, y0), ("Q", x0 + edge.bow, y0, x0 + edge.bow, y), ("Q", x1 + edge.bow, y1, x1, y1)
        )
    turn = _CORNER if x1 > x0 else -_CORNER
    return _ways(
        *(("M", x0, y0), ("V", y + _CORNER), ("Q", x0, y, x0 + turn, y)),
        *(("H", x1 - turn), ("Q", x1, y, x1, y - _CORNER), ("V", y1)),
    )


def _ways(*steps: tuple[str | float, ...]) -> str:
    """Commands of an SVG path with their numbers."""
    return "".join(
        f"{command}{' '.join(number(float(value)) for value in values)}" for command, *values in steps
    )


def _lanes(brings: Sequence[str]) -> list[tuple[str, str]]:
    """Colour and dashes: one thing is one line (dotted for position), several take turns."""
    if not brings:
        return [(_NOTHING, ' stroke-dasharray="6 4"')]
    if len(brings) == 1:
        return [(symbol_colour(brings[0]), ' stroke-dasharray="2 3"' if brings[0] == "position" else "")]
    dash = f' stroke-dasharray="{number(_DASH)} {number(_DASH * (len(brings) - 1))}"'
    return [
        (symbol_colour(name), f'{dash} stroke-dashoffset="{number(-_DASH * at)}"')
        for at, name in enumerate(brings)
    ]


def _node(node: Node) -> str:
    return box(node.x - node.width / 2, node.y - 4.0, node.width, 8.0, fill=INK, rounded=4.0)


def _tag(tag: Tag, path: CircuitPath, graph: Layout) -> str:
    loose = any(edge.loose and edge.path == tag.path and edge.target == 0 for edge in graph.edges)
    frame = box(
        tag.x - tag.width / 2,
        tag.y - TAG_HEIGHT / 2,
        tag.width,
        TAG_HEIGHT,
        fill="#ffffff",
        rounded=8.5,
        stroke=path_colour(path),
    )
    mark = _loose_mark(tag.x - tag.width / 2 + 10.5, tag.y, path.targets[0].rule) if loose else ""
    x = tag.x + MARK_WIDTH / 2 if loose else tag.x
    carried = f'<tspan dx="4">{lowered(tag.carried)}</tspan>' if tag.carried else ""
    return (
        f'<g class="tag" data-path="{tag.path}" aria-label="{escaped(path_words(path))}">{frame}{mark}'
        f'<text x="{number(x)}" y="{number(tag.y + 4)}" text-anchor="middle">'
        f'<tspan font-weight="700">{tag.head}</tspan>{carried}</text></g>'
    )


def _loose_mark(x: float, y: float, rule: str) -> str:
    """The sign where no role is named: a diamond for a mean map, a question mark for no rule, else a star."""
    if rule == "mean_map":
        return stroke(f"M{number(x)} {number(y - 4.5)}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", INK, 1.3)
    return text(x, y + 4.0, "?" if rule == "learned" else "∗", weight=700, anchor="middle")


# Legend.


class _Legend:
    """Signs with their words, line by line."""

    def __init__(self, width: float):
        self.parts: list[str] = []
        self._width, self._x, self._y = width, _LEGEND_LEFT, 16.0

    @property
    def height(self) -> float:
        return self._y + 12.0

    def add(self, sign: str, words: str, room: float = 30.0) -> None:
        """Add a sign, drawn around (0, 0) and to the right of it."""
        wide = room + text_width(words)
        if self._x > _LEGEND_LEFT and self._x + wide > self._width:
            self._x, self._y = _LEGEND_LEFT, self._y + _LEGEND_LINE
        where = f"translate({number(self._x)} {number(self._y)})"
        self.parts.append(f'<g transform="{where}">{sign}{text(room - 4, 4.0, words, fill=QUIET_INK)}</g>')
        self._x += wide + 12.0


def _legend(view: CircuitView, graph: Layout) -> _Legend:
    """The signs that the graph has, and no others."""
    legend = _Legend(graph.width)
    brought = [path.brings for path in view.paths]
    for name in sorted(
        {name for names in brought for name in names}, key=lambda name: (name == "position", name)
    ):
        words = "p: carries a position code" if name == "position" else f"carries {symbol(name)}"
        legend.add(_sample([name]), words)
    several = [names for names in brought if len(names) > 1]
    if several:
        legend.add(_sample(several[0]), "several of them")
    if () in brought:
        legend.add(_sample([]), "nothing alone")
    loose = {view.paths[edge.path].targets[edge.target].rule for edge in graph.edges if edge.loose}
    for rule, words in _LOOSE_WORDS.items():
        if rule in loose or (not rule and loose - set(_LOOSE_WORDS)):
            legend.add(_loose_mark(8.0, 0.0, rule), words, 22.0)
    if any(edge.every for edge in graph.edges):
        legend.add(stroke("M2 5v-6h20v6", INK, 2.0), "reads all tokens of the role")
    if view.paths:
        legend.add(f'<path d="M0 4L22 5.5V-5.5L0 -0.5z" fill="{_NOTHING}"/>', "width: attention")
    return legend


def _sample(brings: Sequence[str]) -> str:
    return "".join(stroke("M0 0h22", colour, 5.0, dash) for colour, dash in _lanes(brings))
