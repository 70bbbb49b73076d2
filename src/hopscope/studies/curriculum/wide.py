"""The wide shape of the studies of open questions, what a run lacks of them, and the forms that their claims share.

It starts as GPT-2 does, and makes up for that by a wide stream: chains are learned in under a minute of a core.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Criterion, Samples, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import (
    asked_for,
    between_seeds,
    learned,
    learned_in,
    smaller_than,
    smallest_depths,
)  # fmt: skip
from hopscope.training.config import Training

if TYPE_CHECKING:
    from hopscope.runs import Evidence

MODEL = Model(layers=4, heads=4, head_dim=8, width=512, mlp_ratio=0.0)
TRAINING = Training(
    steps=400, batch_size=128, betas=(0.9, 0.95), weight_decay=0.1, clip_norm=1.0, evaluate_every=20
)

SETTLED_STEPS = 4 * TRAINING.steps
"""Training steps by which a loss has settled, also of models that take longer than most."""

SMOKE = {"seeds": 2, "training.steps": 40, "model.width": 64}
"""Fields of a preset that only shows that a study works."""

MOST, FEW, NONE = (
    at_least(0.75, unit="fraction"), at_most(0.25, unit="fraction"), at_most(0.0, unit="fraction")
)  # fmt: skip
"""Shares of seeds that learned a symbol."""

Cells = Mapping[str, tuple[str, int | str]]
"""Part of a claim → configuration, and the symbol that it is about."""

Times = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Panel → name → seed → training step at which something was learned; infinite: never; NaN: not known."""


def smaller_scale(evidence: "Evidence", steps: int = TRAINING.steps) -> str:
    """What a run lacks of its study as it is written, for `Claim.at_scale`; see `smaller_than`."""
    return smaller_than(evidence, steps, MODEL.width)


def unsettled(evidence: "Evidence") -> str:
    """What a run lacks to say that something is *not* learned, for `Claim.at_scale`: a loss that has settled."""
    steps = asked_for(evidence, "training.steps")
    early = f"{steps:,} of {SETTLED_STEPS:,} steps to a settled loss" if steps < SETTLED_STEPS else ""
    return ", ".join(filter(None, [smaller_scale(evidence), early]))


def shares(*groups: tuple[Cells, Criterion]) -> dict[str, Any]:
    """Fields of a claim on who learned what: its value, and what each part of some cells must meet."""
    every = {part: cell for cells, _ in groups for part, cell in cells.items()}
    return {"value": learned_in(every), "must": {part: must for cells, must in groups for part in cells}}


def learners(cells: Cells) -> dict[str, Any]:
    """Controls of a claim: part → function of the evidence that says who learned."""
    return {part: partial(learned, label=label, symbol=symbol) for part, (label, symbol) in cells.items()}


def saved(plain: Mapping[int, float], other: Mapping[int, float], most: float) -> Samples:
    """By seed, how much less the other took; what never came took `most`, and where neither came nothing is known."""
    values = [
        math.nan if math.isinf(one) and math.isinf(other[seed]) else min(one, most) - min(other[seed], most)
        for seed, one in plain.items()
    ]
    return Samples(values, unit="seed")


def at_depth(name: str, layers: int) -> str:
    """The configuration of a variant with some layers."""
    return f"{name}, {counted(layers, 'layer')}"


def at_depths(name: str, layers: Iterable[int]) -> dict[int, str]:
    """Number of layers → the configuration of a variant."""
    return {each: at_depth(name, each) for each in layers}


def apart(labels: Mapping[int, str], step: int) -> Callable[["Evidence"], Samples]:
    """A control: by seed, layers that it took to learn x_step, and how many more or fewer the next seed took."""
    return lambda evidence: between_seeds(smallest_depths(evidence, labels, step))


def depths(names: Iterable[str], layers: Sequence[int], ends: tuple[float, float]) -> charts.Figure:
    """A figure `depths`: the loss of x₂ of each variant by number of layers."""

    def rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        for name, depth in ((name, depth) for name in names for depth in layers):
            for member, loss in evidence.last("loss_step_2", configuration=at_depth(name, depth)).items():
                who = {"member": member, "seed": evidence.seeds[member]}
                yield {"variant": name, "layers": depth, **who, "value": loss}

    look: Any = {"name": "depths", "ends": ends, "title": "loss of x₂"}
    return charts.cells("loss", "layers", "variant", rows=rows, **look)


def waiting(times: Callable[["Evidence"], Times], what: str) -> charts.Figure:
    """A figure `waiting`: the share of seeds that have not learned yet, through training.

    It is Kaplan and Meier's estimate, which is the plain share here: nobody is lost before the end.
    """

    def rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        end = asked_for(evidence, "training.steps")
        for panel, lines in times(evidence).items():
            for name, found in lines.items():
                known = [time for time in found.values() if not math.isnan(time)]
                of = {"chains": panel, "name": name, "member": None, "seed": None}
                for at in sorted({0, end, *(time for time in known if time <= end)}) if known else ():
                    yield {**of, "at": at, "value": sum(time > at for time in known) / len(known)}

    return charts.curves(
        "waiting", by="name", panel="chains", rows=rows, name="waiting",
        title="seeds that still wait", ends=(0.0, 1.0), alt="A line for each name, which falls from one.",
        caption=f"Share of seeds that have not yet learned {what}, by training step.",
    )  # fmt: skip
