"""The figure of hops beyond chance, by definition and text."""

from typing import TYPE_CHECKING, Any

import hopscope as hs
from hopscope.language.corpus.hops import LIMIT
from hopscope.studies.natural.counting import DEFINITIONS, by_block

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

CAPTION = """Share of tokens that need so many hops, beyond chance: a point for each text.  Each definition has a scale
of its own; the line is at zero, what the same words in random order do."""


def beyond() -> "hs.figures.Figure":
    """A figure `beyond` with a chart for each definition, and a point for each text and number of hops."""
    return hs.figures.chart(
        "beyond", _drawn, CAPTION, "Points by number of hops, falling towards zero or below."
    )


def _drawn(evidence: "Evidence") -> tuple[Any, list[dict[str, Any]]]:
    import altair as alt

    from hopscope.figures.marks import QUIET_INK, apart, table

    rows: list[dict[str, Any]] = [
        {"definition": definition.name, "text": text, "hops": str(hop), "excess": sum(each) / len(each)}
        for definition in DEFINITIONS
        for hop in range(1, LIMIT + 1)
        for text, each in by_block(evidence, f"excess_{hop}", definition.name).items()
    ]
    base = alt.Chart(table("beyond", "definition text hops", "excess"))
    zero = base.mark_rule(color=QUIET_INK).encode(y=alt.datum(0))
    points = base.mark_point(filled=True, size=45).encode(
        x=alt.X("hops:N", title="hops", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("excess:Q", title="beyond chance", axis=alt.Axis(format="~%", tickCount=4)),
        **apart("text", list(dict.fromkeys(row["text"] for row in rows)), "shape"),
        tooltip=["definition:N", "text:N", "hops:N", alt.Tooltip("excess:Q", format=".2%")],
    )
    chart = alt.layer(zero, points).properties(width=100, height=110)
    order = [each.name for each in DEFINITIONS]
    facet = alt.Facet("definition:N", title=None, sort=order)
    return chart.facet(facet, columns=4).resolve_scale(y="independent"), rows
