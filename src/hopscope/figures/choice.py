"""The data of a declared study's figure, and the axes and colours that all kinds of figures share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import altair as alt

from hopscope.figures import Figure
from hopscope.figures.levels import Level, levels_of
from hopscope.figures.marks import legend
from hopscope.figures.rows import WIDTH
from hopscope.figures.selection import (
    Estimate,
    Floors,
    Group,
    at_last_step,
    check_metric,
    diverged,
    estimated,
    groups,
    members_of,
    metric_rows,
    metric_words,
    unit_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

HEIGHT = 280
LABELS_WIDTH = 130
"""Pixels to the right of a plot that the labels of its floors take."""

COLOURS = 8
"""Groups that the theme's colours tell apart; more are drawn along a ramp."""

_SPIKE = 3.0
"""Spikes are left out of the axis if they are this many times as high as all but 1 in 200 of the values."""


@dataclass(frozen=True)
class Chosen:
    """The data that a figure shows.

    Attributes:
        figure: the figure.
        frame: rows of its metric.
        groups: what is told apart.
        table: the members, as `members_of` gives them.
        gone: members that diverged.
        unit: of the metric, `fraction` or `number`.
        levels: floors of the metric.
    """

    figure: Figure
    frame: "pd.DataFrame"
    groups: list[Group]
    table: "pd.DataFrame"
    gone: list[int]
    unit: str
    levels: list[Level]

    @property
    def share(self) -> bool:
        """Whether the metric is a fraction."""
        return self.unit == "fraction"

    @property
    def labels(self) -> list[str]:
        """Labels of the groups, in their order."""
        return [group.label for group in self.groups]

    @property
    def title(self) -> str:
        """The title: the metric in words."""
        return metric_words(self.figure.metric, self.figure.split, self.figure.part)


def choose(figure: Figure, evidence: "Evidence", floors: Floors | None) -> Chosen:
    """Select the data of a figure from the evidence.

    Raises:
        UserError: the evidence has no such metric or column.
    """
    what = f"figure {figure.kind} of {figure.metric!r}"
    check_metric(evidence, figure.metric, what)
    found = groups(evidence, figure.by, what)
    frame = metric_rows(
        evidence, figure.metric, figure.split, figure.part, what, of_heads=figure.kind == "heads"
    )
    return Chosen(
        figure=figure,
        frame=frame,
        groups=found,
        table=members_of(evidence),
        gone=diverged(evidence),
        unit=unit_of(figure.metric, frame["value"]),
        levels=[] if figure.kind == "heads" else levels_of(floors, figure.metric, figure.part, found),
    )


def estimate_of(chosen: Chosen, group: Group) -> Estimate:
    """Mean over a group at the end; over heads too, where the metric is of heads."""
    return estimated(last_values(chosen.frame, group), chosen.table, chosen.gone)


def last_values(frame: "pd.DataFrame", group: Group) -> "pd.Series":
    """Value of each member at its last step, NaN where it has none."""
    final = at_last_step(frame[frame["member"].isin(group.members)])
    return final.groupby("member")["value"].mean().reindex(list(group.members))


def range_of(chosen: Chosen, room: float = 0.03) -> tuple[float, float]:
    """Ends of the vertical axis: what is in a mean, the floors, and room above; rare spikes are left out."""
    values = chosen.frame[~chosen.frame["member"].isin(chosen.gone)]["value"].dropna()
    levels = [level.value for level in chosen.levels]
    highest = max([0.0, *levels, *values])
    if chosen.figure.kind == "bars":
        lasts = [value for group in chosen.groups for value in last_values(chosen.frame, group).dropna()]
        highest = max([0.0, *levels, *lasts])
    elif len(values):
        usual = max([*levels, float(values.quantile(0.995))])
        highest = usual if usual > 0 and highest > _SPIKE * usual else highest
    if chosen.share:
        return 0.0, 1.0 + room
    lowest = min([0.0, *levels, *values])
    span = highest - lowest or 1.0
    return lowest, highest + room * span


def axis_of(chosen: Chosen) -> alt.Axis:
    """The vertical axis: in percent for a fraction."""
    if chosen.share:
        return alt.Axis(format="%", values=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    return alt.Axis(format="~g", tickCount=6)


def hue(labels: Sequence[str], shown: alt.Legend | None) -> alt.Color:
    """Colour of the groups, the same in every figure."""
    scale = alt.Scale(domain=list(labels))
    if len(labels) > COLOURS:
        scale = alt.Scale(domain=list(labels), scheme="viridis")
    return alt.Color("group:N", scale=scale, legend=shown)


def legend_of(labels: Sequence[str]) -> alt.Legend | None:
    """A legend of the groups, in as many columns as there is room for; a single group needs none."""
    if len(labels) < 2:
        return None
    widest = 30 + 7 * max(len(label) for label in labels)
    return legend(symbolType="stroke", symbolOpacity=1, columns=max(1, WIDTH // widest))
