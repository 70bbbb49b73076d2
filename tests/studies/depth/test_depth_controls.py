"""What would be there too if a claim held for a reason of no interest."""

import math

import pytest

from hopscope.claims import Verdict, judge
from hopscope.studies.depth.claims import claims
from hopscope.studies.depth.controls import (
    growth_among_learned,
    loss_with_curriculum,
    loss_with_enough_layers,
    steps_in_order,
)
from hopscope.studies.depth.values import GROWTH

from .made_up import PAPER_SCALE, changed, evidence_of, staircase

STAIRS = staircase(PAPER_SCALE, {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})
EVIDENCE = evidence_of(PAPER_SCALE, STAIRS)


def controls(made, config=PAPER_SCALE):
    """Whether the control of each claim shows what it must not."""
    evidence = evidence_of(config, made)
    found = {claim.id: judge(claim, evidence).controls for claim in claims(config)}
    return {name: control.shows for name, of in found.items() for control in of.values()}


def test_where_models_learn_one_step_after_another_no_control_shows_anything():
    assert controls(STAIRS) == dict.fromkeys(("R1", "R2", "R3", "R9b"), False)
    assert {claim.id for claim in claims(PAPER_SCALE) if claim.must_not is None} == {"R9a", "R11"}


def test_the_controls_are_what_was_measured_of_the_deepest_models():
    partial = [0.1, 0.2, 0.3, 0.4, 0.49]
    evidence = evidence_of(PAPER_SCALE, changed(STAIRS, "IC", 8, partial=partial))
    assert loss_with_curriculum(evidence).values == (0.3,) * 8  # x_3 is what the others are asked for
    assert loss_with_enough_layers(evidence).values == (0.49,) * 8
    assert loss_with_curriculum(evidence).cluster == tuple(range(8))


def test_growth_is_that_of_learned_steps():
    assert growth_among_learned(EVIDENCE)[GROWTH[1]].values == (4.0,) * 8
    some = evidence_of(PAPER_SCALE, staircase(PAPER_SCALE, {1: 0, 2: 1} | dict.fromkeys(range(3, 9), 3)))
    assert growth_among_learned(some)[GROWTH[1]].values == (1.0,) * 8
    # Whether the last step would have been learned is not known, and not left out.
    gone = growth_among_learned(evidence_of(PAPER_SCALE, changed(STAIRS, "IC", 7, diverged=(5,))))[GROWTH[1]]
    assert gone.values[5] is None and gone.values[4] == 4.0


def test_neighbours_in_order_are_counted_without_ties():
    times = [[1000.0, 1000.0, 2000.0, None, None]] * 8
    made = changed(
        staircase(PAPER_SCALE, dict.fromkeys(range(1, 9), 0)), "IC", 8, partial=[0.1] * 5, times=times
    )
    # A tie, a step before another, a step before one that is never learned, and two that are never learned.
    assert steps_in_order(evidence_of(PAPER_SCALE, made)).values == (2.0,) * 8


@pytest.mark.parametrize("name", ["R1", "R9b"])
def test_without_models_of_the_whole_chain_there_is_no_control(name):
    found = controls({each: models for each, models in STAIRS.items() if each.asked == "non-IC"})
    assert found[name] is None


def test_a_control_that_diverged_keeps_the_claim_open():
    evidence = evidence_of(PAPER_SCALE, changed(STAIRS, "IC", 8, diverged=range(5)))
    assert sum(value is None for value in loss_with_curriculum(evidence).values) == 5
    (claim,) = (claim for claim in claims(PAPER_SCALE) if claim.id == "R1")
    found = judge(claim, evidence)
    assert found.verdict is Verdict.INCONCLUSIVE and "was not measured" in found.words
    assert math.isclose(found.value, 0.75)
