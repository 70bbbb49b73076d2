"""What the claims of the depth study are judged on, from the evidence table alone.

Each value function takes the evidence of one reading of what the paper leaves open.  Models that diverged have no
number: they are missing, not left out.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hopscope.claims import Samples
from hopscope.claims.crossings import Crossing, Order, first_crossing, order
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.runs import (
    Runs,
    all_runs,
    as_configured,
    departures,
    few_depths,
    panel,
    reading_lacks,
    study_config,
)
from hopscope.studies.recipe import exact_of
from hopscope.theory.information_flow import Mask, exact_layers, theorem_bound

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

ValueOfClaim = Callable[["Evidence"], Any]

LEARNED = 0.5
"""A partial loss below this counts as learned (paper, section 7.2)."""

ERRORS = 1.96
"""Standard errors within which a measured loss lies 95 % of the time."""

PAPER_SEEDS = 8
"""Seeds of each depth in the paper (section 7.1)."""

THEORY_STEPS = 64
"""Chains up to this length are counted through for R9a."""

GROWTH = ("layers from one step to the next", "layers from first to last")
"""Parts of R2."""


# R1: without the curriculum.


def losses_without_curriculum(evidence: "Evidence") -> Samples:
    """Final loss of every model that is asked for the last symbol alone."""
    runs, config = panel(evidence, "non-IC"), study_config(evidence)
    members = _members(runs)
    if not members:
        return Samples([], unit="run", note="not trained in this run")
    # The curves are measured on fewer samples than the last checkpoint: their error is larger by the root of the ratio.
    wider = ERRORS * max(1.0, config.analysis_samples / config.evaluation_samples) ** 0.5
    error = evidence.last("checkpoint_loss_error")[members] * wider
    return Samples(
        evidence.last("final_loss")[members],
        unit="run",
        cluster=seeds_of(evidence, members),
        error=list(error),
        missing=reading_lacks(config, runs),
    )


def lacks_without_curriculum(evidence: "Evidence") -> str:
    """What the models that are asked for the last symbol alone lack of the paper's protocol, in words."""
    return _lacks(evidence, panel(as_configured(evidence), "non-IC"))


# R2 and R11: what a layer buys.


def growth_of_layers(evidence: "Evidence") -> Mapping[str, Samples]:
    """By seed: how many layers more the next step of the chain takes, at least, and the last one than the first."""
    runs = panel(evidence, "IC")
    if len(runs) < 2 or study_config(evidence).steps < 2:
        return _not_by_seed("needs several depths and steps")
    needed = [list(each.values()) for each in needed_layers(evidence, runs).values()]
    if not needed:
        return _not_by_seed("no seed learned the first step at any depth")
    smallest = [_smallest([later - earlier for earlier, later in pairwise(each)]) for each in needed]
    whole = [each[-1] - each[0] for each in needed]
    lacking = reading_lacks(study_config(evidence), runs)
    return {
        name: Samples(values, unit="seed", missing=lacking)
        for name, values in zip(GROWTH, (smallest, whole), strict=True)
    }


def needed_layers(evidence: "Evidence", runs: Sequence[Runs]) -> dict[int, dict[int, float]]:
    """How many layers each seed took to learn each step of the chain.

    Args:
        evidence: of one reading.
        runs: models of one D, by depth.

    Returns:
        Seed → step k → least number of layers with a final partial loss under 0.5: one more than the deepest model has
        where none learned it, NaN where a shallower model diverged.  Seeds that were trained at every depth; one that
        never learned x₁ says nothing.
    """
    beyond = runs[-1].configuration.layers + 1
    found = {}
    for seed, losses in losses_by_depth(evidence, runs).items():
        layers = {step: _first_learned(of_step, beyond) for step, of_step in losses.items()}
        if layers[1] != beyond:
            found[seed] = layers
    return found


def losses_by_depth(evidence: "Evidence", runs: Sequence[Runs]) -> dict[int, dict[int, dict[int, float]]]:
    """Seed → step k → layers → final partial loss, of the seeds that were trained at every depth."""
    steps = range(1, study_config(evidence).steps + 1)
    losses = {step: evidence.last("final_loss", part=f"step_{step}") for step in steps}
    seeds = sorted(set.intersection(*({*each.seeds} for each in runs)))
    return {
        seed: {
            step: {each.configuration.layers: float(losses[step][each.seeds[seed]]) for each in runs}
            for step in steps
        }
        for seed in seeds
    }


def _first_learned(losses: Mapping[int, float], beyond: int) -> float:
    for layers, loss in losses.items():
        if math.isnan(loss):
            return math.nan
        if loss < LEARNED:
            return layers
    return beyond


def _smallest(numbers: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def largest_gains(evidence: "Evidence") -> Samples:
    """By seed: the largest gain in skill from one depth to the next, as a share of the range over all depths."""
    runs = panel(evidence, "IC")
    layers = [each.configuration.layers for each in runs]
    if len(runs) < 3 or any(deeper - shallower != 1 for shallower, deeper in pairwise(layers)):
        return Samples([], unit="seed", note="needs three depths or more, one layer apart")
    gains = skill_gains(evidence, runs)
    if not gains:
        return Samples([], unit="seed", note="no seed learned a step at some depths and not at others")
    return Samples(list(gains.values()), unit="seed", missing=reading_lacks(study_config(evidence), runs))


def skill_gains(evidence: "Evidence", runs: Sequence[Runs]) -> dict[int, float]:
    """Seed → largest gain in skill from one depth to the next, as a share of the range over all depths.

    Skill in x_k is 1 minus its partial loss, a continuous metric; what is taken is the mean over the steps that the
    seed learns at some depth.  A seed that learns none, or all alike at every depth, has no range; one with a diverged
    model has NaN.
    """
    gains = {}
    for seed, losses in losses_by_depth(evidence, runs).items():
        skills = [[1.0 - loss for loss in of_step.values()] for of_step in losses.values()]
        if any(map(math.isnan, (skill for of_step in skills for skill in of_step))):
            gains[seed] = math.nan
            continue
        shares = [
            _largest_gain(of_step) for of_step in skills if max(of_step) > max(min(of_step), 1.0 - LEARNED)
        ]
        if shares:
            gains[seed] = sum(shares) / len(shares)
    return gains


def _largest_gain(skills: Sequence[float]) -> float:
    return max(deeper - shallower for shallower, deeper in pairwise(skills)) / (max(skills) - min(skills))


def lacks_on_chains(evidence: "Evidence") -> str:
    """What the models that are asked for the whole chain lack of the paper's protocol, in words."""
    return _lacks(evidence, panel(as_configured(evidence), "IC"))


# R3: in which order.


def steps_out_of_order(evidence: "Evidence") -> Samples:
    """In how many neighbouring steps each model learned the later one first; of models that learned a step."""
    import pandas as pd

    runs = panel(evidence, "IC") if study_config(evidence).steps > 1 else []
    if not runs:
        return Samples([], unit="run", note="not trained in this run")
    found = {
        member: math.nan if crossings is None else out_of_order(crossings)
        for member, crossings in crossings_of(evidence, runs).items()
    }
    ordered = pd.Series({member: count for member, count in found.items() if count is not None}, dtype=float)
    if ordered.empty:
        return Samples([], unit="run", note="no run learned a step")
    silent = len(found) - len(ordered)
    learned = {*ordered.dropna().index}
    seeds = min((len(each.seeds) for each in runs if learned & {*each.members}), default=PAPER_SEEDS)
    few_seeds = "" if seeds >= PAPER_SEEDS else f"{seeds} of {PAPER_SEEDS} seeds at a depth"
    return Samples(
        ordered,
        unit="run",
        cluster=seeds_of(evidence, ordered.index),
        note=f"{silent} more learned no step, and have no order" if silent else "",
        missing=", ".join(filter(None, [reading_lacks(study_config(evidence), runs), few_seeds])),
    )


def out_of_order(crossings: Sequence[Crossing]) -> int | None:
    """In how many neighbouring steps a model learned the later one first.

    Two crossings within one evaluation interval are a tie, which is no disorder; a step that was never learned comes
    after those that were.  `None` for a model that learned nothing, which says nothing about an order.
    """
    orders = [order(earlier, later) for earlier, later in pairwise(crossings)]
    known = [each for each in orders if each is not Order.UNKNOWN]
    return sum(each is Order.AFTER for each in known) if known else None


def crossings_of(evidence: "Evidence", runs: Sequence[Runs]) -> dict[int, list[Crossing] | None]:
    """Member → when its partial loss of each step that it is asked for fell under 0.5; `None` if it diverged."""
    steps = {step for each in runs for step in each.configuration.asked_steps}
    curves = {step: evidence.curve(f"loss_step_{step}", measure="training") for step in steps}
    last = evidence.last("final_loss")
    return {
        member: None
        if math.isnan(last[member])
        else [learned_at(curves[step][member].dropna()) for step in each.configuration.asked_steps]
        for each in runs
        for member in each.members
    }


def learned_at(curve: "pd.Series[float]") -> Crossing:
    """When a partial loss, a series over training steps, first fell under 0.5."""
    return first_crossing(curve.index.tolist(), curve.tolist(), LEARNED, rising=False)


# R9a and R9b: what theory says.


def layers_above_bound(evidence: "Evidence") -> Samples:
    """By how many layers the exact minimum lies above the theorem's bound, for every D, mask and order of pairs."""
    masks: tuple[Mask, ...] = ("causal", "none")
    gaps = [
        exact_layers(steps, mask, order_) - theorem_bound(steps)
        for steps in range(1, THEORY_STEPS + 1)
        for mask in masks
        for order_ in ("deepest-first", "shallowest-first")
    ]
    looseness = f"the exact minimum lies {min(gaps):.2f} to {max(gaps):.2f} layers above the bound"
    return Samples(gaps, unit="case", note=looseness)


def losses_below_bound(evidence: "Evidence") -> Samples:
    """Final partial loss of x_D of every model with fewer layers than the bound that is asked for the whole chain."""
    runs, config = _below_bound(evidence), study_config(evidence)
    if not runs:
        return Samples([], unit="run", note="no run has fewer layers than the bound")
    losses = losses_of_last(evidence, runs)
    return Samples(
        losses,
        unit="run",
        cluster=seeds_of(evidence, losses.index),
        note=_words_below_exact(evidence, config),
        missing=reading_lacks(config, runs, depths=False),
    )


def losses_of_last(evidence: "Evidence", runs: Sequence[Runs]) -> "pd.Series[float]":
    """Final partial loss of x_D of every model, D as in its own configuration."""
    import pandas as pd

    found = [
        evidence.last("final_loss", part=f"step_{each.configuration.steps}")[each.members] for each in runs
    ]
    return pd.concat(found) if found else pd.Series(dtype=float)


def _below_bound(evidence: "Evidence") -> list[Runs]:
    return [
        each
        for each in all_runs(evidence)
        if each.configuration.asked == "IC"
        and each.configuration.layers < theorem_bound(each.configuration.steps)
    ]


def _words_below_exact(evidence: "Evidence", config: DepthStudyConfig) -> str:
    """What became of the models that the bound allows, but not the exact minimum; empty if there are none."""
    between = [
        each
        for each in all_runs(evidence)
        if each.configuration.asked == "IC"
        and theorem_bound(each.configuration.steps)
        <= each.configuration.layers
        < exact_of(config.of(each.configuration), each.configuration.steps)
    ]
    losses = losses_of_last(evidence, between).dropna()
    if losses.empty:
        return ""
    learned = int((losses < LEARNED).sum())
    against = ", which speaks against Assumption 1" if learned else ""
    return (
        f"of {len(losses)} further runs below the exact minimum of the information-flow model, {learned} learned "
        f"x_D{against}"
    )


def lacks_below_bound(evidence: "Evidence") -> str:
    """What the models with fewer layers than the bound lack of the paper's protocol, in words."""
    return ", ".join(departures(study_config(evidence), _below_bound(as_configured(evidence))))


# What they share.


def _members(runs: Sequence[Runs]) -> list[int]:
    return [member for each in runs for member in each.members]


def _lacks(evidence: "Evidence", runs: Sequence[Runs]) -> str:
    return ", ".join([*departures(study_config(evidence), runs), *few_depths(runs)])


def _not_by_seed(why: str) -> dict[str, Samples]:
    return {name: Samples([], unit="seed", note=why) for name in GROWTH}


def seeds_of(evidence: "Evidence", members: Iterable[int]) -> list[int]:
    """Seed of each member: runs of one seed at several depths are resampled together."""
    return [evidence.seeds[int(member)] for member in members]
