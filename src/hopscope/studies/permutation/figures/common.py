"""What the figures share: which configurations they show, and seeds, means and intervals as rows and as marks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.claims.intervals import bootstrap_mean, mean
from hopscope.runs import RunFolder
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import PUBLISHED, Configuration

if TYPE_CHECKING:
    # It takes torch along, which the names of the figures do not need.
    from hopscope.studies.permutation.evidence import Evidence

WIDTH = 640
"""Width of a full figure, in pixels."""

INK, QUIET_INK = "#333333", "#666666"
"""Of means and intervals; of floors, thresholds and their labels."""

SKILLS = ("elimination", "recall")
"""In the order of their colours."""

Row = dict[str, Any]
Drawn = tuple[alt.TopLevelMixin, list[Row]]
Shows = Callable[[PermutationStudyConfig], list[Configuration]]


@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn.

    Attributes:
        name: of its files.
        shows: the configurations that it shows, from the study's configuration; a run where there is none has no such
            figure.
        draw: from run, configuration and the evidence of what it shows, in the same order, to chart and data.
    """

    name: str
    shows: Shows
    draw: "Callable[[RunFolder, PermutationStudyConfig, list[Evidence]], Drawn]"


# What is shown.


def base(config: PermutationStudyConfig) -> list[Configuration]:
    """The configurations that were asked for as the study says, without a change of their own."""
    return [each for each in config.grid() if config.is_asked(each) and not each.changes]


def main(config: PermutationStudyConfig) -> list[Configuration]:
    """The base configurations that the presentation shows results of; without any of them, the first two others."""
    known = base(config)
    return [each for each in known if each.name in PUBLISHED] or known[:2]


def largest_with_repeats(known: Iterable[Configuration]) -> list[Configuration]:
    """Those that train with repeats, the largest model first."""
    with_repeats = (each for each in known if each.data == "repeats")
    return sorted(with_repeats, key=lambda each: (each.width, each.heads), reverse=True)


def taken_apart(config: PermutationStudyConfig) -> list[Configuration]:
    """The two largest base configurations that train with repeats, if the mechanism of recall is measured at all."""
    return largest_with_repeats(each for each in base(config) if config.is_whole(each))[:2]


def swept(config: PermutationStudyConfig, data: str, *changed: str) -> list[Configuration]:
    """Configurations that differ in nothing but the fields `changed`, of the model that has most of them."""
    by_model: dict[tuple[int, int], list[Configuration]] = {}
    for each in config.grid():
        if each.data == data and set(each.changes) <= set(changed):
            by_model.setdefault((each.width, each.heads), []).append(each)
    return max(by_model.values(), key=len, default=[])


# Rows.

SUMMARY = {"kind": "string", "seed": "number", "value": "number", "low": "number", "high": "number"}
"""Columns of `summary_rows` beside those that say what is measured."""


def short(value: float) -> float:
    """A number as it is written in the data of a figure: five digits."""
    return float(f"{value:.5g}")


def summary_rows(seeds: Sequence[int], values: Iterable[float | None], /, **columns: Any) -> list[Row]:
    """A row for each seed that has a value, then one for their mean with its 95 % bootstrap interval over seeds.

    Args:
        seeds, values: of each member; what has no value has no row.
        columns: what is measured.

    Returns:
        Rows of `kind` "seed" and "mean"; `low` and `high` are the interval's ends, None below two values.
    """
    known = [(seed, value) for seed, value in zip(seeds, values, strict=True) if value is not None]
    rows = [{**columns, "kind": "seed", "seed": seed, "value": short(value)} for seed, value in known]
    if known:
        measured = [value for _, value in known]
        low, high = bootstrap_mean(measured) or (None, None)
        ends = {name: None if end is None else short(end) for name, end in (("low", low), ("high", high))}
        rows.append({**columns, "kind": "mean", "value": short(mean(measured)), **ends})
    return rows


# Marks.


def legend(**options: Any) -> alt.Legend:
    """A legend above the chart, without a title and with labels in full."""
    return alt.Legend(title=None, orient="top", labelLimit=0, **options)


def colour(field: str, order: Sequence[str], **options: Any) -> alt.Color:
    """Colour by a field, in the order of the theme's colours."""
    # The scale names no colours: they are the theme's, which any colour vision tells apart.
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(order)), legend=legend(**options))


def shape(field: str, order: Sequence[str], **options: Any) -> alt.Shape:
    """Shape by a field."""
    shapes = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down"][: len(order)]
    return alt.Shape(
        f"{field}:N", scale=alt.Scale(domain=list(order), range=shapes), legend=legend(**options)
    )


def on(axis: alt.Y, column: str) -> alt.Y:
    """An axis without a column, with one: axes of layers are one axis if all else is the same."""
    return axis.copy().field(column).type("quantitative")


def given(values: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """A chart of data that stand in the specification: floors and thresholds, the same in every facet."""
    return alt.Chart(alt.InlineData(values=[dict(each) for each in values]))


def within(field: str, highest: float) -> str:
    """An expression: a column, or nothing where it is higher than the axis, so that its line is broken there.

    Clipping the marks would show the same, but drawing fifty clipped lines as PNG takes half a minute.
    """
    return f"datum.{field} <= {highest} ? datum.{field} : null"


def facet(field: str, order: Sequence[str]) -> alt.Facet:
    """One small chart for each value of a field, in the given order."""
    return alt.Facet(f"{field}:N", title=None, sort=list(order), header=alt.Header(labelLimit=0))


def in_lines(label: str, longest: int = 30) -> str:
    """A label cut at spaces into as few lines as need be, of about equal length, with `|` between them."""
    fewest = _cut(label, longest)
    length = longest
    while len(_cut(label, length - 1)) == len(fewest) and length > 1:
        length -= 1
    return "|".join(_cut(label, length))


def _cut(label: str, length: int) -> list[str]:
    lines = [""]
    for word in label.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], joined] if len(joined) <= length or not lines[-1] else [*lines, word]
    return lines


def broken_labels() -> alt.Axis:
    """A vertical axis whose labels are broken where `|` stands, and centred on their rows all the same."""
    lines = "length(split(datum.value, '|'))"
    up = {
        "condition": [{"test": f"{lines} == {n}", "value": -7.0 * (n - 1)} for n in (2, 3, 4)],
        "value": 0.0,
    }
    return alt.Axis(labelExpr="split(datum.label, '|')", labelLimit=0, labelOffset=up, grid=False)


def level(value: float, label: str) -> alt.Chart:
    """A vertical line at a level that is the same in every row, with a legend."""
    stroke = alt.StrokeDash("level:N", scale=alt.Scale(range=[[5, 4]]), legend=legend(symbolType="stroke"))
    return (
        given([{"at": value, "level": label}])
        .mark_rule(color=QUIET_INK, strokeWidth=1.3)
        .encode(x="at:Q", strokeDash=stroke, tooltip=["level:N", alt.Tooltip("at:Q", format=".4~g")])
    )


@dataclass(frozen=True)
class Strips:
    """Seeds as points along rows, with the mean as a tick and its interval as a line.

    Rows are those of `summary_rows`, with the columns named here, and `arm` if there are arms.

    Attributes:
        title, format, domain: of the horizontal axis.
        rows: column of the labels on the left, and their order.
        offsets: column that sets points of one row apart, and its order.
        colours: column that colours them, and its order.
        arms: names of the filled and the hollow points (what is measured and its control); without, all are filled.
        height: pixels of one row.
    """

    title: str
    format: str
    domain: tuple[float, float] | None
    rows: tuple[str, Sequence[str]]
    offsets: tuple[str, Sequence[str]]
    colours: tuple[str, Sequence[str]]
    arms: tuple[str, ...] = ()
    height: int = 36

    def layers(self, width: int) -> list[alt.Chart]:
        """The marks; `width` in pixels."""
        return [self._points(width), *self._means()]

    def _points(self, width: int) -> alt.Chart:
        hollow = alt.Scale(domain=list(self.arms), range=[0.6, 0.0])
        by_arm: dict[str, Any] = {
            "shape": shape("arm", self.arms),
            "fillOpacity": alt.FillOpacity("arm:N", scale=hollow, legend=legend()),
        }
        field, order = self.colours
        domain = alt.Scale(domain=list(order))
        return (
            alt.Chart()
            .transform_filter("datum.kind == 'seed'")
            .mark_point(size=42, strokeOpacity=0.8, strokeWidth=1.2)
            .encode(
                **self._place(),
                **(by_arm if self.arms else {}),
                x=self._x("value"),
                stroke=alt.Stroke(f"{field}:N", scale=domain, legend=legend()),
                fill=alt.Fill(f"{field}:N", scale=domain, legend=legend()),
                tooltip=self._tooltip("seed", "value"),
            )
            .properties(width=width, height=self.height * len(self.rows[1]))
        )

    def _means(self) -> list[alt.Chart]:
        means = alt.Chart().transform_filter("datum.kind == 'mean'")
        # An interval of no length would be drawn through the whole row.
        spread = means.transform_filter("isValid(datum.low) && datum.low < datum.high")
        return [
            spread.mark_rule(color=INK, strokeWidth=1.4).encode(
                **self._place(), x=self._x("low"), x2="high:Q"
            ),
            means.mark_tick(color=INK, thickness=2.4, size=11).encode(
                **self._place(), x=self._x("value"), tooltip=self._tooltip("value", "low", "high")
            ),
        ]

    def _place(self) -> dict[str, Any]:
        field, order = self.rows
        scale = alt.Scale(domain=list(order), paddingInner=0.2, paddingOuter=0.1)
        return {
            "y": alt.Y(f"{field}:N", title=None, sort=list(order), axis=broken_labels(), scale=scale),
            "yOffset": alt.YOffset(f"{self.offsets[0]}:N", sort=list(self.offsets[1])),
        }

    def _x(self, column: str) -> alt.X:
        scale = (
            alt.Scale(zero=False, padding=8) if self.domain is None else alt.Scale(domain=list(self.domain))
        )
        axis = alt.Axis(format=self.format, tickCount=6)
        return alt.X(f"{column}:Q", title=self.title, scale=scale, axis=axis)

    def _tooltip(self, *numbers: str) -> list[alt.Tooltip]:
        words = dict.fromkeys(
            (self.rows[0], self.offsets[0], self.colours[0], *(["arm"] if self.arms else []))
        )
        return [
            *(alt.Tooltip(f"{name}:N") for name in words),
            *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in numbers),
        ]


def seeds_and_means(
    x: alt.X, y: alt.Y, by: alt.Color, *extra: str, offset: alt.XOffset | None = None
) -> list[alt.Chart]:
    """Seeds as points, means as a line with points and their intervals, along a horizontal axis.

    Args:
        x: the horizontal axis.
        y: title, scale and axis of the vertical one; its column is put in.
        by: what has a line of its own.
        extra: further columns for the tooltips.
        offset: sets what stands at one place of a horizontal axis apart.
    """
    place: dict[str, Any] = {"x": x, "color": by, **({} if offset is None else {"xOffset": offset})}

    def tooltip(*names: str) -> list[alt.Tooltip]:
        return [
            *(alt.Tooltip(name) for name in extra),
            *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in names),
        ]

    seeds = alt.Chart().transform_filter("datum.kind == 'seed'")
    means = alt.Chart().transform_filter("datum.kind == 'mean'")
    spread = means.transform_filter("isValid(datum.low)")
    return [
        seeds.mark_point(filled=True, size=26, fillOpacity=0.45).encode(
            **place, y=on(y, "value"), tooltip=tooltip("seed", "value")
        ),
        spread.mark_rule(strokeWidth=1.6).encode(**place, y=on(y, "low"), y2="high:Q"),
        means.mark_line(strokeWidth=2).encode(
            **place, y=on(y, "value"), tooltip=tooltip("value", "low", "high")
        ),
    ]
