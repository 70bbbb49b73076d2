"""What each head is for: the skill that is lost without it."""

from typing import TYPE_CHECKING

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, colour, facet, given, shape
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.configurations import Configuration
from hopscope.studies.permutation.figures.common import Figure, base
from hopscope.studies.rows import Drawn, Row, short

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

COSTLY, CHEAP = 0.5, 0.1
"""P9: a head of a skill costs that skill at least so much, and the other one at most so much."""

DOMAIN = (-0.2, 1.0)
"""Of both axes, as shares; what is gained beyond it is drawn at its edge."""


def _several_roles(config: PermutationStudyConfig) -> list[Configuration]:
    return [
        each for each in base(config) if config.is_whole(each) and (each.data == "repeats" or each.heads > 1)
    ]


def head_rows(shown: "list[Evidence]") -> list[Row]:
    """A row for each head of each seed: what both skills lose when its output is replaced by its mean."""
    rows: list[Row] = []
    for found in shown:
        lost = (found.each("roles", f"{skill}_lost") for skill in ("recall", "elimination"))
        for seed, recall, elimination in zip(found.seeds, *lost, strict=True):
            if recall is None or elimination is None:
                continue
            rows += [
                {"configuration": found.name, "seed": seed, "head": f"head {head + 1}",
                 "recall_lost": short(recall[head]), "elimination_lost": short(elimination[head])}
                for head in range(found.configuration.heads)
                if recall[head] is not None and elimination[head] is not None
            ]  # fmt: skip
    return rows


X_TITLE, Y_TITLE = "elimination lost (points)", "recall lost (points)"


def _regions() -> list[alt.Chart]:
    """The two corners in which a head is one of P9's, with their names."""
    low, high = DOMAIN
    corners = given(
        [
            {"left": low, "right": CHEAP, "bottom": COSTLY, "top": high, "label": "recall head"},
            {"left": COSTLY, "right": high, "bottom": low, "top": CHEAP, "label": "elimination head"},
        ]
    )
    return [
        corners.mark_rect(color="#eceff2", stroke=QUIET_INK, strokeDash=[4, 3], strokeWidth=0.8).encode(
            x=alt.X("left:Q", title=X_TITLE), x2="right:Q", y=alt.Y("bottom:Q", title=Y_TITLE), y2="top:Q"
        ),
        corners.transform_calculate(middle="(datum.left + datum.right) / 2")
        .mark_text(baseline="bottom", dy=-4, color=QUIET_INK)
        .encode(x=alt.X("middle:Q", title=X_TITLE), y=alt.Y("bottom:Q", title=Y_TITLE), text="label:N"),
    ]


def _draw(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("configuration", "head"), "string")
    types |= dict.fromkeys(("seed", "recall_lost", "elimination_lost"), "number")
    heads = [f"head {head + 1}" for head in range(max(found.configuration.heads for found in shown))]
    axis, scale = alt.Axis(format="%", values=[0, 0.5, 1]), alt.Scale(domain=list(DOMAIN), clamp=True)
    x = alt.X("elimination_lost:Q", title=X_TITLE, axis=axis, scale=scale)
    y = alt.Y("recall_lost:Q", title=Y_TITLE, axis=axis, scale=scale)
    points = (
        alt.Chart()
        .mark_point(filled=True, size=60, fillOpacity=0.75)
        .encode(
            x=x,
            y=y,
            color=colour("head", heads),
            shape=shape("head", heads),
            tooltip=["configuration:N", "seed:Q", "head:N", "recall_lost:Q", "elimination_lost:Q"],
        )
    )
    chart = alt.layer(*_regions(), points, data=data_url("head_roles", types))
    chart = chart.properties(width=265, height=230)
    return chart.facet(facet("configuration", [found.name for found in shown]), columns=2), head_rows(shown)


HEAD_ROLES = Figure("head_roles", _several_roles, _draw)
