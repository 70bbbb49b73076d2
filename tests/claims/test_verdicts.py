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
    judge_bootstrap,
    judge_interval,
    not_run,
)
from hopscope.claims.verdicts import agreed_readings

from .stand_in import numbers

PERFECT = Criterion(at_least=0.999, unit="fraction")
LOSS = Criterion(at_most=0.96)


def normal(mean, spread, n, key=0):
    return list(np.random.Generator(np.random.Philox(key=key)).normal(mean, spread, size=n))


def judged(verdict, value=0.5, n=11, words="w"):
    if verdict is Verdict.NOT_RUN:
        return not_run()
    return Judgement(verdict=verdict, value=value, interval=(0, 1), n=n, words=words)


REPRODUCED, REFUTED, INCONCLUSIVE, NOT_RUN = (
    judged(each)
    for each in (Verdict.REPRODUCED, Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
)  # fmt: skip


# Always, never, 100 %


def test_ten_seeds_without_a_violation_reproduce_a_claim_about_every_seed():
    found = judge_always([1.0] * 10, PERFECT, source_n=1)
    assert found.verdict is Verdict.REPRODUCED
    assert numbers(found.words) == [10, 10, 74.1, 95]  # 0.05 ** (1 / 10)
    assert (found.value, found.interval, found.n) == (1.0, (1.0, 1.0), 10)


@pytest.mark.parametrize(("n", "source_n", "needed"), [(1, 1, 10), (4, 1, 10), (9, 3, 10), (19, 20, 20)])
def test_fewer_seeds_than_ten_or_than_the_source_had_reproduce_nothing(n, source_n, needed):
    found = judge_always([1.0] * n, PERFECT, source_n=source_n)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert numbers(found.words) == [n, n, needed]
    assert ("seed agrees" if n == 1 else "seeds agree") in found.words
    assert judge_always([1.0] * needed, PERFECT, source_n=source_n).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("n", [1, 4, 10, 23])
def test_one_violating_seed_refutes_at_any_n(n):
    found = judge_always([0.98] + [1.0] * (n - 1), PERFECT, source_n=1)
    assert found.verdict is Verdict.REFUTED
    assert numbers(found.words) == [1, n, 98]


def test_the_worst_seed_is_named_whichever_side_it_lies_on():
    found = judge_always([0.5, 0.02, 0.95, 1.0], Criterion(between=(0.1, 0.9), unit="fraction"), source_n=1)
    assert numbers(found.words) == [3, 4, 100]
    found = judge_always([0.5, 0.001, 0.91], Criterion(at_most=0.01), source_n=1)
    assert numbers(found.words) == [2, 3, 0.91]


def test_a_violation_within_evaluation_error_neither_refutes_nor_reproduces():
    values = [0.9985] + [1.0] * 10
    within = judge_always(values, PERFECT, source_n=1, errors=[0.001] * 11)
    assert within.verdict is Verdict.INCONCLUSIVE
    assert numbers(within.words) == [10, 11, 1] and "within evaluation error" in within.words
    beyond = judge_always(values, PERFECT, source_n=1, errors=[0.0001] * 11)
    assert beyond.verdict is Verdict.REFUTED
    assert numbers(beyond.words) == [1, 11, 99.85] and "beyond evaluation error" in beyond.words
    few = judge_always(values[:3], PERFECT, source_n=1, errors=[0.001] * 3)
    assert numbers(few.words) == [2, 3, 1, 10]


def test_every_seed_has_its_own_evaluation_error():
    values = [0.5, 0.75, 0.25]
    half = Criterion(at_least=0.5)
    assert judge_always(values, half, source_n=1, errors=[0, 0, 0.25]).verdict is Verdict.INCONCLUSIVE
    assert judge_always(values, half, source_n=1, errors=[0.25, 0.25, 0]).verdict is Verdict.REFUTED


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_below_the_protocols_scale_nothing_is_reproduced_or_refuted(value):
    found = judge_always([value] * 11, PERFECT, source_n=1, lacks="1 of 20 epochs")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "1 of 20 epochs" in found.words and numbers(found.words)[2:] == [11 if value else 0, 11]
    effect = judge_bootstrap([value] * 11, PERFECT, lacks="1 of 20 epochs")
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert "1 of 20 epochs" in effect.words
    assert "scale" in judge_bootstrap([value] * 11, PERFECT, lacks="").words
    share = judge_interval(value, (value, value), PERFECT, n=500, lacks="no model")
    assert share.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("lacks", [None, "no model"])
def test_no_values_mean_not_run(lacks):
    for found in (
        judge_always([], PERFECT, source_n=1, lacks=lacks),
        judge_bootstrap([], PERFECT, lacks=lacks),
        judge_interval(0.5, (0, 1), PERFECT, n=0, lacks=lacks),
    ):
        assert found == not_run()
        assert (found.verdict, found.value, found.interval, found.n) == (Verdict.NOT_RUN, None, None, 0)


# Means and effects


def test_an_interval_inside_reproduces_outside_refutes_and_across_decides_nothing():
    inside, outside, across = (judge_bootstrap(normal(mean, 0.003, 11), LOSS) for mean in (0.95, 0.97, 0.96))
    assert inside.verdict is Verdict.REPRODUCED and "meets" in inside.words
    assert outside.verdict is Verdict.REFUTED and "above" in outside.words
    assert across.verdict is Verdict.INCONCLUSIVE and "across" in across.words
    assert across.interval[0] < 0.96 < across.interval[1]
    below = judge_bootstrap(normal(0.95, 0.003, 11), Criterion(between=(0.97, 0.98)))
    assert below.verdict is Verdict.REFUTED and "below" in below.words


def test_an_interval_wider_than_the_threshold_decides_nothing():
    found = judge_bootstrap(normal(0.96, 0.1, 11), Criterion(between=(0.9599, 0.9601)))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_equal_values_on_the_threshold_meet_it():
    assert judge_bootstrap([0.1] * 10, Criterion(at_least=0.1)).verdict is Verdict.REPRODUCED
    assert judge_bootstrap([0.1] * 10, Criterion(at_most=0.1)).verdict is Verdict.REPRODUCED


def test_a_single_violating_seed_does_not_refute_a_mean():
    values = [0.95] * 12 + [0.9601]
    assert judge_bootstrap(values, LOSS).verdict is Verdict.REPRODUCED
    assert judge_always(values, LOSS, source_n=1).verdict is Verdict.REFUTED


def test_too_few_seeds_decide_no_mean():
    found = judge_bootstrap(normal(0.95, 0.001, 4), LOSS)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert numbers(found.words)[-2:] == [4, 10]
    assert judge_bootstrap(normal(0.95, 0.001, 4), LOSS, least=4).verdict is Verdict.REPRODUCED
    one = judge_bootstrap([0.95], LOSS, least=2)
    assert (one.verdict, one.interval, one.n) == (Verdict.INCONCLUSIVE, None, 1)
    assert numbers(one.words) == [0.95, 1, 2] and "meets" in one.words and "no interval" in one.words
    failed = judge_bootstrap([0.97], LOSS).words
    assert numbers(failed)[0] == 0.97 and "fails" in failed


@pytest.mark.parametrize(("true_mean", "wrong"), [(0.96, None), (0.9605, "reproduced"), (0.9595, "refuted")])
def test_wrong_verdicts_are_rare_however_close_the_truth_lies(true_mean, wrong):
    verdicts = [judge_bootstrap(normal(true_mean, 0.001, 10, key), LOSS).verdict for key in range(40)]
    settled = [verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE]
    if wrong is None:
        # On the threshold itself a nominal 5 %, in truth about 10 %, of intervals miss it.
        assert len(settled) <= 10
    else:
        assert verdicts.count(Verdict(wrong)) <= 1


def test_an_interval_from_elsewhere_is_judged_alike():
    found = judge_interval(0.95, (0.93, 0.97), Criterion(at_least=0.9, unit="fraction"), n=500)
    assert found.verdict is Verdict.REPRODUCED
    assert numbers(found.words) == [95, 93, 97]
    assert (found.value, found.interval, found.n) == (0.95, (0.93, 0.97), 500)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_missing_number_is_not_judged(bad):
    with pytest.raises(ValueError, match="must be finite"):
        judge_bootstrap([0.5, bad], LOSS)


def test_what_never_happened_has_no_mean():
    found = judge_always([0.5, math.inf], LOSS, source_n=1)
    assert (found.verdict, found.value, found.interval, found.n) == (Verdict.REFUTED, None, None, 2)
    assert "1 of 2 seeds" in found.words and "never" in found.words


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
    assert found.words == "recall: good · elimination: bad · other: not run"


def test_parts_that_say_the_same_say_it_once():
    same = judge_always([1.0] * 4, PERFECT, source_n=1)
    assert combine_parts({"a": same, "b": same}).words == same.words


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
    for tried in (["causal"], ["causal", "none"]):
        words = combine_readings(dict.fromkeys(tried, refuted)).words
        assert f"({', '.join(tried)})" in words and words.endswith(": too low")
    mixed = combine_readings({"causal": refuted, "none": good, "window": INCONCLUSIVE})
    for told in ("reproduced under none", "refuted under causal", "inconclusive under window"):
        assert told in mixed.words
    assert mixed.value == 0.25
    late = combine_readings({"causal": not_run(), "none": good})
    assert "(causal) was not run" in late.words and "reproduced under none" in late.words
    assert late.value == 0.75
    alone = combine_readings({"causal": good}).words
    assert "causal" in alone and alone.endswith("fine")
    both = combine_readings({"causal": good, "none": INCONCLUSIVE})
    assert both.words == f"{alone}; inconclusive under none"


def test_readings_of_a_claim_with_parts_keep_the_parts():
    parts = combine_parts({"a": REFUTED, "b": REPRODUCED})
    found = combine_readings({"causal": parts, "none": parts})
    assert found.verdict is Verdict.REFUTED
    assert found.value == {"a": 0.5, "b": 0.5}


def test_ways_to_measure_one_thing_must_agree():
    values = [0.2] * 8, [0.05] * 8, [0.2] * 3
    yes, no, few = (judge_bootstrap(each, Criterion(at_least=0.1), least=8) for each in values)
    assert agreed_readings({"a": yes, "b": yes}).verdict is Verdict.REPRODUCED
    assert agreed_readings({"a": no, "b": no}).verdict is Verdict.REFUTED
    for other in (no, few, not_run()):
        for readings in ({"a": yes, "b": other}, {"b": other, "a": yes}):
            found = agreed_readings(readings)
            assert found.verdict is Verdict.INCONCLUSIVE and "disagree" in found.words and found.n > 0
    assert agreed_readings({"a": not_run()}).verdict is Verdict.NOT_RUN
