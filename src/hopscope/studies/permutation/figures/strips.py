"""Rows of points: what several figures that compare many things are drawn as."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from hopscope.studies.marks import INK, broken_labels, legend, shape


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
            "fillOpacity": alt.FillOpacity("arm:O", scale=hollow, legend=legend()),
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
