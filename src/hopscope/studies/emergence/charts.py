"""The charts of the study of emergence that no shared shape draws; each takes the configuration and the evidence."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.figures import Drawing
from hopscope.figures.marks import QUIET_INK, colour, given, matrix, points, table
from hopscope.figures.rows import WIDTH, Row, short
from hopscope.studies.circuit_study.claims import independent
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.events import before, both, events, read_of, shares
from hopscope.words import symbol, symbols

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

PARTS = ("initial weights", "data", "both together, and chance")


def precedence(config: EmergenceConfig, evidence: "Evidence") -> Drawing:
    """In how many independent members the event of a row came before that of a column."""
    every = events(evidence, config.steps, read_of(evidence, independent(evidence)))
    rows: list[Row] = []
    for first in every:
        for second in every:
            found = before(first, second)
            if first is second or found.interval is None:
                continue
            low, high = map(short, found.interval)
            rows.append(
                {"first": first.name, "second": second.name, "share": short(found.share or 0.0),
                 "words": f"{found.before}/{found.known}", "ties": found.ties, "unknown": found.unknown, "low": low,
                 "high": high}
            )  # fmt: skip
    names = [event.name for event in every]
    top = alt.Axis(orient="top", labelAngle=-30, labelLimit=0)
    x = alt.X("second:N", title="… before this", sort=names, axis=top)
    y = alt.Y("first:N", title="this came …", sort=names, axis=alt.Axis(labelLimit=0))
    data = table("precedence", "first second words", "share ties unknown low high")
    chart = matrix(data, x, y, "share", "words", "share of seeds")
    return chart.properties(width=70 * len(names), height=alt.Step(28)), rows


def alignment(config: EmergenceConfig, evidence: "Evidence") -> Drawing:
    """When the reads of a step had formed, and when its loss fell: a point for each member and step."""
    every = events(evidence, config.steps, read_of(evidence, evidence.members))
    rows: list[Row] = [
        {"member": config.names[member], "symbol": symbol(hop.step), "formed": short(formed.time),
         "fell": short(fell.time), "low": formed.low, "high": formed.high}
        for hop, loss in zip(every[::2], every[1::2], strict=True)
        for member, (formed, fell) in both(hop, loss).items()
        if formed.time is not None and fell.time is not None
    ]  # fmt: skip
    end = config.training_steps
    diagonal = given([{"formed": 0, "fell": 0}, {"formed": end, "fell": end}]).mark_line(
        strokeDash=[4, 4], color=QUIET_INK, strokeWidth=1
    )
    x = alt.X(title="step at which the last read of the step had formed", axis=alt.Axis(format="~s"))
    y = alt.Y("fell:Q", title="step at which its partial loss fell under 0.5", axis=alt.Axis(format="~s"))
    data = table("alignment", "member symbol", "formed fell low high")
    shown = points(data, x, "formed", y, colour("symbol", symbols(config.task().asked)), ranged=True)
    chart = alt.layer(diagonal.encode(x="formed:Q", y="fell:Q"), *shown, data=data)
    return chart.properties(width=330, height=330), rows


def variance(config: EmergenceConfig, evidence: "Evidence") -> Drawing:
    """Shares of the variance of each event's time: a bar for each event."""
    every = events(evidence, config.steps, evidence.members)
    rows: list[Row] = []
    for event in every:
        found = shares(config, event)
        if found is not None:
            levels = (short(found.rows_by_chance), short(found.columns_by_chance), None)
            split = (found.rows, found.columns, found.rest)
            rows += [
                {"event": event.name, "part": part, "share": short(share), "by_chance": level}
                for part, share, level in zip(PARTS, split, levels, strict=True)
            ]
    x = alt.X("share:Q", title="share of the variance of the time", axis=alt.Axis(format="%"))
    y = alt.Y("event:N", title=None, sort=[event.name for event in every], axis=alt.Axis(labelLimit=0))
    bars = alt.Chart(table("variance", "event part", "share by_chance")).mark_bar()
    chart = bars.encode(
        x=x,
        y=y,
        color=colour("part", PARTS),
        order=alt.Order("part:N", sort="descending"),
        tooltip=["event:N", "part:N", "share:Q", "by_chance:Q"],
    )
    return chart.properties(width=WIDTH - 140, height=alt.Step(26)), rows
