"""Curves of training: the loss, and the two skills on held-out mappings."""

import math
from typing import TYPE_CHECKING, Any

import altair as alt

from hopscope.runs import RunFolder
from hopscope.studies.figures import data_url
from hopscope.studies.marks import QUIET_INK, colour, facet, on, within
from hopscope.studies.permutation.config import PermutationStudyConfig
from hopscope.studies.permutation.figures.common import SKILLS, Figure, base
from hopscope.studies.permutation.figures.floors import floors
from hopscope.studies.rows import WIDTH, Curve, Drawn, Row, short, thinned, thinning

if TYPE_CHECKING:
    from hopscope.studies.permutation.evidence import Evidence


def averaged(curve: Curve, every: int) -> Curve:
    """A curve of means since the point before, with `every` of them taken together, counted from its last one.

    A point remains the mean over all that was trained since the point before it.
    """
    samples, values = curve
    starts = [0.0, *samples[:-1]]
    kept_samples: list[float] = []
    kept_values: list[float] = []
    for end in range(len(samples) - 1, -1, -every):
        group = range(max(0, end - every + 1), end + 1)
        weights = [samples[place] - starts[place] for place in group]
        total = math.fsum(weight * values[place] for weight, place in zip(weights, group, strict=True))
        kept_samples.insert(0, samples[end])
        kept_values.insert(0, total / math.fsum(weights))
    return kept_samples, kept_values


def loss_rows(config: PermutationStudyConfig, shown: "list[Evidence]") -> list[Row]:
    """Training losses by seed, then the floors, whose `kind` is their name."""
    every = thinning([curve for found in shown for curve in found.curves["train/loss"]])
    rows: list[Row] = [
        {"kind": "loss", "configuration": found.name, "seed": seed, "samples": int(samples), "loss": short(loss)}
        for found in shown
        for seed, curve in zip(found.seeds, found.curves["train/loss"], strict=True)
        for samples, loss in zip(*averaged(curve, every), strict=True)
    ]  # fmt: skip
    return rows + [{"kind": name, "loss": round(value, 5)} for name, value in floors(config).items()]


def _draw_loss(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = dict.fromkeys(("kind", "configuration"), "string")
    types |= dict.fromkeys(("seed", "samples", "loss"), "number")
    names = [found.name for found in shown]
    levels = floors(config).values()
    low, high = min(levels) - 0.02, max(max(levels) + 0.05, min(levels) + 0.33)
    scale = alt.Scale(domain=[low, high], nice=False)
    samples = alt.X(
        "samples:Q",
        title="training samples per seed",
        axis=alt.Axis(format="~s"),
        scale=alt.Scale(zero=True, nice=False),
    )
    loss = alt.Y(title="training loss (nats per answer)", scale=scale)
    lines = (
        alt.Chart()
        .transform_filter("datum.kind == 'loss'")
        .transform_calculate(shown=within("loss", low, high))
        .mark_line(strokeWidth=1, strokeOpacity=0.7)
        .encode(x=samples, y=on(loss, "shown"), color=colour("configuration", names), detail="seed:N",
                tooltip=["configuration:N", "seed:N", "samples:Q", "loss:Q"])
    )  # fmt: skip
    floor = alt.Chart().transform_filter("datum.kind != 'loss'")
    rule = floor.mark_rule(strokeDash=[5, 4], color=QUIET_INK).encode(y=on(loss, "loss"))
    named = floor.transform_calculate(label="datum.kind + ' ' + format(datum.loss, '.4f')").encode(
        y=on(loss, "loss"), x=alt.value(WIDTH), text="label:N"
    )
    place: dict[str, Any] = {"align": "right", "baseline": "top", "dx": -4, "dy": 4}
    # The curves run through the labels; a white edge keeps these readable.
    edge = named.mark_text(**place, stroke="#ffffff", strokeWidth=4, strokeJoin="round")
    label = named.mark_text(**place, color="#333")
    layers = alt.layer(lines, rule, edge, label, data=data_url("loss", types))
    return layers.properties(width=WIDTH, height=320), loss_rows(config, shown)


def skill_rows(shown: "list[Evidence]") -> list[Row]:
    """Both skills by seed and samples."""
    curves = {skill: [found.curves[f"held_out/{skill}"] for found in shown] for skill in SKILLS}
    every = thinning([curve for of_members in curves["recall"] for curve in of_members])
    rows: list[Row] = []
    for place, found in enumerate(shown):
        pairs = zip(*(curves[skill][place] for skill in SKILLS), strict=True)
        for seed, (elimination, recall) in zip(found.seeds, pairs, strict=True):
            columns = {"configuration": found.name, "seed": seed}
            _, recalled = thinned(recall, every)
            rows += [
                {**columns, "samples": int(at), "elimination": short(eliminated), "recall": short(of_repeats)}
                for at, eliminated, of_repeats in zip(*thinned(elimination, every), recalled, strict=True)
            ]
    return rows


def _draw_skills(run: RunFolder, config: PermutationStudyConfig, shown: "list[Evidence]") -> Drawn:
    types = {"configuration": "string", **dict.fromkeys(("seed", "samples", *SKILLS), "number")}
    lines = (
        alt.Chart()
        .transform_fold(list(SKILLS), as_=["skill", "accuracy"])
        .mark_line(strokeWidth=1, strokeOpacity=0.7)
        .encode(
            x=alt.X("samples:Q", title="training samples per seed", axis=alt.Axis(format="~s", tickCount=5),
                    scale=alt.Scale(zero=True, nice=False)),
            y=alt.Y("accuracy:Q", title="held-out accuracy", axis=alt.Axis(format="%", tickCount=6),
                    scale=alt.Scale(domain=[0, 1])),
            color=colour("skill", SKILLS),
            detail="seed:N",
            tooltip=["configuration:N", "skill:N", "seed:N", "samples:Q", "accuracy:Q"],
        )
        .properties(width=265, height=170)
    )  # fmt: skip
    chart = alt.layer(lines, data=data_url("skills", types))
    return chart.facet(facet("configuration", [found.name for found in shown]), columns=2), skill_rows(shown)


LOSS = Figure("loss", base, _draw_loss)
SKILL_CURVES = Figure("skills", base, _draw_skills)
