"""The data of figures of series: rows of seeds, means, curves and marks, made of the evidence table."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hopscope.figures.rows import Row, averaged, short, summary_rows, thinned, thinning
from hopscope.figures.series import Given, Mark, Series

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

UNNAMED = "all"
"""What stands in the data for the name of series that have none: nothing would be drawn of an empty one."""

HOLLOW = ("measured", "control (hollow)")
"""What filled and hollow points are, in the column `arm`."""


def final_rows(evidence: "Evidence", series: Iterable[Series]) -> list[Row]:
    """A row for each seed of each series at its last step, then one for their mean with its interval."""
    rows: list[Row] = []
    for each in series:
        columns = {"panel": each.panel, "name": each.name or UNNAMED, "x": each.x, "y": each.y}
        columns["arm"] = HOLLOW[each.hollow]
        if each.outline:
            columns["outline"] = each.outline
        if each.given is not None:
            rows += _given_rows(each.given, columns)
            continue
        values = evidence.last(each.metric, **each.where)
        known = [
            (evidence.seeds[member], value) for member, value in values.items() if abs(value) < float("inf")
        ]
        found = summary_rows(
            [seed for seed, _ in known], [each.shown(value) for _, value in known], **columns
        )
        # Where no member has a value, the evidence may not know the ends at all.
        rows += _with_ends(found, evidence, each) if each.ends and found else found
    return rows


def mark_rows(marks: Iterable[Mark], panels: Sequence[str], of: str) -> list[Row]:
    """A row of kind `mark` for each mark of one place in each small chart that has it.

    Args:
        marks: all of a figure.
        panels: its small charts.
        of: the column of the place: `x` or `y`.
    """
    return [
        {"panel": panel, "name": mark.label, of: mark.at, "kind": "mark", "value": short(mark.value)}
        for mark in marks
        if mark.at is not None
        for panel in panels
        if mark.panel in ("", panel)
    ]


def _given_rows(number: Given, columns: Row) -> list[Row]:
    """A point, and its interval: what belongs to no member is drawn as one seed and its mean."""
    if number.value is None:
        return []
    ends = {end: None if (at := getattr(number, end)) is None else short(at) for end in ("low", "high")}
    value = short(number.value)
    return [{**columns, "kind": "seed", "value": value}, {**columns, "kind": "mean", "value": value, **ends}]


def _with_ends(rows: list[Row], evidence: "Evidence", series: Series) -> list[Row]:
    """The rows of single seeds with the ends of their own intervals."""
    assert series.ends is not None
    seeds = evidence.seeds
    for name, end in zip(("low", "high"), series.ends, strict=True):
        if isinstance(end, str):
            values = evidence.last(end, **series.where)
        else:
            values = evidence.last(series.metric, **{**series.where, **end})
        of_seed = {seeds[member]: value for member, value in values.items()}
        for row in rows:
            if row["kind"] == "seed" and of_seed[row["seed"]] == of_seed[row["seed"]]:
                row[name] = short(series.shown(of_seed[row["seed"]]))
    return rows


def line_rows(evidence: "Evidence", series: Sequence[Series], time: str) -> list[Row]:
    """A row for each point of each member's curve, thinned to what can be seen.

    A training loss is a mean since the point before, and remains one.
    """
    curves = [(each, *curve) for each in series for curve in _curves(evidence, each, time)]
    every = thinning([points for _, _, points in curves])
    rows: list[Row] = []
    for each, member, points in curves:
        seed, label = evidence.seeds[member], evidence.configurations[member]
        panel = each.panel.format(seed=seed, member=member, configuration=label)
        fewer = averaged if each.where.get("split") == "train" else thinned
        rows += [
            {"panel": panel, "name": each.name or UNNAMED, "member": member, "seed": seed, "at": at,
             "value": short(each.shown(value)), **told_apart(series, each)}
            for at, value in zip(*fewer(points, every), strict=True)
        ]  # fmt: skip
    return rows


def told_apart(series: Sequence[Series], each: Series) -> dict[str, str]:
    """Return the columns besides the name that distinguish the lines of a figure, with their values for one line."""
    used = [column for column in ("dash", "line") if any(getattr(other, column) for other in series)]
    return {column: getattr(each, column) for column in used}


def _curves(
    evidence: "Evidence", series: Series, time: str
) -> "list[tuple[int, tuple[list[float], list[float]]]]":
    where = {"part": None, "layer": None, "head": None, **series.where}
    frame: pd.DataFrame = evidence.rows(series.metric, **where).dropna(subset=["member", "value"])
    found = []
    for member, curve in frame.sort_values(time).groupby("member"):
        found.append((int(member), (curve[time].astype(int).tolist(), curve["value"].tolist())))
    return found
