"""Verdicts on runs whose answers are known."""

import pytest

from hopscope.claims import Verdict
from hopscope.studies.depth import judges
from hopscope.studies.depth.config import DepthStudyConfig
from hopscope.studies.depth.configurations import Configuration
from hopscope.studies.depth.ledger import ENTRIES, judge
from hopscope.theory.information_flow import theorem_bound

from .made_up import PAPER_SCALE, made_up, staircase

STAIRS = {1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5}


@pytest.fixture
def stairs():
    return staircase(PAPER_SCALE, STAIRS)


def replaced(evidence, asked, layers, **changes):
    """The same with one configuration's runs made anew."""
    (each,) = (each for each in evidence if (each.asked, each.layers) == (asked, layers))
    return {**evidence, each: made_up(PAPER_SCALE, each, **changes)}


def test_stairs_reproduce_every_claim_but_the_one_that_they_contradict(stairs):
    verdicts = {claim.id: claim.verdict for claim, _ in judge(stairs, PAPER_SCALE)}
    assert verdicts == dict.fromkeys(("R1", "R2", "R3", "R9a", "R9b", "R11"), Verdict.REPRODUCED) | {
        "R2": Verdict.INCONCLUSIVE,  # ten seeds are needed for "always", and the paper has eight
        "R3": Verdict.INCONCLUSIVE,  # 16 of the 64 runs learned nothing, and have no order
    }


def test_r1_falls_with_one_run_below(stairs):
    losses = [0.75] * 7 + [0.69]
    evidence = replaced(stairs, "non-IC", 5, partial=[0.75], losses=losses)
    assert judges.r1(evidence, PAPER_SCALE).verdict is Verdict.REFUTED
    # … but not within what the sampling of the held-out set may have moved it.
    evidence = replaced(stairs, "non-IC", 5, partial=[0.75], losses=losses, error=0.02)
    assert judges.r1(evidence, PAPER_SCALE).verdict is Verdict.INCONCLUSIVE


def test_r1_says_what_diverged(stairs):
    evidence = replaced(stairs, "non-IC", 5, partial=[0.75], frozen=(3,))
    judgement = judges.r1(evidence, PAPER_SCALE)
    assert judgement.n == 63 and judgement.verdict is Verdict.INCONCLUSIVE
    assert "1 diverged runs left out" in judgement.words


def test_r2_counts_layers_by_seed(stairs):
    found = judges.chosen(stairs, PAPER_SCALE, "IC")
    needed = judges.needed_layers(found)
    assert [each.seed for each in needed] == list(range(8))
    assert needed[0].layers == {1: 3, 2: 4, 3: 5, 4: 6, 5: 7}
    judgement = judges.r2(stairs, PAPER_SCALE)
    assert judgement.value == {"layers from one step to the next": 1.0, "layers from first to last": 4.0}


def test_r2_counts_what_no_depth_learns_as_one_layer_beyond():
    evidence = staircase(PAPER_SCALE, dict.fromkeys(range(1, 9), 2) | {1: 0})
    (first, *_) = judges.needed_layers(judges.chosen(evidence, PAPER_SCALE, "IC"))
    assert first.layers == {1: 2, 2: 2, 3: 9, 4: 9, 5: 9}


def test_r2_falls_where_a_later_step_needs_fewer_layers(stairs):
    evidence = replaced(stairs, "IC", 2, partial=[0.75, 0.75, 0.75, 0.75, 0.1])
    assert judges.r2(evidence, PAPER_SCALE).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([1000.0, 2000.0, 3000.0, 4000.0, None], Verdict.REPRODUCED),
        ([1000.0, 1000.0, 1000.0, None, None], Verdict.REPRODUCED),  # ties are no disorder
        ([1000.0, 3000.0, 2000.0, None, None], Verdict.REFUTED),
        ([None, 3000.0, None, None, None], Verdict.REFUTED),  # censored, not dropped
    ],
)
def test_r3_reads_the_order_of_crossings(stairs, times, verdict):
    full = staircase(PAPER_SCALE, {**STAIRS, 1: 1, 2: 1})
    evidence = replaced(full, "IC", 8, partial=[0.1] * 5, crossings=[times] * 8)
    judgement = judges.r3(evidence, PAPER_SCALE)
    assert (judgement.n, judgement.verdict) == (64, verdict)


def test_r3_says_nothing_of_runs_that_learned_nothing(stairs):
    judgement = judges.r3(stairs, PAPER_SCALE)
    assert judgement.n == 48 and "16 more learned no step" in judgement.words


def test_r9a_counts_through_what_the_theorem_says():
    judgement = judges.r9a({}, PAPER_SCALE)
    assert judgement.n == 4 * judges.THEORY_STEPS and judgement.verdict is Verdict.REPRODUCED
    assert judgement.interval is None and min(judgement.per_seed["value"]) > 0.0


def test_r9b_looks_at_runs_below_the_bound_only(stairs):
    judgement = judges.r9b(stairs, PAPER_SCALE)
    below = [layers for layers in PAPER_SCALE.layers if layers < theorem_bound(5)]
    assert below == [1, 2] and judgement.n == 16
    learned = replaced(stairs, "IC", 2, partial=[0.1] * 5)
    assert judges.r9b(learned, PAPER_SCALE).verdict is Verdict.REFUTED


def test_r9b_says_when_a_run_beats_the_exact_minimum(stairs):
    # Three layers meet the bound (2.1), but the information flow takes four.
    learned = replaced(stairs, "IC", 3, partial=[0.1] * 5)
    judgement = judges.r9b(learned, PAPER_SCALE)
    assert (
        judgement.verdict is Verdict.REPRODUCED and "8 learned x_D, which speaks against" in judgement.words
    )
    assert "0 learned x_D" in judges.r9b(stairs, PAPER_SCALE).words


def test_r11_sees_a_jump_and_a_slope(stairs):
    assert judges.r11(stairs, PAPER_SCALE).value == pytest.approx(1.0)
    slope = {
        each: made_up(PAPER_SCALE, each, [0.75 - 0.09 * (each.layers - 1)] * 5)
        for each in PAPER_SCALE.base()
        if each.asked == "IC"
    }
    judgement = judges.r11(slope, PAPER_SCALE)
    assert judgement.value == pytest.approx(1 / 7) and judgement.verdict is Verdict.REFUTED


def test_r11_wants_depths_one_layer_apart(stairs):
    gaps = {each: found for each, found in stairs.items() if each.layers != 4}
    assert judges.r11(gaps, PAPER_SCALE).verdict is Verdict.NOT_RUN


def test_nothing_trained_is_not_run():
    config = DepthStudyConfig(layers=(2,), layers_last=(2,), steps=1)
    for entry in ENTRIES:
        if entry.by_reading:
            assert entry.judge({}, config).verdict is Verdict.NOT_RUN, entry.id


def test_a_small_run_decides_nothing_about_the_paper():
    config = DepthStudyConfig()
    evidence = staircase(config, {1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: 3})
    for claim, judgement in judge(evidence, config):
        if claim.id != "R9a":
            assert claim.verdict is Verdict.INCONCLUSIVE, claim.id
            assert "2,500 of 10,000 steps" in judgement.words or "steps" in judgement.words


def test_readings_are_judged_apart():
    config = PAPER_SCALE.model_copy(update={"sweeps": ("specification",)})
    every = config.readings()
    assert len(every) == 16 and not every[0].changes
    one = next(reading for reading in every if reading.changes == {"causal": False})
    evidence = {}
    for reading in (every[0], one):
        low = 0.75 if reading is every[0] else 0.2
        for layers in PAPER_SCALE.layers_last:
            each = Configuration("non-IC", 3, layers, reading)
            plain = Configuration("non-IC", 3, layers)
            found = made_up(config, plain, [low])
            evidence[each] = found.__class__(**{**found.__dict__, "configuration": each})
    (claim, judgement), *_ = judge(evidence, config)
    assert claim.verdict is Verdict.INCONCLUSIVE and "refuted under no mask" in judgement.words
