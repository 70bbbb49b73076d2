"""Figures that a study declares (`hs.figures`), and how any figure is written: a specification, and its data as CSV.

Importing this module loads no chart library: a study's file that names its figures is listed and planned at once.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hopscope.errors import UserError
from hopscope.figures.series import Axis as Axis
from hopscope.figures.series import Given as Given
from hopscope.figures.series import Mark as Mark
from hopscope.figures.series import Series as Series
from hopscope.figures.series import SeriesFigure
from hopscope.runs import RunFolder, write_atomic, write_json

if TYPE_CHECKING:
    import altair

    from hopscope.figures.selection import Floors
    from hopscope.runs.evidence import Evidence

    SeriesOf = Sequence[Series] | Callable[[Evidence], Sequence[Series]]

Kind = Literal["curves", "bars", "heads", "series", "chart"]
Drawing = tuple["altair.TopLevelMixin", list[dict[str, Any]]]
"""A chart, and the rows of its data."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Figure:
    """A figure of a study, before there is anything to draw.

    Attributes:
        name: of its files, and by which a page's template asks for it.
        kind: what is drawn.
        metric: what is drawn of it; empty for a chart of one's own.
        by: the column whose values are told apart by colour or place; `None`: the configurations.
        split: `"held_out"` or `"train"`.
        part: the part of the metric, `None` where the metric has none.
        function: draws a chart of one's own, from the evidence.
        series: what a figure of series shows.
        caption, alt: of series and of a chart of one's own: what stands under it, and what it shows for those who
            cannot see it.
        published: the figure of the study's source that this one answers, such as `fig-4`: its anchor on the page, and
            the beginning of the names of files that a reader saves.
    """

    name: str
    kind: Kind
    metric: str = ""
    by: str | None = None
    split: str = "held_out"
    part: str | None = None
    function: "Callable[[Evidence], Any] | None" = None
    series: "SeriesFigure | None" = None
    caption: str = ""
    alt: str = ""
    published: str = ""

    def answers(self, published: str) -> "Figure":
        """The same figure as the answer to one of the study's source, such as `fig-4`."""
        return replace(self, published=published)

    def draw(self, evidence: "Evidence", floors: "Floors | None" = None) -> Drawing:
        """Return the chart and the rows of its data.

        Args:
            evidence: what was measured.
            floors: what the task's `floors()` gives, or a function from a configuration's label to it where
                configurations have different tasks.

        Raises:
            UserError: the evidence has no such metric or column, or a chart of one's own cannot be drawn.
        """
        from hopscope.figures import drawing

        return drawing.draw(self, evidence, floors)

    def words(self, evidence: "Evidence", floors: "Floors | None" = None) -> tuple[str, str]:
        """Return the caption, and a text that takes the figure's place for those who cannot see it.

        Raises:
            UserError: the evidence has no such metric or column.
        """
        from hopscope.figures import drawing

        return drawing.words(self, evidence, floors)


def curves(metric: str, by: str | None = None, split: str = "held_out", part: str | None = None) -> Figure:
    """Return the learning curves of a metric: a thin line for each seed, a thick one for their mean with its interval.

    Args:
        metric: such as `"loss"` or `"accuracy"`.
        by: a column that differs between configurations, such as `"model.layers"`; `None`: the configurations.
        split: `"held_out"` or `"train"`.
        part: the part of the metric, where it has parts.
    """
    return _figure("curves", metric, by, split, part)


def bars(metric: str, by: str | None = None, split: str = "held_out", part: str | None = None) -> Figure:
    """Return a metric at the last checkpoint: a point for each seed, a bar for their mean with its 95 % interval.

    Arguments are those of `curves`.
    """
    return _figure("bars", metric, by, split, part)


def heads(metric: str, by: str | None = None, split: str = "held_out", part: str | None = None) -> Figure:
    """Return a map of layers and heads at the last checkpoint: the mean of a metric of heads over seeds.

    Arguments are those of `curves`.
    """
    return _figure("heads", metric, by, split, part)


def chart(name: str, function: "Callable[[Evidence], Any]", caption: str = "", alt: str = "") -> Figure:
    """Return a chart of one's own.

    Args:
        name: of its files.
        function: from the evidence to an Altair chart and the rows of its data (mappings, or a data frame).  The
            chart's own data are left out: it is drawn from the rows, which are saved as CSV beside it.
        caption: what stands under it.
        alt: what it shows, for those who cannot see it.

    Raises:
        UserError: the name cannot name a file.
    """
    _check_name(name)
    return Figure(name=name, kind="chart", function=function, caption=caption, alt=alt)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"figure: expected a name of letters, digits, '_', '.' and '-', found {name!r}; rename it"
        )


def lines(
    name: str, series: "SeriesOf", value: "Axis", *, caption: str = "", alt: str = "", **shown: Any
) -> Figure:
    """Return curves of training in small charts: a line for each series and member.

    Args:
        name: of its files.
        series: what is drawn, or a function from the evidence to it (`hopscope.figures.series.Series`).
        value: the vertical axis.
        caption, alt: what stands under it, and what it shows for those who cannot see it.
        shown: further fields of `hopscope.figures.series.SeriesFigure`: `marks`, `time`, `columns`, `height`.

    Raises:
        UserError: the name cannot name a file.
    """
    return _of_series("lines", name, series, value, caption, alt, shown)


def dots(
    name: str, series: "SeriesOf", value: "Axis", *, caption: str = "", alt: str = "", **shown: Any
) -> Figure:
    """Return points of the last checkpoint in named rows: a point for each seed, a tick for their mean.

    Arguments and errors are those of `lines`; `y` of a series is the label of its row.
    """
    return _of_series("dots", name, series, value, caption, alt, shown)


def sweep(
    name: str, series: "SeriesOf", value: "Axis", *, caption: str = "", alt: str = "", **shown: Any
) -> Figure:
    """Return values of the last checkpoint along an axis: a point for each seed, a line through their means.

    Arguments and errors are those of `lines`; `x` of a series is its place, `across` is the axis.
    """
    return _of_series("sweep", name, series, value, caption, alt, shown)


def cells(
    name: str, series: "SeriesOf", value: "Axis", *, caption: str = "", alt: str = "", **shown: Any
) -> Figure:
    """Return a table of coloured cells: the mean over seeds at the last checkpoint.

    Arguments and errors are those of `lines`; `x` and `y` of a series are its column and its row, `across` and `down`
    their titles.
    """
    return _of_series("cells", name, series, value, caption, alt, shown)


def _of_series(
    shape: Any, name: str, series: "SeriesOf", value: "Axis", caption: str, alt: str, shown: Mapping[str, Any]
) -> Figure:
    _check_name(name)
    figure = SeriesFigure(shape, series, value, **shown)
    return Figure(name=name, kind="series", series=figure, caption=caption, alt=alt)


def numbered(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """Return the figures with different names: the second `loss` becomes `loss-2`."""
    found: dict[str, Figure] = {}
    for figure in figures:
        name, count = figure.name, 1
        while name in found:
            count += 1
            name = f"{figure.name}-{count}"
        found[name] = figure if name == figure.name else replace(figure, name=name)
    return tuple(found.values())


def write_figures(
    run: RunFolder, figures: Iterable[Figure], evidence: "Evidence", floors: "Floors | None" = None
) -> None:
    """Write every figure of a study into the run's folder, under different names.

    Args:
        run: the run.
        figures: as the study declares them.
        evidence, floors: as in `Figure.draw`.

    Raises:
        UserError: as `Figure.draw`, or a file cannot be written.
    """
    for figure in numbered(figures):
        write_figure(run.path / "figures", figure.name, *figure.draw(evidence, floors))


def data_url(name: str, types: Mapping[str, str]) -> "altair.UrlData":
    """The data of figure `name` for an Altair chart; types are Vega-Lite's `number`, `string`, `boolean`."""
    import altair

    return altair.UrlData(url=f"{name}.csv", format=altair.CsvDataFormat(type="csv", parse=dict(types)))


def write_figure(
    folder: Path, name: str, chart: "altair.TopLevelMixin", rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write `<name>.vl.json` and `<name>.csv`, from which `hopscope.report.figures.render_figure` draws.

    Raises:
        UserError: a file cannot be written.
    """
    spec = chart.to_dict()
    text = io.StringIO()
    # The columns are those that the specification declares, so that a figure without rows is still a figure.
    writer = csv.DictWriter(text, fieldnames=list(spec["data"]["format"]["parse"]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(folder / f"{name}.csv", text.getvalue())
    write_json(folder / f"{name}.vl.json", spec)


def _figure(kind: Kind, metric: str, by: str | None, split: str, part: str | None) -> Figure:
    split = split.replace("-", "_")
    words = {"bars": ["final"], "heads": ["heads"]}.get(kind, [])
    words += ["train"] * (split == "train") + [metric] + ([part] if part else [])
    words += ["by", by] if by else []
    parts = (re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-") for word in words)
    return Figure(
        name="-".join(filter(None, parts)) or kind, kind=kind, metric=metric, by=by, split=split, part=part
    )
