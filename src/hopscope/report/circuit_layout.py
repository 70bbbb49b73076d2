"""Where everything of a circuit's graph stands: a grid of columns, layers, and lanes within a layer.

Columns are row roles in the order of the chain, bands are layers from the embedding (bottom) to the readout (top).  A
path goes up from the column that it reads, along a lane of its own, and up to the column of its rows.  Paths share a
lane only where they are beside each other, so that no name ever covers another.  Every number of the drawing is made
here, once; the page's script only changes widths.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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


@dataclass
class Edge:
    """One edge: from `start` up to its lane, along it, and up to `end`.

    The first edge of a path carries the path's tag: its head, and what it carries.

    Attributes:
        path, target: number of the path, and which of its targets this is.
        shown: the path.
        source, query: middles of the columns at both ends; `source` is None where the rule names no role.
        start, end: its ends.
        lane: height of its lane.
        tag: horizontal middle of its tag.
        left, right: ends of what it takes of its lane, the tag included.
    """

    path: int
    target: int
    shown: CircuitPath
    source: float | None
    query: float
    start: Point = (0.0, 0.0)
    end: Point = (0.0, 0.0)
    lane: float = 0.0
    tag: float = 0.0
    left: float = 0.0
    right: float = 0.0

    @property
    def read(self) -> Target:
        """What the edge reads, and by which rule."""
        return self.shown.targets[self.target]

    @property
    def loose(self) -> bool:
        """Whether the edge comes from no column."""
        return self.source is None

    @property
    def bow(self) -> float:
        """Distance that the edge goes to the right, where both ends are in one column."""
        return _BOW if self.source == self.query else 0.0


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
        edges: in the order of the paths.
        nodes: middle and width of each place between two layers where something is read or written.
        readouts: columns that are read out.
    """

    width: float
    height: float
    columns: dict[str, float]
    bands: list[Band]
    edges: list[Edge]
    nodes: list[tuple[Point, float]]
    readouts: tuple[str, ...]

    @property
    def tags(self) -> list[Edge]:
        """The edges that carry a tag: one for each path."""
        return [edge for edge in self.edges if edge.target == 0]


def layout(view: CircuitView) -> Layout:
    """Lay a circuit out; the same view gives the same numbers."""
    columns, width = _columns(view.rows), graph_width(view)
    layers = [_lanes(_edges(view, layer, columns), width) for layer in range(view.layers)]
    heights = [_ENDS * 2 + LANE * len(lanes) if lanes else _EMPTY_BAND for lanes in layers]
    height = TOP + FOOT + sum(heights)
    bands: list[Band] = []
    nodes: dict[Point, float] = {}
    bottom = height - FOOT
    for layer, lanes in enumerate(layers):
        band = Band(layer, bottom, bottom - heights[layer], bool(lanes))
        bands.append(band)
        for at, lane in enumerate(lanes):
            for edge in lane:
                edge.lane = band.top + _ENDS + LANE * (at + 0.5)
                # A loose edge begins at its own tag.
                edge.start = edge.start[0], edge.lane - TAG_HEIGHT / 2 if edge.loose else band.bottom
                edge.end = edge.end[0], band.top
        for middle, wide in _nodes([edge for lane in lanes for edge in lane], band):
            nodes[middle] = max(wide, nodes.get(middle, 0.0))
        bottom = band.top
    edges = [edge for lanes in layers for lane in lanes for edge in lane]
    return Layout(
        width=width,
        height=height,
        columns=columns,
        bands=bands,
        edges=sorted(edges, key=lambda edge: (edge.path, edge.target)),
        nodes=sorted(nodes.items()),
        readouts=_readouts(view),
    )


def graph_width(view: CircuitView) -> float:
    """Width of the graph of a circuit: of its columns, or of its widest tag where that is more."""
    widest = max(map(tag_width, view.paths), default=0.0)
    return max(
        GUTTER + sum(map(_width, view.rows)) + RIGHT, _LEFT_OF_TAGS + widest + 2 * _GAP + _RIGHT_OF_TAGS
    )


def tag_width(path: CircuitPath) -> float:
    """Width of the tag on a path: its head, and what it carries."""
    carried = text_width(carried_signs(path)) + 4.0 if path.brings else 0.0
    mark = MARK_WIDTH if _is_loose(path.targets[0]) else 0.0
    return 1.1 * text_width(head_name(path)) + carried + 12.0 + mark


def carried_signs(path: CircuitPath) -> str:
    """What a path carries as its tag says it: `x₁ p`."""
    return " ".join("p" if name == "position" else symbol(name) for name in path.brings)


def _is_loose(target: Target) -> bool:
    """Whether no column is read: the rule names no role, or many."""
    return not target.role or (target.role in UNNAMED and target.role != "itself")


def _readouts(view: CircuitView) -> tuple[str, ...]:
    used = {path.query_role for path in view.paths for use in path.composition if use.reader == "readout"}
    return tuple(role for role in view.rows if role in used) or (view.rows[0],)


def _columns(roles: Sequence[str]) -> dict[str, float]:
    """The middle of each role's column."""
    ends = accumulate(map(_width, roles), initial=GUTTER)
    return {role: end + _width(role) / 2 for role, end in zip(roles, ends, strict=False)}


def _width(role: str) -> float:
    """Width of a role's column, wide enough for its name."""
    return max(COLUMN, text_width(role) + _BETWEEN_NAMES)


# Edges of one layer.


def _edges(view: CircuitView, layer: int, columns: dict[str, float]) -> list[Edge]:
    """The edges of a layer, each at a slot of its own where it leaves and arrives; their heights are not known yet."""
    edges = []
    for number, path in enumerate(view.paths):
        query = columns[path.query_role]
        for at, target in enumerate(path.targets if path.layer == layer else []):
            role = path.query_role if target.role == "itself" else target.role
            edges.append(Edge(number, at, path, None if _is_loose(target) else columns[role], query))
    for edge in edges:
        arriving = [each for each in edges if each.query == edge.query]
        leaving = [each for each in edges if each.source == edge.source]
        end = edge.query + _slot(
            arriving, edge, lambda each: each.query if each.source is None else each.source
        )
        edge.end = end, 0.0
        edge.start = (
            end if edge.source is None else edge.source + _slot(leaving, edge, lambda each: each.query),
            0.0,
        )
    return edges


def _slot(edges: Sequence[Edge], edge: Edge, other_end: Callable[[Edge], float]) -> float:
    """Offset of an edge from the middle of a node, where edges are ordered by their other ends."""
    ordered = sorted(edges, key=lambda each: (other_end(each), each.path, each.target))
    return _spacing(len(edges)) * (ordered.index(edge) - (len(edges) - 1) / 2)


def _spacing(count: int) -> float:
    return min(_SLOT, (COLUMN - 20.0) / max(1, count - 1))


def _nodes(edges: Sequence[Edge], band: Band) -> Iterator[tuple[Point, float]]:
    """Middle and width of every node below and above a layer."""
    for xs, y in (([edge.query for edge in edges], band.top), ([edge.source for edge in edges], band.bottom)):
        for x in dict.fromkeys(xs):
            if x is not None:
                yield (x, y), _spacing(xs.count(x)) * (xs.count(x) - 1) + 12.0


def _lanes(edges: Iterable[Edge], width: float) -> list[list[Edge]]:
    """The edges of each lane, from the top: as few lanes as the order of the edges allows."""
    lanes: list[list[Edge]] = []
    for edge in sorted(edges, key=_height_order):
        start, end = edge.start[0], edge.end[0]
        half = 0.0 if edge.target else tag_width(edge.shown) / 2 + _GAP
        middle = (start + end) / 2 + edge.bow
        edge.tag = max(_LEFT_OF_TAGS + half, min(middle, width - _RIGHT_OF_TAGS - half))
        edge.left = min(start, end, edge.tag - half)
        edge.right = max(start, end, edge.tag + half)
        taken = [
            at
            for at, lane in enumerate(lanes)
            if any(edge.left < other.right and other.left < edge.right for other in lane)
        ]
        at = max(taken, default=-1) + 1
        if at == len(lanes):
            lanes.append([])
        lanes[at].append(edge)
    return lanes


def _height_order(edge: Edge) -> tuple[int, float, float]:
    """Loose edges are highest; of others that go the same way, those that do not cross in this order."""
    start, end = edge.start[0], edge.end[0]
    if edge.loose:
        return 0, end, end
    if start <= end:
        return 1, start, end
    return 2, -start, -end
