"""A claim of many parts may say what was seen in fewer words than all of its parts together."""

import pytest

from hopscope.claims import Samples, Verdict, at_least, judge
from hopscope.claims.wording import sample_lists, threshold_lines
from hopscope.errors import UserError

from .stand_in import claim, members, series

VALUES = {"a": [0.95] * 11, "b": [0.95] * 10 + [0.3], "c": [0.2] * 11}


def told(judgements):
    refuted = [name for name, each in judgements.items() if each.verdict is Verdict.REFUTED]
    return f"{len(judgements)} parts, {' and '.join(refuted) or 'none'} refuted"


def parts(evidence):
    return {name: series(values) for name, values in VALUES.items()}


def many(**fields):
    return claim(parts, dict.fromkeys(VALUES, at_least(0.9, "fraction")), summary=told, **fields)


def test_a_summary_stands_for_the_words_of_the_parts_and_changes_nothing_else():
    alone = judge(claim(parts, many().must), members(11))
    judged = judge(many(), members(11))
    assert judged.words == judged.here.words == "3 parts, b and c refuted"
    kept = {"words", "here"}
    assert judged.model_dump(exclude=kept) == alone.model_dump(exclude=kept)


def test_what_the_run_lacks_is_said_before_it():
    judged = judge(many(at_scale=lambda evidence: "1 of 20 epochs"), members(11))
    assert "1 of 20 epochs" in judged.words and judged.words.endswith("; 3 parts, none refuted")
    assert judged.here.words == "3 parts, b and c refuted"


def test_a_claim_that_was_not_run_has_the_reason_of_its_parts():
    def nothing(evidence):
        return {name: Samples([], note="nobody was asked") for name in VALUES}

    judged = judge(claim(nothing, many().must, summary=told), members(11))
    assert (judged.verdict, judged.words) == (Verdict.NOT_RUN, "nobody was asked")


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (lambda judgements: 3, "summary: expected words that say what was seen, found int 3"),
        (lambda judgements: judgements["d"].words, "summary: .*KeyError: 'd'"),
    ],
)
def test_a_summary_that_is_none_is_named(summary, message):
    with pytest.raises(UserError, match=message):
        judge(claim(parts, many().must, summary=summary), members(11))


def test_a_summary_needs_parts():
    with pytest.raises(UserError, match="summary: expected several parts in `must`"):
        claim(series([1.0]), summary=told)
    with pytest.raises(UserError, match="summary: expected a function of the parts' judgements, found 'all'"):
        claim(parts, many().must, summary="all")


def test_many_equal_thresholds_are_one_line():
    same = dict.fromkeys("abcdefg", at_least(0.9, "fraction"))

    def value(evidence):
        return {name: series([0.95] * 11) for name in same}

    assert threshold_lines(judge(claim(value, same), members(11))) == ["each of 7 ≥ 90 %"]
    other = judge(claim(value, {**same, "g": at_least(0.8, "fraction")}), members(11))
    assert threshold_lines(other) == [*(f"{name} ≥ 90 %" for name in "abcdef"), "g ≥ 80 %"]
    assert len(threshold_lines(judge(many(), members(11)))) == 3


def test_hundreds_of_answers_are_counted_and_seeds_are_not():
    answers = [1.0] * 47 + [0.0] * 5 + [None] * 3
    judged = judge(claim(Samples(answers, unit="question"), rule="mean"), members(1))
    assert sample_lists(judged) == [("", ["47 × 100 %", "5 × 0 %", "3 × –"])]
    assert judged.samples == answers
    for few in ([1.0] * 30 + [0.0] * 20, [number / 60 for number in range(60)]):
        told_one_by_one = judge(claim(Samples(few, unit="question"), rule="mean"), members(1))
        assert len(sample_lists(told_one_by_one)[0][1]) == len(few)
