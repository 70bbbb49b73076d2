"""The three first experiments that the summary of the paper proposes, at a size for two minutes on a laptop.

1. Four layers and chains of two steps, with and without the implicit curriculum.
2. Which heads of such a model are used?
3. Chains of one and two steps against layers: how deep is deep enough, and what does a failure look like?
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.diagnosis import LEARNED, diagnosed
from hopscope.studies.quick import (
    QUICK,
    QUICK_TRAINING,
    SHARE_SEEDS,
    SMOKE,
    between_seeds,
    smaller_than,
    smallest_depths,
)
from hopscope.words import counted, symbol

MODEL = QUICK
TRAINING = QUICK_TRAINING.model_copy(update={"steps": 400})

STEPS, LAYERS, HEADS = 2, MODEL.layers, MODEL.heads
"""Steps of the chains, layers and heads of the first two experiments."""

USED = 0.05
"""A head is used if without it the loss of some symbol rises by this much; the plateau lies at 0.75."""

SOURCE = "summary of the paper, first experiments"


class Options(Config):
    """The grid of the third experiment.

    Attributes:
        layers: numbers of layers.
        most_steps: longest chain.
    """

    layers: tuple[int, ...] = (1, 2, 3, 4)
    most_steps: int = 2


def label(steps: int, layers: int, targets: str = "ic") -> str:
    """What a configuration is called."""
    return f"D={steps}, {counted(layers, 'layer')}" + ("" if targets == "ic" else f", {symbol(steps)} alone")


WITH, WITHOUT = label(STEPS, LAYERS), label(STEPS, LAYERS, "last")
"""The two models of the first experiment."""


def configurations(options: Options) -> list[hs.Configuration]:
    """Both models of the first experiment, and the grid of the third."""
    grid = [(steps, layers) for steps in range(1, options.most_steps + 1) for layers in options.layers]
    cells = [(STEPS, LAYERS, "ic"), (STEPS, LAYERS, "last"), *((*each, "ic") for each in grid)]
    return [
        hs.Configuration(
            label=label(*cell),
            overrides=dict(zip(("task.steps", "model.layers", "task.targets"), cell, strict=True)),
        )
        for cell in dict.fromkeys(cells)
    ]


# What is measured beside the losses.


@hs.measure
def rises(context: hs.Context) -> Iterator[dict[str, Any]]:
    """How much the loss of each symbol rises without each head, and the share of heads that are used.

    Measured of the first experiment's model alone.  Metrics `rise` (by layer, head and symbol), `heads_used` and
    `largest_rise`.
    """
    import torch

    job = _job(context)
    if (job.task.steps, job.model.layers, job.task.targets) != (STEPS, LAYERS, "ic"):
        return
    names = [f"loss_step_{step}" for step in job.task.asked]
    losses = context.task.losses(context.ensemble(context.held_out.inputs), context.held_out)
    largest: dict[tuple[int, int], Any] = {}
    for row in hs.measures.head_ablation.function(context):
        metric = row["metric"].removesuffix("_without_head")
        if metric in names:
            rise = row["value"] - losses[metric]
            place = (row["layer"], row["head"])
            largest[place] = torch.maximum(largest.get(place, rise), rise)
            yield {**row, "metric": "rise", "part": metric.removeprefix("loss_"), "value": rise}
    rises = torch.stack([*largest.values()])
    yield {"metric": "heads_used", "value": (rises >= USED).double().mean(0)}
    yield {"metric": "largest_rise", "value": rises.amax(0)}


@hs.measure
def signatures(context: hs.Context) -> Iterator[dict[str, Any]]:
    """Which known failure each member shows, and the likely cause (`hopscope diagnose`).

    Metrics `signature` and `cause`, 1 for the part that applies and 0 for the others; a member that learned all that it
    was asked for has no cause.
    """
    from hopscope.runs.metrics import read_metrics

    assert context.unit is not None
    job = _job(context)
    table = read_metrics(context.unit.path).to_pandas()
    table = table[table["split"] == "held_out"]
    found = []
    for member in context.members:
        curves = table[table["member"] == member].groupby("metric")["value"]
        losses = {step: tuple(curves.get_group(f"loss_step_{step}")) for step in job.task.asked}
        signature, _, cause = diagnosed(job, losses)
        found.append((signature, cause.split(":")[0]))
    for metric, names, place in (("signature", SIGNATURES, 0), ("cause", CAUSES, 1)):
        for name in names:
            yield {"metric": metric, "part": name, "value": [float(each[place] == name) for each in found]}


def _job(context: hs.Context) -> Any:
    """What the members were trained by."""
    from hopscope.training.config import job_of

    assert context.unit is not None
    return job_of(context.unit)


SIGNATURES = ("learned", "early plateau", "only induction heads", "long chains fail")
CAUSES = ("too few layers", "no curriculum", "still falling", "not found")


# What is claimed.


def smaller_scale(evidence: Any) -> str:
    """What a run lacks of the study as it is written, in words."""
    return smaller_than(evidence, TRAINING.steps, MODEL.width)


def final_losses(targets: str) -> Any:
    """A function of the evidence: final loss of x₂ of the first experiment's models, `[member]`."""
    return lambda evidence: evidence.last(
        f"loss_step_{STEPS}", **{"task.steps": STEPS, "model.layers": LAYERS, "task.targets": targets}
    )


def of_learned(metric: str) -> Any:
    """A function of the evidence: a metric of the models with the curriculum; none for those that did not learn x₂."""
    return lambda evidence: evidence.last(metric, configuration=WITH).where(
        final_losses("ic")(evidence) < LEARNED
    )


def needed(evidence: Any) -> dict[int, dict[int, float]]:
    """Seed → D → the smallest number of layers that learned x_D; infinite where none did, NaN where one diverged."""
    options = Options.model_validate(evidence.config["options"])
    found: dict[int, dict[int, float]] = {}
    for steps in range(1, options.most_steps + 1):
        labels = {layers: label(steps, layers) for layers in options.layers}
        for seed, layers in smallest_depths(evidence, labels, steps).items():
            found.setdefault(seed, {})[steps] = layers
    return found


def growth(evidence: Any) -> hs.Samples:
    """By seed: layers that the longest chain it learned took, less those that chains of one step took."""
    grown = []
    for layers in needed(evidence).values():
        learned = [most for most in layers.values() if not math.isinf(most)]
        grown.append(learned[-1] - layers[1] if learned and not math.isinf(layers[1]) else math.nan)
    return hs.Samples(grown, unit="seed")


def seeds_apart(evidence: Any) -> hs.Samples:
    """By seed: layers that chains of one step took, and how many more or fewer the next seed took."""
    return between_seeds({seed: layers[1] for seed, layers in needed(evidence).items()})


CLAIMS = [
    hs.Claim(
        id="F1",
        statement="With the implicit curriculum, four layers learn chains of two steps.",
        source=f"{SOURCE} 1",
        protocol="final held-out loss of x₂, four layers, every seed; the control is asked for x₂ alone",
        value=final_losses("ic"),
        must=hs.at_most(LEARNED),
        seeds_needed=SHARE_SEEDS,
        at_scale=smaller_scale,
        controls={"asked for x₂ alone": final_losses("last")},
        must_not=hs.at_most(LEARNED),
    ),
    hs.Claim(
        id="F2",
        statement="Without the implicit curriculum, the same models stay on the plateau.",
        source=f"{SOURCE} 1",
        protocol="final held-out loss of x₂ of models that are asked for x₂ alone, every seed; the plateau is 0.75, "
        "and the threshold that of the paper's section 7.2",
        value=final_losses("last"),
        must=hs.at_least(0.7),
        seeds_needed=SHARE_SEEDS,
        at_scale=smaller_scale,
        controls={"asked for the whole chain": final_losses("ic")},
        must_not=hs.at_least(0.7),
    ),
    hs.Claim(
        id="F3",
        statement="Only a few heads are used; most are redundant.",
        source=f"{SOURCE} 2",
        protocol="share of the heads without which the loss of some symbol rises by 0.05, of models that learned x₂, "
        "mean over seeds",
        value=of_learned("heads_used"),
        must=hs.at_most(0.5, unit="fraction"),
        rule="mean",
        seeds_needed=SHARE_SEEDS,
        at_scale=smaller_scale,
        controls={"largest rise of the loss without one head": of_learned("largest_rise")},
        must_not=hs.at_most(USED),
    ),
    hs.Claim(
        id="F4",
        statement="Longer chains need more layers.",
        source=f"{SOURCE} 3",
        protocol="by seed: smallest number of layers that learned x_D, of the longest chain that some depth learned, "
        "less that of chains of one step; what no depth learned counts for nothing",
        value=growth,
        must=hs.at_least(1.0, unit="layers"),
        rule="mean",
        seeds_needed=SHARE_SEEDS,
        at_scale=smaller_scale,
        controls={"chains of one step, from one seed to the next": seeds_apart},
        must_not=hs.at_least(1.0, unit="layers"),
    ),
]  # fmt: skip


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """One figure for each experiment."""
    marks = (Mark(0.75, "plateau"), Mark(LEARNED, "learned"))
    loss = Axis("held-out loss", (0.0, 1.1))
    curriculum = [
        Series(f"loss_step_{step}", symbol(step), panel=words, where={"configuration": each})
        for words, each, asked in (
            ("with the implicit curriculum", WITH, range(1, STEPS + 1)),
            (f"{symbol(STEPS)} alone", WITHOUT, [STEPS]),
        )
        for step in asked
    ]
    depths = [
        Series(
            f"loss_step_{steps}",
            x=layers,
            y=steps,
            where={"configuration": label(steps, layers)},
            outline="fewer layers than needed" if layers < exact(steps) else "",
        )
        for steps in range(options.most_steps, 0, -1)
        for layers in options.layers
    ]
    return (
        hs.figures.lines("curriculum", curriculum, loss, marks=marks),
        hs.figures.chart("heads", heads_chart),
        hs.figures.cells("depths", depths, Axis("loss of x_D", (0.0, 0.8)), across=Axis("layers"), down="D"),
    )


def heads_chart(evidence: Any) -> tuple[Any, list[dict[str, Any]]]:
    """How much the loss rises without a head: a point for each head, seed and symbol, in the row of its layer."""
    import altair as alt

    from hopscope.figures.marks import table

    rows = [
        {
            "layer": f"layer {row.layer}",
            "symbol": symbol(int(row.part.removeprefix("step_"))),
            "seed": evidence.seeds[row.member],
            "head": row.head,
            "rise": row.value,
        }
        for row in (evidence.rows("rise").itertuples() if "rise" in evidence else ())
        if not math.isnan(row.value)
    ]
    rises = [row["rise"] for row in rows]
    ends = [min(0.0, *rises, 0.0), max(1.0, *rises, 1.0)]
    data = table("heads", "layer symbol", "seed head rise")
    points = (
        alt.Chart(data)
        .mark_point(filled=True, size=45, opacity=0.6)
        .encode(
            x=alt.X("rise:Q", title="rise of the loss without the head", scale=alt.Scale(domain=ends)),
            y=alt.Y("layer:N", title=None),
            yOffset="symbol:N",
            color=alt.Color("symbol:N", title=None),
            tooltip=["layer:N", "head:Q", "seed:Q", "symbol:N", "rise:Q"],
        )
    )
    used = alt.Chart(data).mark_rule(strokeDash=[4, 4]).encode(x=alt.datum(USED))
    return alt.layer(points, used, data=data).properties(width=520, height=alt.Step(34)), rows


def exact(steps: int) -> int:
    """The exact minimum of layers for x_D (`hopscope theory`)."""
    from hopscope.theory.information_flow import layers_per_step

    return layers_per_step(steps, "causal", "deepest-first")[steps]


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "exact": exact, "with_curriculum": WITH, "without": WITHOUT, "used": USED,
        "learned_below": LEARNED, "all_heads": LAYERS * HEADS, "signatures": SIGNATURES, "causes": CAUSES,
    }  # fmt: skip


study = hs.Study(
    name="first-steps",
    question="three first experiments: what the curriculum does, which heads are used, and how deep is deep enough",
    task=hs.tasks.Retrieval(steps=STEPS, chains=4, position="pair"),
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=2,
    measures=[rises, signatures],
    claims=CLAIMS,
    figures=figures,
    presets={
        "smoke": {**SMOKE, "options.layers": (1, 4)},
        "laptop": {},
    },
    costs={"smoke": "under a minute on two cores", "laptop": "under two min on two cores"},
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
