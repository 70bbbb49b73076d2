"""What would be there too if a claim held for a reason of no interest."""

import math
from dataclasses import replace

import pytest

from hopscope.claims import Verdict, judge
from hopscope.studies.depth import values
from hopscope.studies.depth.claims import claims as all_claims
from hopscope.studies.depth.controls import (
    gain_between_seeds,
    growth_among_learned,
    layers_above_a_wrong_bound,
    loss_with_curriculum,
    loss_with_enough_layers,
    steps_in_order,
)
from hopscope.studies.depth.values import GROWTH

from .made_up import PAPER_SCALE, Models, changed, evidence_of, staircase


def claims(config):
    """The claims of the paper; ours are in `test_depth_own_claims`."""
    return [claim for claim in all_claims(config) if claim.id.startswith("R")]


STAIRS = staircase(PAPER_SCALE, {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})
EVIDENCE = evidence_of(PAPER_SCALE, STAIRS)


def with_and_without(name, made):
    """A claim, judged with its control and, as if nobody had asked, without it."""
    (claim,) = (claim for claim in claims(PAPER_SCALE) if claim.id == name)
    evidence = evidence_of(PAPER_SCALE, made)
    return judge(claim, evidence), judge(replace(claim, controls=None, must_not=None), evidence)


def jumping_at(*depths):
    """Models of eight seeds that learn every step at one depth, the seeds in turn at each of these."""
    made = {}
    for each in PAPER_SCALE.base():
        if each.asked == "IC":
            partial = [[0.05 if each.layers >= depths[seed % len(depths)] else 0.75] * 5 for seed in range(8)]
            made[each] = Models(partial[0], 8, by_seed=partial)
    return made


def controls(made, config=PAPER_SCALE):
    """Whether the control of each claim shows what it must not."""
    evidence = evidence_of(config, made)
    found = {claim.id: judge(claim, evidence).controls for claim in claims(config)}
    return {name: control.shows for name, of in found.items() for control in of.values()}


def test_where_models_learn_one_step_after_another_no_control_shows_anything():
    assert controls(STAIRS) == {claim.id: False for claim in claims(PAPER_SCALE)}
    assert not [claim.id for claim in claims(PAPER_SCALE) if claim.must_not is None]


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


@pytest.mark.parametrize("name", ["R1", "R9b", "R9c", "R11"])
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


def taken_back(name, made):
    """Fail unless the control takes back what would be reproduced without it."""
    found, alone = with_and_without(name, made)
    assert alone.here.verdict is Verdict.REPRODUCED, alone.words
    assert (found.verdict, found.here.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert [control.shows for control in found.controls.values()] == [True]
    assert f"the control {next(iter(found.controls))} shows it too" in found.words


def test_r9a_needs_cases_that_tell_a_bound_from_another_number(monkeypatch):
    (control,) = layers_above_a_wrong_bound(EVIDENCE).values
    assert control == min(layers - math.log2(2 * steps) for steps, layers in values.exact_cases()) < 0.0
    # So many layers are above every logarithm.
    many = [(steps, layers + 10) for steps, layers in values.exact_cases()]
    monkeypatch.setattr(values, "exact_cases", lambda: iter(many))
    taken_back("R9a", STAIRS)


@pytest.mark.parametrize("name", ["R9b", "R9c"])
def test_that_too_few_layers_fail_says_nothing_where_the_deepest_models_fail_too(name):
    taken_back(name, staircase(PAPER_SCALE, dict.fromkeys(range(1, 9), 0)))
    # The same where they learn all but the last symbol.
    taken_back(name, staircase(PAPER_SCALE, {1: 0, 2: 0} | dict.fromkeys(range(3, 9), 4)))
    found, _ = with_and_without(name, staircase(PAPER_SCALE, dict.fromkeys(range(1, 8), 0) | {8: 5}))
    assert found.here.verdict is Verdict.REPRODUCED


def test_r11_needs_seeds_that_differ_less_than_depths():
    made = jumping_at(2, 8)
    # At six of eight depths one of two neighbouring seeds has learned everything, and the other nothing.
    assert gain_between_seeds(evidence_of(PAPER_SCALE, made)).values == pytest.approx([0.75] * 8)
    taken_back("R11", made)


def test_r11_stands_where_seeds_differ_a_little():
    made = jumping_at(2, 5)
    assert gain_between_seeds(evidence_of(PAPER_SCALE, made)).values == pytest.approx([0.375] * 8)
    found, _ = with_and_without("R11", made)
    assert found.here.verdict is Verdict.REPRODUCED
    assert gain_between_seeds(evidence_of(PAPER_SCALE, STAIRS)).values == (0.0,) * 8


def test_a_seed_is_not_compared_with_itself():
    one = {each: replace(models, seeds=1) for each, models in jumping_at(4).items()}
    found = gain_between_seeds(evidence_of(PAPER_SCALE, one))
    assert found.values == () and found.note == "no two seeds learned a step"
