"""Made-up runs whose rule is changed after they ran: the verdict is that of the new rule, and it says so."""

import json
from dataclasses import replace

import pytest

from hopscope.claims import Claim, JudgedClaim, Samples, at_least, at_most, judge
from hopscope.claims.registration import deleted, noted, register, rule_of

from .adversary import REPRODUCED, Adversary, listed
from .stand_in import claim, members, series

STRICT, LAX = at_least(0.999, "fraction"), at_least(0.9, "fraction")
RUN = members(10)


def scores(evidence):
    """Every seed is between the two thresholds."""
    return series([0.95, 0.97] * 5)


def near_end(values):
    """The last two seeds: the best."""
    return max(values[-2:])


def on_average(values):
    """The mean of all."""
    return sum(values) / len(values)


def summed_by(helper):
    """A value function that leaves what counts to a helper."""
    return lambda evidence: Samples([helper([0.8, 0.95])] * 10, "seed")


def parts(evidence):
    """Two parts, one of which does worse."""
    return {"recall": series([0.99] * 10), "elimination": series([0.95] * 10)}


def without_what_fails(evidence):
    """The same, where whatever is below the strict threshold is called none of the claim's business."""
    found = {name: Samples(values) for name, values in parts(evidence).items()}
    return {
        name: replace(each, excluded="below the task" if min(each.values) < 0.98 else "")
        for name, each in found.items()
    }


def stored(registration):
    """As it comes back from the run's folder."""
    return json.loads(json.dumps(registration, allow_nan=False))


def after(before: Claim, now: Claim) -> JudgedClaim:
    """The claim as it is now, in a run that was registered and judged with what it was before."""
    registered = stored(register([before]))
    registered = stored(noted(registered, [judge(before, RUN, registered)]))
    return judge(now, RUN, registered)


def changed(value=scores, must=LAX, *, then, **now) -> JudgedClaim:
    """The same, where some fields were others: `then`."""
    fields = {"value": value, "must": must, **now}
    return after(claim(**{**fields, **then}), claim(**fields))


def edited(**entry) -> JudgedClaim:
    """The claim with the lax threshold, in a run registered with the strict one, whose file was edited."""
    registered = stored(register([claim(scores, STRICT)]))
    registered["claims"]["C1"].update(entry)
    return judge(claim(scores, LAX), RUN, registered)


def without() -> JudgedClaim:
    """The claim with the lax threshold, where the registration was deleted that had the strict one."""
    strict = claim(scores, STRICT)
    before = judge(strict, RUN, stored(register([strict])))
    return deleted([judge(claim(scores, LAX), RUN)], [before])[0]


def hash_of(now: Claim) -> str:
    """The hash that a registration would have of this claim."""
    return register([now])["claims"]["C1"]["hash"]


WAS = "changed after the run: was {} under the rule registered with it".format

EVERY = [
    Adversary(
        "a threshold lowered after the run",
        "The threshold is moved to what was found.",
        lambda: changed(then={"must": STRICT}),
        REPRODUCED,  # by the new rule; beside it stands what the registered one gave
        registration="changed",
        says=WAS("refuted"),
    ),
    Adversary(
        "a protocol reworded after the run",
        "The numbers and the threshold stay, and the words say another thing was to be measured.",
        lambda: changed(protocol="the best of five checkpoints", then={"protocol": "the last checkpoint"}),
        REPRODUCED,
        registration="changed",
        says=WAS("reproduced"),
    ),
    Adversary(
        "a helper changed after the run",
        "The value function is the same to the letter; a function that it calls takes the best in place of the mean.",
        lambda: changed(summed_by(near_end), then={"value": summed_by(on_average)}),
        REPRODUCED,
        registration="changed",
        says=WAS("refuted"),
    ),
    Adversary(
        "one part's threshold lowered after the run",
        "Of two parts the one that failed gets another threshold.",
        lambda: changed(parts, {"recall": LAX, "elimination": LAX},
                        then={"must": {"recall": LAX, "elimination": STRICT}}),
        REPRODUCED,
        registration="changed",
        says=WAS("refuted"),
    ),
    Adversary(
        "one part excluded after the run",
        "Of two parts the one that failed is called none of the claim's business.",
        lambda: changed(without_what_fails, dict.fromkeys(("recall", "elimination"), at_least(0.98)),
                        then={"value": parts}),
        REPRODUCED,  # of what is left; the words name the other part, and that it was refuted with it
        registration="changed",
        says=f"elimination: below the task; judged by a rule that was {WAS('refuted')}",
    ),
    Adversary(
        "from every seed to the mean, after the run",
        "One seed failed, so the claim becomes one about the mean.",
        lambda: changed(lambda evidence: series([0.95] * 9 + [0.85]), at_least(0.9, "fraction"), rule="mean",
                        then={"rule": "always"}),
        REPRODUCED,  # of the mean; that it was refuted of every seed stands beside it
        registration="changed",
        says=WAS("refuted"),
    ),
    Adversary(
        "fewer seeds needed, after the run",
        "The run has ten seeds where twelve were promised.",
        lambda: changed(seeds_needed=10, then={"seeds_needed": 12}),
        REPRODUCED,
        registration="changed",
        says=WAS("inconclusive"),
    ),
    Adversary(
        "a control dropped after the run",
        "The control showed the effect too, and is gone.",
        lambda: changed(then={"controls": {"shuffled": lambda evidence: series([0.95, 0.97] * 5)},
                              "must_not": at_least(0.5)}),
        REPRODUCED,
        registration="changed",
        says=WAS("inconclusive"),
    ),
    Adversary(
        "a reading dropped after the run",
        "Of two readings the one that refuted is gone.",
        lambda: after(
            claim(must=LAX, readings={"batch 64": scores, "batch 128": lambda evidence: series([0.5] * 10)}),
            claim(must=LAX, readings={"batch 64": scores}),
        ),
        REPRODUCED,
        registration="changed",
        says=WAS("inconclusive"),
    ),
    Adversary(
        "a scale that no longer matters, after the run",
        "What the run lacks of the protocol is no longer asked.",
        lambda: changed(then={"at_scale": lambda evidence: "1 of 20 epochs"}),
        REPRODUCED,
        registration="changed",
        says=WAS("inconclusive"),
    ),
    Adversary(
        "a claim made up after the run",
        "The run is searched for something that holds, which becomes a claim.",
        lambda: after(claim(scores, STRICT), claim(scores, LAX, id="C2")),
        REPRODUCED,
        registration="added",
        says="added after the run had begun",
    ),
    Adversary(
        "a refuted claim under another name",
        "The refuted claim is taken out, and comes back with a kinder threshold and a new id.",
        lambda: after(claim(scores, STRICT), claim(scores, LAX, id="C1b")),
        REPRODUCED,
        registration="added",
        says="added after the run had begun",
    ),
    Adversary(
        "a registration deleted",
        "Without registration.json the run looks like one from before there were registrations.",
        without,
        REPRODUCED,
        says="registration.json was deleted after this run had been judged",
    ),
    Adversary(
        "a registration edited by hand",
        "The hash in registration.json is replaced by that of the rule as it is now.",
        lambda: edited(hash=hash_of(claim(scores, LAX))),
        REPRODUCED,
        registration="changed",
        says="registration.json was edited",
    ),
    Adversary(
        "a registration whose readable rule was edited",
        "The criteria in registration.json are replaced by those of the rule as it is now, for readers to see.",
        lambda: edited(rule=stored(rule_of(claim(scores, LAX)))),
        REPRODUCED,
        registration="changed",
        says="registration.json was edited",
    ),
    Adversary(
        "an entry of a registration deleted",
        "The claim's entry is deleted, so that nothing is there to differ from.",
        lambda: after(claim(scores, STRICT, id="C9"), claim(scores, LAX)),
        REPRODUCED,
        registration="added",
        says="added after the run had begun",
    ),
    Adversary(
        "another sentence after the run",
        "The statement says more than before, and the rule is the same.",
        lambda: changed(then={"statement": "something less"}),
        REPRODUCED,  # what decides is what was registered; a statement is words about it
        registration="registered",
        says="",
    ),
]  # fmt: skip


@pytest.mark.parametrize("adversary", EVERY, ids=lambda adversary: adversary.name)
def test_it_is_judged_rightly_and_says_what_was_changed(adversary):
    adversary.check()


def test_both_verdicts_of_a_changed_rule_are_shown():
    found = changed(then={"must": STRICT})
    under = found.registration.under_registered
    assert (under.verdict.value, under.n) == ("refuted", 10)
    # … but not one that an edited file tells of.
    assert edited(hash=hash_of(claim(scores, LAX))).registration.under_registered is None


def test_the_rules_that_are_compared_differ():
    """Each trick changes the rule, or it would not be one."""
    assert hash_of(claim(scores, LAX)) != hash_of(claim(scores, STRICT))
    assert hash_of(claim(summed_by(near_end))) != hash_of(claim(summed_by(on_average)))
    assert hash_of(claim(scores, at_most(0.9))) != hash_of(claim(scores, LAX))


def test_the_page_lists_them_all():
    assert listed("Rules that were changed after the run") == [adversary.row() for adversary in EVERY]
