"""Where everything of a circuit's graph stands.

Columns are row roles in the order of the chain, bands are layers from the embedding (bottom) to the readout (top).  A
path is a curve through the band of its layer, from the column that it reads (bottom) to the column of its rows (top).
Every number of the drawing is made here, once; the page's script only changes widths.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from hopscope.report.circuit_words import head_name, symbol
from hopscope.report.circuits import UNNAMED, CircuitPath, CircuitView
from hopscope.report.svg import text_width

GUTTER, COLUMN, RIGHT = 58.0, 82.0, 10.0
"""Room for the names of layers, the least width of a column, and room behind the last."""

_BETWEEN_NAMES = 12.0
TOP, FOOT = 44.0, 44.0
LEFT_OF_TAGS = 50.0
"""Left of it stand the names of layers."""

_EMPTY_BAND, _LEAST_BAND, _MOST_BAND, _GROWTH = 17.0, 62.0, 400.0, 1.15
_WIDER = 9.0
"""Height that a band gains with each column's width that an edge goes: flat curves are hard to tell apart."""

_SLOT, _SAG = 11.0, 0.8
TAG_HEIGHT, MARK_WIDTH = 17.0, 13.0
_GAP = 3.0
"""Room that is kept free around a tag."""

_PLACES = tuple(0.5 + sign * step / 40 for step in range(15) for sign in (1, -1))
_SAMPLES = tuple(at / 24 for at in range(25))
_CROSSING = 0.12
"""How far from the middle of its curve a tag is moved to be on one foreign curve less."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One edge: a cubic curve from `start` (below) to `end`, or a straight line where both stand on one vertical.

    Attributes:
        path, target: number of the path, and which of its targets this is.
        start, end: its ends.
        bow, sag: how far its middle is pushed to the right, and down.
        share: of the path's attention.
        every: whether all tokens of the role are read alike.
        loose: whether it comes from no column, because the rule names no role.
    """

    path: int
    target: int
    start: Point
    end: Point
    bow: float
    sag: float
    share: float
    every: bool
    loose: bool

    @property
    def controls(self) -> tuple[Point, Point]:
        """The inner control points."""
        reach = 0.48 * (self.start[1] - self.end[1])
        (x0, y0), (x1, y1) = self.start, self.end
        return (x0 + self.bow, y0 - reach + self.sag), (x1 + self.bow, y1 + reach + self.sag)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Points on it, close to each other."""
        return tuple(map(self.at, _SAMPLES))

    def at(self, t: float) -> Point:
        """Point at 0 (start) … 1 (end)."""
        points = (self.start, *self.controls, self.end)
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        x, y = (sum(w * p[axis] for w, p in zip(weights, points, strict=True)) for axis in (0, 1))
        return x, y


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
        curves, tags, nodes: of the paths.
        readouts: columns that are read out.
    """

    width: float
    height: float
    columns: dict[str, float]
    bands: tuple[Band, ...]
    curves: tuple[Curve, ...]
    tags: tuple[Tag, ...]
    nodes: tuple[Node, ...]
    readouts: tuple[str, ...]


def layout(view: CircuitView) -> Layout:
    """Lay a circuit out; the same view gives the same numbers."""
    columns = _columns(view.rows)
    made = [_band(view, layer, columns) for layer in range(view.layers)]
    height = TOP + FOOT + sum(band.height for band in made)
    bands, curves, tags = [], [], []
    nodes: dict[Point, float] = {}
    bottom = height - FOOT
    for layer, band in enumerate(made):
        top = bottom - band.height
        bands.append(Band(layer, bottom, top, bool(band.curves)))
        curves += [band.moved(curve, bottom) for curve in band.curves]
        tags += [Tag(tag.path, tag.x, tag.y + bottom, tag.width, tag.head, tag.carried) for tag in band.tags]
        for (x, y), width in band.nodes.items():
            nodes[x, y + bottom] = max(width, nodes.get((x, y + bottom), 0.0))
        bottom = top
    return Layout(
        width=graph_width(view),
        height=height,
        columns=columns,
        bands=tuple(bands),
        curves=tuple(curves),
        tags=tuple(tags),
        nodes=tuple(Node(x, y, width) for (x, y), width in sorted(nodes.items())),
        readouts=_readouts(view),
    )


def graph_width(view: CircuitView) -> float:
    """Width of the graph of a circuit."""
    return GUTTER + sum(map(_width, view.rows)) + RIGHT


def _readouts(view: CircuitView) -> tuple[str, ...]:
    used = [
        path.query_role for path in view.paths if any(use.reader == "readout" for use in path.composition)
    ]
    return tuple(role for role in view.rows if role in used) or (view.rows[0],)


@dataclass
class _Made:
    """A band whose bottom is at y = 0; up is negative.  Tags stay between `left` and `right`."""

    height: float
    left: float = 0.0
    right: float = 0.0
    curves: list[Curve] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    nodes: dict[Point, float] = field(default_factory=dict)

    @staticmethod
    def moved(curve: Curve, by: float) -> Curve:
        (x0, y0), (x1, y1) = curve.start, curve.end
        return replace(curve, start=(x0, y0 + by), end=(x1, y1 + by))


def _columns(roles: Sequence[str]) -> dict[str, float]:
    """The middle of each role's column."""
    ends = accumulate(map(_width, roles), initial=GUTTER)
    return {role: end + _width(role) / 2 for role, end in zip(roles, ends, strict=False)}


def _width(role: str) -> float:
    """Of a role's column: long names have wide ones."""
    return max(COLUMN, text_width(role) + _BETWEEN_NAMES)


def _band(view: CircuitView, layer: int, columns: dict[str, float]) -> _Made:
    """The lowest band in which all tags have room."""
    paths = [(at, path) for at, path in enumerate(view.paths) if path.layer == layer]
    if not paths:
        return _Made(_EMPTY_BAND)
    height = _LEAST_BAND + _WIDER * max(_span(end, columns) for end in _ends(paths))
    while True:
        made = _of_height(height, paths, columns)
        if len(made.tags) == len(paths):
            return made
        height *= _GROWTH


def _span(end: "_End", columns: dict[str, float]) -> float:
    """How far an edge goes, in columns of the least width."""
    return 0.0 if end.source is None else abs(columns[end.source] - columns[end.query]) / COLUMN


@dataclass(frozen=True)
class _End:
    """An edge before it has a place: columns of both ends (`None`: it is loose)."""

    path: int
    target: int
    source: str | None
    query: str
    share: float
    every: bool


def _ends(paths: Iterable[tuple[int, CircuitPath]]) -> list[_End]:
    found = []
    for number, path in paths:
        for at, target in enumerate(path.targets):
            named = target.role and target.role not in UNNAMED
            source = target.role if named else path.query_role if target.role == "itself" else None
            found.append(_End(number, at, source, path.query_role, target.share, target.every))
    return found


def _of_height(height: float, paths: Sequence[tuple[int, CircuitPath]], columns: dict[str, float]) -> _Made:
    last = next(reversed(columns))
    made = _Made(height, LEFT_OF_TAGS, columns[last] + _width(last) / 2 + RIGHT - 5.0)
    ends = _ends(paths)
    for role, x in columns.items():
        arriving = [end for end in ends if end.query == role]
        leaving = [end for end in ends if end.source == role]
        for count, y in ((len(arriving), -height), (len(leaving), 0.0)):
            if count:
                made.nodes[x, y] = _spacing(count) * (count - 1) + 12.0
    made.curves += [_curve(end, ends, height, columns) for end in ends]
    for number, path in paths:
        tag = _placed(number, path, made)
        if tag is not None:
            made.tags.append(tag)
    return _hung(made)


def _curve(end: _End, ends: list[_End], height: float, columns: dict[str, float]) -> Curve:
    arriving = _ordered([one for one in ends if one.query == end.query], "source", columns)
    over = _offset(arriving, end)
    x1 = columns[end.query] + over
    # A loose edge begins at its own tag, which hangs under the node.
    start, sag = (x1, 36.0 - height), 0.0
    if end.source is not None:
        leaving = _ordered([one for one in ends if one.source == end.source], "query", columns)
        under = _offset(leaving, end)
        start = (columns[end.source] + under, 0.0)
        # Neighbours part further in the middle, where they are flat.
        sag = _SAG * (over + under) * (1.0 if start[0] < x1 else -1.0)
    itself = end.source == end.query
    return Curve(
        path=end.path,
        target=end.target,
        start=start,
        end=(x1, -height),
        bow=40.0 if itself else 0.0,
        sag=0.0 if itself else sag,
        share=end.share,
        every=end.every,
        loose=end.source is None,
    )


def _ordered(ends: list[_End], side: str, columns: dict[str, float]) -> list[_End]:
    def place(end: _End) -> tuple[float, int, int]:
        role = getattr(end, side)
        return (columns[end.query] if role is None else columns[role], end.path, end.target)

    return sorted(ends, key=place)


def _spacing(count: int) -> float:
    return min(_SLOT, (COLUMN - 20.0) / max(1, count - 1))


def _offset(ends: list[_End], end: _End) -> float:
    return _spacing(len(ends)) * (ends.index(end) - (len(ends) - 1) / 2)


# Tags.


def _placed(number: int, path: CircuitPath, made: _Made) -> Tag | None:
    """The tag of a path on its first curve, where it covers no other tag and few other curves."""
    head = head_name(path)
    carried = " ".join("p" if name == "position" else symbol(name) for name in path.brings)
    own = [curve for curve in made.curves if curve.path == number]
    mark = MARK_WIDTH if own[0].loose else 0.0
    width = 1.1 * text_width(head) + (text_width(carried) + 4.0 if carried else 0.0) + 12.0 + mark
    others = [curve for curve in made.curves if curve.path != number]
    inner, outer = made.left + width / 2 + _GAP, made.right - width / 2 - _GAP
    best: tuple[float, Tag] | None = None
    for least, (x, y) in sorted(_candidates(own[0], made.height)):
        if best is not None and least >= best[0]:
            break
        tag = Tag(number, max(inner, min(x, outer)), y, width, head, carried)
        if made.height > _MOST_BAND:
            return tag  # Hopelessly many: better a tag upon another than none.
        if _free(tag, made):
            cost = least + _CROSSING * sum(_covers(tag, curve) for curve in others)
            best = (cost, tag) if best is None or cost < best[0] else best
    return None if best is None else best[1]


def _candidates(curve: Curve, height: float) -> Iterable[tuple[float, Point]]:
    if not curve.loose:
        return [(abs(t - 0.5), curve.at(t)) for t in _PLACES]
    steps = range(int((height - 40.0) // 6.0) + 1)
    sides = (0.0, 8.0, -8.0, 16.0, -16.0, 24.0, -24.0, 32.0, -32.0)
    x, top = curve.end
    return [
        (0.04 * step + 0.002 * abs(side), (x + side, top + 30.0 + 6.0 * step))
        for step in steps
        for side in sides
    ]


def _free(tag: Tag, made: _Made) -> bool:
    half = tag.width / 2 + _GAP
    if tag.y > -TAG_HEIGHT / 2 - 6.0 or tag.y < -made.height + TAG_HEIGHT / 2 + 7.0:
        return False
    others = ((other.x, other.y, other.width / 2, TAG_HEIGHT / 2) for other in made.tags)
    return all(
        abs(tag.x - x) >= half + other or abs(tag.y - y) >= TAG_HEIGHT / 2 + _GAP + tall
        for x, y, other, tall in others
    )


def _covers(tag: Tag, curve: Curve) -> bool:
    return any(abs(x - tag.x) < tag.width / 2 and abs(y - tag.y) < TAG_HEIGHT / 2 for x, y in curve.points)


def _hung(made: _Made) -> _Made:
    """Loose edges begin at the top of their tags."""
    tops = {tag.path: (tag.x, tag.y - TAG_HEIGHT / 2) for tag in made.tags}
    curves = [
        replace(c, start=tops[c.path]) if c.loose and c.target == 0 and c.path in tops else c
        for c in made.curves
    ]
    return replace(made, curves=curves)
