"""Claims N12 and N16, by the rules of `docs/protocols.md` (Revision 3)."""

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.quick import QUICK_TRAINING
from hopscope.studies.recipes.grid import (
    ALL_ON,
    DEPTHS,
    GAMMAS,
    HEADS,
    SCHEDULE,
    SHAPES,
    STEPS,
    Recipe,
    Start,
    without,
)
from hopscope.words import counted

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

SEEDS_NEEDED = 8
"""Of each recipe that decides N12."""

START_SEEDS = 4
"""Of each start that decides N16."""

TRUST = "the task (every held-out sample is one that no training drew), and that all starts and schedules equal torch's"


def steps_learned(evidence: "Evidence", label: str) -> dict[int, float]:
    """Seed → number of steps that a configuration learned, each with a final held-out loss under 0.5."""
    found: dict[int, float] = {}
    for step in range(1, STEPS + 1):
        for member, loss in evidence.last(f"loss_step_{step}", configuration=label).items():
            seed = evidence.seeds[member]
            learned = math.nan if math.isnan(loss) else float(loss < LEARNED)
            found[seed] = found.get(seed, 0.0) + learned
    return found


def has(evidence: "Evidence", label: str) -> bool:
    """Whether the run has models of a configuration."""
    return label in set(evidence.configurations.values())


# N12.


def lost_without(evidence: "Evidence", shape: str, detail: str) -> dict[int, float]:
    """Seed → how many steps fewer are learned without a detail, of the seeds that both recipes have."""
    whole, less = (
        steps_learned(evidence, Recipe(shape, on).label) if has(evidence, Recipe(shape, on).label) else {}
        for on in (ALL_ON, without(detail))
    )
    return {seed: whole[seed] - less[seed] for seed in whole if seed in less}


def mean_lost(evidence: "Evidence", shape: str, detail: str) -> float:
    """Mean over the seeds that have a value; minus infinity where none has."""
    known = [value for value in lost_without(evidence, shape, detail).values() if not math.isnan(value)]
    return sum(known) / len(known) if known else -math.inf


def deciding(evidence: "Evidence") -> list[str]:
    """Details of the schedule, the one first without which the least is lost at the shape where it counts less."""
    return sorted(SCHEDULE, key=lambda name: -min(mean_lost(evidence, shape, name) for shape in SHAPES))


def lost(evidence: "Evidence") -> dict[str, Samples]:
    """What is lost without the detail that counts most at both shapes, and without the one that counts next."""
    first, *others = deciding(evidence)
    found = {}
    for shape in SHAPES:
        second = max(others, key=partial(mean_lost, evidence, shape))
        for words, detail in ((DECIDES, first), (COUNTS, second)):
            values = [*lost_without(evidence, shape, detail).values()]
            note = f"without {detail}" if values else "no model has all on and all but one on"
            found[f"{words}, {shape}"] = Samples(values, unit="seed", note=note)
    return found


DECIDES, COUNTS = "steps lost without the detail that counts most", "steps lost without the next"

N12 = {
    f"{words}, {shape}": criterion
    for shape in SHAPES
    for words, criterion in ((DECIDES, at_least(1.0, "steps")), (COUNTS, at_most(0.5, "steps")))
}


def not_learned(evidence: "Evidence") -> dict[str, Samples]:
    """Control: with everything on, steps that are *not* learned; if that were many, nothing could be lost."""
    found = {}
    for shape in SHAPES:
        label = Recipe(shape, ALL_ON).label
        values = (
            [STEPS - each for each in steps_learned(evidence, label).values()] if has(evidence, label) else []
        )
        found[f"{DECIDES}, {shape}"] = Samples(values, unit="seed")
    return found


def lacks(evidence: "Evidence", needed: int) -> list[str]:
    """What a run lacks of the study as it is written, whatever the claim."""
    steps, seeds = evidence.config["training"]["steps"], len(set(evidence.seeds.values()))
    words = [f"{steps} of {QUICK_TRAINING.steps} training steps"] * (steps < QUICK_TRAINING.steps)
    return words + [f"{seeds} of {needed} seeds"] * (seeds < needed)


def lacks_of_details(evidence: "Evidence") -> str:
    """What a run lacks for N12, in words."""
    words = lacks(evidence, SEEDS_NEEDED)
    for shape in SHAPES:
        absent = [name for name in SCHEDULE if not has(evidence, Recipe(shape, without(name)).label)]
        if absent:
            words.append(f"{shape}: no models without {', '.join(absent)}")
        known = [*steps_learned(evidence, Recipe(shape, ALL_ON).label).values()]
        if known and np.nanmean(known) < STEPS - 0.5:
            words.append(f"{shape}: with all on, {np.nanmean(known):.2g} of {STEPS} steps are learned")
    return ", ".join(words)


# N16.


def learned_starts(evidence: "Evidence", heads: int) -> "np.ndarray":
    """1 where a model with this start learned the whole chain, `[seed, γ and depth, (γ, ln depth, learned)]`."""
    cells = []
    for layers in DEPTHS:
        for gamma in GAMMAS:
            label = Start(gamma, layers, heads).label
            if has(evidence, label):
                each = steps_learned(evidence, label).values()
                cells.append(
                    [(gamma, math.log(layers), float(steps == STEPS)) for steps in each if steps == steps]
                )
    least = min(map(len, cells), default=0)
    return np.array([[cell[seed] for cell in cells] for seed in range(least)])


def threshold_slope(rows: "np.ndarray") -> float:
    """Change of the γ that half of the models learn with, from one depth to e times it: by a logistic fit.

    A small ridge keeps the fit finite where a line parts what learned from what did not.

    Args:
        rows: `[row, (γ, ln depth, learned)]`.

    Returns:
        NaN where a larger γ does not fail more often.
    """
    from scipy.optimize import minimize

    middle = rows[:, :2].mean(0)
    inputs = np.column_stack([np.ones(len(rows)), rows[:, :2] - middle])

    def loss(weights: "np.ndarray") -> float:
        logits = inputs @ weights
        return float(
            np.sum(np.logaddexp(0.0, logits) - rows[:, 2] * logits) + 0.01 * np.sum(weights[1:] ** 2)
        )

    _, by_gamma, by_depth = minimize(loss, np.zeros(3), method="BFGS").x
    return float(-by_depth / by_gamma) if by_gamma < 0.0 else math.nan


def slopes(evidence: "Evidence", resamples: int = 200) -> dict[str, Samples]:
    """The slope of the threshold, by number of heads, with its bootstrap interval over seeds."""
    found = {}
    for heads in HEADS:
        rows = learned_starts(evidence, heads)
        learned = rows[..., 2] if rows.size else np.zeros(0)
        if len(rows) < 2 or learned.all() or not learned.any():
            note = "all starts of all depths end alike" if rows.size else "no starts of several sizes"
            found[counted(heads, "head")] = Samples([], unit="seed", note=note)
            continue
        generator = np.random.Generator(np.random.Philox(key=0))
        slope = threshold_slope(rows.reshape(-1, 3))
        drawn = (rows[generator.integers(len(rows), size=len(rows))].reshape(-1, 3) for _ in range(resamples))
        several = [each for each in map(threshold_slope, drawn) if math.isfinite(each)]
        interval = tuple(np.quantile(several, [0.025, 0.975])) if len(several) > resamples / 2 else None
        values = [slope] * len(rows) if math.isfinite(slope) and interval else []
        note = "" if values else "a larger γ does not fail more often"
        found[counted(heads, "head")] = Samples(
            values, unit="seed", interval=interval if values else None, note=note
        )
    return found


def lacks_of_starts(evidence: "Evidence") -> str:
    """What a run lacks for N16, in words."""
    words = lacks(evidence, START_SEEDS)
    several = [Start(gamma, layers, heads) for heads in HEADS for layers in DEPTHS for gamma in GAMMAS]
    absent = sum(not has(evidence, each.label) for each in several)
    return ", ".join(words + [f"{absent} of {len(several)} starts not tried"] * bool(absent))


_claim = partial(Claim, source="docs/protocols.md, Revision 3", trust=TRUST)

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
