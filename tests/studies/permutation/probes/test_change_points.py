"""Onsets, orders and transitions of planted curves, whose crossings are known by construction."""

import math
from itertools import pairwise

import pytest

from hopscope.studies.permutation.probes import change_points as onsets
from hopscope.studies.permutation.probes.change_points import formation_order, formed, transition

TIMES = [100.0 * n for n in range(12)]


def line(*corners, times=TIMES):
    """A curve through corners (time, value), straight between them and flat outside."""

    def value(time):
        if time <= corners[0][0]:
            return corners[0][1]
        for (t, v), (u, w) in pairwise(corners):
            if time <= u:
                return v + (w - v) * (time - t) / (u - t)
        return corners[-1][1]

    return [value(time) for time in times]


def times_of(rise):
    return rise.start.time, rise.half.time, rise.end.time


def test_a_rise_is_looked_for_after_the_lowest_level():
    """What was there before it fell is no start: half of the final level is passed twice."""
    curve = line((0, 0.7), (200, 0.9), (300, 0.1), (400, 0.1), (800, 0.9))
    found = formed(TIMES, curve, least=0.5)
    assert (found.before, found.final) == (pytest.approx(0.1), pytest.approx(0.9)) and found.happened
    assert times_of(found.rise) == pytest.approx((440.0, 600.0, 760.0))


def test_a_curve_that_rises_from_the_start_needs_no_fall():
    found = formed(TIMES, line((0, 0.0), (500, 1.0)), least=0.5)
    assert times_of(found.rise) == pytest.approx((50.0, 250.0, 450.0))


def test_the_last_of_equal_lowest_levels_counts():
    """A second rise counts, if the curve had fallen all the way in between."""
    curve = line((100, 0.0), (200, 1.0), (300, 0.0), (500, 0.0), (600, 1.0))
    assert formed(TIMES, curve, least=0.5).rise.half.time == pytest.approx(550.0)


def test_levels_before_may_be_lifted_or_given():
    curve = line((0, 0.2), (100, 0.0), (900, 0.8))
    assert formed(TIMES, curve, least=0.1).rise.half.time == pytest.approx(500.0)
    lifted = formed(TIMES, curve, least=0.1, floor=0.4)
    assert lifted.before == 0.4 and times_of(lifted.rise) == pytest.approx((540.0, 700.0, 860.0))
    assert formed(TIMES, curve, least=0.1, floor=-1.0).before == 0.0
    assert formed(TIMES, curve, least=0.1, start=-0.2).rise.half.time == pytest.approx(400.0)


@pytest.mark.parametrize(
    ("curve", "floor"),
    [
        (line((0, 0.1), (500, 0.3)), -math.inf),
        (line((0, 0.9), (500, 0.1)), -math.inf),
        (line((0, 0.0), (500, 0.6)), 0.3),
        ([0.5] * 12, -math.inf),
    ],
    ids=["too little", "falling", "too little above the floor", "flat"],
)
def test_what_rises_too_little_never_formed(curve, floor):
    found = formed(TIMES, curve, least=0.35, floor=floor)
    assert not found.happened
    for crossing in (found.rise.start, found.rise.half, found.rise.end):
        assert (crossing.time, crossing.high, crossing.censored_at) == (None, None, 1100.0)


def test_the_final_level_is_a_mean_of_the_last_evaluations():
    curve = [0.0] * 9 + [0.6, 0.9, 0.9]
    assert formed(TIMES, curve, least=0.1).final == pytest.approx(0.8)
    assert formed([0.0], [0.3], least=0.1).final == 0.3


def test_a_dip_at_the_very_end_is_not_the_level_before():
    found = formed(TIMES, [0.1] * 4 + [0.9] * 7 + [0.0], least=0.1)
    assert (found.before, found.final) == (0.1, pytest.approx(0.6))
    assert found.rise.half.low == 300.0


def test_what_is_no_curve_is_refused():
    with pytest.raises(ValueError, match="a curve must be finite"):
        formed(TIMES, [math.nan] * 12, least=0.1)
    with pytest.raises(ValueError, match="found 0 times"):
        formed([], [], least=0.1)
    with pytest.raises(ValueError, match="times must increase"):
        formed([0.0, 0.0], [0.0, 1.0], least=0.1)


# Orders.

LEAST = {"match": 0.1, "history": 0.1, "recall": 0.1, "other": 0.1}
RANKED = ("match", "history", "recall")


def found_order(**curves):
    return formation_order(TIMES, curves, LEAST, {"recall": 0.2}, RANKED)


def test_match_then_history_then_recall():
    found = found_order(
        match=line((100, 0.0), (300, 1.0)),
        history=line((0, 0.4), (200, 0.0), (400, 0.0), (600, 0.5)),
        recall=line((0, 0.3), (100, 0.0), (200, 0.2), (700, 0.2), (900, 1.0)),
        other=line((0, 0.0), (100, 1.0)),
    )
    # The other curve came before, but is not asked.
    assert found["first"] == {"half": ["match"], "start": ["match"]}
    assert found["orders"]["half"]["match"] == {"history": "before", "recall": "before", "other": "after"}
    assert found["orders"]["half"]["recall"] == {"match": "after", "history": "after", "other": "after"}
    halves = {name: part["half"]["time"] for name, part in found["parts"].items()}
    assert halves == pytest.approx({"match": 200.0, "history": 500.0, "recall": 800.0, "other": 50.0})
    assert found["parts"]["recall"]["before"] == 0.2


def test_how_much_was_there_when_recall_began():
    """Recall has gone a tenth of its way from 0.2 to 1.0 at 720."""
    found = found_order(
        match=line((100, 0.0), (300, 1.0)),
        history=line((100, 0.0), (700, 0.3), (800, 0.55), (900, 1.0)),
        recall=line((0, 0.0), (100, 0.0), (700, 0.2), (900, 1.0)),
        other=[0.3] * 12,
    )
    assert found["reached"] == {
        "match": pytest.approx(1.0),
        "history": pytest.approx(0.35),
        "recall": pytest.approx(0.1),
        "other": None,
    }


def test_crossings_within_one_interval_are_a_tie():
    found = found_order(
        match=line((200, 0.0), (300, 1.0)),
        history=line((200, 0.0), (260, 0.9), (300, 1.0)),
        recall=line((300, 0.0), (500, 1.0)),
    )
    assert found["orders"]["half"]["match"] == {"history": "tie", "recall": "before"}
    assert found["first"] == {"half": ["match", "history"], "start": ["match", "history"]}


def test_starts_and_halves_may_be_ordered_differently():
    """A part in two stages starts first and is half there last."""
    found = found_order(
        match=line((100, 0.0), (200, 0.3), (700, 0.3), (800, 1.0)),
        history=line((300, 0.0), (400, 1.0)),
        recall=line((500, 0.0), (600, 1.0)),
    )
    assert found["first"] == {"half": ["history"], "start": ["match"]}
    assert found["orders"]["half"]["match"]["recall"] == "after"


def test_what_never_formed_comes_after_what_did_and_is_never_first():
    found = found_order(
        match=line((200, 0.0), (300, 1.0)), history=[0.1] * 12, recall=line((0, 0.1), (600, 0.22))
    )
    assert found["first"]["half"] == ["match"]
    assert found["orders"]["half"]["history"] == {"match": "after", "recall": "unknown"}
    assert found["reached"] == {"match": None, "history": None, "recall": None}
    half = found["parts"]["history"]["half"]
    assert half == {"time": None, "low": None, "high": None, "censored_at": 1100.0}


# The transition.

SAMPLES = [10_000.0 * n for n in range(201)]
LOSS_FALL = [(0, 1.6), (100_000, 1.1), (900_000, 1.05), (1_100_000, 0.95), (1_300_000, 0.95)]


def transitions(recall, loss=None, samples=SAMPLES):
    losses = line(*LOSS_FALL, times=samples) if loss is None else loss
    return transition(samples, recall, [None, *losses[1:]], chance=0.25)


def test_a_transition_in_two_stages_is_read_in_two_ways():
    stages = [(0, 0.2), (50_000, 0.0), (250_000, 0.25), (900_000, 0.25), (1_200_000, 1.0)]
    found = transitions(line(*stages, times=SAMPLES))
    zero, above = found["from_zero"], found["from_chance"]
    assert (found["final"], found["chance"]) == (pytest.approx(1.0), 0.25)
    # 0.1, 0.5 and 0.9; the untrained member's 0.2 is no start.
    assert [zero[name]["time"] for name in ("start", "half", "end")] == pytest.approx(
        [130_000.0, 1_000_000.0, 1_160_000.0]
    )
    assert zero["width"] == pytest.approx(1_030_000.0) and zero["relative_width"] == pytest.approx(1.03)
    # 0.325, 0.625 and 0.925.
    assert [above[name]["time"] for name in ("start", "half", "end")] == pytest.approx(
        [930_000.0, 1_050_000.0, 1_170_000.0]
    )
    assert above["width"] == pytest.approx(240_000.0)
    assert above["relative_width"] == pytest.approx(240 / 1050)
    assert above["widest"] >= above["width"]


def test_the_steepest_fall_is_that_of_the_transition_and_not_the_larger_one_before():
    found = transitions(line((0, 0.0), (900_000, 0.25), (1_200_000, 1.0), times=SAMPLES))
    fall = found["steepest_fall"]
    assert fall["rate"] == pytest.approx(0.5)  # 0.1 nats in 0.2 million samples
    assert fall["high"] - fall["low"] == (onsets.SMOOTHING - 1) * 10_000.0
    assert fall["low"] >= 900_000 and fall["high"] <= 1_100_000


def test_the_steepest_fall_is_found_where_a_smooth_loss_falls_fastest():
    loss = [0.95 + 0.1 / (1 + math.exp((time - 1_030_000.0) / 20_000.0)) for time in SAMPLES]
    fall = transitions(line((0, 0.0), (900_000, 0.25), (1_200_000, 1.0), times=SAMPLES), loss)[
        "steepest_fall"
    ]
    assert fall["time"] == pytest.approx(1_030_000.0)
    # Lines over 80,000 samples flatten the true slope, 0.1/(4 · 20,000) = 1.25 nats per million, a little.
    assert 0.9 < fall["rate"] < 1.25


def test_one_noisy_evaluation_does_not_make_the_steepest_fall():
    loss = line(*LOSS_FALL, times=SAMPLES)
    loss[115] += 0.01  # a single jump of 0.01 within 10,000 samples is twice the true slope
    fall = transitions(line((0, 0.0), (900_000, 0.25), (1_200_000, 1.0), times=SAMPLES), loss)[
        "steepest_fall"
    ]
    assert fall["rate"] == pytest.approx(0.5) and fall["high"] <= 1_100_000


@pytest.mark.parametrize("recall", [[0.0] * 201, line((0, 0.0), (300_000, 0.3), times=SAMPLES)])
def test_without_recall_there_is_no_transition(recall):
    found = transitions(recall)
    for reading in (found["from_zero"], found["from_chance"]):
        for name in ("start", "half", "end"):
            assert (reading[name]["time"], reading[name]["censored_at"]) == (None, 2_000_000.0)
        assert reading["width"] is reading["widest"] is reading["relative_width"] is None
    assert set(found["steepest_fall"].values()) == {None} and found["final"] == pytest.approx(recall[-1])


def test_partial_recall_is_a_transition_to_its_own_level():
    found = transitions(line((500_000, 0.05), (1_000_000, 0.75), times=SAMPLES))
    assert found["final"] == pytest.approx(0.75)
    # A half of 0.75, and the middle of 0.25 and 0.75.
    assert found["from_zero"]["half"]["time"] == pytest.approx(500_000.0 + 500_000.0 * 0.325 / 0.7)
    assert found["from_chance"]["half"]["time"] == pytest.approx(500_000.0 + 500_000.0 * 0.45 / 0.7)


def test_too_few_evaluations_for_a_line_give_no_fall():
    few = [0.0, 1e6, 2e6, 3e6, 4e6, 5e6]
    found = transition(few, [0.0, 0.0, 1.0, 1.0, 1.0, 1.0], [None, 1.1, 1.0, 0.96, 0.96, 0.96], chance=0.25)
    assert found["from_chance"]["half"]["time"] == pytest.approx(1.625e6)
    assert set(found["steepest_fall"].values()) == {None}
