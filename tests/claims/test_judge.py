"""Made-up runs that try to fool the rules of verdicts, each with the verdict that is right."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.claims import Claim, Criterion, Samples, at_least, at_most, between
from hopscope.claims.intervals import wilson
from hopscope.claims.judge import judge
from hopscope.errors import NoMembers, UserError
from hopscope.runs import Evidence

from .runs import GOOD, HIGH, NAN, NEVER, claim, judged, measured, members, of, series

YES, NO, OPEN = "reproduced", "refuted", "inconclusive"
RULES = ("always", "mean", "effect")
TWO = {"recall": HIGH, "elimination": HIGH}
LOW, HALF = of([0.5] * 10), at_least(0.5)


def mean(values, must=HIGH, **fields):
    return measured(values, must, rule="mean", **fields)


def share(values, must, **fields):
    return measured(values, must, rule="share", **fields)


def control(values, must=HALF, **fields):
    return measured(GOOD, controls={"shuffled": of(values)}, must_not=must, **fields)


def parts(recall, elimination, **fields):
    return judged(lambda run: {"recall": recall(run), "elimination": elimination(run)}, TWO, **fields)


def aside(values):
    return of(values, excluded="below the task")


def absent(run):
    return Samples([], note="not trained")


RUNS = [  # how it tries to fool; the run; verdict, verdict here, leaning; what the words give as the reason
    # numbers of seeds
    ("one seed of ten off, the mean 99 %", lambda: measured([1.0] * 9 + [0.899]), NO, NO, None, "worst 89.9 %"),
    ("an interval in percent beside fractions", lambda: judged(Samples([0.35] * 12, "question", interval=(30, 40)),
     rule="mean"), OPEN, OPEN, "mixed", "interval"),
    ("the same far below", lambda: judged(Samples([0.95] * 12, "question", interval=(0.01, 0.02)), rule="mean"), OPEN,
     OPEN, "mixed", "interval"),
    ("off by less than its error", lambda: judged(of([1.0] * 9 + [0.895], error=0.01)), OPEN, OPEN, "mixed", "error"),
    ("nine perfect seeds", lambda: measured([1.0] * 9), OPEN, OPEN, "agrees", "10 seeds are needed"),
    ("fewer than the source had", lambda: measured(GOOD, source_n=64), OPEN, YES, "agrees", "64 seeds are needed"),
    ("two seeds as twenty members", lambda: judged(series([1.0] * 20), run=members(2, 10)), OPEN, OPEN, "agrees",
     "2 seeds"),
    ("the same, as a mean", lambda: judged(series([0.91, 0.99] * 10), run=members(2, 10), rule="mean"), OPEN, OPEN,
     "agrees", "10 seeds are needed"),
    ("clusters that split a seed", lambda: judged(of([1.0] * 20, "member", range(20)), run=members(2, 10)), OPEN,
     OPEN, "agrees", "2 seeds"),
    ("and one that joins two", lambda: judged(of([1.0] * 20, "member", [0, 0, *range(2, 20)]), run=members(2, 10)),
     OPEN, OPEN, "agrees", "1 cluster"),
    ("split luck", lambda: judged(of([0.97] * 5 + [0.55] * 5, "member", ["a"] * 5 + ["b"] * 5), at_least(0.7,
     "fraction"), rule="mean"), OPEN, OPEN, "mixed", "2 clusters"),
    ("one bad split of ten", lambda: judged(of([1.0] * 90 + [0.8] * 10, "member", [n // 10 for n in range(100)]),
     run=members(100)), NO, NO, None, "in 90 of 100 seeds"),
    ("two seeds by decree", lambda: measured([1.0] * 2, seeds_needed=2), YES, YES, None, "22.4 %"),
    ("runs of few seeds", lambda: judged(Samples([1.0] * 20, "run", [n % 2 for n in range(20)]), run=members(20)),
     YES, YES, None, "22.4 %"),
    # numbers
    ("a mean carried by an outlier", lambda: mean([3.0] * 9 + [1000.0], at_least(50.0, "steps")), OPEN, OPEN,
     "mixed", ""),
    ("an interval across", lambda: mean([0.8, 1.0] * 4 + [1.0] * 2), OPEN, OPEN, "mixed", "interval"),
    ("8 of 8 is no share of 75 %", lambda: share([1.0] * 12, at_least(0.75, "fraction")), OPEN, OPEN, "mixed", "73.5"),
    ("13 of 13 is one", lambda: share([1.0] * 13, at_least(0.75, "fraction")), YES, YES, None, ""),
    ("a perfect mean is no share", lambda: mean([1.0] * 12, at_least(0.99, "fraction")), YES, YES, None, "[100 %"),
    ("far above, far below", lambda: share([0.0, 1.0] * 5, between(0.4, 0.6, "fraction")), OPEN, OPEN, "mixed", ""),
    ("an effect that touches 0", lambda: measured([0.0] * 9 + [0.5], at_least(0.0), rule="effect"), OPEN, OPEN,
     "mixed", ""),
    ("no effect in any seed", lambda: measured([0.0] * 10, at_least(0.0), rule="effect"), OPEN, OPEN, "mixed", ""),
    ("correlated with a constant", lambda: judged([(n, 0.75) for n in range(10)], HALF, rule="effect"), OPEN, OPEN,
     "mixed", "never varies"),
    ("a correlation of one seed", lambda: judged([(0, 0)] * 9 + [(1, 1)], HALF, rule="effect"), OPEN, OPEN, "mixed",
     ""),
    ("a correlation", lambda: judged([(n, 2 * n) for n in range(10)], HALF, rule="effect"), YES, YES, None, ""),
    ("never, within a mean", lambda: mean([200.0] * 9 + [NEVER], at_most(1000.0)), OPEN, OPEN, "mixed", "never came"),
    ("never, in one seed", lambda: measured([200.0] * 9 + [NEVER], at_most(1000.0)), NO, NO, None, "worst never"),
    # missing numbers
    ("one NaN of ten", lambda: measured([1.0] * 9 + [NAN]), OPEN, OPEN, "agrees", "1 of 10 seeds without a number"),
    ("one unread of eleven", lambda: measured([*GOOD, NAN]), OPEN, OPEN, "agrees", "1 of 11 seeds without a number"),
    ("24 % unread", lambda: mean([0.99, 1.0] * 38 + [NAN] * 24, at_least(0.6, "fraction")), YES, YES, None,
     "24 of 100"),
    ("26 % unread", lambda: mean([0.99, 1.0] * 37 + [NAN] * 26, at_least(0.6, "fraction")), OPEN, OPEN, "mixed",
     "75 %"),
    ("unread ones that turn it", lambda: mean([0.905, 0.935] * 5 + [NAN] * 3), OPEN, OPEN, "agrees", "may change it"),
    ("that turn an effect", lambda: measured([0.002, 0.038] * 5 + [NAN] * 3, at_least(-0.5), rule="effect"), OPEN,
     OPEN, "agrees", "may change it"),
    ("most unread, the others bad", lambda: mean([0.5, 0.6] * 5 + [NAN] * 30), OPEN, OPEN, "mixed", "75 %"),
    ("unread ones that would save it", lambda: mean([0.865, 0.9] * 5 + [NAN] * 3), OPEN, OPEN, "disagrees",
     "may change it"),
    ("half of the members diverged", lambda: measured([1.0] * 10 + [NAN] * 10), OPEN, OPEN, "mixed", "75 %"),
    ("one violates, most are unread", lambda: measured([0.5] + [NAN] * 6), NO, NO, None, "changes nothing"),
    ("a share with missing ones", lambda: share([1.0] * 20 + [NAN] * 2, at_least(0.5, "fraction")), YES, YES, None,
     "2 of 22"),
    ("unanswered questions", lambda: judged(Samples([1.0] * 75 + [None] * 25, "question", interval=wilson(75, 75)),
     HIGH, rule="mean"), OPEN, OPEN, "agrees", "may change it"),
    ("unanswered ones cannot save it", lambda: judged(Samples([0.0] * 70 + [None] * 30, "question",
     interval=wilson(0, 70)), HIGH, rule="mean"), NO, NO, None, "changes nothing"),
    # controls
    ("a control that shows it too", lambda: control([0.97, 0.99] * 5), OPEN, OPEN, "mixed", "shuffled shows it too"),
    ("one asked as the claim is", lambda: measured(GOOD, controls={"c": of(GOOD)}), OPEN, OPEN, "mixed", "c shows it"),
    ("one that is only shown", lambda: measured(GOOD, controls={"c": of(GOOD)}, must_not=None), YES, YES, None, ""),
    ("one of all parts", lambda: parts(of(GOOD), of(GOOD), controls={"c": of(GOOD)}), OPEN, OPEN, "mixed", "c shows"),
    ("a control that may show it", lambda: control([0.2, 0.99] * 5), OPEN, OPEN, "mixed", "shuffled shows it too"),
    ("a control without numbers", lambda: control([NAN] * 10), OPEN, OPEN, "mixed", "was not measured"),
    ("measured where it is good", lambda: control([0.0] * 6 + [NAN] * 4), OPEN, OPEN, "mixed", "was not measured"),
    ("a control that never comes", lambda: control([NEVER] * 10, at_least(500.0)), OPEN, OPEN, "mixed",
     "shows it too"),
    ("an excluded control", lambda: measured(GOOD, controls={"c": aside(GOOD)}, must_not=HALF), OPEN, OPEN, "mixed",
     "not measured"),
    ("few seeds, and a control that shows it too", lambda: measured([1.0] * 3, controls={"c": of([1.0] * 3)}), OPEN,
     OPEN, "mixed", "c shows it too"),
    ("ranks", lambda: judged(lambda run: Samples([(n, 2**n) for n in range(10)], ranks=True), at_least(0.99),
                             rule="effect"), YES, YES, None, ""),
    ("numbers, not pairs", lambda: judged(lambda run: Samples([1.0] * 10, "seed", ranks=True), rule="mean"), YES, YES,
     None, ""),
    ("a control that shows nothing", lambda: control([0.1, 0.2] * 5), YES, YES, None, ""),
    # readings, scale and parts
    ("readings that disagree", lambda: judged(None, readings={"a": of(GOOD), "b": LOW}), OPEN, OPEN, "mixed",
     "reproduced under a; refuted under b"),
    ("a reading chosen afterwards", lambda: judged(None, readings={"a": absent, "b": of(GOOD)}), OPEN, OPEN,
     "agrees", "the default reading (a) was not run"),
    ("readings of the evidence", lambda: judged(LOW, readings=lambda run: {"b": LOW}), NO, NO, None,
     "refuted under as stated, b"),
    ("cheap readings alone", lambda: judged(None, readings={"a": LOW}, untried=lambda run: "b"), OPEN, NO,
     "disagrees", "b"),
    ("ways to measure one thing", lambda: judged(None, at_most(6.0), rule="mean", readings_agree=True,
     readings={"a": of([4.0, 5.0] * 5), "b": of([4.0, 8.5] * 5)}), OPEN, OPEN, "mixed", "disagree"),
    ("a short run that fails", lambda: judged(LOW, at_scale=lambda run: "1 of 20 epochs"), OPEN, NO, "disagrees",
     "1 of 20"),
    ("a small one that succeeds", lambda: judged(of(GOOD), at_scale=lambda run: "6 of 12 layers"), OPEN, YES,
     "agrees", "6 of"),
    ("one part that ran", lambda: parts(of(GOOD), absent), OPEN, OPEN, "mixed", "elimination: not trained"),
    ("one part below scale", lambda: parts(of(GOOD), of(GOOD, missing="half of the cases")), OPEN, YES, "agrees",
     "half"),
    ("one bad part", lambda: parts(of(GOOD), LOW), NO, NO, None, "in 1 of 2 parts"),
    ("one good part is enough", lambda: parts(of(GOOD), LOW, need="any"), YES, YES, None, "in 1 of 2 parts"),
    ("parts that must agree", lambda: parts(of(GOOD), LOW, need="agreement"), OPEN, OPEN, "mixed", "in 1 of 2 parts"),
    ("the bad part set aside", lambda: parts(of(GOOD), aside([0.5] * 10)), YES, YES, None,
     "elimination: below the task"),
    ("the good part set aside", lambda: parts(aside(GOOD), LOW, need="any"), NO, NO, None, "recall: below the task"),
    ("a theorem with one exception", lambda: judged(Samples([1.0] * 255 + [-1.0], "case"), at_least(0.0),
     structural=True), NO, NO, None, "in 255 of 256 cases"),
    ("a theorem tried three times", lambda: judged(Samples([1.0] * 3, "case"), at_least(0.0), structural=True), OPEN,
     OPEN, "agrees", "10 cases are needed"),
]  # fmt: skip


@pytest.mark.parametrize("name", [each[0] for each in RUNS])
def test_it_is_judged_rightly(name):
    (run, verdict, here, leaning, says) = next(each[1:] for each in RUNS if each[0] == name)
    found = run()
    assert (found.verdict, found.here.verdict, found.leaning) == (verdict, here, leaning), found.words
    assert says in found.words


def test_what_was_not_run_has_no_numbers():
    for found in (
        judged(absent),
        parts(absent, aside(GOOD)),
        judged(None, readings={"a": absent, "b": absent}),
    ):
        assert (found.verdict, found.here, found.leaning, found.value, found.n) == (
            "not run",
            None,
            None,
            None,
            0,
        )
        assert "not trained" in found.words
    none = Evidence.of(
        [{"metric": "loss", "value": [0.1]}], [{"member": 0, "overrides": {"model.layers": 2}}]
    )

    def shallow(evidence):
        return evidence.last("loss", **{"model.layers": 1})

    for must in (at_most(0.5), {"a": at_most(0.5), "b": at_most(0.5)}):
        found = judge(claim(shallow, must), none)
        assert found.verdict == "not run" and "expected a model.layers that is there (2)" in found.words
    assert judged(aside(GOOD)).words == "below the task"


def test_numbers_of_a_verdict():
    found = parts(
        of([0.25, 0.75] * 5), of([1.0] * 9 + [NAN]), rule={"recall": "mean", "elimination": "always"}
    )
    assert (found.value, found.n, found.n_counts) == ({"recall": 0.5, "elimination": 1.0}, 9, "seed")
    assert found.interval["recall"] == pytest.approx((0.35, 0.65)) and found.interval["elimination"] == (
        1.0,
        1.0,
    )
    assert found.values["elimination"] == [1.0] * 9 + [None]
    assert [each.verdict for each in found.parts.values()] == [NO, OPEN]
    assert (found.parts["elimination"].lacks, found.parts["recall"].lacks) == (
        ("10 seeds are needed", "1 of 10 seeds without a number"),
        (),
    )
    cases = judged(Samples([0.95, 0.97] * 6, "case"))
    assert (cases.verdict, cases.interval, cases.n_counts) == (YES, None, "case")
    assert judged(of([1.0] * 20, "run"), run=members(2, 10)).n_counts == "run"
    assert judged(of([300.0] * 9 + [NEVER])).values[-1] == "inf"


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0.2, 0.6, 0.85, 0.93, 1.0]), min_size=1, max_size=23), st.integers(0, 11),
       st.sampled_from(RULES), st.sampled_from([HIGH, at_most(0.6), between(0.3, 0.9)]))  # fmt: skip
def test_missing_numbers_decide_nothing_that_the_others_do_not(values, missing, rule, must):
    """With numbers missing the verdict is that without them, or none."""
    whole, less = (measured([*values, *[NAN] * more], must, rule=rule) for more in (0, missing))
    assert less.verdict in (whole.verdict, OPEN)
    if less.verdict == YES:
        assert missing <= len(values) / 3 and (rule != "always" or not missing)
    assert (less.n, less.value, less.interval) == (whole.n, whole.value, whole.interval)
    if missing > len(values) / 3 and less.verdict == OPEN:
        assert less.leaning == "mixed"


@settings(max_examples=20)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=13), st.floats(-1, 1))
def test_the_other_side_is_judged_alike(values, bound):
    """What is at least b for numbers is at most −b for their negatives."""
    for rule in RULES:
        one, other = (
            measured(values, at_least(bound), rule=rule),
            measured([-v for v in values], at_most(-bound), rule=rule),
        )
        assert (one.verdict, one.leaning) == (other.verdict, other.leaning)


@settings(max_examples=10)
@given(st.permutations(range(12)))
def test_the_order_of_members_does_not_matter(order):
    values = series([0.91, 0.97, 0.94] * 4)
    found = judged(values[order], run=members(12), rule="mean")
    assert found.verdict == YES and found.value == pytest.approx(0.94)


def test_a_number_for_each_member_is_of_its_seed_however_it_is_given():
    run = members(5, 2)
    for value in ([1.0] * 10, Samples([1.0] * 10)):
        found = judged(value, run=run, rule="mean")
        assert found.verdict == "inconclusive" and "10 seeds are needed" in found.words


@pytest.mark.parametrize("unit", ["seed", "run", "member"])
def test_a_claim_cannot_count_more_than_there_is(unit):
    with pytest.raises(
        UserError, match=f"'C1': value: expected at most 2 {unit}s, as many as the run has, found 20"
    ):
        judged(Samples([1.0] * 20, unit), run=members(2))


@pytest.mark.parametrize("field", ["at_scale", "untried", "summary"])
def test_words_about_models_that_a_run_lacks_end_nothing(field):
    def words(given):
        raise NoMembers("members: expected some, found none; ask for others")

    found = judged(LOW if field == "untried" else of(GOOD), **{field: words})
    assert found.verdict != NO and "members: expected some, found none" in found.words


def broken(evidence):
    return evidence.nothing / 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"value": broken}, r"'C1': value: expected numbers, found AttributeError"),
        ({"controls": {"c": broken}}, "control 'c': expected numbers"),
        ({"at_scale": broken}, "at_scale: expected"),
        ({"readings": {"b": broken}}, "reading 'b': expected"),
        ({"readings": lambda run: {}}, "readings: expected a mapping"),
        ({"untried": lambda run: 3}, "untried: expected words"),
        ({"value": lambda run: [1.0] * 9}, "expected one member for each of 9 values, found 10"),
        ({"value": lambda run: "1234567890"}, "expected numbers, or pairs of numbers, found 1234567890"),
        ({"value": lambda run: ["1.0"] * 10}, "expected numbers, or pairs"),
        ({"value": lambda run: None}, "expected numbers, or pairs"),
        ({"value": lambda run: [(1, 2, 3)] * 10}, "expected numbers, or pairs"),
        ({"value": lambda run: [(1, 2)] * 10}, "pairs are for the rule 'effect'"),
        ({"value": lambda run: [0.0, 0.5] * 5, "rule": "share"}, "0 or 1 for each seed"),
        ({"value": lambda run: {"recall": [1.0] * 10}}, "expected numbers, without parts, found list"),
        ({"value": lambda run: series([1.0] * 2).repeat(5)}, "each once"),
        ({"value": lambda run: pd.Series([1.0], index=[99])}, r"members of the run \(0 to 9\)"),
        ({"must": TWO, "value": lambda run: {"recall": GOOD}}, "numbers for the parts recall, elimination"),
        ({"must": TWO, "value": lambda run: dict.fromkeys(TWO, GOOD[:3])}, "part 'recall'"),
    ],
)  # fmt: skip
def test_a_function_that_fails_is_named_in_one_line(fields, says):
    with pytest.raises(UserError, match=says) as caught:
        judged(fields.pop("value", of(GOOD)), fields.pop("must", HIGH), **fields)
    assert "\n" not in str(caught.value) and caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"id": ""}, "id"), ({"must": 3}, "must: expected an instance of Criterion, found 3"), ({"must": {}}, "must"),
        ({"need": "most"}, "need: expected 'all', 'any' or 'agreement'"), ({"rule": "often"}, "rule"),
        ({"rule": {"recall": "mean"}}, "rule"), ({"value": None}, "value"), ({"value": 3}, "value: expected callable"),
        ({"source_n": 0}, "source_n"), ({"seeds_needed": True}, "seeds_needed"), ({"readings": {"a": 1}}, "readings"),
        ({"kind": "some"}, "kind"), ({"protocol": None}, "protocol"),
        ({"musts": HIGH}, "no field 'musts'; did you mean 'must'"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_judged_is_refused(fields, says):
    with pytest.raises(UserError, match=says):
        Claim(**{**dict(claim(of(GOOD))), **fields})


@pytest.mark.parametrize(
    "make",
    [
        lambda: at_least("a"), lambda: at_least(NAN), lambda: between(2, 1), lambda: at_most(NEVER),
        lambda: at_least(1, 2), lambda: Samples([1], "heap"), lambda: Samples([1], interval=(2, 1)),
        lambda: Samples([1], interval=(NAN, NAN)), lambda: Samples([1], interval=(0, NEVER)),
        lambda: Samples([1, 2], cluster="a"), lambda: Samples([1, 2], error=[1]), lambda: Samples([1, 2], error=-1),
        lambda: Samples([1, 2], error=NAN), lambda: Samples([1, 2], error=[0, NAN]), lambda: Samples([1 + 2j, 2]),
        lambda: Samples(np.array([1 + 2j, 2])), lambda: Samples([10**400, 1]),
    ],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused(make):
    with pytest.raises(UserError, match="expected"):
        make()


def test_missing_numbers_of_every_kind():
    kinds = [None, NAN, np.float64("nan")]
    for samples in (Samples([1.0, *kinds]), Samples(pd.Series([1.0, None, None, pd.NA], dtype="Float64"))):
        assert np.isnan(samples.values).tolist() == [False, True, True, True]
    pairs = Samples([(1, 2), None, (3, None)]).values
    assert np.isnan(pairs).tolist() == [[False, False], [True, True], [False, True]]
    again = replace(Samples(series([1.0, 2.0])), excluded="why")
    assert (again.values.tolist(), again.members, again.excluded) == ([1.0, 2.0], [0, 1], "why")


@given(
    st.floats(-1e9, 1e9),
    st.sampled_from([at_least(0.9, "fraction"), at_most(0.0372, "nats"), between(-1, 1)]),
)
def test_rounding_misleads_nobody(value, must):
    shown = (
        must.show(value).replace("−", "-").replace(",", "").removesuffix(f" {must.unit}").removesuffix(" %")
    )
    number = float(shown) / (100 if must.unit == "fraction" else 1)
    assert number == pytest.approx(value, rel=1e-3) and must.holds(number) == must.holds(value)
    assert must.unit != "fraction" or (number in (0.0, 1.0)) == (value in (0.0, 1.0))


@pytest.mark.parametrize(
    ("must", "words"),
    [
        (at_least(0.07, "fraction"), "≥ 7 %"),
        (at_most(-12_000, "steps"), "≤ −12,000 steps"),
        (between(0.1, 0.9, "fraction"), "10 % to 90 %"),
    ],
)
def test_a_criterion_in_words_and_in_json(must, words):
    assert str(must) == words and Criterion.of_json(must.to_json()) == must
    assert must.holds(*(bound for bound in (must.low, must.high) if math.isfinite(bound)))


def test_a_claim_waits_for_numbers_until_there_are_some():
    code = (
        "import sys, hopscope.claims; print(sorted({'numpy', 'pandas', 'scipy', 'torch'} & {*sys.modules}))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_samples_take_arrays():
    found = Samples(
        [0.5] * 3, cluster=np.array([3, 3, 5]), interval=np.array([0.1, 0.9]), members=np.arange(3)
    )
    assert (found.cluster, found.interval, found.members) == ((3, 3, 5), (0.1, 0.9), (0, 1, 2))
