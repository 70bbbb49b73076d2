"""Figures of many series: what is drawn is named by metric and place, and every study draws it in the same way.

Importing this module loads no chart library: a study's file that names its figures is listed and planned at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

Shape = Literal["lines", "dots", "sweep", "cells"]
"""Curves of training; points in named rows; points along an axis; cells of a table."""


class Given(NamedTuple):
    """A number that belongs to no member, and the ends of its interval; without a value, nothing is drawn."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Values of one metric, of some members, that a figure shows under one name; or a number that is given.

    Attributes:
        metric: what was measured.
        name: what its colour stands for.
        x, y: where it stands: along the axis of a sweep, in which row, or in which cell.
        panel: the small chart that it is in; `{seed}`, `{member}` and `{configuration}` are filled in for each member.
        where: values of columns, as in `Evidence.last`: `part`, `configuration`, `layer`, …
        hollow: whether its points are hollow, as those of a control.
        outline: in a table of cells, what a line around its cell stands for; empty: it has none.
        less: what is taken off every value, such as the level of chance.
        over: what every value is divided by then, such as the level at the end.
        least: the lowest value that is shown, such as what rounding leaves of zero; lower ones are shown as it.
        ends: where the ends of each member's own interval are, over questions for instance: two metrics, or two
            conditions such as `{"part": "formed.low"}` that replace those of `where`.
        dash: of lines, what their dashes stand for.
        line: of lines, what tells them from others of the same name and panel; shown to who points at one.
        given: what is drawn instead of a metric, where the number belongs to no member; lines have no such numbers.
    """

    metric: str = ""
    name: str = ""
    x: float | str | None = None
    y: float | str | None = None
    panel: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    hollow: bool = False
    outline: str = ""
    less: float = 0.0
    over: float = 1.0
    least: float | None = None
    ends: tuple[str | Mapping[str, Any], str | Mapping[str, Any]] | None = None
    dash: str = ""
    line: str = ""
    given: Given | None = None

    def shown(self, value: float) -> float:
        """A measured value as it is drawn."""
        changed = (value - self.less) / self.over
        return changed if self.least is None else max(changed, self.least)


def where_measured(series: Sequence[Series]) -> "Callable[[Evidence], list[Series]]":
    """Return a function that selects the series with rows in the evidence, for runs that measured only some of them.

    A figure of a series without rows is an error otherwise, because its metric may be misspelt.
    """

    def there(evidence: "Evidence") -> list[Series]:
        return [
            each
            for each in series
            if each.metric in evidence and not evidence.rows(each.metric, **each.where).empty
        ]

    return there


@dataclass(frozen=True)
class Mark:
    """A level that the values are held against: a floor, a threshold, what theory says, or what others published.

    Attributes:
        value: where it is.
        label: what it is called.
        axis: which axis the value is on.
        name: the series name whose colour it takes; empty for a grey one.
        panel: the small chart that alone has it; empty: all.
        at: the row of dots, or the place along a sweep, that alone has it; such marks stand in the figure's data.
    """

    value: float
    label: str = ""
    axis: Literal["x", "y"] = "y"
    name: str = ""
    panel: str = ""
    at: float | str | None = None


@dataclass(frozen=True)
class Axis:
    """An axis: its title, the ends that it shows (by default those of the values), and how its numbers are written.

    `format` is Vega's: `%` for shares, `~s` for steps, `.6~g` for others (`~g` alone rounds to the distance of the
    ticks).
    """

    title: str = ""
    ends: tuple[float, float] | None = None
    format: str = ".6~g"
    log: bool = False


SHARE = (0.0, 1.0)
"""Ends of an axis of shares."""


@dataclass(frozen=True)
class SeriesFigure:
    """A figure of series, before there is anything to draw; see `hopscope.figures.lines`, `dots`, `sweep` and `cells`.

    Attributes:
        shape: how it is drawn.
        series: what is drawn, or a function from what was measured to it.
        value: the axis of the values.
        across: the other axis: training steps of lines, places of a sweep, columns of cells.
        down: the title of the rows of dots and cells.
        marks: levels; likewise.
        time: what lines run along.
        columns: small charts beside each other.
        height: of a small chart, or of a row, in pixels.
    """

    shape: Shape
    series: "Sequence[Series] | Callable[[Evidence], Sequence[Series]]"
    value: Axis
    across: Axis = Axis()
    down: str = ""
    marks: "Sequence[Mark] | Callable[[Evidence], Sequence[Mark]]" = ()
    time: Literal["step", "samples"] = "step"
    columns: int = 2
    height: int | None = None
