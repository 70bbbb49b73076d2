"""Is retrieval that branches learned, and by the heads that follow a chain (S5)?"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import hopscope as hs
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.studies.conditional.task import Branching
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import (
    MODEL,
    SHARE_SEEDS,
    SMOKE,
    TRAINING,
    learned,
    learned_at,
    learned_in,
    smaller_scale,
    times_learned,
)
from hopscope.studies.waiting import waiting

STEPS, SWITCH = 900, 300
"""Training steps, and how many of them come before branching samples where chains come first."""

USED = 0.05
"""A head is used if without it the loss of z rises by this much."""

CHAIN, TWO, ROOT = "chain", "two parents", "root and parent"
MIXED, CHAIN_FIRST, NOTHING_FIRST = (
    "chain and two parents mixed",
    "chain first",
    "chain first, asked for z alone",
)

VARIANTS: dict[str, dict[str, Any]] = {
    TWO: {},
    f"{TWO}, z alone": {"targets": "last"},
    MIXED: {"chain_share": 0.5},
    CHAIN_FIRST: {"chain_until": SWITCH},
    NOTHING_FIRST: {"chain_until": SWITCH, "easier_first": False},
    CHAIN: {"graph": "chain"},
    f"{CHAIN}, z alone": {"graph": "chain", "targets": "last"},
    ROOT: {"graph": "root and parent"},
    f"{ROOT}, z alone": {"graph": "root and parent", "targets": "last"},
}
"""What is trained → fields of the task."""

SOURCE = "summary of the paper, open question 3"


class Options(Config):
    """What is trained.

    Attributes:
        variants: names of `VARIANTS`.
    """

    variants: tuple[str, ...] = tuple(VARIANTS)


def configurations(options: Options) -> list[hs.Configuration]:
    """One configuration for each chosen variant."""
    return [
        hs.Configuration(
            label=name, overrides={f"task.{field}": value for field, value in VARIANTS[name].items()}
        )
        for name in options.variants
    ]


@hs.measure
def rises(context: hs.Context) -> Iterator[dict[str, Any]]:
    """How much the loss of z rises without each head, on chains and on branching samples.

    Measured where both were mixed.  Metric `rise`, by layer and head; the part is `chain` or `branching`.
    """
    if "chain" not in context.held_out.groups:
        return
    losses = context.task.losses(context.ensemble(context.held_out.inputs), context.held_out)
    for row in hs.measures.head_ablation.function(context):
        name, _, group = row["metric"].partition("@")
        if name == "loss_z_without_head" and group:
            yield {**row, "metric": "rise", "part": group, "value": row["value"] - losses[f"loss_z@{group}"]}


# What is claimed.


def used(evidence: Any) -> dict[int, dict[str, set[tuple[int, int]]]]:
    """Seed → `chain` or `branching` → layer and head of those that are used, of models that learned z of both."""
    found: dict[int, dict[str, set[tuple[int, int]]]] = {}
    if "rise" not in evidence:
        return found
    good = [
        evidence.last("loss_z", configuration=MIXED, part=part) < LEARNED for part in ("chain", "branching")
    ]
    both = good[0] & good[1]
    for row in evidence.rows("rise", configuration=MIXED).itertuples():
        if both.get(row.member, False):
            own = found.setdefault(evidence.seeds[row.member], {"chain": set(), "branching": set()})
            if row.value >= USED:
                own[row.part].add((int(row.layer), int(row.head)))
    return found


def reused(shift: int) -> Any:
    """A function of the evidence: by seed, share of the heads used for chains that branching samples use too.

    Args:
        shift: 0, or how many seeds on the model is of which the branching samples' heads are taken.
    """

    def found(evidence: Any) -> hs.Samples:
        heads = used(evidence)
        seeds = list(heads)
        shares = []
        for place, seed in enumerate(seeds):
            chain, other = heads[seed]["chain"], heads[seeds[(place + shift) % len(seeds)]]["branching"]
            alone = shift and len(seeds) < 2
            shares.append(math.nan if alone or not chain else len(chain & other) / len(chain))
        return hs.Samples(shares, unit="seed", note="" if shares else "no model learned z of both")

    return found


def saved(name: str) -> Any:
    """A function of the evidence: by seed, training steps with branching samples that a first phase saves."""

    def found(evidence: Any) -> hs.Samples:
        end = evidence.config["training"]["steps"]
        plain, later = (times_learned(evidence, each, "z") for each in (TWO, name))
        # What was never learned counts as learned at the end; where neither was, nothing is known.
        steps = [
            math.nan
            if math.isnan(time) or math.isnan(later[seed]) or (math.isinf(time) and math.isinf(later[seed]))
            else min(time, end) - (min(later[seed], end) - SWITCH)
            for seed, time in plain.items()
        ]
        return hs.Samples(steps, unit="seed")

    return found


MOST, FEW = hs.at_least(0.75, unit="fraction"), hs.at_most(0.25, unit="fraction")


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of these variants."""
    given: dict[str, Any] = {
        "seeds_needed": 8,
        "at_scale": partial(smaller_scale, steps=STEPS),
        "source": SOURCE,
        "kind": "general",
    }
    whole = [name for name in (TWO, ROOT) if name in options.variants]
    alone = [f"{name}, z alone" for name in (TWO, ROOT) if f"{name}, z alone" in options.variants]
    found = []
    if whole and alone:
        found.append(
            hs.Claim(
                id="S5a",
                statement="Branching retrieval is learned with the implicit curriculum, and not without.",
                protocol="share of seeds with a final held-out loss of z under 0.5; asked for x, y and z, or z alone",
                value=learned_in({name: (name, "z") for name in (*whole, *alone)}),
                must={**dict.fromkeys(whole, MOST), **dict.fromkeys(alone, FEW)},
                rule="mean",
                controls={name: partial(learned, label=name, symbol="z") for name in alone},
                must_not=MOST,
                **{**given, "seeds_needed": SHARE_SEEDS},
            )
        )
    if MIXED in options.variants:
        found.append(
            hs.Claim(
                id="S5b",
                statement="Branching retrieval re-uses the heads that follow a chain.",
                protocol="models that learned both: share of the heads without which the loss of z rises by 0.05 on "
                "chains that are used so on branching samples too; the control takes the latter from the next "
                "seed's model",
                value=reused(0),
                must=MOST,
                rule="mean",
                controls={"heads of another seed's model": reused(1)},
                must_not=MOST,
                **given,
            )
        )
    if {TWO, CHAIN_FIRST, NOTHING_FIRST} <= set(options.variants):
        found.append(
            hs.Claim(
                id="S5c",
                statement="Training on the chain first makes branching retrieval quicker.",
                protocol="by seed: training steps until z was learned without a first phase, less those after "
                f"{SWITCH} steps of chains; what was never learned counts as learned at the end; the control asks for "
                "z alone in the first phase, by which nothing is learned",
                value=saved(CHAIN_FIRST),
                must=hs.at_least(50.0),
                rule="mean",
                controls={"nothing learned first": saved(NOTHING_FIRST)},
                must_not=hs.at_least(50.0),
                **given,
            )
        )
    return found


# What is drawn.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Losses of z during training, a chart for each variant."""
    curves = []
    for name in options.variants:
        for part in ("chain", "branching") if name == MIXED else (None,):
            words = f"z of {part}" if part else "z"
            place = {} if part is None else {"part": part}
            curves.append(Series("loss_z", words, panel=name, where={"configuration": name, **place}))
    marks = (Mark(LEARNED, "learned"),)

    def times(evidence: Any) -> Any:
        parts = [(name, "z@branching" if name == MIXED else "z") for name in options.variants]
        return {"z, by variant": {name: times_learned(evidence, name, part) for name, part in parts}}

    return (
        hs.figures.lines("losses", curves, Axis("held-out loss of z", (0.0, 1.2)), marks=marks),
        waiting(times, "z"),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""
    evidence = page.evidence
    mixed = MIXED in options.variants
    return {
        "learned_below": LEARNED, "two": TWO, "mixed": MIXED, "chain_first": CHAIN_FIRST, "switch": SWITCH,
        "nothing_first": NOTHING_FIRST, "used_from": USED, "heads": used(evidence) if mixed else {},
        "z_of_both": mixed and [float(learned_part(evidence, part).sum()) for part in ("chain", "branching")],
    }  # fmt: skip


def learned_part(evidence: Any, part: str) -> Any:
    """1 for each member of the mixed variant that learned z of `chain` or `branching`, else 0."""
    return (evidence.last("loss_z", configuration=MIXED, part=part) < LEARNED).astype(float)


study = hs.Study(
    name="conditional",
    question="is retrieval that branches learned, and by the heads that follow a chain?",
    task=Branching(),
    completion="gpt2-base",
    model=MODEL.model_copy(update={"layers": 6}),
    training=TRAINING.model_copy(update={"steps": STEPS}),
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[rises, learned_at],
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**SMOKE, "options.variants": (TWO, f"{TWO}, z alone", MIXED)},
        # Three units on two cores need two rounds: with fewer steps they end within ten minutes.
        "laptop": {"seeds": 4, "training.steps": 700, "options.variants": (TWO, f"{TWO}, z alone", MIXED)},
        # The mixture is left to the preset heads, and the chain to the studies of chains.
        "workstation": {
            "options.variants": (TWO, f"{TWO}, z alone", CHAIN_FIRST, NOTHING_FIRST, ROOT, f"{ROOT}, z alone")
        },
        # In 900 steps one model of eight learns both, in twice as many seven of eight: twelve seeds give eight models.
        "heads": {"seeds": 12, "training.steps": 2 * STEPS, "options.variants": (MIXED,)},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores",
        "workstation": "about half an hour on two cores: 48 models",
        "heads": "about 15 min on two cores: 12 models, trained twice as long",
    },
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
