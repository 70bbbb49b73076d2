"""The data of a declared study's figure, and the axes, colours and floors that all kinds of figures share."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import altair as alt

from hopscope.claims.numbers import format_number
from hopscope.figures import Figure
from hopscope.figures.marks import QUIET_INK, given, in_lines, legend, numbers
from hopscope.figures.rows import WIDTH
from hopscope.figures.selection import (
    Estimate,
    Floors,
    Group,
    at_last_step,
    check_metric,
    diverged,
    estimated,
    floors_of,
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


LETTERS, LINE = 20, 13
"""Letters in a line of a floor's label, and pixels from one line to the next."""


@dataclass(frozen=True)
class Level:
    """A floor.

    Attributes:
        value: its height.
        label: its name, with the group where groups have different floors.
        group: label of the group that alone has it; empty for one that all have.
    """

    value: float
    label: str
    group: str = ""


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


# Floors.


def levels_of(floors: Floors | None, metric: str, part: str | None, groups: Sequence[Group]) -> list[Level]:
    """The floors of a metric: one for all groups where they agree, else one for each group or configuration.

    Floors are of a whole metric, so a part of one has none.
    """
    if part is not None:
        return []
    names = dict.fromkeys(
        name for group in groups for each in group.configurations for name in floors_of(floors, metric, each)
    )
    return [level for name in names for level in _of_name(floors, metric, name, groups)]


def _of_name(floors: Floors | None, metric: str, name: str, groups: Sequence[Group]) -> list[Level]:
    owners: dict[float, list[str]] = {}
    for group in groups:
        found = {each: floors_of(floors, metric, each).get(name) for each in group.configurations}
        for each, value in found.items():
            if value is not None:
                # A group whose configurations differ in the floor is named by these.
                own = group.label if set(found.values()) == {value} else each
                owners.setdefault(value, []).append(own)
    known = {group.label for group in groups}
    levels = []
    for value, names in owners.items():
        names = list(dict.fromkeys(names))
        alone = names[0] if len(names) == 1 and len(owners) > 1 else ""
        whose = alone or (" and ".join(names) if len(names) == 2 else f"{len(names)} groups")
        label = name if len(owners) == 1 else f"{name}, {whose}"
        levels.append(Level(value, label, alone if alone in known else ""))
    return levels


def level_layers(
    levels: Sequence[Level], by: alt.Color, y: alt.Y, ends: tuple[float, float], height: int, unit: str
) -> list[alt.Chart]:
    """Dashed lines at the floors, named on an axis of their own at the right.

    Args:
        levels: the floors.
        by: colour of the groups, for a floor that one group alone has.
        y: the vertical axis; its column is put in.
        ends: of the vertical axis.
        height: of the plot, in pixels.
        unit: of the metric, as in `Criterion`.
    """
    axis: alt.Axis | None = _floor_axis(levels, ends, height, unit)
    layers = []
    for own in (False, True):
        chosen = [level for level in levels if bool(level.group) == own]
        if chosen:
            rows = [{"level": level.value, "floor": level.label, "group": level.group} for level in chosen]
            tip = [alt.Tooltip("floor:N"), *numbers("level")]
            column = alt.Y("level:Q", scale=y["scale"], axis=axis, title=None)
            hue = by if own else alt.value(QUIET_INK)
            rule = given(rows).mark_rule(strokeDash=[5, 4], strokeWidth=1.3)
            layers.append(rule.encode(y=column, color=hue, tooltip=tip))
            axis = None
    return layers


def _floor_axis(levels: Sequence[Level], ends: tuple[float, float], height: int, unit: str) -> alt.Axis:
    """An axis that names the floors: an axis has room beside the plot, whatever its width."""
    names: dict[float, list[str]] = {}
    for level in sorted(levels, key=lambda level: -level.value):
        names.setdefault(level.value, []).append(level.label)
    low, high = ends
    texts = [
        in_lines(f"{'; '.join(labels)} {format_number(value, unit)}", LETTERS)
        for value, labels in names.items()
    ]
    lines = [text.count("|") + 1 for text in texts]
    places = [height * (high - value) / (high - low) for value in names]
    moved = apart(places, [LINE * count + 3 for count in lines], height)
    # A label of several lines hangs from its first one.
    offsets = [
        round(to - place - LINE * (count - 1) / 2, 1)
        for place, to, count in zip(places, moved, lines, strict=True)
    ]
    here = f"indexof({json.dumps(list(names))}, datum.value)"
    conditions = [{"test": f"{here} == {at}", "value": offset} for at, offset in enumerate(offsets)]
    return alt.Axis(
        orient="right",
        values=list(names),
        tickCount=len(names),  # the theme's, if it is lower, would leave floors out
        labelExpr=f"split({json.dumps(texts, ensure_ascii=False)}[{here}], '|')",
        labelOffset={"condition": conditions, "value": 0.0},
        labelColor=QUIET_INK,
        labelFontSize=11,
        labelLimit=0,
        labelPadding=6,
        labelOverlap=False,
        grid=False,
        ticks=False,
        domain=False,
    )


def apart(places: Sequence[float], sizes: Sequence[float], longest: float) -> list[float]:
    """Middles of labels along an axis, moved as little downwards, then upwards, as they need not to overlap.

    Args:
        places: where each would stand, ascending.
        sizes: how much room each takes.
        longest: where the axis ends.
    """
    found: list[float] = []
    for place, size in zip(places, sizes, strict=True):
        before = found[-1] + (sizes[len(found) - 1] + size) / 2 if found else place
        found.append(max(place, before))
    end = longest + (sizes[-1] / 2 if sizes else 0.0)
    for at in range(len(found) - 1, -1, -1):
        found[at] = min(found[at], end - sizes[at] / 2)
        end = found[at] - sizes[at] / 2
    return found
