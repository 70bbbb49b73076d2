import json
import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.claims import (
    JudgedClaim,
    Samples,
    Verdict,
    at_least,
    at_most,
    between,
    combine_parts,
    combine_readings,
    judge,
    judge_always,
    judge_bootstrap,
)

from .stand_in import claim, members, numbers, series

HIGH = at_least(0.9, "fraction")
LATE = at_most(1000, "steps")
NOISY = [0.95 + 0.01 * (place % 5) for place in range(13)]


def judged(value, must=HIGH, evidence=None, **fields):
    made = claim(value, must, **fields)
    if evidence is None:
        evidence = members(len(value))
    return judge(made, evidence)


# The rules of today


def test_always_and_mean_are_those_of_the_engine():
    values = [1.0] * 11
    found = judged(series(values))
    engine = judge_always(values, HIGH, source_n=1)
    assert (found.verdict, found.value, found.interval, found.n, found.words) == (
        engine.verdict, engine.value, engine.interval, engine.n, engine.words,
    )  # fmt: skip
    assert (found.samples, found.n_counts, found.unit) == (values, "seed", "fraction")
    mean = judged(series(NOISY), rule="mean")
    expected = judge_bootstrap(NOISY, HIGH)
    assert (mean.verdict, mean.value, mean.interval, mean.words) == (
        expected.verdict, expected.value, expected.interval, expected.words,
    )  # fmt: skip


@given(st.lists(st.floats(0, 1), min_size=1, max_size=13), st.sampled_from(["always", "mean"]))
@settings(max_examples=40, deadline=None)
def test_complete_values_of_different_seeds_are_judged_by_the_engine(values, rule):
    found = judged(series(values), rule=rule)
    engine = judge_always(values, HIGH, source_n=1) if rule == "always" else judge_bootstrap(values, HIGH)
    assert (found.verdict, found.value, found.interval, found.words) == (
        engine.verdict, engine.value, engine.interval, engine.words,
    )  # fmt: skip


def test_a_series_a_list_and_samples_say_the_same():
    values = [0.95] * 7 + [1.0] * 4
    entries = [
        judged(each, evidence=members(11)) for each in (series(values), values, Samples(series(values)))
    ]
    assert entries[0] == entries[1] == entries[2]
    assert judged(pd.Series(values, dtype="Float64"), evidence=members(11)) == entries[0]


@pytest.mark.parametrize(("n", "source_n", "needed"), [(4, 1, 10), (11, 13, 13)])
def test_always_needs_ten_seeds_or_as_many_as_the_source(n, source_n, needed):
    found = judged(series([1.0] * n), source_n=source_n)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert numbers(found.words) == [n, n, needed]
    assert judged(series([1.0] * needed), source_n=source_n).verdict is Verdict.REPRODUCED


def test_a_claim_may_say_how_many_seeds_it_needs():
    assert judged(series([1.0] * 8), seeds_needed=8, source_n=3).verdict is Verdict.REPRODUCED
    assert numbers(judged(series([1.0] * 7), seeds_needed=8, source_n=3).words) == [7, 7, 8]
    assert judged(series([0.97, 0.98] * 4), rule="mean", seeds_needed=8).verdict is Verdict.REPRODUCED
    assert numbers(judged(series([0.97, 0.98] * 4), rule="mean").words)[-2:] == [8, 10]


def test_an_evaluation_error_forgives_what_is_smaller():
    values = series([0.89] + [1.0] * 10)
    assert judged(values).verdict is Verdict.REFUTED
    within = judged(Samples(values, error=0.02), evidence=members(11))
    assert within.verdict is Verdict.INCONCLUSIVE
    assert numbers(within.words) == [10, 11, 1] and "within evaluation error" in within.words
    beyond = judged(Samples(values, error=[0.001] + [1.0] * 10), evidence=members(11))
    assert beyond.verdict is Verdict.REFUTED


def test_below_the_protocols_scale_nothing_is_decided_but_here_it_is():
    short = {"at_scale": lambda evidence: "1 of 20 epochs"}
    found = judged(series([1.0] * 11), **short)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "1 of 20 epochs" in found.words and numbers(found.words) == [1, 20, 11, 11]
    assert found.leaning == "agrees"
    assert found.here.verdict is Verdict.REPRODUCED
    assert numbers(found.here.words)[:2] == [11, 11] and "epochs" not in found.here.words
    part = judged(Samples(series([0.5] * 11), missing="half of the steps"), evidence=members(11))
    assert (part.verdict, part.leaning, part.here.verdict) == (
        Verdict.INCONCLUSIVE, "disagrees", Verdict.REFUTED,
    )  # fmt: skip
    assert judged(series([1.0] * 11), at_scale=lambda evidence: "").verdict is Verdict.REPRODUCED


def test_here_keeps_ten_seeds_but_not_the_number_of_the_source():
    found = judged(series([1.0] * 11), source_n=64)
    assert (found.verdict, found.here.verdict) == (Verdict.INCONCLUSIVE, Verdict.REPRODUCED)
    assert numbers(judged(series([1.0] * 9), source_n=64).here.words) == [9, 9, 10]


def test_nothing_measured_is_not_run():
    found = judged(Samples([], note="no seed learned recall"), evidence=members(3))
    assert (found.verdict, found.n, found.here, found.leaning) == (Verdict.NOT_RUN, 0, None, None)
    assert found.words == "no seed learned recall"
    assert judged(series([]), evidence=members(3)).words == "not run"
    empty = judged(series([math.nan] * 3), evidence=members(3))
    assert (empty.verdict, empty.words) == (Verdict.NOT_RUN, "none of 3 seeds has a number")


def test_a_note_follows_the_words():
    found = judged(Samples(series([1.0] * 11), note="2 more learned no step"), evidence=members(11))
    assert found.words.endswith("; 2 more learned no step")


# Seeds that recur


def test_a_seed_in_several_configurations_is_one_cluster():
    # Four seeds in five configurations: the twenty members are no twenty seeds.
    evidence = members(4, copies=5)
    values = [0.91 if member % 4 else 0.89 for member in evidence.members]
    found = judged(series(values), rule="mean", evidence=evidence, seeds_needed=4)
    assert found.n == 20 and found.n_counts == "member"
    alone = judge_bootstrap(values, HIGH, least=4)
    assert found.interval[0] < alone.interval[0]
    of_seeds = judge_bootstrap([0.89, 0.91, 0.91, 0.91], HIGH, least=4)
    assert found.interval == pytest.approx(of_seeds.interval)
    few = judged(series(values), rule="mean", evidence=evidence)
    assert numbers(few.words)[-2:] == [4, 10]
    always = judged(series([1.0] * 20), evidence=evidence)
    assert "20 of 20 members" in always.words


def test_members_of_one_configuration_are_seeds_though_others_share_them():
    found = judged(series([1.0] * 11, start=11), evidence=members(11, copies=3))
    assert "11 of 11 seeds" in found.words


def test_named_clusters_are_resampled_together():
    values, cluster = [0.0, 1.0] * 7, [place // 2 for place in range(14)]
    alone = judged(Samples(values), at_least(0.3), evidence=members(14), rule="mean", seeds_needed=7)
    together = judged(
        Samples(values, "question", cluster), at_least(0.3), evidence=members(2), rule="mean", seeds_needed=7
    )
    assert alone.interval[0] < 0.3
    assert (together.interval, together.verdict) == ((0.5, 0.5), Verdict.REPRODUCED)
    assert together.n_counts == "question"


# Intervals and effects


def test_an_interval_of_the_claim_wins_over_the_bootstrap():
    values = [1.0] * 19 + [0.0]
    found = judged(Samples(values, "question", interval=(0.76, 0.99)), rule="mean", evidence=members(2))
    assert (found.value, found.interval, found.n) == (0.95, (0.76, 0.99), 20)
    assert numbers(found.words) == [95, 76, 99]
    few = judged(Samples(values[:7], "question", interval=(0.93, 1.0)), rule="mean", evidence=members(2))
    assert "7 questions" in few.words and numbers(few.words)[-1] == 10


@pytest.mark.parametrize(
    ("values", "must", "verdict"),
    [
        ([0.2, 0.3] * 6, at_least(0.0), Verdict.REPRODUCED),
        ([-0.01, 0.03] * 6, at_least(-0.5), Verdict.INCONCLUSIVE),  # meets it, but 0 is inside
        ([0.2, 0.3] * 6, at_least(0.25), Verdict.INCONCLUSIVE),
        ([0.2, 0.3] * 6, at_most(0.1), Verdict.REFUTED),
        ([0.0] * 12, at_most(0.1), Verdict.INCONCLUSIVE),
        ([0.0] * 12, at_least(0.1), Verdict.REFUTED),
    ],
)
def test_an_effect_must_also_exclude_zero(values, must, verdict):
    found = judged(series(values), must, rule="effect")
    assert found.verdict is verdict
    if verdict is Verdict.INCONCLUSIVE and must.met_by(found.interval):
        assert found.words.endswith("exclude 0")


def test_pairs_are_judged_by_their_correlation():
    rising = [[place, place + (-1) ** place] for place in range(13)]
    found = judged(rising, at_least(0.5), rule="effect", evidence=members(13))
    assert found.verdict is Verdict.REPRODUCED
    assert found.value == pytest.approx(pd.DataFrame(rising).corr().iloc[0, 1])
    assert found.interval[0] <= found.value <= found.interval[1] <= 1
    assert found.to_json()["samples"][1] == [1.0, 0.0]
    table = judged(pd.DataFrame(rising), at_least(0.5), rule="effect", evidence=members(13))
    assert table == found
    falling = judged([[x, -y] for x, y in rising], at_least(0.5), rule="effect", evidence=members(13))
    assert falling.verdict is Verdict.REFUTED
    flat = judged([[x, 7] for x, _ in rising], at_least(0.5), rule="effect", evidence=members(13))
    assert (flat.verdict, flat.value, flat.n, flat.leaning) == (Verdict.INCONCLUSIVE, None, 13, "mixed")
    assert "13 seeds" in flat.words and "no correlation" in flat.words


def test_pairs_of_one_seed_are_resampled_together():
    evidence = members(5, copies=7)
    pairs = [[member % 5, (member % 5) * 2 + (member % 3)] for member in evidence.members]
    found = judged(pairs, at_least(0.5), rule="effect", evidence=evidence, seeds_needed=5)
    alone = judged(Samples(pairs), at_least(0.5), rule="effect", evidence=evidence, seeds_needed=5)
    assert found.value == alone.value and found.interval != alone.interval
    assert judged(pairs, at_least(0.5), rule="effect", evidence=evidence).words.endswith("5 seeds, needs 10")


# What never happened


def test_censored_times_are_compared_not_dropped():
    found = judged(series([200.0, math.inf] + [300.0] * 9), LATE)
    assert found.verdict is Verdict.REFUTED
    assert numbers(found.words) == [1, 11] and "never" in found.words
    assert (found.value, found.interval, found.n) == (None, None, 11)
    assert found.to_json()["samples"][:2] == [200.0, "inf"]
    late = judged(series([math.inf] * 11), at_least(500, "steps"))
    assert late.verdict is Verdict.REPRODUCED
    assert judged(series([-math.inf] * 11), LATE).to_json()["samples"][0] == "-inf"


def test_a_mean_with_a_censored_time_decides_nothing():
    found = judged(series([200.0, math.inf] + [300.0] * 9), LATE, rule="mean")
    assert (found.verdict, found.value, found.n, found.leaning) == (Verdict.INCONCLUSIVE, None, 11, "mixed")
    assert numbers(found.words) == [1, 11] and "no mean" in found.words
    known = judged(
        Samples(series([200.0, math.inf] + [300.0] * 9), interval=(250, 350)),
        LATE,
        rule="mean",
        evidence=members(11),
    )
    assert (known.verdict, known.value) == (Verdict.REPRODUCED, 300.0)


# Parts, readings, structure


def test_parts_have_rules_and_units_of_their_own():
    value = {"accuracy": series([1.0] * 11), "time": series([800.0, 900.0] * 5 + [850.0])}
    found = judged(
        value,
        {"accuracy": HIGH, "time": LATE},
        rule={"accuracy": "always", "time": "mean"},
        evidence=members(11),
    )
    assert found.verdict is Verdict.REPRODUCED
    assert found.unit == {"accuracy": "fraction", "time": "steps"}
    assert found.to_json()["threshold"] == {"accuracy": {"at_least": 0.9}, "time": {"at_most": 1000.0}}
    assert found.value["accuracy"] == 1.0 and found.samples["time"][0] == 800.0
    assert found.rule == {"accuracy": "always", "time": "mean"}


@pytest.mark.parametrize(("need", "verdict"), [("all", Verdict.REFUTED), ("any", Verdict.REPRODUCED)])
def test_all_parts_or_any(need, verdict):
    value = {"a": series([1.0] * 11), "b": series([0.0] * 11)}
    found = judged(value, {"a": HIGH, "b": HIGH}, need=need, evidence=members(11))
    engine = combine_parts({n: judge_always(list(v), HIGH, source_n=1) for n, v in value.items()}, need=need)
    assert found.verdict is verdict
    assert (found.words, found.n, found.value) == (engine.words, engine.n, engine.value)


def test_what_a_run_lacks_is_said_once():
    value = {"a": Samples([], note="never trained"), "b": series([1.0] * 11), "c": series([1.0] * 11)}
    found = judged(
        value, dict.fromkeys(value, HIGH), at_scale=lambda evidence: "1 of 20 epochs", evidence=members(11)
    )
    assert found.words.count("1 of 20 epochs") == 1
    assert found.words.startswith("a: never trained · b: below the protocol's scale: 1 of 20 epochs; ")
    assert found.words.count("below the protocol's scale") == 2


def test_readings_combine_as_the_engine_does():
    low, high = [0.5] * 11, [1.0] * 11
    readings = {"batch 64": lambda evidence: series(low), "batch 128": lambda evidence: series(high)}
    engine = combine_readings(
        {
            "batch 64": judge_always(low, HIGH, source_n=1),
            "batch 128": judge_always(high, HIGH, source_n=1),
        }
    )
    for given_as in (readings, lambda evidence: readings):
        found = judged(None, readings=given_as, evidence=members(11))
        assert (found.verdict, found.words, found.value) == (engine.verdict, engine.words, 0.5)
        assert found.leaning == "mixed"
        assert {name: each.verdict for name, each in found.readings.items()} == {
            "batch 64": Verdict.REFUTED,
            "batch 128": Verdict.REPRODUCED,
        }
        assert found.samples == low
    both = judged(series(high), readings={"as the appendix says": readings["batch 64"]})
    assert [*both.readings] == ["as stated", "as the appendix says"]
    plain = judged(None, readings={"": readings["batch 128"]}, evidence=members(11))
    assert numbers(plain.words)[:2] == [11, 11] and plain.readings == {}


def test_a_reading_that_was_not_run_is_not_shown():
    readings = {"a": lambda evidence: Samples([]), "b": lambda evidence: series([1.0] * 11)}
    found = judged(None, readings=readings, evidence=members(11))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "(a) was not run" in found.words and "reproduced under b" in found.words
    assert (found.samples, found.n_counts, found.leaning) == ([1.0] * 11, "seed", "agrees")


def test_a_structural_claim_counts_cases():
    found = judged(series([1.0] * 11), structural=True)
    assert (found.structural, found.n_counts, found.verdict) == (True, "case", Verdict.REPRODUCED)
    assert "11 of 11 cases" in found.words


def test_all_cases_that_there_are_have_no_interval():
    found = judged(
        Samples([0.0, 2.0] * 16, "case", note="0 to 2 layers above"), at_least(0), evidence=members(2)
    )
    assert "32 of 32 cases" in found.words and found.words.endswith("; 0 to 2 layers above")
    assert (found.interval, found.value, found.n) == (None, 1.0, 32)


# Where the numbers point


@pytest.mark.parametrize(
    ("values", "fields", "leaning"),
    [
        ([1.0] * 4, {}, "agrees"),
        ([1.0, 0.8, 1.0], {"at_scale": lambda evidence: "x"}, "mixed"),
        ([0.5] * 3, {"at_scale": lambda evidence: "x"}, "disagrees"),
        ([0.95, 0.97, 0.96], {"rule": "mean"}, "agrees"),
        ([0.5, 0.6, 0.7], {"rule": "mean"}, "disagrees"),
        ([0.8, 0.95, 0.99], {"rule": "mean"}, "mixed"),
        ([0.95], {"rule": "mean"}, "agrees"),
        ([0.05], {"rule": "mean"}, "disagrees"),
        ([1.0] * 11, {}, None),
        ([0.5] * 11, {}, None),
    ],
)
def test_leaning(values, fields, leaning):
    assert judged(series(values), **fields).leaning == leaning


def test_leaning_of_parts():
    def found(need, **values):
        return judged(
            {n: series(v) for n, v in values.items()}, dict.fromkeys(values, HIGH), need=need, evidence=members(3),
            at_scale=lambda evidence: "x",
        ).leaning  # fmt: skip

    good, bad = [1.0] * 3, [0.0] * 3
    assert found("all", a=good, b=good) == "agrees"
    assert found("all", a=good, b=bad) == "mixed"
    assert found("any", a=good, b=bad) == "agrees"
    assert found("any", a=bad, b=bad) == "disagrees"


# JSON


@given(
    st.lists(st.none() | st.floats(0, 1) | st.sampled_from([math.inf, -math.inf, math.nan]), max_size=13),
    st.sampled_from(["always", "mean", "effect"]),
    st.sampled_from([HIGH, at_most(0.5), between(0.25, 0.75, "fraction")]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_every_verdict_is_plain_json_and_reads_back(values, rule, must, scale):
    found = judged(
        Samples(values, "run"),
        must,
        rule=rule,
        evidence=members(13),
        at_scale=(lambda e: "x") if scale else None,
    )
    written = json.dumps(found.to_json(), allow_nan=False)
    assert JudgedClaim.model_validate(json.loads(written)) == found
    assert found.n == sum(value is not None and not math.isnan(value) for value in values)
    assert (found.leaning is not None) == (found.verdict is Verdict.INCONCLUSIVE)
    assert (found.here is None) == (found.verdict is Verdict.NOT_RUN)
    if scale:
        assert found.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)


# Independent seeds


def test_always_counts_seeds_not_members():
    few = judged(series([1.0] * 10), evidence=members(2, copies=5))
    assert (few.verdict, few.n, few.leaning) == (Verdict.INCONCLUSIVE, 10, "agrees")
    assert "10 of 10 members" in few.words and numbers(few.words) == [10, 10, 2, 10]
    assert few.here.verdict is Verdict.INCONCLUSIVE
    enough = judged(series([1.0] * 20), evidence=members(10, copies=2))
    assert enough.verdict is Verdict.REPRODUCED
    bound = numbers(judge_always([1.0] * 10, HIGH, source_n=1).words)[2:]
    assert numbers(enough.words) == [20, 20, 10, *bound]
    more = judged(series([1.0] * 20), evidence=members(10, copies=2), source_n=11)
    assert numbers(more.words) == [20, 20, 10, 11]


def test_members_within_their_error_are_counted_with_their_seeds():
    within = judged(Samples(series([0.89] + [1.0] * 9), error=0.02), evidence=members(2, copies=5))
    assert numbers(within.words) == [9, 10, 1, 2, 10]
    beyond = judged(series([0.5] + [1.0] * 9), evidence=members(2, copies=5))
    assert beyond.verdict is Verdict.REFUTED


@pytest.mark.parametrize("unit", ["run", "case"])
def test_where_the_source_counts_runs_or_cases_so_does_always(unit):
    clustered = Samples([1.0] * 16, unit, [place % 8 for place in range(16)])
    found = judged(clustered, evidence=members(8, copies=2), source_n=16)
    alone = judged(Samples([1.0] * 16, unit), evidence=members(8, copies=2), source_n=16)
    assert found.verdict is alone.verdict is Verdict.REPRODUCED and found.n == alone.n == 16
    # What they say of all such runs hangs on how many of them are independent.
    if unit == "run":
        assert "16 of 16 runs meet it (8 clusters); at least 68.8 % of such clusters do" in found.words
        assert "at least 82.9 % of such runs do" in alone.words


def test_other_clusters_are_counted_by_always():
    questions = Samples([1.0] * 12, "question", [place % 3 for place in range(12)])
    words = judged(questions, evidence=members(2)).words
    assert "12 of 12 questions" in words and "3 clusters" in words and numbers(words)[-1] == 10


@pytest.mark.parametrize("never", [(math.inf, 1.0), (1.0, -math.inf)])
def test_a_pair_that_never_came_has_no_correlation(never):
    pairs = [*((float(place), 2.0 * place) for place in range(11)), never]
    found = judged(Samples(pairs, "pair"), at_least(0.5), evidence=members(2), rule="effect")
    assert (found.verdict, found.value, found.interval, found.n) == (Verdict.INCONCLUSIVE, None, None, 12)
    assert "1 of 12 pairs" in found.words and "no correlation" in found.words
    assert found.leaning == "mixed"
    assert found.samples[-1] == tuple("inf" if x == math.inf else "-inf" if x < 0 else x for x in never)
    written = json.dumps(found.to_json(), allow_nan=False)
    assert JudgedClaim.model_validate(json.loads(written)) == found
    assert judged(Samples([*pairs, None], "pair"), at_least(0.5), evidence=members(2), rule="effect").n == 12


@pytest.mark.parametrize(("n", "verdict"), [(8, Verdict.INCONCLUSIVE), (13, Verdict.REPRODUCED)])
def test_a_share_of_three_quarters_takes_more_seeds_than_eight(n, verdict):
    most = at_least(0.75, "fraction")
    found = judge(claim(series([1.0] * n), most, rule="mean", seeds_needed=8), members(n))
    assert found.verdict is verdict and found.interval != (1.0, 1.0)
    # One that has no number may have failed.
    missing = judge(claim(series([1.0] * n + [None]), most, rule="mean", seeds_needed=8), members(n + 1))
    assert missing.verdict is Verdict.INCONCLUSIVE
    # A mean of accuracies is none, and keeps its own interval.
    other = judge(claim(series([1.0] * (n - 1) + [0.99]), most, rule="mean", seeds_needed=8), members(n))
    assert other.verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [(1.0, 1.0, Verdict.REPRODUCED), (0.1, 0.1, Verdict.REFUTED), (1.0, 0.1, Verdict.INCONCLUSIVE)],
)
def test_parts_that_measure_one_thing_decide_only_together(first, second, verdict):
    must = {name: at_least(0.9) for name in ("one way", "another")}
    numbers = {"one way": series([first] * 11), "another": series([second] * 11)}
    assert judge(claim(numbers, must, rule="mean", need="agreement"), members(11)).verdict is verdict
