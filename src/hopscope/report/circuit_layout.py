"""Where everything of a circuit's graph stands: a grid of columns, layers, and lanes within a layer.

Columns are row roles in the order of the chain, bands are layers from the embedding (bottom) to the readout (top).  A
path goes up from the column that it reads, along a lane of its own, and up to the column of its rows.  Paths share a
lane only where they are beside each other, so that no name ever covers another.  Every number of the drawing is made
here, once; the page's script only changes widths.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hopscope.report.circuit_words import head_name, symbol
from hopscope.report.circuits import UNNAMED, CircuitPath, CircuitView, Target
from hopscope.report.svg import text_width

GUTTER, COLUMN, RIGHT = 58.0, 82.0, 10.0
"""Room for the names of layers, the least width of a column, and room behind the last."""

TOP, FOOT = 44.0, 44.0
LANE, TAG_HEIGHT, MARK_WIDTH = 23.0, 17.0, 13.0

_BETWEEN_NAMES = 12.0
_LEFT_OF_TAGS = 50.0
_RIGHT_OF_TAGS = 5.0
"""Left of the first stand the names of layers; the second is kept free at the right side."""

_EMPTY_BAND, _ENDS = 17.0, 22.0
"""Height of a layer without a path, and what a layer with some has below and above its lanes."""

_SLOT, _GAP = 11.0, 3.0
"""Room between two edges at one node, and around a tag."""

_BOW = 34.0
"""Distance that an edge from a column to itself goes to the right."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Edge:
    """One edge: from `start` up to its lane, along it, and up to `end`.

    Attributes:
        path, target: number of the path, and which of its targets this is.
        start, end: its ends.
        lane: height of its lane.
        bow: how far it goes to the right on its way, where both ends are in one column.
        share: of the path's attention.
        every: whether all tokens of the role are read alike.
        loose: whether it comes from no column, because the rule names no role.
    """

    path: int
    target: int
    start: Point
    end: Point
    lane: float
    bow: float
    share: float
    every: bool
    loose: bool


@dataclass(frozen=True)
class Tag:
    """The name on a path: its head, and what it carries; `x`, `y` are its middle."""

    path: int
    x: float
    y: float
    width: float
    head: str
    carried: str


@dataclass(frozen=True)
class Node:
    """A row role between two layers, where something is read or written; `x`, `y` are its middle."""

    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Band:
    """A layer, from `bottom` to `top`; `used` says whether any path is in it."""

    layer: int
    bottom: float
    top: float
    used: bool


@dataclass(frozen=True)
class Layout:
    """The whole graph.

    Attributes:
        width, height: of the graph without heading and legend.
        columns: x of each row role.
        bands: from the embedding up.
        edges, tags, nodes: of the paths.
        readouts: columns that are read out.
    """

    width: float
    height: float
    columns: dict[str, float]
    bands: tuple[Band, ...]
    edges: tuple[Edge, ...]
    tags: tuple[Tag, ...]
    nodes: tuple[Node, ...]
    readouts: tuple[str, ...]


def layout(view: CircuitView) -> Layout:
    """Lay a circuit out; the same view gives the same numbers."""
    columns, width = _columns(view.rows), graph_width(view)
    layers = [_lanes(_ends(view, layer, columns), width) for layer in range(view.layers)]
    heights = [_ENDS * 2 + LANE * len(lanes) if lanes else _EMPTY_BAND for lanes in layers]
    height = TOP + FOOT + sum(heights)
    bands: list[Band] = []
    edges: list[Edge] = []
    tags: list[Tag] = []
    nodes: dict[Point, float] = {}
    bottom = height - FOOT
    for layer, lanes in enumerate(layers):
        band = Band(layer, bottom, bottom - heights[layer], bool(lanes))
        bands.append(band)
        for at, ends in enumerate(lanes):
            y = band.top + _ENDS + LANE * (at + 0.5)
            edges += [end.edge(band, y) for end in ends]
            tags += [end.tag(y) for end in ends if end.target == 0]
        for x, y, wide in _nodes([end for ends in lanes for end in ends], band):
            nodes[x, y] = max(wide, nodes.get((x, y), 0.0))
        bottom = band.top
    return Layout(
        width=width,
        height=height,
        columns=columns,
        bands=tuple(bands),
        edges=tuple(sorted(edges, key=lambda edge: (edge.path, edge.target))),
        tags=tuple(sorted(tags, key=lambda tag: tag.path)),
        nodes=tuple(Node(x, y, wide) for (x, y), wide in sorted(nodes.items())),
        readouts=_readouts(view),
    )


def graph_width(view: CircuitView) -> float:
    """Width of the graph of a circuit: of its columns, or of its widest name where that is more."""
    widest = max((_tag_width(path) for path in view.paths), default=0.0)
    return max(
        GUTTER + sum(map(_width, view.rows)) + RIGHT, _LEFT_OF_TAGS + widest + 2 * _GAP + _RIGHT_OF_TAGS
    )


def _readouts(view: CircuitView) -> tuple[str, ...]:
    used = [
        path.query_role for path in view.paths if any(use.reader == "readout" for use in path.composition)
    ]
    return tuple(role for role in view.rows if role in used) or (view.rows[0],)


def _columns(roles: Sequence[str]) -> dict[str, float]:
    """The middle of each role's column."""
    ends = accumulate(map(_width, roles), initial=GUTTER)
    return {role: end + _width(role) / 2 for role, end in zip(roles, ends, strict=False)}


def _width(role: str) -> float:
    """Width of a role's column, wide enough for its name."""
    return max(COLUMN, text_width(role) + _BETWEEN_NAMES)


# Edges of one layer.


@dataclass
class _End:
    """An edge before its lane is known.

    Attributes:
        path, target, share, every: as of an `Edge`.
        named: the path.
        source, query: columns of both ends (`None`: it is loose).
        start, end: x of both ends.
        tag_x: middle of its tag.
        left, right: what it takes of its lane, the tag included.
    """

    path: int
    target: int
    share: float
    every: bool
    named: CircuitPath
    source: float | None
    query: float
    start: float = 0.0
    end: float = 0.0
    tag_x: float = 0.0
    left: float = 0.0
    right: float = 0.0

    @property
    def bow(self) -> float:
        return _BOW if self.source == self.query else 0.0

    def edge(self, band: Band, lane: float) -> Edge:
        # A loose edge begins at its own tag.
        start = (self.start, band.bottom) if self.source is not None else (self.end, lane - TAG_HEIGHT / 2)
        return Edge(
            path=self.path,
            target=self.target,
            start=start,
            end=(self.end, band.top),
            lane=lane,
            bow=self.bow,
            share=self.share,
            every=self.every,
            loose=self.source is None,
        )

    def tag(self, lane: float) -> Tag:
        width = _tag_width(self.named)
        return Tag(self.path, self.tag_x, lane, width, head_name(self.named), _carried(self.named))


def _carried(path: CircuitPath) -> str:
    return " ".join("p" if name == "position" else symbol(name) for name in path.brings)


def _tag_width(path: CircuitPath) -> float:
    carried = text_width(_carried(path)) + 4.0 if path.brings else 0.0
    mark = MARK_WIDTH if _is_loose(path.targets[0]) else 0.0
    return 1.1 * text_width(head_name(path)) + carried + 12.0 + mark


def _is_loose(target: Target) -> bool:
    """Whether no column is read: the rule names no role, or many."""
    return not target.role or (target.role in UNNAMED and target.role != "itself")


def _ends(view: CircuitView, layer: int, columns: dict[str, float]) -> list[_End]:
    """The edges of a layer, each at a slot of its own where it leaves and arrives."""
    ends = []
    for number, path in enumerate(view.paths):
        if path.layer != layer:
            continue
        query = columns[path.query_role]
        for at, target in enumerate(path.targets):
            role = path.query_role if target.role == "itself" else target.role
            source = None if _is_loose(target) else columns[role]
            ends.append(_End(number, at, target.share, target.every, path, source, query))
    for end in ends:
        arriving = sorted(
            (each for each in ends if each.query == end.query),
            key=lambda each: (each.query if each.source is None else each.source, each.path, each.target),
        )
        end.end = end.query + _slot(arriving, end)
        leaving = sorted(
            (each for each in ends if each.source == end.source),
            key=lambda each: (each.query, each.path, each.target),
        )
        end.start = end.end if end.source is None else end.source + _slot(leaving, end)
    return ends


def _slot(ends: Sequence[_End], end: _End) -> float:
    """Offset from the middle of a node."""
    return _spacing(len(ends)) * (ends.index(end) - (len(ends) - 1) / 2)


def _spacing(count: int) -> float:
    return min(_SLOT, (COLUMN - 20.0) / max(1, count - 1))


def _nodes(ends: Sequence[_End], band: Band) -> Iterable[tuple[float, float, float]]:
    """Middle and width of every node below and above a layer."""
    for xs, y in (([end.query for end in ends], band.top), ([end.source for end in ends], band.bottom)):
        for x in dict.fromkeys(xs):
            if x is not None:
                yield x, y, _spacing(xs.count(x)) * (xs.count(x) - 1) + 12.0


def _lanes(ends: Iterable[_End], width: float) -> list[list[_End]]:
    """The edges of each lane, from the top: as few lanes as the order of the edges allows."""
    lanes: list[list[_End]] = []
    for end in sorted(ends, key=_height_order):
        half = 0.0 if end.target else _tag_width(end.named) / 2 + _GAP
        middle = (end.start + end.end) / 2 + end.bow
        end.tag_x = max(_LEFT_OF_TAGS + half, min(middle, width - _RIGHT_OF_TAGS - half))
        end.left = min(end.start, end.end, end.tag_x - half)
        end.right = max(end.start, end.end, end.tag_x + half)
        taken = [
            at
            for at, lane in enumerate(lanes)
            if any(end.left < other.right and other.left < end.right for other in lane)
        ]
        lane = max(taken, default=-1) + 1
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append(end)
    return lanes


def _height_order(end: _End) -> tuple[int, float, float]:
    """Loose edges are highest; of others that go the same way, those that do not cross in this order."""
    if end.source is None:
        return 0, end.end, end.end
    if end.start <= end.end:
        return 1, end.start, end.end
    return 2, -end.start, -end.end
