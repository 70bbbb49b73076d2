"""Do positions attend only where they share information (S3)?  Depths that learn when less is shared.

The bound on layers rests on Assumption 1 of the paper: a position can attend only to positions with which it shares a
piece of information.  Here what is shared is changed, or taken away.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import (
    MODEL,
    SHARE_SEEDS,
    SMOKE,
    TRAINING,
    between_seeds,
    learned,
    learned_in,
    smaller_scale,
    smallest_depths,
    unsettled,
)
from hopscope.studies.sharing.task import Sharing
from hopscope.words import counted

STEPS, EXACT = 2, 3
"""Steps of the chains, and the fewest layers with which x₂ can be found."""

PAIRS, TOKENS, ONE_HOT = "codes of pairs", "codes of tokens", "orthogonal codes of tokens"
PAIRS_ANEW, TOKENS_ANEW = "codes of pairs, drawn anew", "codes of tokens, drawn anew"
TURNED, TURNED_ANEW, UNRELATED = "symbols turned", "symbols turned anew", "unrelated symbols"
SHALLOW, RANDOM = "steps shallowest first", "steps in random order"

VARIANTS: dict[str, dict[str, Any]] = {
    PAIRS: {"codes": "pair"},
    TOKENS: {"codes": "token"},
    ONE_HOT: {"codes": "one-hot"},
    PAIRS_ANEW: {"codes": "drawn for pairs"},
    TURNED: {"second": "turned"},
    SHALLOW: {"order": "shallowest-first"},
    RANDOM: {"order": "random"},
    TURNED_ANEW: {"second": "turned anew"},
    TOKENS_ANEW: {"codes": "drawn for tokens"},
    UNRELATED: {"second": "unrelated"},
}
"""What the samples of a variant are like → fields of the task that differ."""

SHARED = (TOKENS, ONE_HOT, PAIRS_ANEW, TURNED)
"""Variants in which the same information is shared by other vectors."""

BROKEN = (TOKENS_ANEW, UNRELATED)
"""Variants in which some position that must be found shares nothing with the one that looks for it."""

LONG = 4
"""Steps of the chains whose order is compared."""

QUICK_ORDER, USUAL_ORDER = (1, 2, 4, 3), (4, 3, 2, 1)
"""An order of steps in which three layers can be enough, and one that needs four."""

SOURCE = "summary of the paper, next check 3"


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


def configurations(options: Options) -> list[hs.Configuration]:
    """Every variant at every depth, then both orders of longer chains."""
    cells: list[tuple[str, int, Mapping[str, Any]]] = [
        (name, layers, {f"task.{field}": value for field, value in fields.items()})
        for name, fields in VARIANTS.items()
        for layers in options.layers
    ]
    cells += [
        (order_name(order), layers, {"task.order": order, "task.steps": LONG})
        for order in (QUICK_ORDER, USUAL_ORDER)
        for layers in options.order_layers
    ]
    return [
        hs.Configuration(label=label(name, layers), overrides={**fields, "model.layers": layers})
        for name, layers, fields in cells
    ]


# What is claimed.


def losses(name: str, layers: int) -> Any:
    """A function of the evidence: final losses of x₂ of a variant, `[member]`."""
    return lambda evidence: evidence.last(f"loss_step_{STEPS}", configuration=label(name, layers))


def depths(evidence: Any, options: Options, order: Sequence[int]) -> dict[int, float]:
    """Seed → the smallest number of layers that learned the last of four steps shown in an order."""
    labels = {layers: label(order_name(order), layers) for layers in options.order_layers}
    return smallest_depths(evidence, labels, LONG)


def saved(options: Options) -> Any:
    """A function of the evidence: by seed, layers that the quick order saves; what no depth learned counts as one more
    than the most that were tried."""

    def found(evidence: Any) -> hs.Samples:
        beyond = max(options.order_layers) + 1
        quick, usual = (depths(evidence, options, order) for order in (QUICK_ORDER, USUAL_ORDER))
        known = {seed: min(layers, beyond) - min(quick[seed], beyond) for seed, layers in usual.items()}
        both = [
            math.nan if math.isinf(usual[seed]) and math.isinf(quick[seed]) else value
            for seed, value in known.items()
        ]
        return hs.Samples(both, unit="seed")

    return found


def not_yet(evidence: Any) -> str:
    """What a run lacks to say that a variant learns nothing: `Claim.at_scale` of S3b to S3d."""
    return ", ".join(filter(None, [unsettled(evidence), "no control of the same variant that learns"]))


MOST, NONE = hs.at_least(0.75, unit="fraction"), hs.at_most(0.0, unit="fraction")


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these variants."""
    deepest = max(options.layers)
    given: dict[str, Any] = {
        "seeds_needed": 8, "at_scale": smaller_scale, "source": SOURCE, "kind": "general",
    }  # fmt: skip
    of_nothing = {**given, "at_scale": not_yet}

    def cells(names: Sequence[str], layers: Sequence[int]) -> dict[str, tuple[str, int]]:
        return {label(name, each): (label(name, each), STEPS) for name in names for each in layers}

    def who(name: str) -> Any:
        return lambda evidence: learned(evidence, label(name, deepest), STEPS)

    shared, broken = cells(SHARED, [deepest]), cells(BROKEN, options.layers)
    shallow = cells([*VARIANTS], [layers for layers in options.layers if layers < EXACT])
    as_usual = {PAIRS: who(PAIRS)}
    plateau = hs.between(0.7, 0.8)
    found = [
        hs.Claim(
            id="S3a",
            statement="Shared information is enough: it need not be equal vectors, nor fixed codes.",
            protocol="share of seeds with a final held-out loss of x₂ under 0.5, at the largest depth; the controls "
            "share nothing",
            value=learned_in(shared),
            must=dict.fromkeys(shared, MOST),
            rule="mean",
            controls={name: who(name) for name in BROKEN},
            must_not=MOST,
            **{**given, "seeds_needed": SHARE_SEEDS},
        ),
        hs.Claim(
            id="S3b",
            statement="Where two positions share nothing, no depth learns to go from one to the other.",
            protocol="the same share at every depth, every seed; the control is the retrieval problem",
            value=learned_in(broken),
            must=dict.fromkeys(broken, NONE),
            controls=as_usual,
            must_not=NONE,
            **of_nothing,
        ),
        hs.Claim(
            id="S3c",
            statement="Where no chain goes on, models use position alone.",
            protocol="final held-out loss of x₂ where second tokens are unrelated, at the largest depth, every seed: "
            "near 1 - 1/N, the cost of the mean of the four symbols that could be right",
            value=losses(UNRELATED, deepest),
            must=plateau,
            controls={PAIRS: losses(PAIRS, deepest)},
            must_not=plateau,
            **of_nothing,
        ),
    ]
    if shallow:
        found.append(
            hs.Claim(
                id="S3d",
                statement=f"However information is shared, fewer than {counted(EXACT, 'layer')} learn no x₂.",
                protocol="share of models that learned x₂ with fewer layers than the model of information flow "
                "allows, every seed of every variant; the control is the retrieval problem at the largest depth",
                value=learned_in(shallow),
                must=dict.fromkeys(shallow, NONE),
                controls=as_usual,
                must_not=NONE,
                **of_nothing,
            )
        )
    if options.order_layers:
        found.append(
            hs.Claim(
                id="S3e",
                statement="The order 1, 2, 4, 3, for which three layers can be enough, is learned with fewer layers "
                "than the order 4, 3, 2, 1, which needs four.",
                protocol="by seed: smallest number of layers that learned x₄ in the order 4, 3, 2, 1, less that in the "
                "order 1, 2, 4, 3; where no depth learned it, one more than the most that were tried",
                value=saved(options),
                must=hs.at_least(1.0, unit="layers"),
                rule="mean",
                controls={
                    "one order, from one seed to the next": lambda evidence: between_seeds(
                        depths(evidence, options, USUAL_ORDER)
                    )
                },
                must_not=hs.at_least(1.0, unit="layers"),
                **given,
            )
        )
    return found


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Losses of x₂ of every variant by depth."""
    cells = [
        hs.figures.Series(
            f"loss_step_{STEPS}", x=layers, y=name, where={"configuration": label(name, layers)},
            outline="nothing shared" if name in BROKEN else "",
        )
        for name in reversed(VARIANTS)
        for layers in options.layers
    ]  # fmt: skip
    axis = Axis("loss of x₂", (0.0, 1.0))
    return (hs.figures.cells("depths", cells, axis, across=Axis("layers"), down="variant"),)


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    evidence = page.evidence
    early = [
        member
        for name in VARIANTS
        for layers in options.layers
        if layers < EXACT
        for member, yes in learned(evidence, label(name, layers), STEPS).items()
        if yes == 1
    ]
    return {
        "label": label, "variants": list(VARIANTS), "learned_below": LEARNED, "exact": EXACT, "steps": STEPS,
        "long": LONG, "orders": [order_name(order) for order in (QUICK_ORDER, USUAL_ORDER)], "early": early,
        "pairs": PAIRS, "unrelated": UNRELATED, "tokens_anew": TOKENS_ANEW, "shared": SHARED,
    }  # fmt: skip


study = hs.Study(
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
        "smoke": {**SMOKE, "options.layers": (2, 3), "options.order_layers": ()},
        "laptop": {"options.layers": (2, 4), "options.order_layers": ()},
        "workstation": {},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores by estimate",
        "workstation": "about 30 min on two cores",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
