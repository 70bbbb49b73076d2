"""Draws the picture of `docs/training_fails.md`: the curves of a committed run by what failed."""

from pathlib import Path

import altair
import pandas as pd
import vl_convert

import hopscope
from hopscope.studies.diagnosis import LEARNED, diagnoses
from hopscope.words import symbol

DOCS = Path(__file__).resolve().parent
RUN, TO = DOCS / "results" / "depth" / "laptop", DOCS / "failures.png"
SHOWN = ["learned", "early plateau", "only induction heads", "long chains fail"]


def curves(run: Path) -> pd.DataFrame:
    """Held-out losses of every member and symbol, with the signature of the member."""
    rows = [
        {"signature": found.signature, "symbol": symbol(step), "curve": f"{found.member} {step}"}
        | {"step": at, "loss": loss}
        for found in diagnoses(hopscope.open_run(run))
        for step, losses in found.curves.items()
        for at, loss in zip(found.steps, losses, strict=True)
        if found.signature in SHOWN
    ]
    return pd.DataFrame(rows)


def chart(frame: pd.DataFrame) -> altair.FacetChart:
    """A small chart for each signature: a line for each member and symbol, and the level that counts as learned."""
    lines = (
        altair.Chart()
        .mark_line(opacity=0.55, strokeWidth=1.4, clip=True)
        .encode(
            x=altair.X("step:Q", title="training step", axis=altair.Axis(tickCount=3)),
            y=altair.Y("loss:Q", title="held-out loss", scale=altair.Scale(domain=[0, 1])),
            color=altair.Color(
                "symbol:N", title=None, scale=altair.Scale(range=["#d55e00", "#0072b2", "#009e73"])
            ),
            strokeDash=altair.StrokeDash("symbol:N", title=None),
            detail="curve:N",
        )
        .properties(width=210, height=150)
    )
    level = altair.Chart().mark_rule(color="#59636e", strokeDash=[2, 3]).encode(y=altair.datum(LEARNED))
    facet = altair.Facet("signature:N", title=None, sort=SHOWN)
    return altair.layer(lines, level, data=frame).facet(facet, columns=2)


if __name__ == "__main__":
    altair.data_transformers.disable_max_rows()
    TO.write_bytes(vl_convert.vegalite_to_png(chart(curves(RUN)).to_json(), scale=1.5))
