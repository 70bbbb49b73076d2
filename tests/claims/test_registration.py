import json
from dataclasses import replace
from functools import partial

import pytest

from hopscope.claims import Claim, Samples, Verdict, at_least, at_most, judge
from hopscope.claims.registration import deleted, noted, register, registered_rule, rule_of, state_of
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
    rule = registered_rule(written, "C1")
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


def test_a_registration_that_was_deleted_is_missed():
    (before,) = [judge(made(), members(11), stored(register([made()])))]
    now, never = judge(made(must=at_least(0.8, "fraction")), members(11)), judge(made(), members(11))
    (found,) = deleted([now], [before])
    assert (found.registration.state, found.verdict) == ("none", now.verdict)
    assert "registration.json was deleted" in found.registration.words
    assert deleted([now], [found]) == [found]  # the second time too
    # A run of before there were registrations had none to delete.
    assert deleted([now], [never]) == deleted([now], []) == [now]


def test_an_edited_registration_is_no_registration():
    registered = stored(noted(register([made()]), [judge(made(), members(11), register([made()]))]))
    assert "judged" in registered["claims"]["C1"]
    lax = made(must=at_least(0.8, "fraction"))
    for edited in (
        {"hash": register([lax])["claims"]["C1"]["hash"]},
        {"rule": rule_of(lax)},
        {"rule": None},
    ):
        entry = {**registered["claims"]["C1"], **edited}
        for now in (made(), lax):
            found = state_of(now, {**registered, "claims": {"C1": entry}})
            assert (found.state, found.under_registered) == ("changed", None)
            assert "registration.json was edited" in found.words


def shares(size, evidence=None):
    return high(evidence)


def test_what_rules_share_stands_once():
    readings = {f"batch {size}": partial(shares, size) for size in range(97)}
    claims = [replace(made(value=shares, readings=readings), id=name) for name in ("C1", "C2")]
    registered = stored(register(claims))
    assert [state_of(claim, registered).state for claim in claims] == ["registered"] * 2
    assert registered_rule(registered, "C2") == rule_of(claims[1])
    assert len(json.dumps(registered)) < len(json.dumps([rule_of(claim) for claim in claims])) / 2
    helper = next(text for text in registered["sources"].values() if "def high" in text)
    assert json.dumps(registered).count(json.dumps(helper)) == 1


def test_a_shared_source_that_was_edited_or_is_gone_says_so():
    claim = made(value=shares)
    for change in (lambda text: text.replace("1.0", "0.5"), None):
        registered = stored(register([claim]))
        (name,) = (name for name, text in registered["sources"].items() if "def high" in text)
        if change is None:
            del registered["sources"][name]
        else:
            registered["sources"][name] = change(registered["sources"][name])
        found = state_of(claim, registered)
        assert found.state == "changed" and "registration.json was edited" in found.words


def test_registrations_with_whole_sources_are_read():
    """As they were written before rules shared their sources."""
    claim = made(value=shares)
    (entry,) = register([claim])["claims"].values()
    old = {"version": 1, "claims": {"C1": {"hash": entry["hash"], "rule": rule_of(claim)}}}
    assert state_of(claim, stored(old)).state == "registered"


def test_an_added_claim_says_so():
    found = judge(made(), members(11), register([]))
    assert found.registration.state == "added"
    assert "added after the run" in found.registration.words


def test_a_changed_claim_shows_both_verdicts():
    registered = stored(register([made(value=low)]))
    first = judge(made(value=low), members(11), registered)
    assert first.verdict is Verdict.REFUTED
    registered = stored(noted(registered, [first]))
    changed = judge(made(value=high), members(11), registered)
    assert changed.verdict is Verdict.REPRODUCED
    assert "changed after the run" in changed.registration.words
    assert "was refuted under the rule registered" in changed.registration.words
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
    assert found.registration.state == "changed" and "never judged" in found.registration.words
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
