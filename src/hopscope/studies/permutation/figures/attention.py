"""Mean attention patterns as heat maps."""

from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.figures.common import Figure, base
from hopscope.studies.rows import Drawn, Row

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence

SHOWN_SEEDS = 4
"""Seeds whose attention maps the page shows; all of them are in the analysis files."""


def token_names(config: PermutationStudyConfig) -> list[str]:
    """x1, y1, …, the words for the positions of the input."""
    return [f"{'xy'[position % 2]}{position // 2 + 1}" for position in range(2 * config.values - 1)]


def _sets(config: PermutationStudyConfig, shown: "list[Evidence]") -> dict[str, str]:
    """Sets of sequences that the patterns are means over, and what they are called."""
    sources = sorted({source for _, source in config.task(shown[0].configuration).repeat_pairs()})
    return {"plain": "no repeat", **{f"repeat_of_{x}": f"a later x repeats x{x}" for x in sources}}


def attention_rows(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """A row for each cell that a causal pattern can have, a column for each set of sequences."""
    names, sets = token_names(config), list(_sets(config, shown))
    rows: list[Row] = []
    for found in shown:
        steps = config.training(found.configuration).steps
        for member, seed in list(zip(found.members, found.seeds, strict=True))[:SHOWN_SEEDS]:
            if member in found.frozen:
                continue
            record = run.members[member]
            patterns = run.unit(record.unit).read_analysis("patterns", steps)
            for head in range(found.configuration.heads):
                of_head = {
                    which: patterns[which][record.index, 0, head] for which in sets if which in patterns
                }
                rows += [
                    {
                        "map": f"{found.name}|head {head + 1}",
                        "seed": f"seed {seed}",
                        "query": names[query],
                        "key": names[key],
                        **{which: round(float(values[query, key]), 3) for which, values in of_head.items()},
                    }
                    for query in range(len(names))
                    for key in range(query + 1)
                ]
    return rows


def _draw(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    sets = _sets(config, shown)
    types = {"map": "string", "seed": "string", "query": "string", "key": "string",
             **dict.fromkeys(sets, "number")}  # fmt: skip
    select = alt.binding_select(options=list(sets), labels=list(sets.values()), name="Sequences: ")
    sequences = alt.param(name="sequences_shown", value="plain", bind=select)
    names = token_names(config)
    size = max(110, 12 * len(names))
    labels: dict[str, Any] = {
        "labelAngle": 0,
        "labelFontSize": 10,
        "labelOverlap": True,
        "ticks": False,
        "labelPadding": 3,
    }
    cells = (
        alt.Chart()
        .transform_calculate(attention="datum[sequences_shown]")
        .mark_rect()
        .encode(
            x=alt.X("key:N", sort=names, title="is read (key)", axis=alt.Axis(**labels)),
            y=alt.Y("query:N", sort=names, title="reads (query)", axis=alt.Axis(**labels)),
            color=alt.Color("attention:Q", scale=alt.Scale(scheme="viridis", domain=[0, 1]),
                            legend=alt.Legend(title="mean attention", orient="top", gradientLength=200)),
            tooltip=["map:N", "seed:N", "query:N", "key:N", alt.Tooltip("attention:Q", format=".3f")],
        )
        .properties(width=size, height=size)
    )  # fmt: skip
    maps = [f"{found.name}|head {head + 1}" for found in shown for head in range(found.configuration.heads)]
    header = alt.Header(labelExpr="split(datum.label, '|')", labelAngle=0, labelAlign="left", labelLimit=0)
    chart = (
        alt.layer(cells, data=data_url("attention", types))
        .facet(
            row=alt.Row("map:N", title=None, sort=maps, header=header),
            column=alt.Column("seed:N", title=None, sort=None),
        )
        .add_params(sequences)
    )
    return chart, attention_rows(run, config, shown)


ATTENTION = Figure("attention", base, _draw)
