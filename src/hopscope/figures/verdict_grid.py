"""Every claim under every reading of what a source leaves open, at one glance: a specification curve for verdicts.

After Simonsohn, Simmons and Nelson (2020), Specification curve analysis, Nature Human Behaviour 4, 1208–1214: all
defensible ways to analyse are shown beside each other, and not the one that was chosen.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import altair as alt

from hopscope.claims import Claim, Verdict, judge, wording
from hopscope.figures import Drawing
from hopscope.figures.marks import broken_labels, in_lines, table
from hopscope.figures.rows import Row

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

COLOURS = {"reproduced": "#0b5f97", "refuted": "#a23c00", "inconclusive": "#c9a227", "not run": "#d5dae0"}


def verdict_grid(name: str, claims: Iterable[Claim], evidence: "Evidence") -> Drawing:
    """Readings in rows, claims in columns, and the verdict of each claim under each of its readings.

    Args:
        name: of the figure.
        claims: those that were not run, or have one reading alone, are left out.
        evidence: of the run.

    Returns:
        The chart and its rows: `claim`, `reading`, `verdict`, `sign`, `n` and `words`, one for each cell.
    """
    rows = verdict_rows(claims, evidence)
    readings, ids = ([*dict.fromkeys(str(row[key]) for row in rows)] for key in ("reading", "claim"))
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=[*COLOURS], range=[*COLOURS.values()]),
        legend=alt.Legend(title=None, orient="top"),
    )
    base = alt.Chart(table(name, "claim reading verdict sign words", "n")).encode(
        x=alt.X("claim:N", sort=ids, title=None, axis=alt.Axis(labelAngle=0, orient="top", ticks=False)),
        y=alt.Y("reading:N", sort=readings, title=None, axis=broken_labels()),
        tooltip=["claim:N", "reading:N", "verdict:N", "n:Q", "words:N"],
    )
    ink = alt.condition("datum.verdict == 'not run'", alt.value("#333333"), alt.value("white"))
    cells = base.mark_rect(stroke="white", strokeWidth=2).encode(color=colour)
    signs = base.mark_text(fontSize=12, fontWeight="bold").encode(text="sign:N", color=ink)
    return (cells + signs).properties(width=alt.Step(32), height=alt.Step(30)), rows


def verdict_rows(claims: Iterable[Claim], evidence: "Evidence") -> list[Row]:
    """One row for each claim that was run and has several readings, and each of them, in the order of the claims."""
    return [
        {
            "claim": judged.id,
            "reading": in_lines(reading, 34),
            "verdict": str(found.verdict),
            "sign": wording.SYMBOLS[str(found.verdict)],
            "n": found.n,
            "words": found.words,
        }
        for judged in (judge(claim, evidence) for claim in claims)
        if len(judged.readings) > 1 and judged.verdict is not Verdict.NOT_RUN
        for reading, found in judged.readings.items()
    ]
