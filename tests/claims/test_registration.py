import json

import pytest

from hopscope.claims import Claim, Samples, Verdict, at_least, at_most, judge
from hopscope.claims.registration import noted, register, rule_of, state_of
from hopscope.errors import UserError

from .stand_in import claim, members, series

LIMIT = 7


def low(evidence):
    return series([0.1] * 11)


def high(evidence):
    return series([1.0] * 11)


def limited(limit):
    return lambda evidence: Samples([float(limit > LIMIT)] * 11, "run")


def stored(registration):
    """As it comes back from the run folder."""
    return json.loads(json.dumps(registration, allow_nan=False))


BASE = {
    "value": high,
    "must": at_least(0.9, "fraction"),
    "statement": "s",
    "source": "this file",
    "protocol": "p",
    "controls": {"c": low},
    "must_not": at_least(0.5),
    "at_scale": lambda evidence: "",
    "trust": "t",
}


def made(**changes):
    return Claim(id="C1", **{**BASE, **changes})


def test_the_rule_is_readable_and_plain_json():
    written = register([made(), made(value=None, readings={"batch 64": low, "batch 128": high})])
    assert stored(written) == written
    rule = written["claims"]["C1"]["rule"]
    assert rule["criteria"] == {"at_least": 0.9, "unit": "fraction"}
    assert rule["controls"]["c"].startswith("def low(evidence):\n    return series([0.1] * 11)\n")
    assert rule["at_scale"] == "lambda evidence: ''\n"
    assert [*rule["readings"]] == ["batch 64", "batch 128"] and rule["value"] is None
    assert "statement" not in rule and "trust" not in rule


@pytest.mark.parametrize(
    "change",
    [
        {"must": at_least(0.8, "fraction")},
        {"must": at_most(0.9, "fraction")},
        {"must": at_least(0.9)},
        {"must": {"a": at_least(0.9, "fraction")}},
        {"protocol": "another"},
        {"rule": "mean"},
        {"need": "any"},
        {"source_n": 3},
        {"seeds_needed": 8},
        {"value": low},
        {"value": lambda evidence: series([1.0] * 11)},
        {"at_scale": None},
        {"at_scale": lambda evidence: "x"},
        {"readings": {"batch 64": high}},
        {"readings": lambda evidence: {"batch 64": high}},
        {"controls": {"c": high}},
        {"controls": {"d": low}},
        {"controls": None},
        {"must_not": at_least(0.6)},
        {"must_not": None},
        {"structural": True},
    ],
)
def test_whatever_decides_a_claim_is_part_of_its_rule(change):
    registered = stored(register([made()]))
    assert state_of(made(), registered).state == "registered"
    found = state_of(made(**change), registered)
    assert (found.state, found.registered) == ("changed", registered["claims"]["C1"]["hash"])
    assert found.hash != found.registered


@pytest.mark.parametrize("change", [{"statement": "other"}, {"source": "elsewhere"}, {"trust": ["more"]}])
def test_words_about_a_claim_are_no_part_of_its_rule(change):
    assert state_of(made(**change), register([made()])).state == "registered"


def test_what_a_value_function_has_around_it_counts():
    eleven = register([made(value=limited(11))])
    assert state_of(made(value=limited(11)), eleven).state == "registered"
    assert state_of(made(value=limited(13)), eleven).state == "changed"
    assert "def series(values, start=0)" in rule_of(made())["value"]  # a helper in the same folder


def test_a_run_without_registration_says_so():
    found = judge(made(), members(11))
    assert found.registration.state == "none"
    assert found.to_json()["registration"] == {"state": "none"}


def test_a_registered_claim_says_nothing_more():
    found = judge(made(), members(11), stored(register([made()])))
    assert found.registration.words == ""
    hashed = register([made()])["claims"]["C1"]["hash"]
    assert found.to_json()["registration"] == {"state": "registered", "hash": hashed, "registered": hashed}


def test_an_added_claim_says_so():
    found = judge(made(), members(11), register([]))
    assert found.registration.state == "added"
    assert found.registration.words == "this claim was added after the run had begun"


def test_a_changed_claim_shows_both_verdicts():
    registered = stored(register([made(value=low)]))
    first = judge(made(value=low), members(11), registered)
    assert first.verdict is Verdict.REFUTED
    registered = stored(noted(registered, [first]))
    changed = judge(made(value=high), members(11), registered)
    assert changed.verdict is Verdict.REPRODUCED
    assert changed.registration.words == (
        "judged by a rule that was changed after the run: was refuted under the rule registered with it"
    )
    under = changed.registration.under_registered
    assert (under.verdict, under.value, under.n, under.words) == (
        Verdict.REFUTED,
        first.value,
        11,
        first.words,
    )
    # What is noted is the registered rule's own verdict, however often the changed one is judged.
    assert noted(registered, [changed]) == registered
    again = judge(made(value=low), members(11), noted(registered, [changed]))
    assert again.registration.state == "registered"


def test_a_claim_that_was_changed_before_it_was_ever_judged_says_so():
    found = judge(made(value=high), members(11), register([made(value=low)]))
    assert found.registration.words == (
        "judged by a rule that was changed after the run: never judged under the rule registered with it"
    )
    assert found.registration.under_registered is None


def test_noting_leaves_other_claims_alone():
    both = register([made(), claim(high, id="C2")])
    found = noted(both, [judge(made(), members(11), both), judge(claim(high, id="C3"), members(11), both)])
    assert [*found["claims"]] == ["C1", "C2"]
    assert "judged" in found["claims"]["C1"] and "judged" not in found["claims"]["C2"]
    assert "judged" not in both["claims"]["C1"]


@pytest.mark.parametrize(
    "damaged", [{}, {"claims": []}, {"claims": {"C1": {}}}, {"claims": {"C1": {"hash": 3}}}]
)
def test_a_damaged_registration_is_named(damaged):
    for attempt in (lambda: state_of(made(), damaged), lambda: noted(damaged, [])):
        with pytest.raises(
            UserError, match=r"^registration\.json: expected the registered claims of a run"
        ) as caught:
            attempt()
        assert "\n" not in str(caught.value)
