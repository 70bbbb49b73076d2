"""Claims N12 and N16, by the rules of `docs/protocols.md` (Revision 3)."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.claims.verdict import counted
from hopscope.studies.chains.evidence import asked_for, has, steps_learned
from hopscope.studies.chains.recipe import QUICK_TRAINING
from hopscope.studies.recipes.grid import ALL_ON, HEADS, SCHEDULE, SHAPES, STEPS, Recipe, starts, without

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

SEEDS_NEEDED, START_SEEDS = 8, 4
"""Of each recipe that decides N12, and of each start that decides N16."""

DECIDES, COUNTS = "steps lost without the detail that counts most", "steps lost without the next"

N12 = {
    f"{words}, {shape}": criterion
    for shape in SHAPES
    for words, criterion in ((DECIDES, at_least(1.0, "steps")), (COUNTS, at_most(0.5, "steps")))
}


# N12.


def steps_of(evidence: "Evidence", shape: str, on: tuple[str, ...]) -> "pd.Series[float]":
    """Steps that a recipe learned at a shape, by seed; empty where it was not trained."""
    import pandas as pd

    label = Recipe(shape, on).label
    return pd.Series(steps_learned(evidence, label, STEPS) if has(evidence, label) else {}, dtype=float)


def lost_without(evidence: "Evidence", shape: str, detail: str) -> "pd.Series[float]":
    """How many steps fewer are learned without a detail, for each seed that both recipes have."""
    whole, less = steps_of(evidence, shape, ALL_ON), steps_of(evidence, shape, without(detail))
    return (whole - less)[whole.index.intersection(less.index)]


def mean_lost(evidence: "Evidence", shape: str, detail: str) -> float:
    """Mean over the seeds that have a value; minus infinity where none has."""
    mean = float(lost_without(evidence, shape, detail).mean())
    return -math.inf if math.isnan(mean) else mean


def lost(evidence: "Evidence") -> dict[str, Samples]:
    """What is lost without the detail that counts most at both shapes, and without the one that counts next."""
    # The one first without which the least is lost at the shape where it counts less.
    first, *others = sorted(
        SCHEDULE, key=lambda name: -min(mean_lost(evidence, shape, name) for shape in SHAPES)
    )
    found = {}
    for shape in SHAPES:
        second = max(others, key=partial(mean_lost, evidence, shape))
        for words, detail in ((DECIDES, first), (COUNTS, second)):
            values = lost_without(evidence, shape, detail)
            note = f"without {detail}" if len(values) else "no model has all on and all but one on"
            found[f"{words}, {shape}"] = Samples(values, unit="seed", note=note)
    return found


def not_learned(evidence: "Evidence") -> dict[str, Samples]:
    """Control: with everything on, steps that are *not* learned; if that were many, nothing could be lost."""
    left = {shape: STEPS - steps_of(evidence, shape, ALL_ON) for shape in SHAPES}
    return {f"{DECIDES}, {shape}": Samples(values, unit="seed") for shape, values in left.items()}


def lacks(evidence: "Evidence", needed: int) -> list[str]:
    """What a run lacks of the study as it is written, whatever the claim."""
    steps, seeds = asked_for(evidence, "training.steps"), len(set(evidence.seeds.values()))
    words = [f"{steps} of {QUICK_TRAINING.steps} training steps"] * (steps < QUICK_TRAINING.steps)
    return words + [f"{seeds} of {needed} seeds"] * (seeds < needed)


def lacks_of_details(evidence: "Evidence") -> str:
    """What a run lacks for N12, in words."""
    words = lacks(evidence, SEEDS_NEEDED)
    for shape in SHAPES:
        absent = [name for name in SCHEDULE if steps_of(evidence, shape, without(name)).empty]
        words += [f"{shape}: no models without {', '.join(absent)}"] * bool(absent)
        mean = steps_of(evidence, shape, ALL_ON).mean()
        words += [f"{shape}: with all on, {mean:.2g} of {STEPS} steps are learned"] * bool(mean < STEPS - 0.5)
    return ", ".join(words)


# N16.


def learned_starts(evidence: "Evidence", heads: int) -> Any:
    """1 where a model with this start learned the whole chain, `[seed, γ and depth, (γ, ln depth, learned)]`."""
    import numpy as np

    cells = []
    for each in starts([heads]):
        if has(evidence, each.label):
            steps = steps_learned(evidence, each.label, STEPS).values()
            known = [float(own == STEPS) for own in steps if not math.isnan(own)]
            cells.append([(each.gamma, math.log(each.layers), learned) for learned in known])
    least = min(map(len, cells), default=0)
    return np.array([[cell[seed] for cell in cells] for seed in range(least)])


def threshold_slope(rows: Any) -> float:
    """Change of the γ that half of the models learn with, from one depth to e times it: by a logistic fit.

    A small ridge keeps the fit finite where a line parts what learned from what did not.  Of rows `(γ, ln depth,
    learned)`; NaN where a larger γ does not fail more often.
    """
    import numpy as np
    from scipy.optimize import minimize

    inputs = np.column_stack([np.ones(len(rows)), rows[:, :2] - rows[:, :2].mean(0)])

    def loss(weights: Any) -> float:
        logits = inputs @ weights
        ridge = 0.01 * np.sum(weights[1:] ** 2)
        return float(np.sum(np.logaddexp(0.0, logits) - rows[:, 2] * logits) + ridge)

    _, by_gamma, by_depth = minimize(loss, np.zeros(3), method="BFGS").x
    return float(-by_depth / by_gamma) if by_gamma < 0.0 else math.nan


def slopes(evidence: "Evidence", resamples: int = 200) -> dict[str, Samples]:
    """The slope of the threshold, by number of heads, with its bootstrap interval over seeds."""
    return {counted(heads, "head"): _slope(learned_starts(evidence, heads), resamples) for heads in HEADS}


def _slope(rows: Any, resamples: int) -> Samples:
    import numpy as np

    learned = rows[..., 2] if rows.size else rows
    if len(rows) < 2 or learned.all() or not learned.any():
        note = "all starts of all depths end alike" if rows.size else "no starts of several sizes"
        return Samples([], unit="seed", note=note)
    generator = np.random.Generator(np.random.Philox(key=0))
    slope = threshold_slope(rows.reshape(-1, 3))
    drawn = (rows[generator.integers(len(rows), size=len(rows))].reshape(-1, 3) for _ in range(resamples))
    several = [each for each in map(threshold_slope, drawn) if math.isfinite(each)]
    if not math.isfinite(slope) or len(several) <= resamples / 2:
        return Samples([], unit="seed", note="a larger γ does not fail more often")
    low, high = map(float, np.quantile(several, [0.025, 0.975]))
    return Samples([slope] * len(rows), unit="seed", interval=(low, high))


def lacks_of_starts(evidence: "Evidence") -> str:
    """What a run lacks for N16, in words."""
    several = starts()
    absent = sum(not has(evidence, each.label) for each in several)
    words = [f"{absent} of {len(several)} starts not tried"] * bool(absent)
    return ", ".join([*lacks(evidence, START_SEEDS), *words])


_claim = partial(
    Claim,
    source="docs/protocols.md, Revision 3",
    trust="the task (every held-out sample is one that no training drew), and that all starts and schedules equal "
    "torch's",
)

CLAIMS = (
    _claim(
        id="N12",
        statement="Of warm-up, β₂, cosine and clipping, one alone decides whether three steps are learned.",
        protocol="each left out alone, at both shapes: steps learned with all on minus without it, by seed; "
        "without exactly one, the same at both shapes, at least one step is lost, without any other less than half "
        "a step; a step is learned with a final held-out loss under 0.5",
        value=lost,
        must=N12,
        rule="mean",
        controls={"steps that are not learned with all on": not_learned},
        must_not={name: each for name, each in N12.items() if name.startswith(DECIDES)},
        seeds_needed=SEEDS_NEEDED,
        at_scale=lacks_of_details,
    ),
    _claim(
        id="N16",
        statement="The least γ that fails (standard deviation fan_in^-γ) falls with depth.",
        protocol="whether a model learned all three steps, by γ and the logarithm of its depth: logistic fit, slope "
        "of the γ with which half of the models learn; seeds resampled; with one head a layer and with eight",
        value=slopes,
        must={counted(heads, "head"): at_most(0.0) for heads in HEADS},
        rule="effect",
        seeds_needed=START_SEEDS,
        at_scale=lacks_of_starts,
    ),
)
