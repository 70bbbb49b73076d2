"""The wide shape of the studies of open questions, what a run lacks of them, and the forms that their claims share.

A wide stream with few narrow heads learns chains of two and three steps in under a minute of a core.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Criterion, Samples, as_large_as, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import (
    asked_for,
    between_seeds,
    few,
    final_rows,
    learned,
    learned_in,
    smallest_depths,
)  # fmt: skip
from hopscope.study.study import Configuration, Study
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence

MODEL = Model(layers=4, heads=4, head_dim=8, width=512, mlp_ratio=0.0)
TRAINING = Training(steps=400, batch_size=128, weight_decay=0.1, evaluate_every=20)

SETTLED_STEPS = 4 * TRAINING.steps
"""Training steps by which a loss has settled, also of models that take longer than most."""

FIXED = ("task.steps", "task.chains", "task.targets", "model.causal")
"""Fields that these studies give themselves."""

SMOKE = {"seeds": 2, "training.steps": 40, "model.width": 64}
"""Fields of a preset that only shows that a study works."""

MOST, FEW, NONE = (
    at_least(0.75, unit="fraction"), at_most(0.25, unit="fraction"), at_most(0.0, unit="fraction")
)  # fmt: skip
"""Shares of seeds that learned a symbol."""

Cells = Mapping[str, tuple[str, int | str]]
"""Part of a claim → configuration, and the symbol that it is about."""


# What a run lacks of its study, for `Claim.at_scale`.


smaller_scale = as_large_as({"training.steps": TRAINING.steps, "model.width": MODEL.width})
"""What a run lacks of its study as it is written."""


def unsettled(evidence: "Evidence", more: str = "", settled: int = SETTLED_STEPS) -> str:
    """What a run lacks to say that models do not learn: a loss that has settled, and more."""
    early = few(asked_for(evidence, "training.steps"), settled, "steps to a settled loss")
    return ", ".join(early + [more] * bool(more))


open_claim = partial(Claim, kind="general", seeds_needed=8, at_scale=smaller_scale)
open_study = partial(Study, model=MODEL, training=TRAINING, seeds=8, page="page.md.j2", held_out=512)
"""What claims and studies of open questions have in common."""


# Who learned what.


def shares(
    *groups: tuple[Cells, Criterion], controls: Cells | None = None, begun: Collection[str] = (), **lacks: Any
) -> dict[str, Any]:
    """Fields of a claim on who learned what: its value, what each part of some cells must meet, and controls.

    What the first cells must meet is what the controls must not.  That models came to the other side of a criterion
    stands at once; that they stayed where they began, when losses have settled: `lacks` are arguments of `unsettled`.
    Models of the parts `begun` begin with what is to be learned.
    """
    every = {part: cell for cells, _ in groups for part, cell in cells.items()}
    must = {part: must for cells, must in groups for part in cells}

    def value(evidence: "Evidence") -> dict[str, Samples]:
        early, found = unsettled(evidence, **lacks), dict[str, Samples]()
        for part, who in learned_in(every)(evidence).items():
            who = who if isinstance(who, Samples) else Samples(who)
            known = who.values[who.values == who.values]
            moved = len(known) > 0 and must[part].holds(known.mean()) != must[part].holds(
                float(part in begun)
            )
            found[part] = replace(who, missing="" if moved else early)
        return found

    fields: dict[str, Any] = {"value": value, "must": must}
    if not controls:
        return fields
    shown = {part: partial(learned, label=label, symbol=symbol) for part, (label, symbol) in controls.items()}
    return {**fields, "controls": shown, "must_not": groups[0][1]}


def saved(plain: Mapping[int, float], other: Mapping[int, float], most: float, enough: float) -> Samples:
    """By seed, how much less the other took.

    What never came took `most` at least.  So a number is a bound: it counts where that says whether `enough` was saved.
    """

    def of_seed(one: float, of_other: float) -> float:
        found = min(one, most) - min(of_other, most)
        least, greatest = not math.isinf(of_other), not math.isinf(one)  # which bounds it is
        known = (least and greatest) or (least and found >= enough) or (greatest and found < enough)
        return found if known else math.nan

    return Samples([of_seed(one, other[seed]) for seed, one in plain.items()], unit="seed")


# Variants at several depths.


def at_depth(name: str, layers: int) -> str:
    return f"{name}, {counted(layers, 'layer')}"


def by_depth(variants: Mapping[str, Mapping[str, Any]], layers: Iterable[int]) -> list[Configuration]:
    """Variants (name → fields that differ from the study as it is written) at each number of layers."""
    return [
        Configuration(label=at_depth(name, depth), overrides={**variants[name], "model.layers": depth})
        for name, depth in product(variants, layers)
    ]


def cells_of(names: Iterable[str], layers: Iterable[int], step: int) -> dict[str, tuple[str, int]]:
    """Cells of a claim on x_step of variants at several depths: each part is called as its configuration."""
    labels = (at_depth(name, depth) for name, depth in product(names, layers))
    return {each: (each, step) for each in labels}


def least(evidence: "Evidence", name: str, layers: Iterable[int], step: int) -> dict[int, float]:
    """Seed → the smallest number of layers with which a variant learned x_step; see `smallest_depths`."""
    return smallest_depths(evidence, {depth: at_depth(name, depth) for depth in layers}, step)


def apart(name: str, layers: Iterable[int], step: int) -> Callable[["Evidence"], Samples]:
    """A control: by seed, layers that it took to learn x_step, and how many more or fewer the next seed took."""
    return lambda evidence: between_seeds(least(evidence, name, layers, step))


def depths(names: Iterable[str], layers: Iterable[int], ends: tuple[float, float]) -> charts.Figure:
    """A figure `depths`: the loss of x₂ of each variant by number of layers."""

    def rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        for name, depth in product(names, layers):
            label = at_depth(name, depth)
            yield from final_rows(evidence, "loss_step_2", label, variant=name, layers=depth)

    return charts.cells("loss", "layers", "variant", rows=rows, name="depths", ends=ends, title="loss of x₂")
