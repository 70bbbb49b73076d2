"""Made-up runs that try to fool the rules of verdicts: numbers, seeds, missing values, controls and readings."""

import math

import pytest

from hopscope.claims import JudgedClaim, Samples, at_least, at_most, between, judge
from hopscope.errors import UserError
from hopscope.runs.evidence import Evidence, Row

from .adversary import INCONCLUSIVE, REFUTED, REPRODUCED, Adversary, listed
from .stand_in import claim, members, series

HIGH = at_least(0.9, "fraction")
LOSS = at_most(0.5, "nats")
NAN, NEVER = math.nan, math.inf
GOOD = [1.0] * 10


def judged(value, must=HIGH, evidence=None, **fields) -> JudgedClaim:
    """A claim judged on values of ten seeds, or of the members given."""
    return judge(claim(value, must, **fields), evidence or members(10))


def measured(values, must=HIGH, **fields) -> JudgedClaim:
    """A claim judged on one value of each of as many seeds."""
    return judged(series(values), must, members(len(values)), **fields)


def of(values, *samples, **more):
    """A value function that gives samples."""
    return lambda evidence: Samples(series(values), *samples, **more)


SEEDS = [
    Adversary(
        "one seed of ten off",
        "The mean is 99.9 %, and only one seed of ten is below the threshold.",
        lambda: measured([1.0] * 9 + [0.899]),
        REFUTED,  # what is said of every seed falls with one
        says="1 of 10 seeds violates it; the worst is at 89.9 %",
    ),
    Adversary(
        "one seed off within evaluation error",
        "One seed is below the threshold by less than its evaluation error, so that nothing refutes.",
        lambda: judged(of([1.0] * 9 + [0.895], error=0.01)),
        INCONCLUSIVE,  # it may violate, so not every seed is known to meet it
        leaning="mixed",
        says="1 violates it within evaluation error",
    ),
    Adversary(
        "nine seeds without a fault",
        "All nine seeds are perfect, and nothing speaks against the claim.",
        lambda: measured([1.0] * 9),
        INCONCLUSIVE,  # ten are needed for every
        leaning="agrees",
        says="9 of 9 seeds agree; needs 10",
    ),
    Adversary(
        "fewer seeds than the source had",
        "Ten seeds reach the rule's own number, where the source had 64.",
        lambda: measured(GOOD, source_n=64),
        INCONCLUSIVE,  # the verdict speaks of the source's own scale
        here=REPRODUCED,
        leaning="agrees",
        says="needs 64",
    ),
    Adversary(
        "many members of two seeds",
        "Twenty members pose as twenty seeds, but they are two seeds in ten configurations.",
        lambda: judged(series([1.0] * 20), evidence=members(2, copies=10)),
        INCONCLUSIVE,  # two independent seeds
        leaning="agrees",
        says=r"\(2 seeds\); needs 10 seeds",
    ),
    Adversary(
        "a mean over members of two seeds",
        "Twenty members make the interval of a mean short, but they are two seeds in ten configurations.",
        lambda: judged(series([0.91, 0.99] * 10), evidence=members(2, copies=10), rule="mean"),
        INCONCLUSIVE,  # the bootstrap draws seeds, of which there are two
        leaning="agrees",
        says="2 seeds, needs 10",
    ),
    Adversary(
        "clusters that split a seed",
        "The claim names a cluster for each member, so that two seeds are counted as twenty.",
        lambda: judged(of([1.0] * 20, "member", range(20)), evidence=members(2, copies=10)),
        INCONCLUSIVE,  # clusters may join seeds, and never part one
        leaning="agrees",
        says=r"\(2 seeds\); needs 10 seeds",
    ),
    Adversary(
        "clusters that split a seed but for one that joins two",
        "One cluster holds a member of either seed; the others are a member each, and are counted with it.",
        lambda: judged(of([1.0] * 20, "member", [0, 0, *range(2, 20)]), evidence=members(2, copies=10)),
        INCONCLUSIVE,  # what a cluster or a seed joins stays together
        leaning="agrees",
        says="1 cluster",
    ),
    Adversary(
        "a seeds' mean within clusters that split a seed",
        "The same for a mean: each member is drawn alone.",
        lambda: judged(
            of([0.91, 0.99] * 10, "member", range(20)), evidence=members(2, copies=10), rule="mean"
        ),
        INCONCLUSIVE,
        leaning="agrees",
        says="2 seeds, needs 10",
    ),
    Adversary(
        "split luck",
        "Ten members agree well within each of two splits of the data, and the splits disagree.",
        lambda: judged(of([0.97] * 5 + [0.55] * 5, "member", ["first"] * 5 + ["second"] * 5),
                       at_least(0.7, "fraction"), rule="mean"),
        INCONCLUSIVE,  # splits are resampled with all their members, and there are two
        leaning="mixed",
        says="reaches across the threshold; 2 clusters, needs 10",
    ),
    Adversary(
        "one bad split of ten",
        "Of ten splits with ten members each, one fails in every member, and the mean hardly moves.",
        lambda: judged(of([1.0] * 90 + [0.8] * 10, "member", [n // 10 for n in range(100)]),
                       evidence=members(100)),
        REFUTED,
        says="10 of 100 members violate it|10 of 100 seeds violate it",
    ),
    Adversary(
        "two seeds by decree",
        "Two seeds are there, and the claim's own number of seeds is lowered to two.",
        lambda: measured([1.0] * 2, seeds_needed=2),
        REPRODUCED,  # the author's right before the run; the words say how little two seeds bear out
        says=r"at least 22\.4 % of such seeds do",
    ),
]  # fmt: skip

NUMBERS = [
    Adversary(
        "a mean carried by one outlier",
        "Nine seeds fail, and one number is so large that the mean is far above the threshold.",
        lambda: measured([3.0] * 9 + [1000.0], at_least(50.0, "steps"), rule="mean"),
        INCONCLUSIVE,  # a third of all resamples do not draw it
        leaning="mixed",
        says="reaches across the threshold",
    ),
    Adversary(
        "a mean within, its interval across",
        "The mean meets the threshold, but other seeds may well not.",
        lambda: measured([0.8, 1.0] * 4 + [1.0] * 2, rule="mean"),
        INCONCLUSIVE,
        leaning="mixed",
        says="reaches across the threshold",
    ),
    Adversary(
        "an effect that touches zero",
        "No seed shows the opposite, the mean is positive, and at least 0 is all that is asked.",
        lambda: measured([0.0] * 9 + [0.5], at_least(0.0), rule="effect"),
        INCONCLUSIVE,  # an effect must exclude 0, and an interval that ends there does not
        leaning="mixed",
        says="does not exclude 0",
    ),
    Adversary(
        "no effect in any seed",
        "An effect of exactly 0 in every seed is at least 0.",
        lambda: measured([0.0] * 10, at_least(0.0), rule="effect"),
        INCONCLUSIVE,
        leaning="mixed",
        says="does not exclude 0",
    ),
    Adversary(
        "a correlation with a constant",
        "One of two numbers is the same in every seed, which a sloppy formula calls perfectly correlated.",
        lambda: judged([(float(n), 0.75) for n in range(10)], at_least(0.5), rule="effect"),
        INCONCLUSIVE,  # a constant correlates with nothing
        leaning="mixed",
        says="there is no correlation",
    ),
    Adversary(
        "a correlation made by one seed",
        "Nine seeds lie in one place, and one far away makes the correlation 1.",
        lambda: judged([(0.0, 0.0)] * 9 + [(1.0, 1.0)], at_least(0.5), rule="effect"),
        INCONCLUSIVE,  # without that seed there is no correlation
        leaning="mixed",
        says="reaches across the threshold",
    ),
    Adversary(
        "a time that never came, within a mean",
        "Nine seeds learn early, and the one that never does is left out of the mean.",
        lambda: measured([200.0] * 9 + [NEVER], at_most(1000.0, "steps"), rule="mean"),
        INCONCLUSIVE,  # there is no mean of never
        leaning="mixed",
        says="in 1 of 10 seeds it never happened",
    ),
    Adversary(
        "a time that never came, in every seed but one",
        "A time that never came is no number, and so cannot violate a bound.",
        lambda: measured([200.0] * 9 + [NEVER], at_most(1000.0, "steps")),
        REFUTED,  # never is later than every bound
        says="1 of 10 seeds violates it; the worst never happened",
    ),
]  # fmt: skip

MISSING = [
    Adversary(
        "a NaN that meets every bound",
        "One of ten seeds gives NaN, of which no comparison is true, so that it violates nothing.",
        lambda: measured([1.0] * 9 + [NAN]),
        INCONCLUSIVE,  # unknown counts as a violation of "every"
        leaning="agrees",
        says="1 of 10 seeds has no number|9 of 9 seeds agree; needs 10",
    ),
    Adversary(
        "one unread of eleven",
        "Ten seeds are perfect, which is enough; an eleventh was not read.",
        lambda: measured([*GOOD, NAN]),
        INCONCLUSIVE,
        leaning="agrees",
        says="1 of 11 seeds has no number, which counts as a violation",
    ),
    Adversary(
        "24 % unread",
        "A quarter of the members all but one was not read, and the others agree very well.",
        lambda: measured([0.99, 1.0] * 38 + [NAN] * 24, at_least(0.6, "fraction"), rule="mean"),
        REPRODUCED,  # 76 % are there, and it holds with every unread one as far on the wrong side
        says="it holds with those counted against it",
    ),
    Adversary(
        "26 % unread",
        "The same with two more unread.",
        lambda: measured([0.99, 1.0] * 37 + [NAN] * 26, at_least(0.6, "fraction"), rule="mean"),
        INCONCLUSIVE,  # fewer than 75 % are there
        leaning="agrees",
        says="75 % are needed",
    ),
    Adversary(
        "unread members that turn the verdict",
        "Ten of thirteen members are read, which is enough, and agree.",
        lambda: measured([0.905, 0.935] * 5 + [NAN] * 3, rule="mean"),
        INCONCLUSIVE,  # the three might be as far below as the others are above
        leaning="agrees",
        says="does not hold with those counted against it",
    ),
    Adversary(
        "missing seeds that turn an effect",
        "Ten seeds show an effect just above 0, and three diverged.",
        lambda: measured([0.002, 0.038] * 5 + [NAN] * 3, at_least(-0.5), rule="effect"),
        INCONCLUSIVE,  # reflected at 0, they take the interval across
        leaning="agrees",
        says="does not hold with those counted against it",
    ),
    Adversary(
        "most members unread, the others bad",
        "Ten of forty members were read, and their mean is far below the threshold.",
        lambda: measured([0.5, 0.6] * 5 + [NAN] * 30, rule="mean"),
        INCONCLUSIVE,  # the thirty others decide, whichever way the ten point
        leaning="disagrees",
        says="75 % are needed",
    ),
    Adversary(
        "unread members that would save it",
        "The mean of ten of thirteen members is a little below the threshold, and three were not read.",
        lambda: measured([0.865, 0.9] * 5 + [NAN] * 3, rule="mean"),
        INCONCLUSIVE,  # with the three as far above, the mean reaches the threshold
        leaning="disagrees",
        says="does not fail with those counted for it",
    ),
]  # fmt: skip

CONTROLS = [
    Adversary(
        "a control that shows it too",
        "The effect is there in every seed, and just as large where it should not be.",
        lambda: measured(GOOD, controls={"shuffled targets": of([0.97, 0.99] * 5)}, must_not=at_least(0.5)),
        INCONCLUSIVE,
        leaning="mixed",
        says="the control shuffled targets shows it too",
    ),
    Adversary(
        "a control that was not measured",
        "The control is named, and has no number.",
        lambda: measured(GOOD, controls={"shuffled targets": of([NAN] * 10)}, must_not=at_least(0.5)),
        INCONCLUSIVE,
        leaning="mixed",
        says="the control shuffled targets was not measured",
    ),
    Adversary(
        "a control measured where it is good",
        "Six of ten seeds of the control have a number, and these show nothing.",
        lambda: measured(
            GOOD, controls={"shuffled targets": of([0.0] * 6 + [NAN] * 4)}, must_not=at_least(0.5)
        ),
        INCONCLUSIVE,  # 75 % of a control are needed too
        leaning="mixed",
        says="the control shuffled targets was not measured",
    ),
    Adversary(
        "a control that never comes",
        "Learning is late with the treatment; without it, it never comes, which has no mean to compare.",
        lambda: measured([900.0] * 10, at_least(500.0, "steps"),
                         controls={"untreated": of([NEVER] * 10)}, must_not=at_least(500.0, "steps")),
        INCONCLUSIVE,  # never is later still: the control shows it too
        leaning="mixed",
        says="the control untreated shows it too",
    ),
]  # fmt: skip


def low(evidence):
    """A reading by which no seed meets the claim."""
    return series([0.5] * 10)


def high(evidence):
    """A reading by which every seed does."""
    return series(GOOD)


def absent(evidence):
    """A reading by which nothing was trained."""
    return Samples([], note="not trained in this run")


def set_aside(values):
    """Values that the claim is said not to be about."""
    return Samples(values, excluded="below the task")


PROTOCOL = [
    Adversary(
        "readings that disagree",
        "The reading that is named first agrees, and another one is shown beside it.",
        lambda: judged(None, readings={"batch 64": high, "batch 128": low}),
        INCONCLUSIVE,  # the verdict hangs on what the source does not say
        leaning="mixed",
        says="the readings disagree: reproduced under batch 64; refuted under batch 128",
    ),
    Adversary(
        "a reading chosen afterwards",
        "The default reading was not run; another one works.",
        lambda: judged(None, readings={"as stated": absent, "with clipping": high}),
        INCONCLUSIVE,
        leaning="agrees",
        says=r"the default reading \(as stated\) was not run",
    ),
    Adversary(
        "refuted by the readings that were cheap",
        "Every reading that was trained refutes, and the one that was not is not among the readings.",
        lambda: judged(low, untried=lambda evidence: "a batch of 32,768"),
        INCONCLUSIVE,  # refuted needs every reading of the source
        here=REFUTED,
        leaning="disagrees",
        says="not tried: a batch of 32,768",
    ),
    Adversary(
        "two ways to count that disagree",
        "One of two ways to count heads gives few, the other is undecided, and the first is the default.",
        lambda: judged(
            None,
            at_most(6.0),
            readings={"rules": of([4.0, 5.0] * 5), "recomputed": of([4.0, 8.5] * 5)},
            readings_agree=True,
            rule="mean",
        ),
        INCONCLUSIVE,  # both measure one thing, so both must say it
        leaning="mixed",
        says="the ways to measure it disagree",
    ),
    Adversary(
        "a short run that fails",
        "No seed learns it, after 1 of 20 epochs.",
        lambda: judged(low, at_scale=lambda evidence: "1 of 20 epochs"),
        INCONCLUSIVE,  # the source trained longer
        here=REFUTED,
        leaning="disagrees",
        says="below the protocol's scale: 1 of 20 epochs",
    ),
    Adversary(
        "a short run that succeeds",
        "Every seed has it, in a model of half the source's size.",
        lambda: judged(high, at_scale=lambda evidence: "6 of 12 layers"),
        INCONCLUSIVE,
        here=REPRODUCED,
        leaning="agrees",
        says="below the protocol's scale: 6 of 12 layers",
    ),
    Adversary(
        "one part that ran",
        "Of two things that are claimed together one was measured, and holds.",
        lambda: judged(lambda e: {"recall": high(e), "elimination": absent(e)},
                       {"recall": HIGH, "elimination": HIGH}),
        INCONCLUSIVE,
        leaning="agrees",
        says="elimination: not trained in this run",
    ),
    Adversary(
        "one part below scale",
        "Of two parts one was measured on a part of the held-out set.",
        lambda: judged(lambda e: {"recall": high(e), "elimination": of(GOOD, missing="half of the cases")(e)},
                       {"recall": HIGH, "elimination": HIGH}),
        INCONCLUSIVE,
        here=REPRODUCED,
        leaning="agrees",
        says="half of the cases",
    ),
    Adversary(
        "parts that fail are none of the claim's business",
        "Of three parts two fail, and the value function says of these, and of no others, that the claim is not about "
        "them.",
        lambda: judged(lambda e: {"recall": high(e)} | dict.fromkeys(("elimination", "order"), set_aside(low(e))),
                       dict.fromkeys(("recall", "elimination", "order"), HIGH)),
        REPRODUCED,  # the words name every part that was set aside, and why; a registered rule is seen as changed
        says="^recall: all 10 of 10 seeds meet it.* · elimination: below the task · order: below the task;",
    ),
    Adversary(
        "a theorem with one exception",
        "The claim is structural, and holds in 255 of 256 cases.",
        lambda: judged(Samples([1.0] * 255 + [-1.0], "case"), at_least(0.0), structural=True),
        REFUTED,  # a theorem has no exceptions
        says="1 of 256 cases violates it",
    ),
    Adversary(
        "a theorem tried three times",
        "The claim is structural and needs no seeds; three cases were counted through.",
        lambda: judged(Samples([1.0] * 3, "case"), at_least(0.0), structural=True),
        INCONCLUSIVE,
        leaning="agrees",
        says="3 of 3 cases agree; needs 10",
    ),
    Adversary(
        "half of the seeds far above, half far below",
        "The mean lies in the middle of what is asked, where no seed is.",
        lambda: measured([0.0, 1.0] * 5, between(0.4, 0.6, "fraction"), rule="mean"),
        INCONCLUSIVE,  # the interval of so wide a spread is wide
        leaning="mixed",
        says="reaches across the threshold",
    ),
]  # fmt: skip

EVERY = [*SEEDS, *NUMBERS, *MISSING, *CONTROLS, *PROTOCOL]


@pytest.mark.parametrize("adversary", EVERY, ids=lambda adversary: adversary.name)
def test_it_is_judged_rightly(adversary):
    adversary.check()


@pytest.mark.parametrize("unit", ["seed", "run", "member"])
def test_a_claim_cannot_count_more_than_there_is(unit):
    """Two members whose numbers the value function gives ten times are no twenty seeds, runs or members."""
    with pytest.raises(
        UserError, match=f"expected at most 2 {unit}s, as many as the run has, found 20 of them"
    ):
        judged(Samples([1.0] * 20, unit), evidence=members(2))
    with pytest.raises(UserError, match="each member once"):
        judged(series([1.0] * 2).repeat(10), evidence=members(2))
    with pytest.raises(UserError, match="at most 2 seeds"):  # ten configurations of two seeds
        judged(Samples(series([1.0] * 20), "seed"), evidence=members(2, copies=10))


def test_training_data_do_not_pass_for_held_out_data():
    """A metric that was measured on the training split alone has no held-out value to be asked for."""
    rows = [Row(member, "probes", "accuracy", 1.0, "train", 100) for member in range(10)]
    evidence = Evidence.of([{"member": member, "seed": member} for member in range(10)], rows)
    with pytest.raises(UserError, match="held_out"):
        judge(claim(lambda found: found.last("accuracy")), evidence)


def test_the_page_lists_them_all():
    assert listed("Numbers, seeds, missing values, controls and readings") == [
        adversary.row() for adversary in EVERY
    ]
