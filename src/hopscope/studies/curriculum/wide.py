"""The wide shape of the studies of open questions, what a run lacks of them, and who still waits to learn.

It starts as GPT-2 does, and makes up for that by a wide stream: chains are learned in under a minute of a core.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hopscope.claims import at_least, at_most
from hopscope.models.config import Model
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import asked_for, smaller_than
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


def waiting(times: Callable[["Evidence"], Times], what: str) -> charts.Figure:
    """A figure `waiting`: the share of seeds that have not learned yet, through training.

    It is Kaplan and Meier's estimate, which is the plain share here: nobody is lost before the end.

    Args:
        times: function of the evidence.
        what: has been learned by then, in words.
    """

    def rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        end = asked_for(evidence, "training.steps")
        for panel, lines in times(evidence).items():
            for name, found in lines.items():
                known = [time for time in found.values() if not math.isnan(time)]
                for at in sorted({0, end, *(time for time in known if time <= end)}) if known else ():
                    waits = sum(time > at for time in known) / len(known)
                    of = {"chains": panel, "name": name, "member": None, "seed": None}
                    yield {**of, "at": at, "value": waits}

    return charts.curves(
        "waiting", by="name", panel="chains", rows=lambda evidence: [*rows(evidence)], name="waiting",
        title="seeds that still wait", ends=(0.0, 1.0), alt="A line for each name, which falls from one.",
        caption=f"Share of seeds that have not yet learned {what}, by training step.",
    )  # fmt: skip
