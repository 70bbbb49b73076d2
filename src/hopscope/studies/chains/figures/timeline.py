"""How members learn: losses and the attention on each path, on one axis; and when each crossed one half."""

from collections.abc import Sequence

import altair as alt

from hopscope.claims.crossings import Crossing
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import FALLEN, Member
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, broken_labels, colour, facet, given, legend, shape
from hopscope.studies.rows import WIDTH, Drawn, Row, short, thinned, thinning
from hopscope.studies.words import symbol, symbols

TIMELINE, CROSSINGS = "timeline", "crossings"

LOSS, PATH = "partial loss", "attention on a path"
WHOLE, NO_HOP = "all targets", "none alone"

NEVER, SEEN = "not within training", "crossed"


def of_hop(needed_for: int | None) -> str:
    """The symbol that a path is needed for, in words."""
    return NO_HOP if needed_for is None else symbol(needed_for)


def timeline_rows(members: Sequence[Member]) -> list[Row]:
    """Losses of the members, and mean attention on the paths of their circuits."""
    curves = [member.curves[step] for member in members for step in member.curves]
    every = thinning([curve for curve in curves for _ in range(4)])
    rows: list[Row] = []
    for member in members:
        losses = [(WHOLE, member.train, "training loss"), (WHOLE, member.held_out, "held-out loss")]
        losses += [(symbol(step), curve, LOSS) for step, curve in member.curves.items()]
        for name, curve, kind in losses:
            rows += [
                {"seed": member.name, "kind": kind, "symbol": name, "line": kind + name, "step": at,
                 "value": short(value)}
                for at, value in zip(*thinned(curve, every), strict=True)
            ]  # fmt: skip
        for path in member.paths:
            rows += [
                {"seed": member.name, "kind": PATH, "symbol": of_hop(path.needed_for), "line": path.name, "step": at,
                 "value": short(value)}
                for at, value in zip(member.checkpoints, path.attention, strict=True)
            ]  # fmt: skip
    return rows


def draw_timeline(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """Losses and attention against training steps, one panel for each member."""
    rows = timeline_rows(members)
    kinds = [LOSS, PATH, "held-out loss", "training loss"]
    names = [*symbols(range(1, config.steps + 1)), NO_HOP, WHOLE]
    lines = (
        alt.Chart()
        .mark_line(strokeWidth=1.4, clip=True)
        .encode(
            x=alt.X("step:Q", title="training step", axis=alt.Axis(format="~s", tickCount=4)),
            y=alt.Y(
                "value:Q", title="loss, or mean attention", scale=alt.Scale(domain=[0.0, 1.05], nice=False)
            ),
            color=colour("symbol", names),
            strokeDash=alt.StrokeDash(
                "kind:N",
                scale=alt.Scale(domain=kinds, range=[[1, 0], [5, 3], [1, 2], [2, 6]]),
                legend=legend(symbolType="stroke"),
            ),
            detail="line:N",
            tooltip=["seed:N", "kind:N", "line:N", "step:Q", "value:Q"],
        )
    )
    levels = given([{"at": FALLEN}, {"at": config.task().plateau}]).mark_rule(
        color=QUIET_INK, strokeWidth=0.6
    )
    types = {"seed": "string", "kind": "string", "symbol": "string", "line": "string", "step": "number",
             "value": "number"}  # fmt: skip
    chart = alt.layer(levels.encode(y="at:Q"), lines, data=data_url(TIMELINE, types))
    columns = min(2, len(members))
    panel = chart.properties(width=(WIDTH - 20 * (columns - 1)) // columns, height=190)
    return panel.facet(facet("seed", [member.name for member in members]), columns=columns), rows


def crossing_rows(members: Sequence[Member]) -> list[Row]:
    """When the attention on each path rose over one half, and when each partial loss fell under it."""
    rows: list[Row] = []
    for member in members:
        for path in member.paths:
            found = member.formed(path)
            rows.append(_row(f"{member.name}: {path.name}", PATH, of_hop(path.needed_for), found))
        for step in member.curves:
            if member.curves[step][0]:
                rows.append(
                    _row(
                        f"{member.name}: partial loss of {symbol(step)}",
                        LOSS,
                        symbol(step),
                        member.fallen(step),
                    )
                )
    return rows


def _row(event: str, kind: str, name: str, found: Crossing) -> Row:
    seen = found.time is not None
    at = found.time if found.time is not None else found.censored_at or 0.0
    return {"event": event, "kind": kind, "symbol": name, "seen": SEEN if seen else NEVER, "step": short(at),
            "low": found.low, "high": found.high}  # fmt: skip


def draw_crossings(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """A dot for each event, with the checkpoints or evaluations around it."""
    rows = crossing_rows(members)
    events = [row["event"] for row in rows]
    by = colour("symbol", [*symbols(range(1, config.steps + 1)), NO_HOP])
    y = alt.Y("event:N", title=None, sort=events, axis=broken_labels())
    title = "training step at which it crossed one half"
    base = alt.Chart()
    between = (
        base.transform_filter("isValid(datum.high)")
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, color=by)
    )
    points = base.mark_point(size=50, filled=True, fillOpacity=0.9).encode(
        x=alt.X("step:Q", title=title, axis=alt.Axis(format="~s")),
        y=y,
        color=by,
        shape=shape("kind", [PATH, LOSS]),
        opacity=alt.Opacity("seen:O", scale=alt.Scale(domain=[SEEN, NEVER], range=[1.0, 0.35]), legend=None),
        tooltip=["event:N", "kind:N", "symbol:N", "seen:N", "step:Q", "low:Q", "high:Q"],
    )
    types = {"event": "string", "kind": "string", "symbol": "string", "seen": "string", "step": "number",
             "low": "number", "high": "number"}  # fmt: skip
    chart = alt.layer(between, points, data=data_url(CROSSINGS, types))
    return chart.properties(width=WIDTH - 160, height=alt.Step(13)), rows
