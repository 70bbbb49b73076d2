"""What the claims of the depth study are judged on, from the evidence table alone.

Each value function takes the evidence of one reading of what the paper leaves open.  Models that diverged have no
number: they are missing, not left out.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hopscope.claims import Samples
from hopscope.claims.crossings import Crossing, Order, first_crossing, order
from hopscope.studies.depth.config import AS_CONFIGURED, Asked, Configuration, DepthStudyConfig, Reading
from hopscope.studies.recipe import exact_of
from hopscope.theory.information_flow import Mask, exact_layers, theorem_bound
from hopscope.theory.information_flow import Order as PairOrder
from hopscope.words import counted

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

ValueOfClaim = Callable[["Evidence"], Any]

Models = Mapping[Configuration, Mapping[int, int]]
"""Configuration → seed → member."""

LEARNED = 0.5
"""A partial loss below this counts as learned by a model that chooses among the paper's four chains (section 7.2)."""

ERRORS = 1.96
"""Standard errors within which a measured loss lies 95 % of the time."""

PAPER_SEEDS = 8
"""Seeds of each depth in the paper (section 7.1)."""

PAPER_CHAINS = 4
"""Chains N of a sample in the paper (section 7.1)."""

PAPER_DEPTHS = 8
"""Numbers of layers in the paper (section 7): "64 transformers with 1 to 8 layers"."""

THEORY_STEPS = 64
"""Chains up to this length are counted through for R9a."""

GROWTH = ("layers from one step to the next", "layers from first to last")
"""Parts of R2."""


# Which models there are.


def study_config(evidence: "Evidence") -> DepthStudyConfig:
    """The configuration of the run that the evidence is of."""
    return _validated(json.dumps(dict(evidence.config)))


@lru_cache(maxsize=8)
def _validated(config: str) -> DepthStudyConfig:
    """A configuration from its JSON text; kept, as every value of every claim under every reading asks for it."""
    return DepthStudyConfig.model_validate_json(config)


def of_plateau(loss: float, chains: int) -> float:
    """A loss that the paper names for four chains, at the same share of the plateau 1 - 1/N of another number.

    One chain has no plateau: there the loss stays as it is.
    """
    return loss if chains in (1, PAPER_CHAINS) else loss * (1 - 1 / chains) / (1 - 1 / PAPER_CHAINS)


def learned_below(config: DepthStudyConfig) -> float:
    """The partial loss below which a step counts as learned, with the study's number of chains."""
    return of_plateau(LEARNED, config.chains)


def all_models(evidence: "Evidence") -> Models:
    """The models of the evidence, in the order of the grid."""
    members: dict[str, dict[int, int]] = {}
    for member, name in evidence.configurations.items():
        members.setdefault(name, {})[evidence.seeds[member]] = member
    return {each: members[each.name] for each in study_config(evidence).grid() if each.name in members}


def panel(evidence: "Evidence", asked: Asked) -> Models:
    """The models of one panel of Figure 4 under one reading, by depth; those of the sweep over D are left out."""
    wanted = (asked, study_config(evidence).steps_of(asked))
    found = {each: of for each, of in all_models(evidence).items() if (each.asked, each.steps) == wanted}
    return dict(sorted(found.items(), key=lambda models: models[0].layers))


def of_reading(evidence: "Evidence", reading: Reading = AS_CONFIGURED) -> "Evidence":
    """The evidence of the models that were trained under one reading, by default the study's own."""
    grid = study_config(evidence).grid()
    return evidence.where(configuration=[each.name for each in grid if each.reading == reading])


# What they lack of the paper's protocol.


def protocol_deviations(
    config: DepthStudyConfig, models: Collection[Configuration], *, depths: bool = True
) -> list[str]:
    """How models depart from what the paper states, in words; the details that it leaves open are no departure.

    Fewer numbers of layers than in the paper are one, unless `depths` do not matter.
    """
    words = dict.fromkeys(words for each in models for words in config.protocol_deviations(each))
    too_few = depths and len(models) < PAPER_DEPTHS
    return [*words, *([f"{len(models)} of {PAPER_DEPTHS} depths"] if too_few else [])]


def reading_lacks(config: DepthStudyConfig, models: Models, *, depths: bool = True) -> str:
    """What models of one reading lack because of it, in words; nothing under the study's own.

    What the run lacks under its own reading is said once, by the claim's `at_scale`.
    """
    if not any(each.reading.changes for each in models):
        return ""
    own = protocol_deviations(config, [replace(each, reading=AS_CONFIGURED) for each in models], depths=False)
    return ", ".join(
        words for words in protocol_deviations(config, models, depths=depths) if words not in own
    )


def lacks(asked: Asked, evidence: "Evidence") -> str:
    """What the models that are asked for the whole chain, or its last symbol alone, lack of the paper's protocol."""
    return ", ".join(protocol_deviations(study_config(evidence), panel(of_reading(evidence), asked)))


def lacks_below(least: Literal["bound", "exact minimum"], evidence: "Evidence") -> str:
    """What the models with fewer layers than a least number lack of the paper's protocol, in words."""
    below_it = _below_bound if least == "bound" else _below_exact
    models = below_it(of_reading(evidence))
    return ", ".join(protocol_deviations(study_config(evidence), models, depths=False))


# R1: without the curriculum.


def losses_without_curriculum(evidence: "Evidence") -> Samples:
    """Final loss of every model that is asked for the last symbol alone."""
    models, config = panel(evidence, "non-IC"), study_config(evidence)
    members = [member for of in models.values() for member in of.values()]
    if not members:
        return Samples([], unit="run", note="not trained in this run")
    losses = evidence.last("final_loss")[members]
    return _by_run(evidence, losses, error=_errors(evidence, members), missing=reading_lacks(config, models))


def _errors(evidence: "Evidence", members: Sequence[int], part: str | None = None) -> list[float]:
    """How far the final loss of each member may lie from the truth."""
    config = study_config(evidence)
    # The curves are measured on fewer samples than the last checkpoint: their error is larger by the root of the ratio.
    wider = ERRORS * max(1.0, config.analysis_samples / config.evaluation_samples) ** 0.5
    return list(evidence.last("checkpoint_loss_error", part=part)[members] * wider)


# R2 and R11: what a layer buys.


def growth_of_layers(evidence: "Evidence") -> Mapping[str, Samples]:
    """By seed: how many layers more the next step of the chain takes, at least, and the last one than the first."""
    models, config = panel(evidence, "IC"), study_config(evidence)
    if len(models) < 2 or config.steps < 2:
        return dict.fromkeys(GROWTH, Samples([], unit="seed", note="needs several depths and steps"))
    needed = [list(each.values()) for each in needed_layers(evidence, models).values()]
    if not needed:
        why = "no seed learned any step at any depth"
        return dict.fromkeys(GROWTH, Samples([], unit="seed", note=why))
    # The least of numbers some of which are missing is missing.
    smallest = [float(np.diff(each).min()) for each in needed]
    whole = [each[-1] - each[0] for each in needed]
    lacking, note = reading_lacks(config, models), _implied_by_order(evidence, models)
    return {
        name: Samples(values, unit="seed", missing=lacking, note=note)
        for name, values in zip(GROWTH, (smallest, whole), strict=True)
    }


def _implied_by_order(evidence: "Evidence", models: Models) -> str:
    """How far R2 says no more than R3 does, and how many depths it rests on, in words."""
    level = learned_below(study_config(evidence))
    learned = [losses < level for losses in losses_by_depth(evidence, models).values()]
    nested = sum(int((each[1:] <= each[:-1]).all(axis=0).sum()) for each in learned)
    total = sum(each.shape[1] for each in learned)
    return (
        f"in {nested} of {counted(total, 'model')} every step that was learned follows one that was, and there this "
        f"follows from R3; it rests on {counted(len(models), 'depth')}"
    )


def needed_layers(evidence: "Evidence", models: Models) -> dict[int, dict[int, float]]:
    """How many layers each seed took to learn each step of the chain.

    Args:
        evidence: of one reading.
        models: of one D, by depth.

    Returns:
        Seed → step k → least number of layers with a final partial loss under 0.5: one more than the deepest model has
        where none learned it, NaN where a shallower model diverged.  Seeds that were trained at every depth; one that
        learned no step says nothing.
    """
    depths, level = [each.layers for each in models], learned_below(study_config(evidence))
    found = {}
    for seed, losses in losses_by_depth(evidence, models).items():
        layers = [_first_learned(of_step, depths, level) for of_step in losses]
        if any(each != depths[-1] + 1 for each in layers):
            found[seed] = dict(enumerate(layers, start=1))
    return found


def losses_by_depth(evidence: "Evidence", models: Models) -> dict[int, np.ndarray]:
    """Seed → final partial losses `[step, depth]`, of the seeds that were trained at every depth."""
    steps = range(1, study_config(evidence).steps + 1)
    losses = [evidence.last("final_loss", part=f"step_{step}") for step in steps]
    seeds = sorted(set.intersection(*map(set, models.values())))
    return {
        seed: np.array([[of_step[of[seed]] for of in models.values()] for of_step in losses])
        for seed in seeds
    }


def _first_learned(losses: np.ndarray, depths: Sequence[int], level: float) -> float:
    for layers, loss in zip(depths, losses, strict=True):
        if not loss >= level:
            return math.nan if math.isnan(loss) else layers
    return depths[-1] + 1


def largest_gains(evidence: "Evidence") -> Samples:
    """By seed: the largest gain in skill from one depth to the next, as a share of the range over all depths.

    Skill in x_k is 1 minus its partial loss, a continuous metric; what is taken is the mean over the steps that the
    seed learns at some depth.  A seed that learns none, or all alike at every depth, has no range; one with a diverged
    model has NaN.
    """
    models = panel(evidence, "IC")
    layers = [each.layers for each in models]
    if len(layers) < 3 or layers != list(range(layers[0], layers[-1] + 1)):
        return Samples([], unit="seed", note="needs three depths or more, one layer apart")
    gains = []
    for skills in losses_by_depth(evidence, models).values():
        learned, width = ranges_of_skill(1.0 - skills, learned_below(study_config(evidence)))
        if np.isnan(skills).any():
            gains.append(math.nan)
        elif learned.any():
            largest = np.diff(1.0 - skills, axis=1).max(axis=1)
            gains.append(float((largest[learned] / width[learned]).mean()))
    if not gains:
        return Samples([], unit="seed", note="no seed learned a step at some depths and not at others")
    return Samples(gains, unit="seed", missing=reading_lacks(study_config(evidence), models))


def ranges_of_skill(skills: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Which steps are learned at some depth and not at others, and the range of each.

    Args:
        skills: `[step, depth]`.
        level: of the loss, below which a step counts as learned.
    """
    low, high = skills.min(axis=1), skills.max(axis=1)
    return high > np.maximum(low, 1.0 - level), high - low


# R3: in which order.


def steps_out_of_order(evidence: "Evidence", reverse: bool = False) -> Samples:
    """In how many neighbouring steps each model learned the later one first; of models that learned a step.

    Args:
        evidence: of one reading.
        reverse: whether to count those in which it learned the earlier one first.
    """
    import pandas as pd

    config = study_config(evidence)
    models = panel(evidence, "IC") if config.steps > 1 else {}
    if not models:
        return Samples([], unit="run", note="not trained in this run")
    found = {
        member: math.nan if crossings is None else out_of_order(crossings[::-1] if reverse else crossings)
        for member, crossings in crossings_of(evidence, models).items()
    }
    ordered = pd.Series({member: count for member, count in found.items() if count is not None}, dtype=float)
    if ordered.empty:
        return Samples([], unit="run", note="no run learned a step")
    silent = len(found) - len(ordered)
    learned = {*ordered.dropna().index}
    seeds = min((len(of) for of in models.values() if learned & {*of.values()}), default=PAPER_SEEDS)
    few_seeds = "" if seeds >= PAPER_SEEDS else f"{seeds} of {PAPER_SEEDS} seeds at a depth"
    return _by_run(
        evidence,
        ordered,
        note=f"{silent} more learned no step, and have no order" if silent else "",
        missing=", ".join(filter(None, [reading_lacks(config, models), few_seeds])),
    )


def out_of_order(crossings: Sequence[Crossing]) -> int | None:
    """In how many neighbouring steps a model learned the later one first.

    Two crossings within one evaluation interval are a tie, which is no disorder; a step that was never learned comes
    after those that were.  `None` for a model that learned nothing, which says nothing about an order.
    """
    orders = [order(earlier, later) for earlier, later in pairwise(crossings)]
    known = [each for each in orders if each is not Order.UNKNOWN]
    return sum(each is Order.AFTER for each in known) if known else None


def crossings_of(evidence: "Evidence", models: Models) -> dict[int, list[Crossing] | None]:
    """Member → when it learned each step that it is asked for (`learned_below`); `None` if it diverged."""
    steps = {step for each in models for step in each.asked_steps}
    curves = {step: evidence.curve(f"loss_step_{step}", measure="training") for step in steps}
    last, level = evidence.last("final_loss"), learned_below(study_config(evidence))

    def crossing(step: int, member: int) -> Crossing:
        curve = curves[step][member].dropna()
        return first_crossing(curve.index.tolist(), curve.tolist(), level, rising=False)

    return {
        member: None if math.isnan(last[member]) else [crossing(step, member) for step in each.asked_steps]
        for each, of in models.items()
        for member in of.values()
    }


# R9a, R9b and R9c: what theory says.


def layers_above_bound(evidence: "Evidence") -> Samples:
    """By how many layers the exact minimum lies above the theorem's bound, for every D, mask and order of pairs."""
    gaps = [layers - theorem_bound(steps) for steps, layers in exact_cases()]
    looseness = f"the exact minimum lies {min(gaps):.2f} to {max(gaps):.2f} layers above the bound"
    return Samples(gaps, unit="case", note=looseness)


def exact_cases() -> Iterator[tuple[int, int]]:
    """D and the exact minimum of layers, for every D, mask and order of pairs."""
    masks: tuple[Mask, ...] = ("causal", "none")
    orders: tuple[PairOrder, ...] = ("deepest-first", "shallowest-first")
    for steps, mask, pairs in product(range(1, THEORY_STEPS + 1), masks, orders):
        yield steps, exact_layers(steps, mask, pairs)


def losses_below_bound(evidence: "Evidence") -> Samples:
    """Final partial loss of x_D of every model with fewer layers than the bound that is asked for the whole chain."""
    models, config = _below_bound(evidence), study_config(evidence)
    if not models:
        return Samples([], unit="run", note="no run has fewer layers than the bound")
    return _by_run(
        evidence,
        losses_of_last(evidence, models),
        error=errors_of_last(evidence, models),
        note=_words_below_exact(evidence),
        missing=reading_lacks(config, models, depths=False),
    )


def losses_below_exact(evidence: "Evidence") -> Samples:
    """Final partial loss of x_D of every model with fewer layers than the exact minimum (R9c)."""
    models, config = _below_exact(evidence), study_config(evidence)
    if not models:
        return Samples([], unit="run", note="no run has fewer layers than the exact minimum")
    allowed = sum(len(of) for each, of in models.items() if each not in _below_bound(evidence))
    words = counted(allowed, "run") if allowed else "none of them"
    return _by_run(
        evidence,
        losses_of_last(evidence, models),
        error=errors_of_last(evidence, models),
        note=f"the bound log₃(2D) allows {words}",
        missing=reading_lacks(config, models, depths=False),
    )


def losses_of_last(evidence: "Evidence", models: Models) -> "pd.Series[float]":
    """Final partial loss of x_D of every model, D as in its own configuration."""
    import pandas as pd

    found = [
        evidence.last("final_loss", part=f"step_{each.steps}")[list(of.values())]
        for each, of in models.items()
    ]
    return pd.concat(found) if found else pd.Series(dtype=float)


def errors_of_last(evidence: "Evidence", models: Models) -> list[float]:
    """How far each of `losses_of_last` may lie from the truth."""
    return [
        error
        for each, of in models.items()
        for error in _errors(evidence, [*of.values()], f"step_{each.steps}")
    ]


def below(models: Models, limit: Callable[[Configuration], float]) -> dict[Configuration, Mapping[int, int]]:
    """The models that are asked for the whole chain and have fewer layers than a limit."""
    return {each: of for each, of in models.items() if each.asked == "IC" and each.layers < limit(each)}


def _below_bound(evidence: "Evidence") -> Models:
    return below(all_models(evidence), lambda each: theorem_bound(each.steps))


def _below_exact(evidence: "Evidence") -> Models:
    config = study_config(evidence)
    return below(all_models(evidence), lambda each: exact_of(config.of(each), each.steps))


def _words_below_exact(evidence: "Evidence") -> str:
    """What became of the models that the bound allows, but not the exact minimum; empty if there are none."""
    bound, exact = _below_bound(evidence), _below_exact(evidence)
    losses = losses_of_last(evidence, {each: of for each, of in exact.items() if each not in bound}).dropna()
    if losses.empty:
        return ""
    learned = int((losses < learned_below(study_config(evidence))).sum())
    against = ", which speaks against Assumption 1" if learned else ""
    return (
        f"of {len(losses)} further runs below the exact minimum of the information-flow model, {learned} learned "
        f"x_D{against}"
    )


def _by_run(evidence: "Evidence", values: "pd.Series[float]", **more: Any) -> Samples:
    """A number for each member; runs of one seed at several depths are resampled together."""
    return Samples(values, "run", [evidence.seeds[int(member)] for member in values.index], **more)
