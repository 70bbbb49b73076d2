"""The three first experiments that the summary of the paper proposes, at a size for two minutes on a laptop.

1. Four layers and chains of two steps, with and without the implicit curriculum.
2. Which heads of such a model are used?
3. Chains of one and two steps against layers: how deep is deep enough, and what does a failure look like?
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hopscope.claims import Claim, Samples, as_large_as, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, SHARE_SEEDS, between_seeds, smallest_depths, symbol
from hopscope.studies.chains.measures import Rows, explorer, least_layers
from hopscope.studies.chains.recipe import QUICK, QUICK_TRAINING, chains_of, exact_layers_of
from hopscope.study import measures
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.models.config import Model
    from hopscope.runs import Evidence
    from hopscope.tasks import Retrieval

TRAINING = QUICK_TRAINING.model_copy(update={"steps": 400})

STEPS, LAYERS = 2, QUICK.layers
"""Steps of the chains, and layers, of the first two experiments."""

USED = 0.05
"""A head is used if without it the loss of some symbol rises by this much; the plateau lies at 0.75."""

FALLING = 0.05
"""A loss that falls by this much over the last quarter of training has not come to rest."""

SIGNATURES = ("learned", "early plateau", "only induction heads", "long chains fail")
CAUSES = ("too few layers", "no curriculum", "still falling", "not found")
"""What the losses of a member show, as the summary of the paper lists it (*failure signatures*), and why."""


class Options(Config):
    """The grid of the third experiment.

    Attributes:
        layers: numbers of layers.
        most_steps: longest chain.
    """

    layers: tuple[int, ...] = (1, 2, 3, 4)
    most_steps: int = Field(2, ge=1, le=100)


def label(steps: int, layers: int, targets: str = "ic") -> str:
    return f"D={steps}, {counted(layers, 'layer')}" + ("" if targets == "ic" else f", {symbol(steps)} alone")


WITH, WITHOUT = label(STEPS, LAYERS), label(STEPS, LAYERS, "last")
"""The two models of the first experiment."""


def configurations(options: Options) -> Iterator[Configuration]:
    grid = [(steps, layers, "ic") for steps in range(1, options.most_steps + 1) for layers in options.layers]
    names = ("task.steps", "model.layers", "task.targets")
    for each in dict.fromkeys([(STEPS, LAYERS, "ic"), (STEPS, LAYERS, "last"), *grid]):
        yield Configuration(label=label(*each), overrides=dict(zip(names, each, strict=True)))


# What is measured beside the losses.


@measure
def rises(context: Context) -> Rows:
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


def diagnosed(task: "Retrieval", model: "Model", losses: Mapping[int, Sequence[float]]) -> tuple[str, str]:
    """The signature of a member, and its likely cause; none for one that learned all that it was asked for.

    `losses`: step that was asked for → held-out losses through training; empty for a member that diverged.
    """
    if not all(losses.values()):
        return "diverged", "not a number"
    learned = [step for step, values in losses.items() if values[-1] < LEARNED]
    left = [step for step in losses if step not in learned]
    if not left:
        return "learned", ""
    first, needed = left[0], exact_layers_of(task.steps, model.causal, task.order)
    enough = model.layers >= needed[first]
    signature = "long chains fail" if learned or (min(losses) > 1 and enough) else "early plateau"
    signature = "only induction heads" if learned == [1] else signature
    if not enough:
        return signature, "too few layers"
    if any(step not in losses for step in range(1, first)):
        return signature, "no curriculum"
    quarter = losses[first][-max(2, len(losses[first]) // 4) :]
    return signature, "still falling" if quarter[0] - quarter[-1] > FALLING else "not found"


@measure
def signatures(context: Context) -> Rows:
    """Known failures of members, and why: metrics `signature` and `cause`, 1 for the part that applies, else 0."""
    task: Any = context.task
    curves = {step: context.evidence.curve(f"loss_{name}") for name, step in task.asked.items()}
    found = []
    for member in context.members:
        losses = {step: curve[member].dropna().tolist() for step, curve in curves.items()}
        found.append(diagnosed(task, context.job.model, losses))
    for place, (metric, names) in enumerate({"signature": SIGNATURES, "cause": CAUSES}.items()):
        for name in names:
            yield {"metric": metric, "part": name, "value": [float(each[place] == name) for each in found]}


# What is claimed.


def final_losses(configuration: str) -> Callable[["Evidence"], Any]:
    """A function of the evidence: final loss of x₂ of one of the first experiment's models, `[member]`."""
    return lambda evidence: evidence.last(f"loss_step_{STEPS}", configuration=configuration)


def of_learned(metric: str) -> Callable[["Evidence"], Any]:
    """A function of the evidence: a metric of the models with the curriculum that learned x₂; of diverged ones NaN."""

    def found(evidence: "Evidence") -> Any:
        losses = final_losses(WITH)(evidence)
        values = evidence.last(metric, configuration=WITH).where(losses < LEARNED)[~(losses >= LEARNED)]
        return values if len(values) else Samples([], note="no model learned x₂")

    return found


def needed(options: Options, evidence: "Evidence", steps: int) -> dict[int, float]:
    """Seed → the smallest number of layers that learned x_D; infinite where none did, NaN where one diverged."""
    return smallest_depths(evidence, {layers: label(steps, layers) for layers in options.layers}, steps)


def growth(options: Options, evidence: "Evidence") -> Samples:
    """By seed: layers that the longest chain it learned took, less those that chains of one step took."""
    first, *longer = (needed(options, evidence, steps) for steps in range(1, options.most_steps + 1))
    grown = []
    for seed, least in first.items():
        learned = [each[seed] for each in longer if not math.isinf(each[seed])]
        grown.append(learned[-1] - least if learned and math.isfinite(least) else math.nan)
    return Samples(grown, unit="seed")


def seeds_apart(options: Options, evidence: "Evidence") -> Samples:
    """By seed: layers that chains of one step took, and how many more or fewer the next seed took."""
    return between_seeds(needed(options, evidence, 1))


def claims(options: Options, study: Any) -> Iterator[Claim]:
    source = "summary of the paper, first experiments"
    lacks = as_large_as({"training.steps": TRAINING.steps, "model.width": QUICK.width})
    claim = partial(Claim, seeds_needed=SHARE_SEEDS, at_scale=lacks)
    yield claim(
        id="F1",
        statement="With the implicit curriculum, four layers learn chains of two steps.",
        source=f"{source} 1",
        protocol="final held-out loss of x₂, four layers, every seed; the control is asked for x₂ alone",
        value=final_losses(WITH),
        must=at_most(LEARNED),
        controls={"asked for x₂ alone": final_losses(WITHOUT)},
    )
    yield claim(
        id="F2",
        statement="Without the implicit curriculum, the same models stay on the plateau in as many steps.",
        source=f"{source} 1",
        protocol="final held-out loss of x₂ of models that are asked for x₂ alone, every seed; the plateau is "
        "0.75, and the threshold that of the paper's section 7.2",
        value=final_losses(WITHOUT),
        must=at_least(0.7),
        controls={"asked for the whole chain": final_losses(WITH)},
    )
    yield claim(
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
    )
    # Without a depth that is enough for one step alone the numbers could not differ.
    causal, order = study.model.causal, study.task.order
    one, longest = (exact_layers_of(steps, causal, order)[steps] for steps in (1, options.most_steps))
    if any(one <= layers < longest for layers in options.layers):
        yield claim(
            id="F4",
            statement="Longer chains need more layers.",
            source=f"{source} 3",
            protocol="by seed: smallest number of layers that learned x_D, of the longest chain that some depth "
            "learned, less that of chains of one step; what no depth learned counts for nothing",
            value=partial(growth, options),
            must=at_least(1.0, unit="layers"),
            rule="mean",
            controls={"chains of one step, from one seed to the next": partial(seeds_apart, options)},
        )


def figures(options: Options) -> Iterator[charts.Figure]:
    both = {WITH: "with the implicit curriculum", WITHOUT: f"{symbol(STEPS)} alone"}
    yield charts.curves(["loss_step_1", "loss_step_2"], by="metric", panel="configuration", name="curriculum",
                        where={"configuration": [*both]}, names=both, title="held-out loss", ends=(0.0, 1.1),
                        levels={"learned": LEARNED, "plateau": 0.75})  # fmt: skip
    yield charts.dots("rise", "layer", by="part", where={"head": ...}, name="heads", levels={"used": USED},
                      title="rise of the loss without the head")  # fmt: skip


study = Study(
    name="first-steps",
    question="three first experiments: what the curriculum does, which heads are used, and how deep is deep enough",
    task=chains_of(STEPS),
    model=QUICK,
    training=TRAINING,
    options=Options(),
    fixed=("task.chains",),
    configurations=configurations,
    seeds=2,
    members_per_unit=2,
    measures=(rises, signatures, least_layers, explorer),
    claims=claims,
    figures=figures,
    presets={"smoke": {"seeds": 2, "training.steps": 40, "model.width": 64, "layers": (1, 4)}, "laptop": {}},
    costs={"smoke": "under a minute on two cores", "laptop": "under two min on two quiet cores"},
    page="page.md.j2",
    held_out=256,
)
