"""Draws the picture of docs/training_fails.md: the curves of a committed run by what failed."""

from pathlib import Path

import altair
import pandas as pd
import vl_convert
from table_makers.common import evidence_of, study_of

from hopscope.page.facts import symbol
from hopscope.studies.chains.evidence import LEARNED
from hopscope.studies.first_steps.study import diagnosed

RUN, TO = "depth/laptop", Path(__file__).resolve().parent / "failures.png"
SHOWN = ["learned", "early plateau", "only induction heads", "long chains fail"]


def curves() -> pd.DataFrame:
    """Held-out losses of every member and symbol, with the signature of the member."""
    study, evidence, rows = study_of(RUN), evidence_of(RUN), []
    models = {each.label: study.of(each) for each in study.grid()}
    for member, label in evidence.configurations.items():
        own, found = models[label], dict[int, pd.Series]()
        for metric in evidence.metrics:
            if metric.startswith("loss_step_"):
                curve = evidence.where(member=member).rows(metric, measure="training")
                if len(curve := curve.set_index("step")["value"].sort_index()):
                    found[int(metric.removeprefix("loss_step_"))] = curve
        signature, _ = diagnosed(own.task, own.model, {step: [*curve] for step, curve in found.items()})
        rows += [
            {
                "signature": signature,
                "symbol": symbol(step),
                "curve": f"{member} {step}",
                "step": at,
                "loss": loss,
            }
            for step, curve in found.items()
            for at, loss in curve.items()
        ]
    return pd.DataFrame(rows)


def chart(frame: pd.DataFrame) -> altair.FacetChart:
    """A small chart for each signature: a line for each member and symbol, and the level that counts as learned."""
    colours = altair.Scale(range=["#d55e00", "#0072b2", "#009e73"])
    lines = altair.Chart().mark_line(opacity=0.55, strokeWidth=1.4, clip=True)
    lines = lines.encode(
        x=altair.X("step:Q", title="training step", axis=altair.Axis(tickCount=3)),
        y=altair.Y("loss:Q", title="held-out loss", scale=altair.Scale(domain=[0, 1])),
        color=altair.Color("symbol:N", title=None, scale=colours),
        strokeDash=altair.StrokeDash("symbol:N", title=None),
        detail="curve:N",
    ).properties(width=210, height=150)
    level = altair.Chart().mark_rule(color="#59636e", strokeDash=[2, 3]).encode(y=altair.datum(LEARNED))
    facet = altair.Facet("signature:N", title=None, sort=SHOWN)
    data = frame[frame["signature"].isin(SHOWN)]
    return altair.layer(lines, level, data=data).facet(facet, columns=2)


if __name__ == "__main__":
    altair.data_transformers.disable_max_rows()
    found = curves()
    print(found.drop_duplicates(["signature", "curve"]).assign(member=lambda each: each["curve"].str.split().str[0])
          .groupby("signature")["member"].nunique().to_string())  # fmt: skip
    TO.write_bytes(vl_convert.vegalite_to_png(chart(found).to_json(), scale=1.5))
