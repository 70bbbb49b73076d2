import json
import math

import pytest

from hopscope.claims import JudgedClaim, Samples, Verdict, at_least, judge
from hopscope.errors import UserError

from .stand_in import claim, members, numbers, series

HIGH = at_least(0.9, "fraction")
SHOWS = at_least(0.5, "fraction")
GOOD = [1.0] * 11


def judged(control, **fields):
    fields = {"must_not": SHOWS, **fields}
    made = claim(
        series(GOOD), fields.pop("must", HIGH), controls={"deepest alone": lambda e: control}, **fields
    )
    return judge(made, members(13))


def test_a_control_that_shows_nothing_leaves_the_verdict():
    found = judged(series([0.01, 0.02, 0.03]))
    assert found.verdict is Verdict.REPRODUCED
    control = found.controls["deepest alone"]
    assert (control.value, control.n, control.shows, control.n_counts) == (0.02, 3, False, "seed")
    assert control.samples == [0.01, 0.02, 0.03]
    assert control.words == "2 % [1 %, 3 %]"
    assert found.to_json()["must_not"] == {"at_least": 0.5, "unit": "fraction"}
    assert JudgedClaim.model_validate(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("control", [series([0.8, 0.9, 1.0]), Samples([0.5], "run")])
def test_a_control_that_shows_it_takes_the_verdict_back(control):
    found = judged(control)
    assert (found.verdict, found.leaning) == (Verdict.INCONCLUSIVE, "mixed")
    assert "control deepest alone shows it" in found.words
    assert found.controls["deepest alone"].shows is True
    assert found.here.verdict is Verdict.INCONCLUSIVE


def test_a_control_that_was_not_measured_takes_it_back_too():
    for control in (Samples([], note="not trained"), series([math.nan] * 3)):
        found = judged(control)
        assert found.verdict is Verdict.INCONCLUSIVE
        assert "control deepest alone was not measured" in found.words
        assert found.controls["deepest alone"].shows is None


def test_half_a_control_decides_nothing():
    assert judged(series([0.1, 0.5, 0.99])).verdict is Verdict.REPRODUCED


def test_a_control_may_be_shown_only():
    found = judged(series([1.0, 1.0]), must_not=None)
    assert found.verdict is Verdict.REPRODUCED
    assert found.controls["deepest alone"].shows is None
    assert found.controls["deepest alone"].value == 1.0
    assert found.must_not is None


def test_a_control_changes_no_other_verdict():
    refuted = judge(
        claim(series([0.1] * 11), HIGH, controls={"c": lambda e: series([1.0, 1.0])}, must_not=SHOWS),
        members(11),
    )
    assert refuted.verdict is Verdict.REFUTED


def test_controls_have_parts():
    must = {"recall": HIGH, "time": at_least(3, "steps")}
    value = {"recall": series(GOOD), "time": series([4.0] * 11)}

    def found(control, must_not):
        made = claim(value, must, controls={"c": lambda e: control}, must_not=must_not)
        return judge(made, members(11))

    low = {"recall": series([0.1, 0.2])}
    assert found(low, SHOWS).verdict is Verdict.REPRODUCED
    both = {"recall": series([0.1, 0.2]), "time": series([5.0, 5.0])}
    shown = found(both, {"recall": SHOWS, "time": at_least(3, "steps")})
    assert shown.verdict is Verdict.INCONCLUSIVE
    assert shown.controls["c"].words == "recall: 15 % [10 %, 20 %] · time: 5 steps [5 steps, 5 steps]"
    assert shown.controls["c"].value == {"recall": pytest.approx(0.15), "time": 5.0}
    assert shown.must_not["time"] == {"at_least": 3.0, "unit": "steps"}
    for control, must_not in (
        ({"speed": series([1.0])}, SHOWS),
        ({}, SHOWS),
        (series([1.0]), {"recall": SHOWS}),
        ({"time": series([1.0])}, {"recall": SHOWS}),
    ):
        with pytest.raises(UserError, match=r"^claim 'C1': control 'c': expected numbers for "):
            found(control, must_not)
    with pytest.raises(UserError, match="expected numbers, since `must` has no parts, found parts 'recall'"):
        judged({"recall": series([1.0])})


def test_a_control_needs_three_quarters_of_its_numbers():
    enough = judged(series([0.01, 0.02, 0.03, math.nan]))
    assert enough.verdict is Verdict.REPRODUCED
    few = judged(series([0.01, 0.02, math.nan]))
    assert few.verdict is Verdict.INCONCLUSIVE
    assert "control deepest alone was not measured" in few.words
    control = few.controls["deepest alone"]
    assert control.shows is None
    assert numbers(control.words)[-3:] == [1, 3, 75]


def test_a_control_of_pairs_with_one_that_never_came_was_not_measured():
    must = at_least(0.5)
    good = Samples([(float(place), float(place)) for place in range(11)], "pair")
    never = Samples([*good.values, (math.inf, 1.0)], "pair")
    made = claim(good, must, rule="effect", controls={"c": lambda e: never}, must_not=must)
    found = judge(made, members(11))
    assert (found.verdict, found.controls["c"].shows) == (Verdict.INCONCLUSIVE, None)
