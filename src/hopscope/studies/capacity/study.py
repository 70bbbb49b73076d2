"""What moves the smallest number of layers that learns a chain (S4)?  One thing at a time, over a range of depths.

Every variant differs from the standard model in one thing: width, heads, head size, dimensions of a symbol, chains.
Beside them, models of the fewest layers possible: some begin where a hand-built solution is, some are drawn.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, learned_in
from hopscope.studies.chains.recipe import chains_of
from hopscope.studies.curriculum import wide
from hopscope.study.study import Configuration

if TYPE_CHECKING:
    from hopscope.runs import Evidence

STEPS, EXACT = 2, 3
"""Steps of the chains, and the fewest layers with which x₂ can be found (`hopscope theory`)."""

RATES = (1e-3, 1e-4, 1e-5, 1e-6)
"""Learning rates of the models that begin at the hand-built solution."""


class Options(Config):
    """What is varied.

    Attributes:
        layers: numbers of layers.
        widths: of the stream.
        heads: numbers of heads of a layer.
        head_sizes: dimensions of a head.
        symbol_dims: dimensions K of a symbol.
        chains: numbers of chains N.
        noises: sizes of the noise, as a share of each weight, that some models at the solution begin with.
    """

    layers: tuple[int, ...] = (2, 3, 4, 6)
    widths: tuple[int, ...] = (64, 128, 256, 512)
    heads: tuple[int, ...] = (1, 2, 4, 8)
    head_sizes: tuple[int, ...] = (2, 4, 8, 16)
    symbol_dims: tuple[int, ...] = (2, 4, 8)
    chains: tuple[int, ...] = (3, 4, 8)
    noises: tuple[float, ...] = (0.001, 0.01)


AXES: dict[str, tuple[str, int | None, Callable[[int], str]]] = {
    "widths": ("model.width", wide.MODEL.width, "width {}".format),
    "heads": ("model.heads", wide.MODEL.heads, lambda value: counted(value, "head")),
    "head_sizes": ("model.head_dim", wide.MODEL.head_dim, "heads of {}".format),
    "symbol_dims": ("task.symbol_dim", 4, "K = {}".format),
    "chains": ("task.chains", 4, "N = {}".format),
}
"""Option → the field that it varies, the standard value, and how a variant is called."""

STANDARD = "standard"


def called(axis: str, value: int) -> str:
    """The name of the variant of an axis and a value; the standard one where the value is."""
    _, standard, words = AXES[axis]
    return STANDARD if value == standard else words(value)


def variants(options: Options) -> dict[str, dict[str, Any]]:
    """Name → the field that differs: of the standard model, then of every variant."""
    found: dict[str, dict[str, Any]] = {STANDARD: {}}
    for axis, (field, _, _) in AXES.items():
        for value in getattr(options, axis):
            found.setdefault(called(axis, value), {field: value})
    return found


def begun(rate: float, noise: float = 0.0) -> str:
    return f"begun at a solution, rate {rate:g}" + (f", noise {noise:g}" if noise else "")


DRAWN = f"its shape, drawn, rate {RATES[0]:g}"
"""The configuration of the solution's shape whose weights are drawn."""

WITNESS_SHAPE = {"model.layers": EXACT, "model.heads": 1, "model.head_dim": 10, "model.width": 54,
                 "model.mlp_ratio": 2 / 3}  # fmt: skip
"""The shape of `hopscope.circuits.plants.witness` for chains of two steps."""


def at_solution(options: Options) -> dict[str, float]:
    """Configurations of the fewest layers possible → learning rate."""
    noisy = {begun(RATES[-1], noise): RATES[-1] for noise in options.noises}
    return {**{begun(rate): rate for rate in RATES}, **noisy, DRAWN: RATES[0]}


def configurations(options: Options) -> list[Configuration]:
    if not options.layers:
        raise UserError("layers: expected one number of layers or more, found none")
    if strange := [each for each in options.noises if not each > 0.0]:
        raise UserError(f"noises: expected numbers above 0, found {strange[0]:g}")
    return wide.by_depth(variants(options), options.layers) + [
        Configuration(label=name, overrides={**WITNESS_SHAPE, "training.learning_rate": rate})
        for name, rate in at_solution(options).items()
    ]


def start(job: Any) -> dict[str, Any] | None:
    """The weights of a hand-built solution with the noise that a configuration's name says; `None` for the others."""
    import torch

    from hopscope.circuits.plants import witness
    from hopscope.tasks import Retrieval

    if not job.label.startswith("begun at"):
        return None
    noise = float(job.label.partition(", noise ")[2] or 0.0)
    solution = witness(Retrieval(**job.task["fields"])).state_dict()

    def noisy(weight: torch.Tensor, seed: int) -> torch.Tensor:
        drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
        return weight * (1.0 + noise * drawn)

    return {
        name: torch.stack([noisy(weight, (member.init_seed << 8) + place) for member in job.members])
        for place, (name, weight) in enumerate(solution.items())
    }


# What is claimed.


def more_layers(options: Options, evidence: "Evidence") -> dict[str, Samples]:
    """By seed, layers that the fewest heads need beyond the most.

    A variant that no depth learned counts as one layer more than the most that were tried.
    """
    names, beyond = [called("heads", pick(options.heads)) for pick in (min, max)], max(options.layers) + 1
    least, most = (wide.least(evidence, name, options.layers, STEPS) for name in names)
    more = [min(least[seed], beyond) - of if of < beyond else math.nan for seed, of in most.items()]
    return {"heads": Samples(more, unit="seed", missing=wide.unsettled(evidence))}


def claims(options: Options) -> Iterator[Claim]:
    claim = partial(wide.open_claim, source="summary of the paper, open question 2 and design trade-offs")
    layer, apart = at_least(1.0, unit="layers"), wide.apart(STANDARD, options.layers, STEPS)
    kept = {"begun at a solution": (begun(RATES[0]), STEPS)}
    shape = {"the solution's shape, drawn": (DRAWN, STEPS)}
    drawn = {"drawn": (wide.at_depth(STANDARD, EXACT), STEPS)}
    if len({*options.heads}) > 1:
        yield claim(
            id="S4b",
            statement="Fewer heads in a layer need more layers.",
            protocol="by seed: smallest number of layers that learned x₂ with the fewest heads, less that with the "
            "most; a model that no depth learned counts as one layer more than the most that were tried",
            value=partial(more_layers, options),
            must={"heads": layer},
            rule="mean",
            controls={"the standard model, from one seed to the next": apart},
        )
    yield claim(
        id="S4d",
        statement="With the fewest layers possible, training keeps a solution, but does not find one.",
        protocol="share of seeds with a final held-out loss of x₂ under 0.5: models that begin at a hand-built "
        "solution, and standard models with as many layers, whose weights are drawn",
        **wide.shares((kept, wide.MOST), (drawn, wide.FEW), controls=shape, begun=kept),
        rule="share",
    )
    few, names = [layers for layers in options.layers if layers < EXACT], variants(options)
    if shallow := wide.cells_of(names, few, STEPS):
        deepest = [(wide.at_depth(name, max(options.layers)), STEPS) for name in names for _ in few]
        yield claim(
            id="S4c",
            statement=f"Fewer than {counted(EXACT, 'layer')} fail at any capacity.",
            protocol="share of models that learned x₂ with fewer layers than the model of information flow "
            "allows, every seed of every variant; the control is each variant at the largest depth",
            **wide.shares((shallow, wide.NONE)),
            controls={"the deepest": learned_in(dict(zip(shallow, deepest, strict=True)))},
        )


def figures(options: Options) -> list[charts.Figure]:
    begin = [*at_solution(options)]
    return [
        wide.depths(variants(options), options.layers, (0.0, 0.8)),
        charts.curves(f"loss_step_{STEPS}", name="solutions", names=dict(zip(begin, begin, strict=True)),
                      where={"configuration": begin}, title="held-out loss of x₂",
                      levels={"plateau": 0.75, "learned": LEARNED}, ends=(0.0, 1.1)),
    ]  # fmt: skip


FEWER: dict[str, Any] = {"heads": (1, 4), "head_sizes": (2, 8), "symbol_dims": (4,), "chains": (4,)}

study = wide.open_study(
    name="capacity",
    question="does capacity move the smallest number of layers that learns, and do fewer heads need more layers?",
    task=chains_of(STEPS),
    options=Options(),
    fixed=("task.steps", "task.targets", "model.causal", *(field for field, _, _ in AXES.values())),
    configurations=configurations,
    start=start,
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**wide.SMOKE, **FEWER, "layers": (2, 4), "widths": (32, 64)},
        "laptop": {**FEWER, "widths": (128, 512), "noises": ()},
        "workstation": {},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 8 min on two cores",
        "workstation": "under two hours on two busy cores: 504 models",
    },
)
