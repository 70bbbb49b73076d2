"""Figures that a study declares (`hs.figures`): functions from the evidence to an Altair chart.

`curves`, `bars`, `dots`, `sweep`, `cells` and `heads` make such functions.  A study may give any other function of the
evidence that returns an Altair chart: its name names the files, and its docstring is the caption.  Importing this
module loads no chart library, so a study's file that names its figures is listed and planned at once.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from hopscope.config import unknown_field
from hopscope.errors import UserError

if TYPE_CHECKING:
    from hopscope.runs import Evidence

    Words = str | Callable[[Evidence], str]

Shape = Literal["curves", "bars", "dots", "sweep", "cells"]
Metric = str | Sequence[str]

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Shown(TypedDict, total=False):
    """What every figure may be told.

    Attributes:
        split: `"held-out"` (by default) or `"train"`.
        part: of the metric, where it has parts.
        panel: the column whose values have a small chart each.
        where: values of other columns, or a function of the evidence that gives them; `...` stands for every value.
        names: value → label, of the columns that tell rows apart; values that it leaves out are not shown.
        levels: label → value of lines beside the floors, or a function of the evidence that gives them.
        rows: a function of the evidence that gives the rows, where they are no rows of a metric: mappings with
            `value`, the columns that tell them apart, and maybe `low`, `high`, `seed`, `member`, `at` and `note`.
        title, ends: of the axis of values; by default the metric in words, and its range.
        name, caption, alt: see `Figure`; by default what the metric is called, and what is shown.
    """

    split: Literal["held-out", "train"]
    part: str
    panel: str
    where: "Mapping[str, Any] | Callable[[Evidence], Mapping[str, Any]]"
    names: Mapping[Any, str]
    levels: "Mapping[str, float] | Callable[[Evidence], Mapping[str, float]]"
    rows: "Callable[[Evidence], Iterable[Mapping[str, Any]]]"
    title: str
    ends: tuple[float, float]
    name: str
    caption: "Words"
    alt: "Words"


@dataclass(frozen=True)
class Figure:
    """A chart with a name, and words around it; a function from the evidence to an Altair chart.

    Attributes:
        name: of its files, and by which a page's template asks for it.
        draw: gives the chart.
        caption, alt: what stands under it, and what it shows for those who cannot see it: words, or a function of the
            evidence that gives them.
    """

    name: str
    draw: "Callable[[Evidence], Any]"
    caption: "Words" = ""
    alt: "Words" = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            wanted = "a name of letters, digits, '_', '.' and '-'"
            raise UserError(f"figure: expected {wanted}, found {self.name!r}; give another name")

    def __call__(self, evidence: "Evidence") -> Any:
        """The Altair chart."""
        return self.draw(evidence)


@dataclass(frozen=True)
class Drawing:
    """What a figure of this module shows: metrics, told apart by columns (`group`, `x`, `y`, `panel` → its name)."""

    shape: Shape
    metrics: tuple[str, ...]
    columns: Mapping[str, str]
    shown: Shown

    def __call__(self, evidence: "Evidence") -> Any:
        """The Altair chart."""
        import altair

        from hopscope.page.charts import drawn

        return altair.Chart.from_dict(drawn(self, evidence)[0])


def curves(metric: Metric, by: str | None = None, **shown: Unpack[Shown]) -> Figure:
    """Curves of training: a thin line for each seed, a thick one for their mean with its interval, the floors beside.

    Args:
        metric: such as `"loss"`; or several.
        by: the column whose values have a colour each: a varied field such as `"model.layers"`, `"configuration"`,
            `"metric"`, `"part"`, `"layer"`, `"head"`, `"seed"` or `"split"`; by default the configurations.
        shown: see `Shown`.
    """
    return _figure("curves", metric, {"group": by or "configuration"}, shown)


def bars(metric: Metric, by: str | None = None, **shown: Unpack[Shown]) -> Figure:
    """Values at the last checkpoint: a bar for the mean of each group with its 95 % interval, a point for each seed.

    Arguments are those of `curves`.
    """
    return _figure("bars", metric, {"group": by or "configuration", "y": by or "configuration"}, shown)


def dots(metric: Metric, y: str, by: str | None = None, **shown: Unpack[Shown]) -> Figure:
    """Values at the last checkpoint in named rows: a point for each seed, a tick for their mean with its interval.

    Args:
        y: the column whose values have a row each; other arguments are those of `curves`.
    """
    return _figure("dots", metric, {**({"group": by} if by else {}), "y": y}, shown)


def sweep(metric: Metric, x: str, by: str | None = None, **shown: Unpack[Shown]) -> Figure:
    """Values at the last checkpoint along an axis: a point for each seed, a line through their means with intervals.

    Args:
        x: the column of the axis, of numbers or words; other arguments are those of `curves`.
    """
    return _figure("sweep", metric, {**({"group": by} if by else {}), "x": x}, shown)


def cells(metric: Metric, x: str, y: str, **shown: Unpack[Shown]) -> Figure:
    """A table of coloured cells: the mean over seeds at the last checkpoint, or the `note` of a row.

    Args:
        x, y: the columns whose values have a column, and a row; other arguments are those of `curves`.
    """
    return _figure("cells", metric, {"x": x, "y": y}, shown)


def heads(metric: Metric, by: str | None = None, **shown: Unpack[Shown]) -> Figure:
    """A map of layers and heads at the last checkpoint for each value of `by`: the mean of a metric over seeds."""
    if by and "panel" in shown:
        raise UserError("figure: expected by or panel, which are the same here, found both; leave one out")
    places, shown = {"x": "head", "y": "layer"}, {"panel": by or "configuration", **shown}
    return _figure("cells", metric, places, shown, "heads")


def _figure(shape: Shape, metric: Metric, columns: dict[str, str], shown: Shown, kind: str = "") -> Figure:
    metrics = (metric,) if isinstance(metric, str) else tuple(metric)
    if strange := [*(shown.keys() - Shown.__annotations__.keys())]:
        raise UserError(f"figure: {unknown_field(strange[0], Shown.__annotations__)}")
    if len(metrics) > 1 and "rows" not in shown and "metric" not in (*columns.values(), shown.get("panel")):
        found = 'found one mean of all; say by="metric" or panel="metric"'
        raise UserError(f"figure: expected {', '.join(metrics)} told apart, {found}")
    by = shown.get("panel", "configuration") if kind else next(iter(columns.values()))
    start = {"curves": "", "bars": "final", "dots": "final"}.get(shape, kind or shape)
    words = [start, shown.get("split", "").replace("held-out", ""), *metrics[:2], shown.get("part", "")]
    words += ["by", by] if by != "configuration" else []
    name = "-".join(filter(None, (re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-") for word in words)))
    columns |= {"panel": shown["panel"]} if "panel" in shown else {}
    name, caption, alt = shown.get("name", name), shown.get("caption", ""), shown.get("alt", "")
    return Figure(name, Drawing(shape, metrics, columns, shown), caption, alt)


def named(figures: "Iterable[Figure | Callable[[Evidence], Any]]") -> list[Figure]:
    """Figures with different names: a plain function is named after itself, the second `loss` becomes `loss-2`.

    `UserError`: a function has no name that could name a file.
    """
    found: dict[str, Figure] = {}
    for each in figures:
        name = getattr(each, "__name__", "")
        if not isinstance(each, Figure) and not (callable(each) and _NAME.fullmatch(name)):
            wanted = "hs.figures.curves(…), or a function of the evidence with a name"
            words = f"found {each!r}; write hs.figures.Figure('name', function)"
            raise UserError(f"figures: expected {wanted}, {words}")
        doc = " ".join((each.__doc__ or "").split())
        figure = each if isinstance(each, Figure) else Figure(name, each, doc)
        names = chain([figure.name], (f"{figure.name}-{number}" for number in count(2)))
        free = next(each for each in names if each not in found)
        found[free] = replace(figure, name=free)
    return [*found.values()]
