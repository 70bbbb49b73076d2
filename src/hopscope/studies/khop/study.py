"""K-hop induction: how many layers does it take to follow k hops?  Each doubling of k should cost one.

After Sanford, Hsu and Telgarsky, *Transformers, Parallel Computation, and Logarithmic Depth* (arXiv 2402.09268).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.khop.task import Hops
from hopscope.studies.quick import between_seeds
from hopscope.words import counted

if TYPE_CHECKING:
    from torch import Tensor

STEPS = 3_000
FOLLOWED = 0.95
"""Accuracy from which a model follows k hops; the published models of ⌊log2 k⌋ + 2 layers, up to 5, have it."""

SOURCE = "Sanford et al., arXiv 2402.09268, theorem 4.2 and section 5"

PUBLISHED_ERRORS = {
    2: {1: 0.0100, 2: 0.1401, 3: 0.3460, 4: 0.4226, 8: 0.6581},
    3: {1: 0.0030, 2: 0.0082, 3: 0.0477, 4: 0.1496, 8: 0.4564},
    4: {1: 0.0013, 2: 0.0031, 3: 0.0055, 4: 0.0152, 8: 0.2163},
    5: {1: 0.0009, 2: 0.0012, 3: 0.0014, 4: 0.0033, 8: 0.0371},
    6: {1: 0.0002, 2: 0.0004, 3: 0.0011, 4: 0.0016, 8: 0.0059},
}
"""Layers → hops → share of wrong letters of the authors' models with four heads and fresh samples.

From `local/errors.json` of their repository (github.com/chsanford/hop-induction-heads); one model for each depth.
"""


class Options(Config):
    """What is trained.

    Attributes:
        layers: numbers of layers.
        hops: numbers of hops that every model is asked for.
    """

    layers: tuple[int, ...] = (1, 2, 3, 4)
    hops: tuple[int, ...] = (1, 2, 3, 4)


def enough(hops: int) -> int:
    """Layers that can follow so many hops: ⌊log2 k⌋ + 2 (theorem 4.2)."""
    return hops.bit_length() + 1


def label(layers: int) -> str:
    """What a configuration is called."""
    return counted(layers, "layer")


def configurations(options: Options) -> list[hs.Configuration]:
    """One configuration for each chosen depth."""
    return [
        hs.Configuration(label=label(layers), overrides={"model.layers": layers, "task.hops": options.hops})
        for layers in options.layers
    ]


@hs.measure
def shortcut(context: hs.Context) -> Iterator[dict[str, Any]]:
    """How often two hops fewer lead to the same letter, `[member]`; metric `two_fewer`, the part is the group."""
    task: Any = context.task
    for name, share in shortcut_accuracy(task.task, context.held_out).items():
        yield {"metric": "two_fewer", "part": name, "value": share.expand(len(context.members))}


def shortcut_accuracy(task: Any, batch: "hs.Batch", last: int | None = None) -> "dict[str, Tensor]":
    """Group of samples → accuracy of answering hop_{k-2}, `[member]`.

    For k = 1 that is the letter before the current one.  Only letters with an answer count.

    Args:
        task: the `Hops` of the batch.
        batch: its samples.
        last: how many letters at the end of each text count; all by default.
    """
    import torch

    from hopscope.studies.khop.task import one_hop

    inputs = batch.inputs
    hop, places = one_hop(inputs), torch.arange(inputs.shape[-1], device=inputs.device)
    found = {}
    for name, hops in zip(task.names(), task.hops, strict=True):
        fewer = torch.full_like(batch.groups[name], hops - 2, dtype=torch.int64)
        ends = places.expand_as(hop) - 1 if hops == 1 else task.follow(hop, fewer)
        right = inputs.gather(-1, ends.clamp(min=0))[..., 1:] == batch.targets
        counts = (batch.relations["answer"][..., 1:] >= 0) & batch.groups[name][..., None]
        if last is not None:
            counts = counts & (places[1:] >= len(places) - last)
        found[name] = (right & counts).sum((1, 2)) / counts.sum((1, 2))
    return found


# What is claimed.


def accuracy(evidence: Any, layers: int, hops: int) -> Any:
    """Accuracy of k hops at the end, `[member]`."""
    return evidence.last("accuracy", configuration=label(layers), part=counted(hops, "hop"))


def of_cells(cells: Mapping[str, tuple[int, int]]) -> Any:
    """A function of the evidence: part → accuracy of some layers and hops."""
    return lambda evidence: {name: accuracy(evidence, *cell) for name, cell in cells.items()}


def cell(layers: int, hops: int) -> str:
    """What an accuracy is called."""
    return f"{label(layers)}, {counted(hops, 'hop')}"


def reach(evidence: Any, options: Options, layers: int) -> dict[int, float]:
    """Seed → the most hops up to which a depth follows every number that was asked for; NaN where it diverged."""
    found: dict[int, float] = {}
    for hops in sorted(options.hops, reverse=True):
        for member, share in accuracy(evidence, layers, hops).items():
            seed = evidence.seeds[member]
            most = found.get(seed, float(hops)) or float(hops)
            found[seed] = math.nan if math.isnan(share) else most if share >= FOLLOWED else 0.0
    return found


def gained(options: Options, fewer: int, more: int) -> Any:
    """A function of the evidence: by seed, hops that a deeper model reaches beyond a shallower one."""

    def found(evidence: Any) -> hs.Samples:
        least, most = (reach(evidence, options, layers) for layers in (fewer, more))
        return hs.Samples([most[seed] - least[seed] for seed in most], unit="seed")

    return found


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these depths and hops."""
    given: dict[str, Any] = {"seeds_needed": 8, "source": SOURCE, "at_scale": smaller_scale}
    follows = hs.at_least(FOLLOWED, unit="fraction")
    found, least, most = [], min(options.layers), max(options.layers)
    by_theory = {
        cell(enough(hops), hops): (enough(hops), hops)
        for hops in options.hops
        if enough(hops) in options.layers
    }
    fewer = {
        cell(layers, hops): (layers, hops) for hops in options.hops for layers in options.layers
        if layers == enough(hops) - 1
    }  # fmt: skip
    if by_theory and fewer:
        found += [
            hs.Claim(
                id="N1a",
                statement="⌊log2 k⌋ + 2 layers are enough for k hops.",
                protocol="held-out accuracy of k hops at the end with ⌊log2 k⌋ + 2 layers, mean over seeds, for every "
                "k; the controls have one layer less",
                value=of_cells(by_theory),
                must=dict.fromkeys(by_theory, follows),
                rule="mean",
                controls={name: of_one(*place) for name, place in fewer.items()},
                must_not=follows,
                **given,
            ),
            hs.Claim(
                id="N1b",
                statement="One layer less is not enough.",
                protocol="held-out accuracy of k hops at the end with ⌊log2 k⌋ + 1 layers, every seed, for every k; "
                "the controls have one layer more",
                value=of_cells(fewer),
                must=dict.fromkeys(fewer, hs.at_most(FOLLOWED, unit="fraction")),
                controls={name: of_one(*place) for name, place in by_theory.items()},
                must_not=hs.at_most(FOLLOWED, unit="fraction"),
                **given,
            ),
        ]
    if least < most:
        beyond = hs.at_least(1.0, unit="hops")
        found.append(
            hs.Claim(
                id="N1c",
                statement="Deeper models follow more hops.",
                protocol=f"by seed: the most hops k such that all up to k have an accuracy of {FOLLOWED:.0%}, with the "
                "most layers less those with the fewest; the control: how far seeds of the same depth are apart",
                value=gained(options, least, most),
                must=beyond,
                rule="mean",
                controls={"from one seed to the next": apart(options, most)},
                must_not=beyond,
                **given,
            )
        )
    return found


def of_one(layers: int, hops: int) -> Any:
    """A function of the evidence: the accuracy of some layers and hops."""
    return lambda evidence: accuracy(evidence, layers, hops)


def apart(options: Options, layers: int) -> Any:
    """A function of the evidence: how far the hops that models of one depth reach are from those of the next seed."""
    return lambda evidence: between_seeds(reach(evidence, options, layers))


def smaller_scale(evidence: Any) -> str:
    """What a run lacks of the published experiment, and of the study as it is written."""
    steps, length = evidence.config["training"]["steps"], evidence.config["task"]["fields"]["length"]
    most, width = max(evidence.config["options"]["hops"]), evidence.config["model"]["width"]
    words = [f"{steps:,} of {STEPS:,} steps"] * (steps < STEPS)
    words += [f"{length} letters, not 100"] * (length < 100) + [f"up to {most} hops, not 16"] * (most < 16)
    return ", ".join(words + [f"width {width}, not 128"] * (width < 128))


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Accuracy by hops and layers, as a table and during training."""
    cells = [
        Series(
            "accuracy", x=layers, y=counted(hops, "hop"),
            where={"configuration": label(layers), "part": counted(hops, "hop")},
            outline="⌊log2 k⌋ + 2 layers or more" if layers >= enough(hops) else "",
        )
        for hops in options.hops for layers in options.layers
    ]  # fmt: skip
    curves = [
        Series(
            "accuracy", counted(hops, "hop"), panel=label(layers),
            where={"configuration": label(layers), "part": counted(hops, "hop")},
        )
        for layers in options.layers for hops in options.hops
    ]  # fmt: skip
    marks = (
        Mark(FOLLOWED, "followed"),
        Mark(2 / Hops().letters, "two hops fewer"),
        Mark(1 / Hops().letters, "a guess"),
    )
    return (
        hs.figures.cells(
            "depths", cells, Axis("accuracy", (0.0, 1.0), "%"), across=Axis("layers"), down="asked for"
        ),
        hs.figures.lines("learning", curves, Axis("held-out accuracy", (0.0, 1.0), "%"), marks=marks),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "enough": enough, "followed": FOLLOWED, "hops_name": lambda hops: counted(hops, "hop"),
        "published": PUBLISHED_ERRORS,
        "places": [(hops, layers) for hops in options.hops for layers in options.layers],
    }  # fmt: skip


study = hs.Study(
    name="khop",
    question="does following twice as many hops cost one more layer?",
    task=Hops(),
    completion="gpt2-base",
    model=hs.Model(layers=2, heads=2, width=64, mlp_ratio=0.0),
    training=hs.Training(
        steps=STEPS,
        batch_size=64,
        optimizer="adamw",
        learning_rate=1e-3,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        evaluate_every=100,
        checkpoint_every=3_000,
    ),
    options=Options(),
    configurations=configurations,
    seeds=4,
    measures=[shortcut, hs.measures.attention_to("one_hop")],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {"seeds": 2, "training.steps": 60, "options.layers": (1, 2)},
        "laptop": {},
    },
    costs={"smoke": "under a minute on two cores", "laptop": "about 8 min on two cores"},
    page="page.md.j2",
    page_names=page_names,
)
