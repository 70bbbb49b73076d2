"""What moves the smallest number of layers that learns a chain (S4)?  One thing at a time, over a range of depths.

Every variant differs from the standard model in one thing: width, heads, head size, dimensions of a symbol, chains.
Beside them, models of the fewest layers possible: some begin where a hand-built solution is, some are drawn.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import (
    MODEL,
    SMOKE,
    TRAINING,
    between_seeds,
    learned,
    learned_in,
    smaller_scale,
    smallest_depths,
    unsettled,
)
from hopscope.words import counted

STEPS = 2
"""Steps of the chains."""

EXACT = 3
"""Fewest layers with which x₂ can be found (`hopscope theory`)."""

RATES = (1e-3, 1e-4, 1e-5, 1e-6)
"""Learning rates of the models that begin at the hand-built solution."""

NOISES = (0.001, 0.01)
"""Sizes of the noise, as a share of each weight, that some of them begin with."""

SOURCE = "summary of the paper, open question 2 and design trade-offs"


class Options(Config):
    """What is varied.

    Attributes:
        layers: numbers of layers.
        widths: of the stream.
        heads: numbers of heads of a layer.
        head_sizes: dimensions of a head.
        symbol_dims: dimensions K of a symbol.
        chains: numbers of chains N.
        noises: see `NOISES`; empty for none.
    """

    layers: tuple[int, ...] = (2, 3, 4, 6)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    heads: tuple[int, ...] = (1, 2, 4, 8)
    head_sizes: tuple[int, ...] = (2, 4, 8, 16)
    symbol_dims: tuple[int, ...] = (2, 4, 8)
    chains: tuple[int, ...] = (3, 4, 8)
    noises: tuple[float, ...] = NOISES


class Variant(NamedTuple):
    """The standard model and task, but for one thing.

    Attributes:
        name: what it is called.
        overrides: the field that differs.
    """

    name: str
    overrides: Mapping[str, Any]


AXES = {
    "widths": ("model.width", MODEL.width, "width {}"),
    "heads": ("model.heads", MODEL.heads, "{} head(s)"),
    "head_sizes": ("model.head_dim", MODEL.head_dim, "heads of {}"),
    "symbol_dims": ("task.symbol_dim", 4, "K = {}"),
    "chains": ("task.chains", 4, "N = {}"),
}
"""Option → the field that it varies, the standard value, and how a variant is called."""

STANDARD = "standard"


def variant(axis: str, value: int) -> Variant:
    """The variant of an axis and a value; the standard one where the value is."""
    field, standard, words = AXES[axis]
    name = counted(value, "head") if axis == "heads" else words.format(value)
    return Variant(STANDARD, {}) if value == standard else Variant(name, {field: value})


def variants(options: Options) -> list[Variant]:
    """The standard model, then every variant."""
    every = [variant(axis, value) for axis in AXES for value in getattr(options, axis)]
    return list({each.name: each for each in [Variant(STANDARD, {}), *every]}.values())


def label(name: str, layers: int) -> str:
    """What a configuration is called."""
    return f"{name}, {counted(layers, 'layer')}"


def at_witness(rate: float, noise: float = 0.0) -> str:
    """What a configuration that begins at the hand-built solution is called."""
    return f"begun at a solution, rate {rate:g}" + (f", noise {noise:g}" if noise else "")


def drawn(rate: float) -> str:
    """What a configuration of the same shape, whose weights are drawn, is called."""
    return f"its shape, drawn, rate {rate:g}"


def begun(options: Options) -> dict[str, tuple[float, float]]:
    """Configurations that begin at the hand-built solution → learning rate and noise."""
    cells = [*((rate, 0.0) for rate in RATES), *((RATES[-1], noise) for noise in options.noises)]
    return {at_witness(*cell): cell for cell in cells}


WITNESS_SHAPE = {"model.layers": EXACT, "model.heads": 1, "model.head_dim": 10, "model.width": 54,
                 "model.mlp_ratio": 2 / 3}  # fmt: skip
"""The shape of `hopscope.zoo.witnesses.witness` for chains of two steps."""


def configurations(options: Options) -> list[hs.Configuration]:
    """Every variant at every depth, then the models at the fewest layers possible."""
    grid = [
        hs.Configuration(label=label(each.name, layers), overrides={**each.overrides, "model.layers": layers})
        for each in variants(options)
        for layers in options.layers
    ]
    rates = {**{name: rate for name, (rate, _) in begun(options).items()}, drawn(RATES[0]): RATES[0]}
    return grid + [
        hs.Configuration(label=name, overrides={**WITNESS_SHAPE, "training.learning_rate": rate})
        for name, rate in rates.items()
    ]


def start(job: Any) -> dict[str, Any] | None:
    """The weights of a hand-built solution with the noise that a configuration's name says; `None` for the others."""
    import torch

    from hopscope.zoo.witnesses import witness

    if not job.label.startswith("begun at"):
        return None
    noise = float(job.label.partition(", noise ")[2] or 0.0)
    found = {}
    for place, (name, weight) in enumerate(witness(job.task).weights.items()):
        copies = []
        for member in job.members:
            generator = torch.Generator().manual_seed((member.init_seed << 8) + place)
            copies.append(weight[0] * (1.0 + noise * torch.randn(weight[0].shape, generator=generator)))
        found[name] = torch.stack(copies)
    return found


# What is claimed.


def depths(evidence: Any, options: Options, name: str) -> dict[int, float]:
    """Seed → the smallest number of layers with which a variant learned x₂."""
    return smallest_depths(evidence, {layers: label(name, layers) for layers in options.layers}, STEPS)


def more_layers(options: Options) -> Any:
    """A function of the evidence: by seed, layers that the fewest heads need beyond the most.

    A variant that no depth learned counts as one layer more than the most that were tried.
    """

    def found(evidence: Any) -> dict[str, hs.Samples]:
        least, most = (
            depths(evidence, options, variant("heads", pick(options.heads)).name) for pick in (min, max)
        )
        beyond = max(options.layers) + 1
        more = [
            min(least[seed], beyond) - layers if math.isfinite(layers) else math.nan
            for seed, layers in most.items()
        ]
        return {"heads": hs.Samples(more, unit="seed")}

    return found


def too_shallow(options: Options) -> dict[str, tuple[str, int]]:
    """Configurations with fewer layers than can find x₂, for `learned_in`."""
    names = [
        label(each.name, layers) for each in variants(options) for layers in options.layers if layers < EXACT
    ]
    return {name: (name, STEPS) for name in names}


def deepest(options: Options) -> dict[str, tuple[str, int]]:
    """The same variants with the most layers, under the names of `too_shallow`."""
    return {
        label(each.name, layers): (label(each.name, max(options.layers)), STEPS)
        for each in variants(options)
        for layers in options.layers
        if layers < EXACT
    }


MOST, FEW = hs.at_least(0.75, unit="fraction"), hs.at_most(0.25, unit="fraction")


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these variants."""
    given: dict[str, Any] = {
        "seeds_needed": 8, "at_scale": smaller_scale, "source": SOURCE, "kind": "general",
    }  # fmt: skip
    layer = hs.at_least(1.0, unit="layers")
    steady: dict[str, Any] = {
        "controls": {
            "the standard model, from one seed to the next": lambda evidence: between_seeds(
                depths(evidence, options, STANDARD)
            )
        },
        "must_not": layer,
    }
    smallest = "by seed: smallest number of layers that learned x₂"
    kept = {"begun at a solution": (at_witness(RATES[0]), STEPS)}
    fresh = {"drawn": (label(STANDARD, EXACT), STEPS)}
    shallow = too_shallow(options)
    found = [
        hs.Claim(
            id="S4b",
            statement="Fewer heads in a layer need more layers.",
            protocol=f"{smallest} with the fewest heads, less that with the most; a model that no depth learned "
            "counts as one layer more than the most that were tried",
            value=more_layers(options),
            must={"heads": layer},
            rule="mean",
            **given,
            **steady,
        ),
        hs.Claim(
            id="S4d",
            statement="With the fewest layers possible, solutions are stable under training, but out of its reach.",
            protocol="share of seeds with a final held-out loss of x₂ under 0.5: models that begin at a hand-built "
            "solution, and standard models with as many layers, whose weights are drawn",
            value=learned_in({**kept, **fresh}),
            must={**dict.fromkeys(kept, MOST), **dict.fromkeys(fresh, FEW)},
            rule="mean",
            controls={
                "the solution's shape, drawn": lambda evidence: learned(evidence, drawn(RATES[0]), STEPS)
            },
            must_not=MOST,
            **given,
        ),
    ]
    if shallow:
        found.append(
            hs.Claim(
                id="S4c",
                statement=f"No capacity makes fewer than {counted(EXACT, 'layer')} enough.",
                protocol="share of models that learned x₂ with fewer layers than the model of information flow "
                "allows, every seed of every variant; the control is each variant at the largest depth",
                value=learned_in(shallow),
                must=dict.fromkeys(shallow, hs.at_most(0.0, unit="fraction")),
                controls={"the deepest": learned_in(deepest(options))},
                must_not=hs.at_most(0.0, unit="fraction"),
                **{**given, "at_scale": unsettled},
            )
        )
    return found


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Losses of every variant by depth, and the curves of the models at the fewest layers."""
    cells = [
        Series(f"loss_step_{STEPS}", x=layers, y=each.name, where={"configuration": label(each.name, layers)})
        for each in reversed(variants(options))
        for layers in options.layers
    ]
    curves = [
        Series(f"loss_step_{STEPS}", name, where={"configuration": name})
        for name in (*begun(options), drawn(RATES[0]))
    ]
    return (
        hs.figures.cells(
            "depths", cells, Axis("loss of x₂", (0.0, 0.8)), across=Axis("layers"), down="variant"
        ),
        hs.figures.lines(
            "solutions",
            curves,
            Axis("held-out loss of x₂", (0.0, 1.1)),
            marks=(Mark(0.75, "plateau"), Mark(LEARNED, "learned")),
        ),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    return {
        "label": label, "variants": [each.name for each in variants(options)], "begun": list(begun(options)),
        "drawn": drawn(RATES[0]), "learned_below": LEARNED, "exact": EXACT, "steps": STEPS, "standard": STANDARD,
        "smallest": lambda name: depths(page.evidence, options, name), "kept": at_witness(RATES[0]),
        "gentlest": at_witness(RATES[-1]),
    }  # fmt: skip


study = hs.Study(
    name="capacity",
    question="does capacity move the smallest number of layers that learns, and do fewer heads need more layers?",
    task=hs.tasks.Retrieval(steps=STEPS, chains=4, position="pair"),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    start=start,
    seeds=8,
    claims=claims,
    figures=figures,
    presets={
        "smoke": {
            **SMOKE,
            "options.layers": (2, 4),
            "options.widths": (32, 64),
            "options.heads": (1, 4),
            "options.head_sizes": (2, 8),
            "options.symbol_dims": (4,),
            "options.chains": (4,),
        },
        "laptop": {
            "options.widths": (128, 512),
            "options.heads": (1, 4),
            "options.head_sizes": (2, 8),
            "options.symbol_dims": (4,),
            "options.chains": (4,),
            "options.noises": (),
        },
        "workstation": {},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 8 min on two cores",
        "workstation": "under two hours on two busy cores: 504 models",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
