"""The figures of the study of emergence, beside those of all studies of chains."""

from collections.abc import Sequence

import altair as alt

from hopscope.studies.chains.evidence import Member, seeds_of, step_of
from hopscope.studies.chains.figures import Draw, timeline
from hopscope.studies.chains.figures import circuits as drawn
from hopscope.studies.chains.figures.gallery import GALLERY, draw_gallery
from hopscope.studies.emergence.config import EmergenceConfig, figure_names
from hopscope.studies.emergence.events import (
    before,
    both,
    clamp_words,
    events,
    hop_events,
    loss_events,
    shares,
    trained_again,
)
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, colour, facet, given, legend
from hopscope.studies.rows import WIDTH, Drawn, Row, short
from hopscope.studies.words import symbol, symbols

PRECEDENCE, ALIGNMENT, CLAMPS, VARIANCE = "precedence", "alignment", "clamps", "variance"


def _of_seeds(draw: Draw) -> Draw:
    """A figure of independent members only."""
    return lambda config, members: draw(config, seeds_of(members))


# Which event came first.


def precedence_rows(config: EmergenceConfig, members: Sequence[Member]) -> list[Row]:
    """For each two events: in how many independent members the first came first."""
    rows: list[Row] = []
    every = events(config.steps)
    for first in every:
        for second in every:
            found = before(seeds_of(members), first, second)
            if first is second or not found.known or found.interval is None:
                continue
            rows.append(
                {
                    "first": first.name,
                    "second": second.name,
                    "share": short(found.share or 0.0),
                    "words": f"{found.before}/{found.known}",
                    "ties": found.ties,
                    "unknown": found.unknown,
                    "low": short(found.interval[0]),
                    "high": short(found.interval[1]),
                }
            )
    return rows


def draw_precedence(config: EmergenceConfig, members: Sequence[Member]) -> Drawn:
    """A matrix: the event of the row came before that of the column."""
    rows = precedence_rows(config, members)
    names = [event.name for event in events(config.steps)]
    types = {"first": "string", "second": "string", "share": "number", "words": "string", "ties": "number",
             "unknown": "number", "low": "number", "high": "number"}  # fmt: skip
    base = alt.Chart(data_url(PRECEDENCE, types)).encode(
        x=alt.X(
            "second:N",
            title="… before this",
            sort=names,
            axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=0),
        ),
        y=alt.Y("first:N", title="this came …", sort=names, axis=alt.Axis(labelLimit=0)),
        tooltip=["first:N", "second:N", "share:Q", "words:N", "ties:Q", "unknown:Q", "low:Q", "high:Q"],
    )
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color(
            "share:Q",
            scale=alt.Scale(domain=[0.0, 1.0], scheme="blues"),
            legend=alt.Legend(title="share of seeds", orient="bottom", gradientLength=160),
        )
    )
    words = base.mark_text(fontSize=11).encode(
        text="words:N", color=alt.condition("datum.share > 0.55", alt.value("white"), alt.value("#222222"))
    )
    return (cells + words).properties(width=70 * len(names), height=alt.Step(28)), rows


# When a hop's paths had formed, and when its loss fell.


def alignment_rows(config: EmergenceConfig, members: Sequence[Member]) -> list[Row]:
    """Both times, for each member and step to which both happened."""
    rows: list[Row] = []
    for hop, loss in zip(hop_events(config.steps), loss_events(config.steps), strict=True):
        for member, formed, fell in both(members, hop, loss):
            if formed.time is not None and fell.time is not None:
                rows.append(
                    {"member": member.name, "symbol": symbol(hop.step), "formed": short(formed.time),
                     "fell": short(fell.time), "low": formed.low, "high": formed.high}
                )  # fmt: skip
    return rows


def draw_alignment(config: EmergenceConfig, members: Sequence[Member]) -> Drawn:
    """A point for each member and step, and the line on which both are at once."""
    rows = alignment_rows(config, members)
    end = config.training_steps
    types = {"member": "string", "symbol": "string", "formed": "number", "fell": "number", "low": "number",
             "high": "number"}  # fmt: skip
    x = alt.X(
        "formed:Q", title="step at which the last read of the step had formed", axis=alt.Axis(format="~s")
    )
    y = alt.Y("fell:Q", title="step at which its partial loss fell under 0.5", axis=alt.Axis(format="~s"))
    diagonal = given([{"formed": 0, "fell": 0}, {"formed": end, "fell": end}]).mark_line(
        strokeDash=[4, 4], color=QUIET_INK, strokeWidth=1
    )
    base = alt.Chart()
    by = colour("symbol", symbols(range(1, config.steps + 1)))
    spread = base.mark_rule(strokeWidth=1.2).encode(
        x=alt.X("low:Q", title="step at which the last read of the step had formed"),
        x2="high:Q",
        y=y,
        color=by,
    )
    points = base.mark_point(size=60, filled=True, fillOpacity=0.85).encode(
        x=x, y=y, color=by, tooltip=["member:N", "symbol:N", "formed:Q", "fell:Q"]
    )
    chart = alt.layer(
        diagonal.encode(x="formed:Q", y="fell:Q"), spread, points, data=data_url(ALIGNMENT, types)
    )
    return chart.properties(width=330, height=330), rows


# Members trained again with paths clamped.


def clamp_rows(config: EmergenceConfig, members: Sequence[Member]) -> list[Row]:
    """Partial losses of every run."""
    return [
        {
            "panel": f"{again.member.name}, {symbol(step_of(name.removeprefix('loss_')))}",
            "run": clamp_words(run["name"]),
            "clamped": ", ".join(run["clamped"]),
            "step": step,
            "loss": short(value),
        }
        for again in trained_again(members, config)
        for run in again.runs
        for name, values in run["losses"].items()
        if name.startswith("loss_step_")
        for step, value in zip(again.steps, values, strict=True)
    ]


def draw_clamps(config: EmergenceConfig, members: Sequence[Member]) -> Drawn:
    """A panel for each member and partial loss, a line for each run."""
    rows = clamp_rows(config, members)
    panels, runs = (list(dict.fromkeys(row[name] for row in rows)) for name in ("panel", "run"))
    types = {"panel": "string", "run": "string", "clamped": "string", "step": "number", "loss": "number"}
    lines = (
        alt.Chart(data_url(CLAMPS, types))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y("loss:Q", title="held-out partial loss", scale=alt.Scale(domain=[0.0, 1.05], nice=False)),
            color=colour("run", runs, columns=2),
            strokeDash=alt.StrokeDash("run:N", scale=alt.Scale(domain=runs), legend=legend(columns=2)),
            tooltip=["panel:N", "clamped:N", "step:Q", "loss:Q"],
        )
        .properties(width=(WIDTH - 20 * (config.steps - 1)) // config.steps, height=150)
    )
    return lines.facet(facet("panel", panels), columns=config.steps), rows


# Weights or data.


def variance_rows(config: EmergenceConfig, members: Sequence[Member]) -> list[Row]:
    """Shares of the variance of each event's time."""
    rows: list[Row] = []
    for event in events(config.steps):
        found = shares(members, config, event)
        if found is not None:
            parts = (("initial weights", found.rows, found.rows_by_chance), ("data", found.columns,
                     found.columns_by_chance), ("both together, and chance", found.rest, None))  # fmt: skip
            rows += [
                {"event": event.name, "part": part, "share": short(share),
                 "by_chance": None if chance is None else short(chance)}
                for part, share, chance in parts
            ]  # fmt: skip
    return rows


def draw_variance(config: EmergenceConfig, members: Sequence[Member]) -> Drawn:
    """A bar for each event."""
    rows = variance_rows(config, members)
    parts = ["initial weights", "data", "both together, and chance"]
    types = {"event": "string", "part": "string", "share": "number", "by_chance": "number"}
    chart = (
        alt.Chart(data_url(VARIANCE, types))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="share of the variance of the time", axis=alt.Axis(format="%")),
            y=alt.Y("event:N", title=None, sort=[event.name for event in events(config.steps)],
                    axis=alt.Axis(labelLimit=0)),
            color=colour("part", parts),
            order=alt.Order("part:N", sort="descending"),
            tooltip=["event:N", "part:N", "share:Q", "by_chance:Q"],
        )
        .properties(width=WIDTH - 140, height=alt.Step(26))
    )  # fmt: skip
    return chart, rows


_DRAWN: dict[str, Draw] = {
    timeline.TIMELINE: _of_seeds(timeline.draw_timeline),
    timeline.CROSSINGS: _of_seeds(timeline.draw_crossings),
    PRECEDENCE: draw_precedence,
    ALIGNMENT: lambda config, members: draw_alignment(config, members),
    drawn.READS: drawn.draw_reads,
    drawn.CONTROLS: drawn.draw_controls,
    drawn.MODES: _of_seeds(drawn.draw_modes),
    CLAMPS: draw_clamps,
    VARIANCE: draw_variance,
    GALLERY: draw_gallery,
}


def figures(config: EmergenceConfig) -> dict[str, Draw]:
    """Name → how it is drawn, of the figures that there is something to draw of."""
    return {name: _DRAWN[name] for name in figure_names(config)}
