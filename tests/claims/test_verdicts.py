import math

import numpy as np
import pytest

from hopscope.claims import (
    Criterion,
    Judgement,
    Verdict,
    combine_parts,
    combine_readings,
    judge_always,
    judge_interval,
    judge_mean,
    not_run,
)
from hopscope.claims.verdicts import agreed_readings

PERFECT = Criterion(at_least=0.999, unit="fraction")
LOSS = Criterion(at_most=0.96)


def normal(mean, spread, n, key=0):
    return list(np.random.Generator(np.random.Philox(key=key)).normal(mean, spread, size=n))


def judged(verdict, value=0.5, n=11, words="w"):
    if verdict is Verdict.NOT_RUN:
        return not_run()
    return Judgement(
        verdict=verdict, value=value, interval=(0, 1), n=n, words=words, per_seed={"value": (value,) * n}
    )


REPRODUCED, REFUTED, INCONCLUSIVE, NOT_RUN = (
    judged(each)
    for each in (Verdict.REPRODUCED, Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
)  # fmt: skip


# Always, never, 100 %


def test_ten_seeds_without_a_violation_reproduce_a_claim_about_every_seed():
    found = judge_always([1.0] * 10, PERFECT, source_n=1)
    assert found.verdict is Verdict.REPRODUCED
    assert found.words == (
        "all 10 of 10 seeds meet it; at least 74.1 % of such seeds do (95 % Clopper–Pearson, one-sided)"
    )
    assert (found.value, found.interval, found.n) == (1.0, (1.0, 1.0), 10)
    assert found.per_seed == {"value": (1.0,) * 10}


@pytest.mark.parametrize(("n", "source_n", "needed"), [(1, 1, 10), (4, 1, 10), (9, 3, 10), (19, 20, 20)])
def test_fewer_seeds_than_ten_or_than_the_source_had_reproduce_nothing(n, source_n, needed):
    found = judge_always([1.0] * n, PERFECT, source_n=source_n)
    assert found.verdict is Verdict.INCONCLUSIVE
    agree = "1 of 1 seed agrees" if n == 1 else f"{n} of {n} seeds agree"
    assert found.words == f"{agree}; needs {needed}"
    assert judge_always([1.0] * needed, PERFECT, source_n=source_n).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("n", [1, 4, 10, 23])
def test_one_violating_seed_refutes_at_any_n(n):
    found = judge_always([0.98] + [1.0] * (n - 1), PERFECT, source_n=1)
    assert found.verdict is Verdict.REFUTED
    assert found.words == f"1 of {n} seed{'s' * (n > 1)} violates it; the worst is at 98 %"


def test_the_worst_seed_is_named_whichever_side_it_lies_on():
    found = judge_always([0.5, 0.02, 0.95, 1.0], Criterion(between=(0.1, 0.9), unit="fraction"), source_n=1)
    assert found.words == "3 of 4 seeds violate it; the worst is at 100 %"
    found = judge_always([0.5, 0.001, 0.91], Criterion(at_most=0.01), source_n=1)
    assert found.words == "2 of 3 seeds violate it; the worst is at 0.91"


def test_a_violation_within_evaluation_error_neither_refutes_nor_reproduces():
    values = [0.9985] + [1.0] * 10
    within = judge_always(values, PERFECT, source_n=1, evaluation_error=0.001)
    assert within.verdict is Verdict.INCONCLUSIVE
    assert within.words == "10 of 11 seeds agree, 1 violates it within evaluation error"
    beyond = judge_always(values, PERFECT, source_n=1, evaluation_error=0.0001)
    assert beyond.verdict is Verdict.REFUTED
    assert beyond.words == "1 of 11 seeds violates it beyond evaluation error; the worst is at 99.85 %"
    few = judge_always(values[:3], PERFECT, source_n=1, evaluation_error=0.001)
    assert few.words == "2 of 3 seeds agree, 1 violates it within evaluation error; needs 10"


def test_every_seed_has_its_own_evaluation_error():
    values = [0.5, 0.75, 0.25]
    half = Criterion(at_least=0.5)
    assert (
        judge_always(values, half, source_n=1, evaluation_error=[0, 0, 0.25]).verdict is Verdict.INCONCLUSIVE
    )
    assert judge_always(values, half, source_n=1, evaluation_error=[0.25, 0.25, 0]).verdict is Verdict.REFUTED


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_below_the_protocols_scale_nothing_is_reproduced_or_refuted(value):
    found = judge_always([value] * 11, PERFECT, source_n=1, at_scale=False, missing="1 of 20 epochs")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.words == (
        f"below the protocol's scale: 1 of 20 epochs; {11 if value else 0} of 11 seeds meet it"
    )
    effect = judge_mean([value] * 11, PERFECT, at_scale=False, missing="1 of 20 epochs")
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert effect.words.startswith("below the protocol's scale: 1 of 20 epochs; 95 % interval")
    assert judge_mean([value] * 11, PERFECT, at_scale=False).words.startswith("below the protocol's scale; ")
    share = judge_interval(value, (value, value), PERFECT, n=500, at_scale=False, missing="no model")
    assert share.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("at_scale", [True, False])
def test_no_values_mean_not_run(at_scale):
    for found in (
        judge_always([], PERFECT, source_n=1, at_scale=at_scale),
        judge_mean([], PERFECT, at_scale=at_scale),
        judge_interval(0.5, (0, 1), PERFECT, n=0, at_scale=at_scale),
    ):
        assert found == not_run()
        assert (found.verdict, found.value, found.interval, found.n) == (Verdict.NOT_RUN, None, None, 0)


# Means and effects


def test_an_interval_inside_reproduces_outside_refutes_and_across_decides_nothing():
    inside, outside, across = (judge_mean(normal(mean, 0.003, 11), LOSS) for mean in (0.95, 0.97, 0.96))
    assert inside.verdict is Verdict.REPRODUCED and "wholly meets the threshold" in inside.words
    assert outside.verdict is Verdict.REFUTED and "lies wholly above the threshold" in outside.words
    assert across.verdict is Verdict.INCONCLUSIVE and "reaches across the threshold" in across.words
    assert across.interval[0] < 0.96 < across.interval[1]
    below = judge_mean(normal(0.95, 0.003, 11), Criterion(between=(0.97, 0.98)))
    assert below.verdict is Verdict.REFUTED and "lies wholly below the threshold" in below.words


def test_an_interval_wider_than_the_threshold_decides_nothing():
    found = judge_mean(normal(0.96, 0.1, 11), Criterion(between=(0.9599, 0.9601)))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_equal_values_on_the_threshold_meet_it():
    assert judge_mean([0.1] * 10, Criterion(at_least=0.1)).verdict is Verdict.REPRODUCED
    assert judge_mean([0.1] * 10, Criterion(at_most=0.1)).verdict is Verdict.REPRODUCED


def test_a_single_violating_seed_does_not_refute_a_mean():
    values = [0.95] * 12 + [0.9601]
    assert judge_mean(values, LOSS).verdict is Verdict.REPRODUCED
    assert judge_always(values, LOSS, source_n=1).verdict is Verdict.REFUTED


def test_too_few_seeds_decide_no_mean():
    found = judge_mean(normal(0.95, 0.001, 4), LOSS)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.words.endswith("wholly meets the threshold; 4 seeds, needs 10")
    assert judge_mean(normal(0.95, 0.001, 4), LOSS, min_seeds=4).verdict is Verdict.REPRODUCED
    one = judge_mean([0.95], LOSS, min_seeds=2)
    assert (one.verdict, one.interval, one.n) == (Verdict.INCONCLUSIVE, None, 1)
    assert one.words == "0.95 meets the threshold, but one seed gives no interval; 1 seed, needs 2"
    assert judge_mean([0.97], LOSS).words.startswith("0.97 fails the threshold")


def test_splits_that_disagree_widen_the_interval_across_the_threshold():
    groups = [split for split in range(3) for _ in range(7)]
    values = [0.94 + 0.015 * (split == 2) for split in groups]
    threshold = Criterion(at_most=0.952)
    assert judge_mean(values, threshold).verdict is Verdict.REPRODUCED
    assert judge_mean(values, threshold, groups=groups).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("true_mean", "wrong"), [(0.96, None), (0.9605, "reproduced"), (0.9595, "refuted")])
def test_wrong_verdicts_are_rare_however_close_the_truth_lies(true_mean, wrong):
    verdicts = [judge_mean(normal(true_mean, 0.001, 10, key), LOSS).verdict for key in range(40)]
    settled = [verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE]
    if wrong is None:
        # On the threshold itself a nominal 5 %, in truth about 10 %, of intervals miss it.
        assert len(settled) <= 10
    else:
        assert verdicts.count(Verdict(wrong)) <= 1


def test_an_interval_from_elsewhere_is_judged_alike():
    found = judge_interval(0.95, (0.93, 0.97), Criterion(at_least=0.9, unit="fraction"), n=500)
    assert found.verdict is Verdict.REPRODUCED
    assert found.words == "95 % interval 93 % to 97 % wholly meets the threshold"
    assert (found.value, found.interval, found.n, found.per_seed) == (0.95, (0.93, 0.97), 500, {})


@pytest.mark.parametrize(
    "judge", [lambda v: judge_mean(v, LOSS), lambda v: judge_always(v, LOSS, source_n=1)]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_missing_number_is_not_judged(judge, bad):
    with pytest.raises(ValueError, match="must be finite"):
        judge([0.5, bad])


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="expected 2, found 3"):
        judge_always([1, 1], LOSS, source_n=1, evaluation_error=[0, 0, 0])
    with pytest.raises(ValueError, match=r"expected numbers >= 0, found \[-0.1, -0.1\]"):
        judge_always([1, 1], LOSS, source_n=1, evaluation_error=-0.1)
    with pytest.raises(ValueError, match="min_seeds >= 2, found 1"):
        judge_mean([1, 1], LOSS, min_seeds=1)


# Parts


@pytest.mark.parametrize(
    ("parts", "all_needed", "any_needed"),
    [
        ((REPRODUCED, REPRODUCED), Verdict.REPRODUCED, Verdict.REPRODUCED),
        ((REPRODUCED, REFUTED), Verdict.REFUTED, Verdict.REPRODUCED),
        ((INCONCLUSIVE, REFUTED), Verdict.REFUTED, Verdict.INCONCLUSIVE),
        ((NOT_RUN, REFUTED), Verdict.REFUTED, Verdict.INCONCLUSIVE),
        ((REFUTED, REFUTED), Verdict.REFUTED, Verdict.REFUTED),
        ((REPRODUCED, INCONCLUSIVE), Verdict.INCONCLUSIVE, Verdict.REPRODUCED),
        ((REPRODUCED, NOT_RUN), Verdict.INCONCLUSIVE, Verdict.REPRODUCED),
        ((NOT_RUN, INCONCLUSIVE), Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE),
        ((NOT_RUN, NOT_RUN), Verdict.NOT_RUN, Verdict.NOT_RUN),
    ],
)
def test_parts_combine(parts, all_needed, any_needed):
    for pair in (parts, parts[::-1]):
        named = dict(zip(("first", "second"), pair, strict=True))
        assert combine_parts(named).verdict is all_needed
        assert combine_parts(named, need="any").verdict is any_needed


def test_combined_parts_keep_their_names_and_numbers():
    found = combine_parts(
        {
            "recall": judged(Verdict.REPRODUCED, 0.75, n=13, words="good"),
            "elimination": judged(Verdict.REFUTED, 0.25, n=11, words="bad"),
            "other": not_run(),
        }
    )
    assert found.value == {"recall": 0.75, "elimination": 0.25}
    assert found.interval == {"recall": (0, 1), "elimination": (0, 1)}
    assert found.n == 11
    assert found.per_seed == {"recall": (0.75,) * 13, "elimination": (0.25,) * 11}
    assert found.words == "recall: good · elimination: bad · other: not run"


def test_parts_that_say_the_same_say_it_once():
    same = judge_always([1.0] * 4, PERFECT, source_n=1)
    assert combine_parts({"a": same, "b": same}).words == "4 of 4 seeds agree; needs 10"


def test_parts_must_be_single_numbers():
    with pytest.raises(ValueError, match="at least 1, found 0"):
        combine_parts({})
    both = combine_parts({"a": REPRODUCED, "b": REPRODUCED})
    with pytest.raises(ValueError, match="several in part 'c'"):
        combine_parts({"c": both})


# Readings


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ((REFUTED, REFUTED, REFUTED), Verdict.REFUTED),
        ((REFUTED, NOT_RUN, NOT_RUN), Verdict.REFUTED),
        ((NOT_RUN, REFUTED, REFUTED), Verdict.REFUTED),
        ((REFUTED, REPRODUCED, REFUTED), Verdict.INCONCLUSIVE),
        ((REFUTED, INCONCLUSIVE, REFUTED), Verdict.INCONCLUSIVE),
        ((REPRODUCED, REFUTED, NOT_RUN), Verdict.INCONCLUSIVE),
        ((REPRODUCED, REPRODUCED, NOT_RUN), Verdict.REPRODUCED),
        ((REPRODUCED, NOT_RUN, NOT_RUN), Verdict.REPRODUCED),
        ((REPRODUCED, INCONCLUSIVE, NOT_RUN), Verdict.REPRODUCED),
        ((INCONCLUSIVE, REPRODUCED, REPRODUCED), Verdict.INCONCLUSIVE),
        ((NOT_RUN, REPRODUCED, REPRODUCED), Verdict.INCONCLUSIVE),
        ((NOT_RUN, NOT_RUN, NOT_RUN), Verdict.NOT_RUN),
    ],
)
def test_readings_combine(readings, expected):
    found = combine_readings(dict(zip(("causal", "none", "window"), readings, strict=True)))
    assert found.verdict is expected
    if any(each.verdict is Verdict.REFUTED for each in readings):
        assert [name for name, each in zip(("causal", "none", "window"), readings, strict=True)
                if each.verdict is not Verdict.NOT_RUN and name not in found.words] == []  # fmt: skip


def test_the_words_name_the_reading():
    refuted = judged(Verdict.REFUTED, 0.25, words="too low")
    good = judged(Verdict.REPRODUCED, 0.75, words="fine")
    assert (
        combine_readings({"causal": refuted}).words
        == "refuted under the only tried reading (causal): too low"
    )
    assert combine_readings({"causal": refuted, "none": refuted}).words == (
        "refuted under every tried reading (causal, none): too low"
    )
    mixed = combine_readings({"causal": refuted, "none": good, "window": INCONCLUSIVE})
    assert mixed.words == (
        "the readings disagree: reproduced under none; refuted under causal; inconclusive under window"
    )
    assert mixed.value == 0.25
    late = combine_readings({"causal": not_run(), "none": good})
    assert late.words == "the default reading (causal) was not run; reproduced under none"
    assert late.value == 0.75
    assert combine_readings({"causal": good}).words == "under the reading causal: fine"
    both = combine_readings({"causal": good, "none": INCONCLUSIVE})
    assert both.words == "under the reading causal: fine; inconclusive under none"


def test_readings_of_a_claim_with_parts_keep_the_parts():
    parts = combine_parts({"a": REFUTED, "b": REPRODUCED})
    found = combine_readings({"causal": parts, "none": parts})
    assert found.verdict is Verdict.REFUTED
    assert found.value == {"a": 0.5, "b": 0.5}
    with pytest.raises(ValueError, match="at least 1, found 0"):
        combine_readings({})


def test_ways_to_measure_one_thing_must_agree():
    values = [0.2] * 8, [0.05] * 8, [0.2] * 3
    yes, no, few = (judge_mean(each, Criterion(at_least=0.1), min_seeds=8) for each in values)
    assert agreed_readings({"a": yes, "b": yes}).verdict is Verdict.REPRODUCED
    assert agreed_readings({"a": no, "b": no}).verdict is Verdict.REFUTED
    for other in (no, few, not_run()):
        for readings in ({"a": yes, "b": other}, {"b": other, "a": yes}):
            found = agreed_readings(readings)
            assert found.verdict is Verdict.INCONCLUSIVE and "disagree" in found.words and found.n > 0
    assert agreed_readings({"a": not_run()}).verdict is Verdict.NOT_RUN
    with pytest.raises(ValueError, match="expected at least 1"):
        agreed_readings({})
