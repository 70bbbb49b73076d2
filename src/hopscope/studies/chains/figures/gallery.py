"""Attention maps of every head on one example sequence, the queries down and the keys across (paper, appendix C)."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from hopscope.circuits.config import maps_name
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.figures import data_url
from hopscope.studies.rows import WIDTH, Drawn, Row

GALLERY = "gallery"

_SEEN = 8
"""255ths of attention under which a cell is as good as white, and left out."""

LEFT_OUT = f"{_SEEN / 255:.2f}"
"""The same as a share, for captions."""


def gallery_rows(config: ChainsConfig, members: Sequence[Member]) -> list[Row]:
    """Cells of the last maps of some members."""
    rows: list[Row] = []
    for member in members[: config.galleries]:
        found = member.unit.read_analysis(maps_name(member.member), config.training_steps)
        last = np.asarray(found["maps"])[-1]
        for layer, head, query, key in zip(*np.nonzero(last >= _SEEN), strict=True):
            rows.append(
                {
                    "seed": member.name,
                    "head": f"{layer}.{head}",
                    "query": int(query),
                    "key": int(key),
                    "attention": round(int(last[layer, head, query, key]) / 255.0, 2),
                }
            )
    return rows


def draw_gallery(config: ChainsConfig, members: Sequence[Member]) -> Drawn:
    """A panel for each head, a row of panels for each member."""
    rows = gallery_rows(config, members)
    shown = members[: config.galleries]
    heads = [f"{layer}.{head}" for layer in range(config.layers) for head in range(config.heads)]
    size = max(46, WIDTH // len(heads) - 12)
    positions = config.task().positions
    scale = alt.Scale(domain=list(range(positions)), padding=0)
    cells = (
        alt.Chart(
            data_url(GALLERY, {"seed": "string", "head": "string", "query": "number", "key": "number",
                               "attention": "number"})
        )
        .mark_rect()
        .encode(
            x=alt.X("key:O", title=None, axis=None, scale=scale),
            y=alt.Y("query:O", title=None, axis=None, scale=scale),
            color=alt.Color(
                "attention:Q",
                scale=alt.Scale(domain=[0.0, 1.0], scheme="blues"),
                legend=alt.Legend(title="attention", orient="top", gradientLength=160),
            ),
            tooltip=["seed:N", "head:N", "query:O", "key:O", "attention:Q"],
        )
        .properties(width=size, height=size)
    )  # fmt: skip
    panels = cells.facet(
        row=alt.Row("seed:N", title=None, sort=[member.name for member in shown], header=alt.Header(labelAngle=0,
                    labelAlign="left")),
        column=alt.Column("head:N", title=None, sort=heads),
        spacing=6,
    )  # fmt: skip
    return panels, rows
