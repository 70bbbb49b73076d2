"""What circuits there are: the reads of every seed, what removing a path costs, and random circuits beside them."""

from collections.abc import Sequence

import altair as alt

from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, broken_labels, colour, facet, given, shape
from hopscope.studies.rows import WIDTH, Drawn, Row, short

READS, MODES, CONTROLS = "reads", "modes", "controls"

MODE_WORDS = {
    "rules": "rules: all patterns given",
    "clean": "clean: all else as it was",
    "recomputed": "recomputed: the rest follows",
}
"""The reader's three modes, as legends say them."""


def with_paths(members: Sequence[Member]) -> list[Member]:
    """Members of which there is something to show."""
    return [member for member in members if member.paths]


def read_rows(members: Sequence[Member]) -> list[Row]:
    """Every read of every member, with the heads that do it, and the attention of the one with most."""
    rows: list[Row] = []
    for member in with_paths(members):
        for read in dict.fromkeys(path.read for path in member.paths):
            paths = [path for path in member.paths if path.read == read]
            rows.append(
                {
                    "seed": member.name,
                    "read": read,
                    "heads": ", ".join(path.place for path in paths),
                    "attention": short(max(path.mean_attention for path in paths)),
                    "carries": ", ".join(sorted({thing for path in paths for thing in path.carries})),
                }
            )
    return rows


def draw_reads(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """Reads against seeds: which heads do it, and with how much attention."""
    rows = read_rows(members)
    reads = sorted(
        {row["read"] for row in rows}, key=lambda read: (-sum(row["read"] == read for row in rows), read)
    )
    seeds = list(dict.fromkeys(row["seed"] for row in rows))
    types = {
        "seed": "string",
        "read": "string",
        "heads": "string",
        "attention": "number",
        "carries": "string",
    }
    base = alt.Chart(data_url(READS, types)).encode(
        x=alt.X("seed:N", title=None, sort=seeds, axis=alt.Axis(orient="top", labelAngle=0, grid=False)),
        y=alt.Y("read:N", title=None, sort=reads, axis=alt.Axis(labelLimit=0, grid=False)),
        tooltip=["seed:N", "read:N", "heads:N", "attention:Q", "carries:N"],
    )
    cells = base.mark_rect(stroke="white").encode(
        color=alt.Color(
            "attention:Q",
            scale=alt.Scale(domain=[0.0, 1.0], scheme="blues"),
            legend=alt.Legend(title="mean attention on it", orient="top", gradientLength=160),
        )
    )
    words = base.mark_text(fontSize=10).encode(
        text="heads:N",
        color=alt.condition("datum.attention > 0.55", alt.value("white"), alt.value("#222222")),
    )
    return (cells + words).properties(width=max(WIDTH - 140, 62 * len(seeds)), height=alt.Step(20)), rows


def mode_rows(members: Sequence[Member]) -> list[Row]:
    """Loss without each path, in each mode."""
    return [
        {
            "seed": member.name,
            "path": path.name,
            "mode": MODE_WORDS[mode],
            "loss": short(path.removed[mode]),
            "full": short(member.reading["loss"]["full"]),
        }
        for member in with_paths(members)
        for path in member.paths
        for mode in MODE_WORDS
    ]


def draw_modes(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """A row for each path, a point for each mode."""
    rows = mode_rows(members)
    seeds = [member.name for member in with_paths(members)]
    types = {"seed": "string", "path": "string", "mode": "string", "loss": "number", "full": "number"}
    points = (
        alt.Chart()
        .mark_point(size=55, filled=True, fillOpacity=0.85)
        .encode(
            x=alt.X("loss:Q", title="loss without the path", scale=alt.Scale(zero=True)),
            y=alt.Y("path:N", title=None, axis=broken_labels()),
            color=colour("mode", list(MODE_WORDS.values())),
            shape=shape("mode", list(MODE_WORDS.values())),
            tooltip=["seed:N", "path:N", "mode:N", "loss:Q", "full:Q"],
        )
    )
    plateau = (
        given([{"at": config.task().plateau}]).mark_rule(strokeDash=[4, 4], color=QUIET_INK).encode(x="at:Q")
    )
    chart = alt.layer(plateau, points, data=data_url(MODES, types))
    panel = chart.properties(width=WIDTH - 160, height=alt.Step(15))
    return panel.facet(facet("seed", seeds), columns=1).resolve_scale(y="independent"), rows


CONTROL_WORDS = {
    "full": "model",
    "rules": "circuit by its rules",
    "recomputed": "circuit, own attention",
    "complement": "everything but the circuit",
    "random_circuits": "random circuits (range)",
}


def control_rows(members: Sequence[Member]) -> list[Row]:
    """Loss of the model, its circuit, all else, and random circuits of the same size."""
    rows: list[Row] = []
    for member in with_paths(members):
        loss = member.reading["loss"]
        low, high = loss["random_circuits_range"]
        for key, words in CONTROL_WORDS.items():
            ends = (short(low), short(high)) if key == "random_circuits" else (None, None)
            rows.append(
                {
                    "seed": member.name,
                    "what": words,
                    "loss": short(loss[key]),
                    "low": ends[0],
                    "high": ends[1],
                }
            )
    return rows


def draw_controls(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """A row for each member."""
    rows = control_rows(members)
    seeds = [member.name for member in with_paths(members)]
    words = list(CONTROL_WORDS.values())
    y = alt.Y("seed:N", title=None, sort=seeds)
    title = "loss over the learned targets"
    base = alt.Chart()
    spread = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5).encode(
        x=alt.X("low:Q", title=title), x2="high:Q", y=y, color=colour("what", words)
    )  # fmt: skip
    points = base.mark_point(size=60, filled=True, fillOpacity=0.9).encode(
        x=alt.X("loss:Q", title=title),
        y=y,
        color=colour("what", words),
        shape=shape("what", words),
        tooltip=["seed:N", "what:N", "loss:Q", "low:Q", "high:Q"],
    )
    types = {"seed": "string", "what": "string", "loss": "number", "low": "number", "high": "number"}
    chart = alt.layer(spread, points, data=data_url(CONTROLS, types))
    return chart.properties(width=WIDTH - 60, height=alt.Step(18)), rows
