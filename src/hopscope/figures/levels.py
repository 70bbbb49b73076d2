"""The floors of a task in a figure: dashed lines across the plot, with their names beside it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from hopscope.claims.numbers import format_number
from hopscope.figures.marks import QUIET_INK, given, in_lines, numbers
from hopscope.figures.selection import Floors, Group, floors_of

LETTERS, LINE = 20, 13
"""Letters in a line of a label, and pixels from one line to the next."""


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
    axis: alt.Axis | None = _axis(levels, ends, height, unit)
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


def _axis(levels: Sequence[Level], ends: tuple[float, float], height: int, unit: str) -> alt.Axis:
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
