"""Verdicts on runs whose answers are known."""

import math

import pytest

from hopscope.claims import Verdict, judge
from hopscope.claims.registration import register
from hopscope.claims.wording import verdict_words
from hopscope.studies.depth.claims import claims as all_claims
from hopscope.studies.depth.config import PRESETS, Configuration, DepthStudyConfig
from hopscope.studies.depth.values import GROWTH, THEORY_STEPS, needed_layers, panel
from hopscope.theory.information_flow import theorem_bound

from .made_up import PAPER_SCALE, Models, changed, evidence_of, made_up, staircase

IDS = ["R1", "R2", "R3", "R9a", "R9b", "R9c", "R11"]


def claims(config):
    """The claims of the paper; ours are in `test_depth_own_claims`."""
    return [claim for claim in all_claims(config) if claim.id.startswith("R")]


STAIRS = staircase(PAPER_SCALE, {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})


def judged(name, made, config=PAPER_SCALE):
    """One claim, judged on made-up models."""
    (claim,) = (claim for claim in claims(config) if claim.id == name)
    return judge(claim, evidence_of(config, made))


def test_stairs_reproduce_every_claim():
    evidence = evidence_of(PAPER_SCALE, STAIRS)
    found = {claim.id: judge(claim, evidence) for claim in claims(PAPER_SCALE)}
    assert {name: each.here.verdict for name, each in found.items()} == dict.fromkeys(IDS, Verdict.REPRODUCED)
    # What they say in general waits for the other completions; the theorem does not.
    assert {name for name, each in found.items() if each.verdict is Verdict.REPRODUCED} == {"R9a"}
    assert "not tried: gpt2-schedule, torch-base, torch-schedule" in found["R1"].words


def test_r11_says_nothing_of_steps_that_every_depth_learns_alike():
    everything = staircase(PAPER_SCALE, dict.fromkeys(range(1, 9), 5))
    found = judged("R11", everything)
    assert found.verdict is Verdict.NOT_RUN and "at some depths and not at others" in found.words


def test_r1_falls_with_one_run_below():
    losses = [0.75] * 7 + [0.69]
    assert judged("R1", changed(STAIRS, "non-IC", 5, losses=losses)).verdict is Verdict.REFUTED
    # … but not within what the sampling of the held-out set may have moved it.
    found = judged("R1", changed(STAIRS, "non-IC", 5, losses=losses, error=0.01))
    assert found.verdict is Verdict.INCONCLUSIVE and "within evaluation error" in found.words


def test_what_diverged_is_missing():
    found = judged("R1", changed(STAIRS, "non-IC", 5, diverged=(3,)))
    assert found.n == 63 and found.verdict is Verdict.INCONCLUSIVE
    assert "1 of 64 runs has no number" in found.words


def test_r2_counts_layers_by_seed():
    evidence = evidence_of(PAPER_SCALE, STAIRS)
    needed = needed_layers(evidence, panel(evidence, "IC"))
    assert list(needed) == list(range(8))
    assert needed[0] == {1: 3, 2: 4, 3: 5, 4: 6, 5: 7}
    found = judged("R2", STAIRS)
    assert found.value == dict(zip(GROWTH, (1.0, 4.0), strict=True)) and found.n_counts == "seed"


def test_r2_counts_what_no_depth_learns_as_one_layer_beyond():
    evidence = evidence_of(PAPER_SCALE, staircase(PAPER_SCALE, dict.fromkeys(range(1, 9), 2) | {1: 0}))
    assert needed_layers(evidence, panel(evidence, "IC"))[0] == {1: 2, 2: 2, 3: 9, 4: 9, 5: 9}


def test_r2_says_how_far_it_follows_from_r3():
    assert "in 64 of 64 models every step that was learned follows one that was" in judged("R2", STAIRS).words
    found = judged("R2", changed(STAIRS, "IC", 6, partial=[0.1, 0.1, 0.75, 0.1, 0.75])).words
    assert "in 56 of 64 models" in found and "it rests on 8 depths" in found


def test_r2_falls_where_a_later_step_needs_fewer_layers():
    made = changed(STAIRS, "IC", 2, partial=[0.75, 0.75, 0.75, 0.75, 0.1])
    assert judged("R2", made).verdict is Verdict.REFUTED


def test_r2_misses_what_a_diverged_model_might_have_learned():
    # Seed 5 needs more than 4 layers for the third step, or not: its model of 4 layers diverged.
    evidence = evidence_of(PAPER_SCALE, changed(STAIRS, "IC", 4, diverged=(5,)))
    needed = needed_layers(evidence, panel(evidence, "IC"))[5]
    assert needed[1] == 3 and all(math.isnan(needed[step]) for step in (2, 3, 4, 5))
    found = judged("R2", changed(STAIRS, "IC", 4, diverged=(5,)))
    assert found.n == 7 and found.verdict is Verdict.INCONCLUSIVE
    # A deeper one leaves nothing open.
    assert judged("R2", changed(STAIRS, "IC", 8, diverged=(5,))).here.verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([1000.0, 2000.0, 3000.0, 4000.0, None], Verdict.REPRODUCED),
        ([1000.0, 1000.0, 1000.0, None, None], Verdict.REPRODUCED),  # ties are no disorder
        ([1000.0, 3000.0, 2000.0, None, None], Verdict.REFUTED),
        ([None, 3000.0, None, None, None], Verdict.REFUTED),  # censored, not dropped
    ],
)
def test_r3_reads_the_order_of_crossings(times, verdict):
    full = staircase(PAPER_SCALE, {1: 1, 2: 1, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5})
    found = judged("R3", changed(full, "IC", 8, partial=[0.1] * 5, times=[times] * 8))
    assert (found.n, found.here.verdict) == (64, verdict)


def test_r3_says_nothing_of_runs_that_learned_nothing():
    found = judged("R3", STAIRS)
    assert found.n == 48 and "16 more learned no step" in found.words


def test_r3_takes_a_diverged_run_for_missing_not_for_one_that_learned_nothing():
    found = judged("R3", changed(STAIRS, "IC", 7, diverged=(2,)))
    assert found.n == 47 and found.verdict is Verdict.INCONCLUSIVE
    assert "1 of 48 runs has no number" in found.words and "16 more learned no step" in found.words


def test_r3_needs_eight_seeds_of_each_depth_that_learns_a_step():
    few = {each: (models if each.layers != 5 else Models(models.partial, 7, models.times)) for each, models in
           STAIRS.items()}  # fmt: skip
    found = judged("R3", few)
    assert found.verdict is Verdict.INCONCLUSIVE and "7 of 8 seeds at a depth" in found.words
    assert found.here.verdict is Verdict.REPRODUCED
    # … but not of one that learns none.
    few = {each: (models if each.layers != 2 else Models(models.partial, 7, models.times)) for each, models in
           STAIRS.items()}  # fmt: skip
    assert judged("R3", few).here.verdict is Verdict.REPRODUCED


def test_r9a_counts_through_what_the_theorem_says():
    found = judged("R9a", STAIRS)
    assert found.n == 4 * THEORY_STEPS and found.here.verdict is Verdict.REPRODUCED
    assert verdict_words(found) == "true by the theorem" and found.n_counts == "case"
    assert found.interval is None and min(found.samples) > 0.0


def test_r9b_looks_at_runs_below_the_bound_only():
    below = [layers for layers in PAPER_SCALE.layers if layers < theorem_bound(5)]
    assert below == [1, 2] and judged("R9b", STAIRS).n == 16
    assert judged("R9b", changed(STAIRS, "IC", 2, partial=[0.1] * 5)).verdict is Verdict.REFUTED


def test_r9b_says_when_a_run_beats_the_exact_minimum():
    # Three layers meet the bound (2.1), but the information flow takes four.
    found = judged("R9b", changed(STAIRS, "IC", 3, partial=[0.1] * 5))
    assert found.here.verdict is Verdict.REPRODUCED and "8 learned x_D, which speaks against" in found.words
    assert "0 learned x_D" in judged("R9b", STAIRS).words


def test_r9c_falls_with_runs_below_the_exact_minimum_that_the_bound_allows():
    """Three layers meet the bound (2.1) and not the exact minimum (4): R9c says more than R9b, and may fall alone."""
    made = changed(STAIRS, "IC", 3, partial=[0.1] * 5)
    found = judged("R9c", made)
    assert (found.verdict, found.n) == (Verdict.REFUTED, 24)
    assert "8 of 24 runs violate it" in found.words and "the bound log₃(2D) allows 8 runs" in found.words
    assert judged("R9b", made).here.verdict is Verdict.REPRODUCED


def test_r9c_looks_at_runs_below_the_exact_minimum_only():
    assert judged("R9c", STAIRS).n == 24
    # Four layers are enough, so that whoever learns with them speaks against nothing.
    assert judged("R9c", changed(STAIRS, "IC", 4, partial=[0.1] * 5)).here.verdict is Verdict.REPRODUCED
    # What refutes R9b refutes R9c.
    below = changed(STAIRS, "IC", 2, partial=[0.1] * 5)
    assert {judged(name, below).verdict for name in ("R9b", "R9c")} == {Verdict.REFUTED}
    missing = judged("R9c", changed(STAIRS, "IC", 3, diverged=(2,)))
    assert (missing.verdict, missing.n) == (Verdict.INCONCLUSIVE, 23)
    enough = {each: models for each, models in STAIRS.items() if each.layers > 3}
    assert judged("R9c", enough).verdict is Verdict.NOT_RUN


def test_r11_sees_a_jump_and_a_slope():
    assert judged("R11", STAIRS).value == pytest.approx(1.0)
    slope = {
        each: made_up(PAPER_SCALE, each, [0.75 - 0.09 * (each.layers - 1)] * 5)
        for each in PAPER_SCALE.base()
        if each.asked == "IC"
    }
    found = judged("R11", slope)
    assert found.value == pytest.approx(1 / 7) and found.verdict is Verdict.REFUTED
    assert judged("R11", changed(slope, "IC", 6, diverged=(4,))).n == 7


def test_r11_wants_depths_one_layer_apart():
    gaps = {each: models for each, models in STAIRS.items() if each.layers != 4}
    assert judged("R11", gaps).verdict is Verdict.NOT_RUN


def test_nothing_trained_is_not_run():
    config = DepthStudyConfig(layers=(2,), layers_last=(2,), steps=1)
    evidence = evidence_of(config, {})
    for claim in claims(config):
        if not claim.structural:
            assert judge(claim, evidence).verdict is Verdict.NOT_RUN, claim.id


def test_a_small_run_decides_nothing_about_the_paper():
    config = DepthStudyConfig()
    evidence = evidence_of(config, staircase(config, {1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: 3}))
    for claim in claims(config):
        if not claim.structural:
            found = judge(claim, evidence)
            assert found.verdict is Verdict.INCONCLUSIVE, claim.id
            assert "2,500 of 10,000 steps" in found.words


SWEPT = PAPER_SCALE.model_copy(update={"sweeps": ("specification",), "sweep_layers": PAPER_SCALE.layers})
"""Every reading at every depth."""


def test_readings_are_judged_apart():
    every = SWEPT.readings()
    assert len(every) == 16 and not every[0].changes
    found = judged("R1", with_reading(SWEPT, causal=False), SWEPT)
    assert found.verdict is Verdict.INCONCLUSIVE and "refuted under no mask" in found.words
    assert [name for name, each in found.readings.items() if each.n] == ["as configured", "no mask"]
    assert found.readings["no mask"].verdict is Verdict.REFUTED


def with_reading(config, **changes):
    """Made-up models that are asked for the last symbol, as configured (learning nothing) and under one reading."""
    one = next(reading for reading in config.readings() if reading.changes == changes)
    plain = {each: made_up(config, each, [0.75]) for each in config.base() if each.asked == "non-IC"}
    return plain | {
        Configuration("non-IC", 3, layers, one): Models([0.2], seeds=8) for layers in config.sweep_layers
    }


def test_a_reading_that_departs_from_the_paper_decides_nothing():
    found = judged("R1", with_reading(SWEPT, mlp_ratio=0.0), SWEPT).readings["no MLP"]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.words.startswith("below the protocol's scale: MLP ratio 0, not 4; ")


def test_a_reading_of_few_depths_decides_nothing():
    config = PAPER_SCALE.model_copy(update={"sweeps": ("specification",), "sweep_layers": (1, 5, 8)})
    found = judged("R1", with_reading(config, causal=False), config).readings["no mask"]
    assert found.words.startswith("below the protocol's scale: 3 of 8 depths; ")


def test_the_exact_minimum_is_that_of_the_readings_own_mask():
    # The fifth symbol takes four layers with a causal mask, and three without.
    config = PAPER_SCALE.model_copy(update={"sweeps": ("specification",), "sweep_layers": (2, 3)})
    every = config.readings()
    one = next(reading for reading in every if reading.changes == {"causal": False})
    made = {
        Configuration("IC", 5, layers, reading): Models([0.75] * 5, seeds=3)
        for reading in (every[0], one)
        for layers in (2, 3)
    }
    evidence = evidence_of(config, made)
    (r9b,) = (claim for claim in claims(config) if claim.id == "R9b")
    notes = {name: value(evidence).note for name, value in r9b.readings(evidence).items()}
    assert "of 3 further runs below the exact minimum" in notes["as configured"]
    assert notes["no mask"] == ""
    (r9c,) = (claim for claim in claims(config) if claim.id == "R9c")
    found = {name: value(evidence) for name, value in r9c.readings(evidence).items()}
    assert (len(found["as configured"].values), len(found["no mask"].values)) == (6, 3)
    assert found["as configured"].note == "the bound log₃(2D) allows 3 runs"
    assert found["no mask"].note == "the bound log₃(2D) allows none of them"


def test_the_rules_can_be_registered():
    registered = register(claims(PRESETS["laptop"]))
    assert list(registered["claims"]) == IDS
    # The rules are those of every preset.
    assert registered == register(claims(PRESETS["paper"]))


@pytest.mark.parametrize("name", ["R9b", "R9c"])
def test_bounds_fall_beyond_evaluation_error_alone(name):
    made = changed(STAIRS, "IC", 1, partial=[0.75] * 4 + [0.48])
    assert judged(name, made).verdict is Verdict.REFUTED
    found = judged(name, changed(STAIRS, "IC", 1, partial=[0.75] * 4 + [0.48], error=0.05))
    assert found.verdict is Verdict.INCONCLUSIVE and "within evaluation error" in found.words


@pytest.mark.parametrize("name", ["R2", "R3", "R11"])
def test_a_guess_among_two_chains_is_nothing_learned(name):
    """Its loss is 0.5, and sampling may move it below."""
    config = PAPER_SCALE.model_copy(update={"chains": 2})
    made = {each: made_up(config, each, [0.49] * len(each.asked_steps)) for each in config.base()}
    found = judged(name, made, config)
    assert found.verdict is Verdict.NOT_RUN, found.words
