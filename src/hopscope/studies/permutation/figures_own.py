"""Figures of the permutation study that no shared shape shows: attention maps, and roles of heads."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.figures import Drawing
from hopscope.figures.marks import QUIET_INK, colour, facet, given, shape, table
from hopscope.figures.rows import Row, short
from hopscope.figures.selection import diverged
from hopscope.figures.verdict_grid import verdict_grid
from hopscope.studies.permutation.claims import claims
from hopscope.studies.permutation.config import Configuration, PermutationStudyConfig

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

# Attention.

SHOWN_SEEDS = 4
"""Seeds whose attention maps the page shows; all of them are in the analysis files."""


def token_names(config: PermutationStudyConfig) -> list[str]:
    """x1, y1, …, the words for the positions of the input."""
    return [f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(2 * config.values - 1)]


def head_name(head: int) -> str:
    """A head of the one layer, written `layer.head` as everywhere: both are counted from 0."""
    return f"head 0.{head}"


def _sets(config: PermutationStudyConfig) -> dict[str, str]:
    """Sets of sequences that the patterns are means over, and what they are called."""
    sources = sorted({source for _, source in config.task(config.base()[0]).repeat_pairs()})
    return {"plain": "no repeat", **{f"repeat_of_{x}": f"a later x repeats x{x}" for x in sources}}


def attention_rows(config: PermutationStudyConfig, evidence: "Evidence") -> list[Row]:
    """A row for each cell that a causal pattern can have, a column for each set of sequences."""
    if "attention_pattern" not in evidence:
        return []
    names, sets = token_names(config), list(_sets(config))
    return [
        {
            "map": f"{found.name}|{head_name(head)}",
            "seed": f"seed {seed}",
            "query": names[query],
            "key": names[key],
            **{which: round(float(maps[head, query, key]), 3) for which, maps in patterns.items() if which in sets},
        }
        for found in config.base()
        for seed, patterns in _patterns(found, evidence)
        for head in range(found.heads)
        for query in range(len(names))
        for key in range(query + 1)
    ]  # fmt: skip


def _patterns(found: Configuration, evidence: "Evidence") -> Iterator[tuple[int, dict[str, Any]]]:
    """Seed and mean patterns `[head, query, key]` by set of sequences, of the first members without the diverged."""
    here = evidence.where(configuration=found.name)
    files = here.rows("attention_pattern", measure="patterns", part="plain").set_index("member")["file"]
    shown = set(here.members[:SHOWN_SEEDS]) - set(diverged(here))
    for file, of_unit in files.sort_index().groupby(files, sort=False):
        # The first axis runs over the members of a unit, in their order, and each unit has a file of its own.
        for index, member in enumerate(of_unit.index):
            if member in shown:
                arrays = evidence.arrays(file)
                yield here.seeds[member], {which: maps[index, 0] for which, maps in arrays.items()}


def attention(config: PermutationStudyConfig, evidence: "Evidence") -> Drawing:
    """Mean attention patterns as heat maps, with a menu of the sequences that they are means over."""
    sets, names = _sets(config), token_names(config)
    select = alt.binding_select(options=list(sets), labels=list(sets.values()), name="Sequences: ")
    sequences = alt.param(name="sequences_shown", value="plain", bind=select)
    size = max(110, 12 * len(names))
    axis = alt.Axis(labelAngle=0, labelFontSize=10, labelOverlap=True, ticks=False, labelPadding=3)
    cells = (
        alt.Chart()
        .transform_calculate(attention="datum[sequences_shown]")
        .mark_rect()
        .encode(
            x=alt.X("key:N", sort=names, title="is read (key)", axis=axis),
            y=alt.Y("query:N", sort=names, title="reads (query)", axis=axis),
            color=alt.Color("attention:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                            legend=alt.Legend(title="mean attention", orient="top", gradientLength=200)),
            tooltip=["map:N", "seed:N", "query:N", "key:N", alt.Tooltip("attention:Q", format=".3f")],
        )
        .properties(width=size, height=size)
    )  # fmt: skip
    maps = [f"{found.name}|{head_name(head)}" for found in config.base() for head in range(found.heads)]
    header = alt.Header(labelExpr="split(datum.label, '|')", labelAngle=0, labelAlign="left", labelLimit=0)
    chart = (
        alt.layer(cells, data=table("attention", "map seed query key", " ".join(sets)))
        .facet(
            row=alt.Row("map:N", title=None, sort=maps, header=header),
            column=alt.Column("seed:N", title=None, sort=None),
        )
        .add_params(sequences)
    )
    return chart, attention_rows(config, evidence)


# Roles of heads.

COSTLY, CHEAP = 0.5, 0.1
"""P9: a head of a skill costs that skill at least so much, and the other one at most so much."""

DOMAIN = (-0.2, 1.0)
"""Of both axes, as shares; what is gained beyond it is drawn at its edge."""

ROLES_X, ROLES_Y = "elimination lost (points)", "recall lost (points)"


def head_rows(shown: Sequence[Configuration], evidence: "Evidence") -> list[Row]:
    """A row for each head of each seed: what both skills lose when its output is replaced by its mean."""
    rows: list[Row] = []
    for found in shown if "recall_lost" in evidence else ():
        for head in range(found.heads):
            recall, elimination = (
                evidence.last(f"{skill}_lost", measure="roles", configuration=found.name, layer=0, head=head)
                for skill in ("recall", "elimination")
            )
            rows += [
                {"configuration": found.name, "seed": evidence.seeds[member], "head": head_name(head),
                 "recall_lost": short(recall[member]), "elimination_lost": short(elimination[member])}
                for member in recall.index[recall.notna() & elimination.notna()]
            ]  # fmt: skip
    return rows


def _regions() -> list[alt.Chart]:
    """The two corners in which a head is one of P9's, with their names."""
    low, high = DOMAIN
    corners = given(
        [
            {"left": low, "right": CHEAP, "bottom": COSTLY, "top": high, "label": "recall head"},
            {"left": COSTLY, "right": high, "bottom": low, "top": CHEAP, "label": "elimination head"},
        ]
    )
    bottom = alt.Y("bottom:Q", title=ROLES_Y)
    return [
        corners.mark_rect(color="#eceff2", stroke=QUIET_INK, strokeDash=[4, 3], strokeWidth=0.8).encode(
            x=alt.X("left:Q", title=ROLES_X), x2="right:Q", y=bottom, y2="top:Q"
        ),
        corners.transform_calculate(middle="(datum.left + datum.right) / 2")
        .mark_text(baseline="bottom", dy=-4, color=QUIET_INK)
        .encode(x=alt.X("middle:Q", title=ROLES_X), y=bottom, text="label:N"),
    ]


def head_roles(shown: Sequence[Configuration], evidence: "Evidence") -> Drawing:
    """What each head is for: the skill that is lost without it."""
    data = table("head_roles", "configuration head", "seed recall_lost elimination_lost")
    heads = [head_name(head) for head in range(max(found.heads for found in shown))]
    axis, scale = alt.Axis(format="%", values=[0, 0.5, 1]), alt.Scale(domain=list(DOMAIN), clamp=True)
    points = (
        alt.Chart()
        .mark_point(filled=True, size=60, fillOpacity=0.75)
        .encode(
            x=alt.X("elimination_lost:Q", title=ROLES_X, axis=axis, scale=scale),
            y=alt.Y("recall_lost:Q", title=ROLES_Y, axis=axis, scale=scale),
            color=colour("head", heads),
            shape=shape("head", heads),
            tooltip=["configuration:N", "seed:Q", "head:N", "recall_lost:Q", "elimination_lost:Q"],
        )
    )
    chart = alt.layer(*_regions(), points, data=data).properties(width=265, height=230)
    chart = chart.facet(facet("configuration", [found.name for found in shown]), columns=2)
    return chart, head_rows(shown, evidence)


def by_reading(config: PermutationStudyConfig, evidence: "Evidence") -> Drawing:
    """The verdict of every claim under every reading that the run has."""
    return verdict_grid("verdicts_by_reading", claims(config), evidence)
