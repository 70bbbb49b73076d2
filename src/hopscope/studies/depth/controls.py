"""Controls of the depth study: what would be there too if a claim held for a reason of no interest.

Every one is computed from what the run has measured anyway.
"""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hopscope.claims import Samples
from hopscope.studies.depth import values

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def loss_with_curriculum(evidence: "Evidence") -> Samples:
    """Final loss of the same symbol in the deepest models that are asked for the whole chain (R1).

    If they do not learn it either, that the others do not says nothing of the curriculum.
    """
    evidence = values.of_reading(evidence)
    config, models = values.study_config(evidence), values.panel(evidence, "IC")
    members = [*models[max(models, key=lambda each: each.layers)].values()] if models else []
    if not members or config.steps < config.steps_last:
        return Samples([], unit="run", note="no model is asked for the whole chain as far as that symbol")
    losses = evidence.last("final_loss", part=f"step_{config.steps_last}")[members]
    return Samples(losses, "run", [evidence.seeds[member] for member in members])


def growth_among_learned(evidence: "Evidence") -> dict[str, Samples]:
    """How many layers more the last step takes than the first, of the steps that a seed learns at some depth (R2).

    A step that no depth learns counts one layer more than the deepest model, so that a last step which is never learned
    takes more layers than the first.
    """
    evidence = values.of_reading(evidence)
    models = values.panel(evidence, "IC")
    deepest = max((each.layers for each in models), default=0)
    grown = []
    for layers in values.needed_layers(evidence, models).values() if len(models) > 1 else ():
        # What is not known is not left out: NaN is not more than the deepest.
        learned = [needed for needed in layers.values() if not needed > deepest]
        grown.append(learned[-1] - learned[0])
    return {values.GROWTH[1]: Samples(grown, unit="seed", note="" if grown else "no seed learned a step")}


def steps_in_order(evidence: "Evidence") -> Samples:
    """In how many neighbouring steps each model learned the *earlier* one first, by more than a tie (R3).

    If it is none, all steps were learned within one evaluation interval, and the order was never seen.
    """
    return values.steps_out_of_order(values.of_reading(evidence), reverse=True)


def loss_with_enough_layers(evidence: "Evidence") -> Samples:
    """Final partial loss of x_D of the deepest models that are asked for the study's own chain (R9b, R9c).

    If they do not learn it either, that shallower ones do not says nothing of the bound.
    """
    evidence = values.of_reading(evidence)
    models = values.panel(evidence, "IC")
    if not models:
        return Samples([], unit="run", note="no model is asked for the whole chain")
    deepest = max(models, key=lambda each: each.layers)
    losses = values.losses_of_last(evidence, {deepest: models[deepest]})
    return Samples(losses, "run", [evidence.seeds[int(member)] for member in losses.index])


def layers_above_a_wrong_bound(evidence: "Evidence") -> Samples:
    """The least that the exact minimum lies above log₂(2D), which is no bound (R9a).

    If it never fell below, the cases that are counted through could not tell a bound from another number.
    """
    return Samples(
        [min(layers - math.log2(2 * steps) for steps, layers in values.exact_cases())], unit="case"
    )


def gain_between_seeds(evidence: "Evidence") -> Samples:
    """By seed: how much the next seed's skill differs at the same depth, in shares of the range over depths (R11).

    The mean over depths and over the steps that the seed learns at some depth.  If seeds differ by half of the range at
    a typical depth, a jump from one depth to the next says nothing of depth.
    """
    evidence = values.of_reading(evidence)
    models = values.panel(evidence, "IC")
    skills = (
        {seed: 1.0 - losses for seed, losses in values.losses_by_depth(evidence, models).items()}
        if models
        else {}
    )
    found = []
    for one, other in pairwise([*skills, *list(skills)[:1]]):
        learned, width = values.ranges_of_skill(
            skills[one], values.learned_below(values.study_config(evidence))
        )
        if np.isnan(skills[one]).any() or np.isnan(skills[other]).any():
            found.append(math.nan)
        elif learned.any() and one != other:
            apart = abs(skills[other] - skills[one]).mean(axis=1)
            found.append(float((apart[learned] / width[learned]).mean()))
    return Samples(found, unit="seed", note="" if found else "no two seeds learned a step")
