"""The three first experiments that the summary of the paper proposes, at a size for two minutes on a laptop.

1. Four layers and chains of two steps, with and without the implicit curriculum.
2. Which heads of such a model are used?
3. Chains of one and two steps against layers: how deep is deep enough, and what does a failure look like?
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.diagnosis import diagnosed
from hopscope.studies.chains.evidence import (
    LEARNED,
    SHARE_SEEDS,
    between_seeds,
    smaller_than,
    smallest_depths,
    symbol,
)
from hopscope.studies.chains.measures import explorer, least_layers
from hopscope.studies.chains.recipe import QUICK, QUICK_TRAINING, chains_of
from hopscope.study import measures
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

TRAINING = QUICK_TRAINING.model_copy(update={"steps": 400})

STEPS, LAYERS = 2, QUICK.layers
"""Steps of the chains, and layers, of the first two experiments."""

USED = 0.05
"""A head is used if without it the loss of some symbol rises by this much; the plateau lies at 0.75."""


class Options(Config):
    """The grid of the third experiment.

    Attributes:
        layers: numbers of layers.
        most_steps: longest chain.
    """

    layers: tuple[int, ...] = (1, 2, 3, 4)
    most_steps: int = Field(2, ge=1, le=100)


def label(steps: int, layers: int, targets: str = "ic") -> str:
    """What a configuration is called."""
    return f"D={steps}, {counted(layers, 'layer')}" + ("" if targets == "ic" else f", {symbol(steps)} alone")


WITH, WITHOUT = label(STEPS, LAYERS), label(STEPS, LAYERS, "last")
"""The two models of the first experiment."""


def configurations(options: Options) -> list[Configuration]:
    """Both models of the first experiment, and the grid of the third."""
    grid = [(steps, layers, "ic") for steps in range(1, options.most_steps + 1) for layers in options.layers]
    cells = dict.fromkeys([(STEPS, LAYERS, "ic"), (STEPS, LAYERS, "last"), *grid])
    names = ("task.steps", "model.layers", "task.targets")
    return [
        Configuration(label=label(*each), overrides=dict(zip(names, each, strict=True))) for each in cells
    ]


# What is measured beside the losses.


@measure
def rises(context: Context) -> Iterator[dict[str, Any]]:
    """How much the loss of each symbol rises without each head, and the share of heads that are used.

    Measured of the first experiment's model alone.  Metrics `rise` (by layer, head and symbol), `heads_used` and
    `largest_rise`.
    """
    import torch

    from hopscope.tasks import losses

    if context.job.label != WITH:
        return
    whole = losses(context.task, context.ensemble(context.held_out.inputs), context.held_out)
    largest: dict[tuple[int, int], Any] = {}
    for row in measures.head_ablation(context):
        metric, place = row["metric"].removesuffix("_without_head"), (row["layer"], row["head"])
        if metric.startswith("loss_"):
            rise = row["value"] - whole[metric]
            largest[place] = torch.maximum(largest.get(place, rise), rise)
            yield {**row, "metric": "rise", "part": metric.removeprefix("loss_"), "value": rise}
    every = torch.stack([*largest.values()])
    yield {"metric": "heads_used", "value": (every >= USED).double().mean(0)}
    yield {"metric": "largest_rise", "value": every.amax(0)}


@measure
def signatures(context: Context) -> Iterator[dict[str, Any]]:
    """Which known failure each member shows, and the likely cause.

    Metrics `signature` and `cause`, 1 for the part that applies and 0 for the others; a member that learned all that it
    was asked for has no cause.
    """
    asked: dict[str, int] = context.task.asked  # type: ignore[attr-defined]
    curves = {step: context.evidence.curve(f"loss_{name}") for name, step in asked.items()}
    found = [
        diagnosed(
            context.task,  # type: ignore[arg-type]
            context.job.model,
            {step: curve[member].dropna().tolist() for step, curve in curves.items()},
        )
        for member in context.members
    ]
    for metric, names, place in (("signature", SIGNATURES, 0), ("cause", CAUSES, 1)):
        for name in names:
            yield {"metric": metric, "part": name, "value": [float(each[place] == name) for each in found]}


SIGNATURES = ("learned", "early plateau", "only induction heads", "long chains fail")
CAUSES = ("too few layers", "no curriculum", "still falling", "not found")


# What is claimed.


def smaller_scale(evidence: "Evidence") -> str:
    """What a run lacks of the study as it is written, in words."""
    return smaller_than(evidence, TRAINING.steps, QUICK.width)


def final_losses(configuration: str) -> Callable[["Evidence"], Any]:
    """A function of the evidence: final loss of x₂ of one of the first experiment's models, `[member]`."""
    return lambda evidence: evidence.last(f"loss_step_{STEPS}", configuration=configuration)


def of_learned(metric: str) -> Callable[["Evidence"], Any]:
    """A function of the evidence: a metric of the models with the curriculum; none for those that did not learn x₂."""
    return lambda evidence: evidence.last(metric, configuration=WITH).where(
        final_losses(WITH)(evidence) < LEARNED
    )


def needed(options: Options, evidence: "Evidence") -> dict[int, dict[int, float]]:
    """Seed → D → the smallest number of layers that learned x_D; infinite where none did, NaN where one diverged."""
    found: dict[int, dict[int, float]] = {}
    for steps in range(1, options.most_steps + 1):
        labels = {layers: label(steps, layers) for layers in options.layers}
        for seed, layers in smallest_depths(evidence, labels, steps).items():
            found.setdefault(seed, {})[steps] = layers
    return found


def growth(options: Options, evidence: "Evidence") -> Samples:
    """By seed: layers that the longest chain it learned took, less those that chains of one step took."""
    grown = []
    for layers in needed(options, evidence).values():
        learned = [most for most in layers.values() if not math.isinf(most)]
        grown.append(learned[-1] - layers[1] if learned and not math.isinf(layers[1]) else math.nan)
    return Samples(grown, unit="seed")


def seeds_apart(options: Options, evidence: "Evidence") -> Samples:
    """By seed: layers that chains of one step took, and how many more or fewer the next seed took."""
    return between_seeds({seed: layers[1] for seed, layers in needed(options, evidence).items()})


def claims(options: Options) -> list[Claim]:
    """What the summary of the paper says of the first experiments."""
    source = "summary of the paper, first experiments"
    claim = partial(Claim, seeds_needed=SHARE_SEEDS, at_scale=smaller_scale)
    return [
        claim(
            id="F1",
            statement="With the implicit curriculum, four layers learn chains of two steps.",
            source=f"{source} 1",
            protocol="final held-out loss of x₂, four layers, every seed; the control is asked for x₂ alone",
            value=final_losses(WITH),
            must=at_most(LEARNED),
            controls={"asked for x₂ alone": final_losses(WITHOUT)},
            must_not=at_most(LEARNED),
        ),
        claim(
            id="F2",
            statement="Without the implicit curriculum, the same models stay on the plateau.",
            source=f"{source} 1",
            protocol="final held-out loss of x₂ of models that are asked for x₂ alone, every seed; the plateau is "
            "0.75, and the threshold that of the paper's section 7.2",
            value=final_losses(WITHOUT),
            must=at_least(0.7),
            controls={"asked for the whole chain": final_losses(WITH)},
            must_not=at_least(0.7),
        ),
        claim(
            id="F3",
            statement="Only a few heads are used; most are redundant.",
            source=f"{source} 2",
            protocol="share of the heads without which the loss of some symbol rises by 0.05, of models that learned "
            "x₂, mean over seeds",
            value=of_learned("heads_used"),
            must=at_most(0.5, unit="fraction"),
            rule="mean",
            controls={"largest rise of the loss without one head": of_learned("largest_rise")},
            must_not=at_most(USED),
        ),
        claim(
            id="F4",
            statement="Longer chains need more layers.",
            source=f"{source} 3",
            protocol="by seed: smallest number of layers that learned x_D, of the longest chain that some depth "
            "learned, less that of chains of one step; what no depth learned counts for nothing",
            value=partial(growth, options),
            must=at_least(1.0, unit="layers"),
            rule="mean",
            controls={"chains of one step, from one seed to the next": partial(seeds_apart, options)},
            must_not=at_least(1.0, unit="layers"),
        ),
    ]


# What is drawn.


def depth_rows(options: Options, evidence: "Evidence") -> list[dict[str, Any]]:
    """For each depth and chain: the final loss of its last symbol."""
    cells = [(steps, layers) for steps in range(options.most_steps, 0, -1) for layers in options.layers]
    return [
        {"D": steps, "layers": layers, "member": member, "seed": evidence.seeds[member], "value": loss}
        for steps, layers in cells
        for member, loss in evidence.last(f"loss_step_{steps}", configuration=label(steps, layers)).items()
    ]


def figures(options: Options) -> list[charts.Figure]:
    """One figure for each experiment."""
    both = {WITH: "with the implicit curriculum", WITHOUT: f"{symbol(STEPS)} alone"}
    return [
        charts.curves(["loss_step_1", "loss_step_2"], by="metric", panel="configuration", name="curriculum",
                      where={"configuration": [*both]}, names=both,
                      levels={"learned": LEARNED, "plateau": 0.75}, ends=(0.0, 1.1), title="held-out loss"),
        charts.dots("rise", "layer", by="part", where={"head": ...}, name="heads", levels={"used": USED},
                    title="rise of the loss without the head"),
        charts.cells("loss", "layers", "D", rows=partial(depth_rows, options), name="depths", ends=(0.0, 0.8),
                     title="loss of x_D"),
    ]  # fmt: skip


study = Study(
    name="first-steps",
    question="three first experiments: what the curriculum does, which heads are used, and how deep is deep enough",
    task=chains_of(STEPS),
    model=QUICK,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=2,
    measures=(rises, signatures, least_layers, explorer),
    claims=claims,
    figures=figures,
    presets={"smoke": {"seeds": 2, "training.steps": 40, "model.width": 64, "layers": (1, 4)}, "laptop": {}},
    costs={"smoke": "under a minute on two cores", "laptop": "two to three min on two cores"},
    page="page.md.j2",
    held_out=512,
)
