"""A part that the claim is not about is shown, and decides nothing while another part is left."""

import json

import pytest

from hopscope.claims import JudgedClaim, Samples, Verdict, at_least, judge

from .stand_in import claim, members, series

HIGH = at_least(0.9, "fraction")
GOOD, BAD = [0.95] * 10, [0.2] * 10
WHY = "below the task: one of two was right"


def judged(parts, excluded=(), **fields):
    """A claim of several parts, some of which it is not about."""

    def value(evidence):
        return {
            name: Samples(series(values), excluded=WHY if name in excluded else "")
            for name, values in parts.items()
        }

    return judge(claim(value, dict.fromkeys(parts, HIGH), **fields), members(10))


def test_an_excluded_part_does_not_refute():
    parts = {"small": BAD, "large": GOOD}
    assert judged(parts).verdict is Verdict.REFUTED
    found = judged(parts, ["small"])
    assert (found.verdict, found.here.verdict, found.n) == (Verdict.REPRODUCED, Verdict.REPRODUCED, 10)
    assert found.value == {"large": 0.95}


def test_an_excluded_part_does_not_reproduce():
    parts = {"small": BAD, "large": GOOD}
    assert judged(parts, ["large"]).verdict is Verdict.REFUTED
    # Nor where any part is enough.
    assert judged(parts, need="any").verdict is Verdict.REPRODUCED
    assert judged(parts, ["large"], need="any").verdict is Verdict.REFUTED


def test_an_excluded_part_is_not_one_that_is_missing():
    """A part that was not run leaves a claim open; one that the claim is not about does not."""
    absent = {"small": Samples([], note="not trained"), "large": Samples(series(GOOD))}
    assert judge(claim(absent, dict.fromkeys(absent, HIGH)), members(10)).verdict is Verdict.INCONCLUSIVE
    lacking = {
        "small": Samples(series(GOOD), missing="half of the cases", excluded=WHY),
        "large": series(GOOD),
    }
    found = judge(claim(lacking, dict.fromkeys(lacking, HIGH)), members(10))
    assert found.verdict is Verdict.REPRODUCED and "half of the cases" not in found.words


def test_an_excluded_part_is_named_with_the_reason_and_its_numbers():
    found = judged({"small": BAD, "middle": [0.3] * 10, "large": GOOD}, ["small", "middle"])
    for words in (found.words, found.here.words):
        assert words.startswith("large: all 10 of 10 seeds meet it")
        assert words.endswith(f" · small: {WHY} · middle: {WHY}")
    assert found.samples == {"small": BAD, "middle": [0.3] * 10, "large": GOOD}
    assert JudgedClaim.model_validate(json.loads(json.dumps(found.to_json()))) == found


def test_without_any_part_left_nothing_was_run():
    found = judged({"small": BAD, "large": GOOD}, ["small", "large"])
    assert (found.verdict, found.here, found.leaning) == (Verdict.NOT_RUN, None, None)
    assert WHY in found.words
    alone = judge(claim(Samples(series(GOOD), excluded=WHY)), members(10))
    assert (alone.verdict, alone.words) == (Verdict.NOT_RUN, WHY)
    # A part that was not run is left, and says nothing.
    rest = {"small": Samples(series(GOOD), excluded=WHY), "large": Samples([], note="not trained")}
    found = judge(claim(rest, dict.fromkeys(rest, HIGH)), members(10))
    assert found.verdict is Verdict.NOT_RUN and "not trained" in found.words and WHY in found.words


def test_what_is_left_needs_what_it_needed_before():
    """Nine seeds of a part are too few, however many parts are excluded; and what the run lacks is still said."""
    nine = {"small": GOOD, "large": GOOD[:9]}
    found = judged(nine, ["small"])
    assert (found.verdict, found.leaning) == (Verdict.INCONCLUSIVE, "agrees")
    short = judged({"small": BAD, "large": GOOD}, ["small"], at_scale=lambda evidence: "1 of 20 epochs")
    assert (short.verdict, short.here.verdict) == (Verdict.INCONCLUSIVE, Verdict.REPRODUCED)
    assert "below the protocol's scale: 1 of 20 epochs" in short.words


@pytest.mark.parametrize("excluded", [["small"], ["large"]])
def test_a_reading_does_without_its_own_excluded_parts(excluded):
    """A part is excluded under one reading, and decides under the other."""

    def parts(*without):
        return lambda evidence: {
            name: Samples(series(values), excluded=WHY if name in without else "")
            for name, values in {"small": BAD, "large": GOOD}.items()
        }

    readings = {"one": parts(*excluded), "other": parts("small")}
    found = judge(claim(must={"small": HIGH, "large": HIGH}, readings=readings), members(10))
    one = Verdict.REPRODUCED if excluded == ["small"] else Verdict.REFUTED
    assert [each.verdict for each in found.readings.values()] == [one, Verdict.REPRODUCED]
    assert found.verdict is (one if one is Verdict.REPRODUCED else Verdict.INCONCLUSIVE)


def test_a_summary_is_told_of_excluded_parts():
    def told(judgements):
        return ", ".join(f"{name} {each.verdict}: {each.words[:14]}" for name, each in judgements.items())

    found = judged({"small": BAD, "large": GOOD}, ["small"], summary=told)
    assert found.verdict is Verdict.REPRODUCED
    assert f"small not run: {WHY[:14]}, large reproduced: " in found.words


def test_a_control_cannot_be_excluded():
    """A control that is said to be of no concern was not measured, and takes the verdict back."""
    control = Samples(series(GOOD), excluded=WHY)
    made = claim(series(GOOD), HIGH, controls={"shuffled": lambda evidence: control}, must_not=HIGH)
    found = judge(made, members(10))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the control shuffled was not measured" in found.words
