"""Do positions attend only where they share information (S3)?  Depths that learn when less is shared.

The bound on layers rests on Assumption 1 of the paper: a position can attend only to positions with which it shares a
piece of information.  Here what is shared is changed, or taken away.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least, between
from hopscope.claims.verdict import counted
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import (
    SHARE_SEEDS,
    between_seeds,
    learned,
    learned_in,
    smallest_depths,
)
from hopscope.studies.curriculum.wide import MODEL, MOST, NONE, SMOKE, TRAINING, smaller_scale, unsettled
from hopscope.studies.sharing.task import Sharing
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

STEPS, EXACT = 2, 3
"""Steps of the chains, and the fewest layers with which x₂ can be found."""

PAIRS, TOKENS, ONE_HOT = "codes of pairs", "codes of tokens", "orthogonal codes of tokens"
PAIRS_ANEW, TOKENS_ANEW = "codes of pairs, drawn anew", "codes of tokens, drawn anew"
TURNED, TURNED_ANEW, UNRELATED = "symbols turned", "symbols turned anew", "unrelated symbols"

VARIANTS: dict[str, dict[str, Any]] = {
    PAIRS: {"codes": "pair"},
    TOKENS: {"codes": "token"},
    ONE_HOT: {"codes": "one-hot"},
    PAIRS_ANEW: {"codes": "drawn for pairs"},
    TURNED: {"second": "turned"},
    "steps shallowest first": {"order": "shallowest-first"},
    "steps in random order": {"order": "random"},
    TURNED_ANEW: {"second": "turned anew"},
    TOKENS_ANEW: {"codes": "drawn for tokens"},
    UNRELATED: {"second": "unrelated"},
}
"""What the samples of a variant are like → fields of the task that differ."""

SHARED = (TOKENS, ONE_HOT, PAIRS_ANEW, TURNED)
"""Variants in which the same information is shared by other vectors."""

BROKEN = (TOKENS_ANEW, UNRELATED)
"""Variants in which some position that must be found shares nothing with the one that looks for it."""

LONG, QUICK_ORDER, USUAL_ORDER = 4, (1, 2, 4, 3), (4, 3, 2, 1)
"""Chains whose order is compared: an order of their steps in which three layers can be enough, one that needs four."""


class Options(Config):
    """What is trained.

    Attributes:
        layers: numbers of layers.
        order_layers: numbers of layers of the models for which two orders of four steps are compared; empty: none.
    """

    layers: tuple[int, ...] = (2, 3, 4, 6)
    order_layers: tuple[int, ...] = (3, 4, 6)


def label(name: str, layers: int) -> str:
    """What a configuration is called."""
    return f"{name}, {counted(layers, 'layer')}"


def order_name(order: Sequence[int]) -> str:
    """What chains of four steps in an order are called."""
    return f"D = {LONG}, order {' '.join(map(str, order))}"


def configurations(options: Options) -> list[Configuration]:
    """Every variant at every depth, then both orders of longer chains."""
    cells: list[tuple[str, int, dict[str, Any]]] = [
        (name, layers, fields) for name, fields in VARIANTS.items() for layers in options.layers
    ]
    cells += [
        (order_name(order), layers, {"order": order, "steps": LONG})
        for order in (QUICK_ORDER, USUAL_ORDER)
        for layers in options.order_layers
    ]
    return [
        Configuration(
            label=label(name, layers),
            overrides={**{f"task.{field}": value for field, value in fields.items()}, "model.layers": layers},
        )
        for name, layers, fields in cells
    ]


# What is claimed.


def losses(name: str, evidence: "Evidence") -> Any:
    """Final losses of x₂ of a configuration, `[member]`."""
    return evidence.last(f"loss_step_{STEPS}", configuration=name)


def depths(options: Options, order: Sequence[int], evidence: "Evidence") -> dict[int, float]:
    """Seed → the smallest number of layers that learned the last of four steps shown in an order."""
    labels = {layers: label(order_name(order), layers) for layers in options.order_layers}
    return smallest_depths(evidence, labels, LONG)


def saved(options: Options, evidence: "Evidence") -> Samples:
    """By seed, layers that the quick order saves; what no depth learned counts as one more than the most tried."""
    beyond = max(options.order_layers) + 1
    quick, usual = (depths(options, order, evidence) for order in (QUICK_ORDER, USUAL_ORDER))
    return Samples(
        [
            math.nan
            if math.isinf(layers) and math.isinf(quick[seed])
            else min(layers, beyond) - min(quick[seed], beyond)
            for seed, layers in usual.items()
        ],
        unit="seed",
    )


def seeds_apart(options: Options, evidence: "Evidence") -> Samples:
    """By seed: layers that the usual order took, and how many more or fewer the next seed took."""
    return between_seeds(depths(options, USUAL_ORDER, evidence))


def not_yet(evidence: "Evidence") -> str:
    """What a run lacks to say that a variant learns nothing: `Claim.at_scale` of S3b to S3d."""
    return ", ".join(filter(None, [unsettled(evidence), "no control of the same variant that learns"]))


def claims(options: Options) -> list[Claim]:
    """What is claimed of these variants."""
    deepest = max(options.layers)

    def cells(names: Iterable[str], layers: Iterable[int]) -> dict[str, tuple[str, int]]:
        labels = [label(name, each) for name in names for each in layers]
        return {each: (each, STEPS) for each in labels}

    def who(name: str) -> Any:
        return partial(learned, label=label(name, deepest), symbol=STEPS)

    shared, broken = cells(SHARED, [deepest]), cells(BROKEN, options.layers)
    shallow = cells(VARIANTS, [layers for layers in options.layers if layers < EXACT])
    plateau, fewer = between(0.7, 0.8), at_least(1.0, unit="layers")
    claim = partial(
        Claim,
        source="summary of the paper, next check 3",
        kind="general",
        seeds_needed=8,
        at_scale=smaller_scale,
    )
    of_nothing = partial(claim, at_scale=not_yet)
    found = [
        claim(
            id="S3a",
            statement="Shared information is enough: it need not be equal vectors, nor fixed codes.",
            protocol="share of seeds with a final held-out loss of x₂ under 0.5, at the largest depth; the controls "
            "share nothing",
            value=learned_in(shared),
            must=dict.fromkeys(shared, MOST),
            rule="mean",
            controls={name: who(name) for name in BROKEN},
            must_not=MOST,
            seeds_needed=SHARE_SEEDS,
        ),
        of_nothing(
            id="S3b",
            statement="Where two positions share nothing, no depth learns to go from one to the other.",
            protocol="the same share at every depth, every seed; the control is the retrieval problem",
            value=learned_in(broken),
            must=dict.fromkeys(broken, NONE),
            controls={PAIRS: who(PAIRS)},
            must_not=NONE,
        ),
        of_nothing(
            id="S3c",
            statement="Where no chain goes on, models use position alone.",
            protocol="final held-out loss of x₂ where second tokens are unrelated, at the largest depth, every seed: "
            "near 1 - 1/N, the cost of the mean of the four symbols that could be right",
            value=partial(losses, label(UNRELATED, deepest)),
            must=plateau,
            controls={PAIRS: partial(losses, label(PAIRS, deepest))},
            must_not=plateau,
        ),
    ]
    if shallow:
        found.append(
            of_nothing(
                id="S3d",
                statement=f"However information is shared, fewer than {counted(EXACT, 'layer')} learn no x₂.",
                protocol="share of models that learned x₂ with fewer layers than the model of information flow "
                "allows, every seed of every variant; the control is the retrieval problem at the largest depth",
                value=learned_in(shallow),
                must=dict.fromkeys(shallow, NONE),
                controls={PAIRS: who(PAIRS)},
                must_not=NONE,
            )
        )
    if options.order_layers:
        found.append(
            claim(
                id="S3e",
                statement="The order 1, 2, 4, 3, for which three layers can be enough, is learned with fewer layers "
                "than the order 4, 3, 2, 1, which needs four.",
                protocol="by seed: smallest number of layers that learned x₄ in the order 4, 3, 2, 1, less that in the "
                "order 1, 2, 4, 3; where no depth learned it, one more than the most that were tried",
                value=partial(saved, options),
                must=fewer,
                rule="mean",
                controls={"one order, from one seed to the next": partial(seeds_apart, options)},
                must_not=fewer,
            )
        )
    return found


# What is drawn.


def figures(options: Options) -> list[charts.Figure]:
    """Losses of x₂ of every variant by depth."""

    def by_depth(evidence: "Evidence") -> list[dict[str, Any]]:
        return [
            {
                "variant": name,
                "layers": layers,
                "member": member,
                "seed": evidence.seeds[member],
                "value": loss,
            }
            for name in VARIANTS
            for layers in options.layers
            for member, loss in losses(label(name, layers), evidence).items()
        ]

    return [
        charts.cells(
            "loss", "layers", "variant", rows=by_depth, name="depths", ends=(0.0, 1.0), title="loss of x₂"
        )
    ]


study = Study(
    name="sharing",
    question="do positions attend only where they share information, and does the depth law rest on it?",
    task=Sharing(),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=8,
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**SMOKE, "layers": (2, 3), "order_layers": ()},
        "laptop": {"layers": (2, 4), "order_layers": ()},
        "workstation": {},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores by estimate",
        "workstation": "about 30 min on two cores",
    },
    page="page.md.j2",
    held_out=512,
)
