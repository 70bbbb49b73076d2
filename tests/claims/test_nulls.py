import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.claims import Samples, Verdict, at_least, at_most, between, judge
from hopscope.claims.intervals import wilson
from hopscope.claims.nulls import against, fails_with_missing, holds_with_missing, in_favour

from .stand_in import claim, members, numbers, series

HIGH = at_least(0.9, "fraction")


def judged(values, must=HIGH, *, unit="run", **fields):
    return judge(claim(Samples(values, unit), must, **fields), members(len(values)))


# How much must be there


def test_three_quarters_must_be_there():
    good = [0.99, 1.0] * 12
    enough = judged([*good, *[None] * 8], at_least(0.5, "fraction"), rule="mean")
    assert (enough.verdict, enough.n) == (Verdict.REPRODUCED, 24)
    assert "8 of 32 runs" in enough.words
    few = judged([*good, *[None] * 9], at_least(0.5, "fraction"), rule="mean")
    assert (few.verdict, few.leaning, few.n) == (Verdict.INCONCLUSIVE, "agrees", 24)
    assert "9 of 33 runs" in few.words and numbers(few.words)[-1] == 75


def test_none_nan_and_pandas_null_are_missing_alike():
    entries = [
        judged([*[0.99, 1.0] * 6, missing], rule="mean") for missing in (None, math.nan, np.float64("nan"))
    ]
    assert entries[0] == entries[1] == entries[2]
    assert entries[0].samples[-1] is None and entries[0].n == 12
    of_series = judge(claim(series([*[0.99, 1.0] * 6, math.nan]), HIGH, rule="mean"), members(13))
    assert of_series.words == entries[0].words.replace("run", "seed")


def test_a_missing_number_is_a_violation_of_always():
    found = judged([*[1.0] * 29, None])
    assert (found.verdict, found.n, found.leaning) == (Verdict.INCONCLUSIVE, 29, "agrees")
    assert "1 of 30 runs has no number" in found.words
    assert judged([1.0] * 29).verdict is Verdict.REPRODUCED
    assert found.here.verdict is Verdict.INCONCLUSIVE


def test_what_is_missing_refutes_nothing_and_saves_nothing():
    assert judged([0.5, *[None] * 6]).verdict is Verdict.REFUTED
    found = judged([*[0.5, 0.6] * 6, None], rule="mean")
    assert found.verdict is Verdict.REFUTED and "it fails with that one counted for it" in found.words
    found = judged([1.0, 1.0, None])
    assert numbers(found.words) == [2, 2, 10, 1, 3]


# Counted against the claim


@pytest.mark.parametrize(
    ("values", "must", "rule", "numbers"),
    [
        # the mean reflected at the bound is the worse: 2 · 0.9 - 1 = 0.8
        ([1.0, 1.0], HIGH, "mean", [0.8]),
        # the worst measured number is the worse
        ([0.5, 1.5], at_least(0.9), "mean", [0.5]),
        ([0.25, 0.75], at_most(0.625), "mean", [0.75]),
        ([0.25, 0.25], at_most(0.625), "mean", [1.0]),
        # a fraction stays one, and a difference of fractions too
        ([0.25, 0.25], at_most(0.75, "fraction"), "mean", [1.0]),
        ([0.25, 0.25], at_most(0.75), "mean", [1.25]),
        ([0.5, 0.5], at_least(0.125, "fraction"), "mean", [0.0]),
        ([0.5, 0.5], at_least(0.125, "fraction"), "effect", [-0.25]),
        ([1.0, 1.0], at_least(-0.5, "fraction"), "effect", [-1.0]),
        # 0 bounds an effect too, on the side where it was measured
        ([0.5, 0.5], at_least(-1.0), "effect", [-0.5]),
        ([-0.5, -0.5], at_least(-1.0), "effect", [-1.5, 0.5]),
        ([-0.5, -0.5], at_most(0.25), "effect", [0.5]),
        ([0.5, 0.5], at_most(0.75), "effect", [-0.5, 1.0]),
        # a number that was measured is never made better
        ([-0.5, 0.75], at_least(0.0, "fraction"), "mean", [-0.5]),
        ([0.5, 0.75], between(0.25, 1.0), "mean", [-0.125, 1.375]),
        ([0.5, 0.75], between(0.25, 1.0, "fraction"), "mean", [0.0, 1.0]),
    ],
)
def test_numbers_that_speak_against(values, must, rule, numbers):
    assert against(values, must, rule) == numbers


@given(
    st.lists(st.floats(-2, 2), min_size=2, max_size=11),
    st.floats(-2, 2),
    st.sampled_from(["at_least", "at_most", "between"]),
    st.sampled_from(["number", "fraction"]),
    st.sampled_from(["mean", "effect"]),
)
def test_they_are_no_better_than_the_worst_measured_number(values, bound, kind, unit, rule):
    must = {
        "at_least": at_least(bound, unit), "at_most": at_most(bound, unit), "between": between(bound, bound + 1, unit)
    }[kind]  # fmt: skip
    numbers = against(values, must, rule)
    assert len(numbers) == (2 if kind == "between" else 1) or rule == "effect"
    if kind != "at_most":
        assert numbers[0] <= min(values)
    if kind != "at_least":
        assert numbers[-1] >= max(values)
    if unit == "number" and kind == "at_least":
        # As many of these as were measured take the mean to the bound, or beyond.
        assert (sum(values) / len(values) + numbers[0]) / 2 <= max(
            bound, 0.0 if rule == "effect" else bound
        ) + 1e-9


@pytest.mark.parametrize(
    ("measured", "missing", "verdict"),
    [(0.99, 1, Verdict.REPRODUCED), (0.99, 4, Verdict.REPRODUCED), (0.915, 4, Verdict.INCONCLUSIVE)],
)
def test_a_mean_must_stay_with_what_is_missing_counted_against_it(measured, missing, verdict):
    values = [measured - 0.04, measured + 0.01, measured + 0.01, measured + 0.02] * 4
    found = judged([*values, *[None] * missing], rule="mean")
    assert judged(values, rule="mean").verdict is Verdict.REPRODUCED
    assert found.verdict is verdict
    if verdict is Verdict.INCONCLUSIVE:
        assert found.words.endswith("and it does not hold with those counted against it")
        assert found.leaning == "agrees"


def test_both_sides_of_between_count():
    low, high = [0.05, 0.25] * 8, [0.75, 0.95] * 8
    must = between(0.1, 0.9, "fraction")
    for values in (low, high):
        assert judged(values, must, rule="mean").verdict is Verdict.REPRODUCED
        assert judged([*values, *[None] * 5], must, rule="mean").verdict is Verdict.INCONCLUSIVE
    middle = [0.5, 0.51] * 8
    assert judged([*middle, *[None] * 5], must, rule="mean").verdict is Verdict.REPRODUCED


def test_an_effect_must_still_exclude_zero():
    values = [-0.02, 0.01, 0.02, 0.03] * 4
    assert judged(values, at_least(-1.0), rule="effect").verdict is Verdict.REPRODUCED
    found = judged([*values, *[None] * 4], at_least(-1.0), rule="effect")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert judged([*values, *[None] * 4], at_least(-1.0), rule="mean").verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("sign", [1, -1])
def test_missing_pairs_go_to_the_corners(sign):
    pairs = [[place, sign * place] for place in range(16)]
    must = at_least(0.9) if sign > 0 else at_most(-0.9)
    fields = {"rule": "effect"}
    assert judged(pairs, must, **fields).verdict is Verdict.REPRODUCED
    found = judged([*pairs, None, [3, math.nan]], must, **fields)
    assert (found.verdict, found.n) == (Verdict.INCONCLUSIVE, 16)
    weaker = at_least(0.1) if sign > 0 else at_most(-0.1)
    assert judged([*pairs, *pairs, None, [3, math.nan]], weaker, **fields).verdict is Verdict.REPRODUCED
    # Any correlation would do, but with what is missing there may be none, or one of the other sign.
    anything = at_least(-1.0) if sign > 0 else at_most(1.0)
    for missing in (3, 5):
        assert judged([*pairs, *[None] * missing], anything, **fields).verdict is Verdict.INCONCLUSIVE


ASKEW = [(5, 1), (6, 10), (6, 3), (3, 2), (5, 2)]
"""Correlated by 0.50; with (6, 1), the one corner, by 0.34, but with (3, 10), the other, by -0.06."""


def of_copies(pairs, missing=1, copies=11):
    """The same pairs and gaps in every cluster: the interval is a point."""
    values = [*pairs, *[None] * missing] * copies
    cluster = [copy for copy in range(copies) for _ in range(len(pairs) + missing)]
    return Samples(values, "pair", cluster), cluster


@pytest.mark.parametrize(
    ("pairs", "must", "holds"),
    [
        (ASKEW, at_least(0.1), False),
        ([(x, y) for y, x in ASKEW], at_least(0.1), False),
        (ASKEW, at_least(-1.0), False),  # it would change its side of 0
        ([(-x, y) for x, y in ASKEW], at_most(-0.1), False),
        ([(x, -y) for x, y in ASKEW], at_most(-0.1), False),
        (ASKEW, between(0.1, 1.0), False),
        ([(-x, y) for x, y in ASKEW], between(-1.0, -0.1), False),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], at_least(0.1), True),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], between(0.1, 1.0), True),
    ],
)
def test_every_corner_is_tried(pairs, must, holds):
    samples, cluster = of_copies(pairs)
    assert holds_with_missing(samples, must, "effect", cluster, None) is holds


def test_what_is_filled_in_is_resampled_with_its_seed():
    # Every third of twelve seeds is lower, in all its five configurations; three other seeds lack a number.
    values = [0.935 if member // 5 % 3 else 0.875 for member in range(60)]
    for seed in (1, 2, 4):
        values[5 * seed] = None
    samples = Samples(values, "run", [member // 5 for member in range(60)])
    assert holds_with_missing(samples, HIGH, "mean", None, None)
    assert not holds_with_missing(samples, HIGH, "mean", samples.cluster, None)


# Intervals of the claim's own


def test_a_share_of_questions_counts_missing_ones_as_failures():
    right = [1.0] * 98 + [0.0]
    for missing, verdict in ((1, Verdict.REPRODUCED), (9, Verdict.INCONCLUSIVE)):
        samples = Samples([*right, *[None] * missing], "question", interval=wilson(98, 99))
        found = judge(claim(samples, HIGH, rule="mean"), members(2))
        assert found.verdict is verdict
        assert HIGH.met_by(wilson(98, 99 + missing)) == (verdict is Verdict.REPRODUCED)
    rare = Samples([*[0.0] * 98, 1.0, *[None] * 9], "question", interval=wilson(1, 99))
    assert (
        judge(claim(rare, at_most(0.1, "fraction"), rule="mean"), members(2)).verdict is Verdict.INCONCLUSIVE
    )
    within = between(0.0, 0.1, "fraction")
    assert judge(claim(rare, within, rule="mean"), members(2)).verdict is Verdict.INCONCLUSIVE


def test_any_other_interval_moves_with_the_mean():
    values = [1.0] * 16 + [None] * 4
    # Four numbers of 0.8 among 20 move the mean from 1 to 0.96.
    for low, verdict in ((0.945, Verdict.REPRODUCED), (0.935, Verdict.INCONCLUSIVE)):
        samples = Samples(values, "run", interval=(low, 1.0))
        assert judge(claim(samples, HIGH, rule="mean"), members(20)).verdict is verdict


@given(
    st.lists(st.floats(0, 1), min_size=10, max_size=13),
    st.integers(1, 4),
    st.floats(0.05, 0.95),
    st.sampled_from(["mean", "effect"]),
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_reproduced_that_complete_numbers_would_not_be(values, missing, bound, rule):
    must = at_least(bound, "fraction")
    complete = judged(values, must, rule=rule)
    found = judged([*values, *[None] * missing], must, rule=rule)
    if found.verdict is Verdict.REPRODUCED:
        assert complete.verdict is Verdict.REPRODUCED
        assert len(values) >= 0.75 * (len(values) + missing)
        # Any number from the bound up in their place keeps it.
        assert (
            judged([*values, *[max(*values, bound)] * missing], must, rule=rule).verdict is Verdict.REPRODUCED
        )
    assert (found.value, found.n) == (complete.value, complete.n)
    if found.verdict is Verdict.REFUTED:
        assert complete.verdict is Verdict.REFUTED
        assert len(values) >= 0.75 * (len(values) + missing)
        # Any number from the bound down in their place keeps it.
        assert judged([*values, *[min(*values, bound)] * missing], must, rule=rule).verdict is Verdict.REFUTED


# Counted for a claim that the measured numbers refute


@pytest.mark.parametrize(
    ("values", "must", "rule", "number"),
    [
        ([0.5, 0.7], HIGH, "mean", 1.0),  # 2 · 0.9 - 0.6 = 1.2, but no fraction is more than 1
        ([0.8, 0.88], HIGH, "mean", 0.96),
        ([0.5, 0.95], HIGH, "mean", 1.0),
        ([3.0, 5.0], at_most(3.5), "mean", 3.0),
        ([0.9, 0.9], at_most(0.1, "fraction"), "effect", -0.7),
        ([0.1, 0.1], between(0.25, 0.75), "mean", 0.4),
        ([0.8, 1.0], between(0.25, 0.75), "mean", 0.6),
    ],
)
def test_a_number_in_favour_lies_as_far_inside_as_the_mean_outside(values, must, rule, number):
    assert in_favour(values, must, rule) == pytest.approx(number)


def test_too_little_refutes_no_mean():
    bad = [0.4, 0.5] * 12
    enough = judged([*bad, *[None] * 8], rule="mean")
    assert enough.verdict is Verdict.REFUTED
    few = judged([*bad, *[None] * 9], rule="mean")
    assert (few.verdict, few.leaning) == (Verdict.INCONCLUSIVE, "disagrees")
    assert numbers(few.words)[-1] == 75


@pytest.mark.parametrize("sign", [1, -1])
def test_a_refuted_correlation_must_stay_so_with_missing_pairs_in_its_favour(sign):
    def found(bound, missing):
        pairs = [(float(n), -sign * (n + (-1) ** n)) for n in range(20)]
        must = at_least(bound) if sign > 0 else at_most(-bound)
        return judged([*pairs, *[None] * missing], must, unit="pair", rule="effect").verdict

    assert found(0.5, 6) is Verdict.REFUTED
    assert found(-0.9, 0) is Verdict.REFUTED
    assert found(-0.9, 2) is Verdict.INCONCLUSIVE  # two in the corners, and it is no longer so steep


def test_a_refuted_share_must_stay_so_with_all_missing_ones_as_successes():
    def found(right, wrong, missing):
        values = [1.0] * right + [0.0] * wrong + [None] * missing
        own = wilson(right, right + wrong)
        return judge(claim(Samples(values, "question", interval=own), HIGH, rule="mean"), members(2)).verdict

    assert found(50, 50, 0) is Verdict.REFUTED
    assert found(50, 50, 100) is Verdict.REFUTED  # 75 % right at most, whatever the others are
    assert found(80, 20, 30) is Verdict.REFUTED  # 84.6 %, up to 89.8 %
    assert found(82, 18, 30) is Verdict.INCONCLUSIVE  # 86.2 %, up to 91 %


def test_any_other_interval_of_a_refuted_mean_moves_too():
    values = [0.7] * 16 + [None] * 4
    # Four numbers of 1.0 among 20 move the mean from 0.7 to 0.76.
    for high, verdict in ((0.83, Verdict.REFUTED), (0.85, Verdict.INCONCLUSIVE)):
        samples = Samples(values, "run", interval=(0.6, high))
        assert judge(claim(samples, HIGH, rule="mean"), members(20)).verdict is verdict


def test_one_missing_number_beside_one_that_never_came_cannot_be_weighed():
    samples = Samples([200.0] * 11 + [math.inf, None], "run", interval=(150, 250))
    assert not holds_with_missing(samples, at_most(1000), "mean", None, (150, 250))
    assert judge(claim(samples, at_most(1000), rule="mean"), members(13)).verdict is Verdict.INCONCLUSIVE
    assert not fails_with_missing(samples, at_most(100), "mean", None, (150, 250))
    assert judge(claim(samples, at_most(100), rule="mean"), members(13)).verdict is Verdict.INCONCLUSIVE
