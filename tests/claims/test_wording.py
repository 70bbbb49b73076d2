import math
from html.parser import HTMLParser

import pytest

from hopscope.claims import Ledger, Samples, at_least, at_most, between, judge, wording
from hopscope.claims.registration import register
from hopscope.errors import UserError

from .stand_in import claim, members, series

FRACTION = at_least(0.999, "fraction")


def judged(value, must=FRACTION, evidence=None, registration=None, **fields):
    return judge(claim(value, must, **fields), evidence or members(11), registration)


def test_equal_criteria_print_alike_whatever_their_part_is_called():
    alone = judged(series([1.0] * 11), id="P1")
    parts = judged({"elimination": series([1.0] * 11), "odd_name": series([0.5] * 11)},
                   {"elimination": FRACTION, "odd_name": at_most(3, "steps")}, id="P3")  # fmt: skip
    assert wording.threshold_lines(alone) == ["≥ 99.9 %"]
    assert wording.threshold_lines(parts) == ["elimination ≥ 99.9 %", "odd name ≤ 3 steps"]
    assert wording.estimates(alone) == [("", "100 % [100, 100]")]
    assert wording.estimates(parts) == [
        ("elimination", "100 % [100, 100]"),
        ("odd name", "0.5 steps [0.5, 0.5]"),
    ]


@pytest.mark.parametrize(
    ("must", "line"),
    [
        (between(0.1, 0.9, "fraction"), "10 % to 90 %"),
        (between(0.9545, 0.9605, "nats"), "0.9545 to 0.9605 nats"),
        (at_most(0.003), "≤ 0.003"),
        (at_least(-0.5, "nats"), "≥ −0.5 nats"),
    ],
)
def test_thresholds_have_their_unit(must, line):
    assert wording.threshold_lines(judged(series([0.5] * 11), must)) == [line]


def test_samples_one_by_one():
    found = judged(series([0.9996, 1.0, math.nan, math.inf]), evidence=members(4))
    assert wording.sample_lists(found) == [("", ["99.96 %", "100 %", "–", "never"])]
    pairs = judged([[1, 2.5]] * 11, at_least(0.5), rule="effect")
    assert wording.sample_lists(pairs)[0][1][0] == "(1, 2.5)"
    parts = judged({"a_b": series([1.0] * 11)}, {"a_b": FRACTION})
    assert wording.sample_lists(parts) == [("a b", ["100 %"] * 11)]
    assert wording.counted(parts) == "seed"
    both = judged({"a": series([1.0] * 11), "b": Samples([1.0], "question")}, {"a": FRACTION, "b": FRACTION})
    assert wording.counted(both) == "seed or question"


def test_remarks_stand_beside_the_words():
    assert wording.remarks(judged(series([1.0] * 11))) == []
    found = judged(
        series([1.0] * 11),
        at_scale=lambda evidence: "1 of 20 epochs",
        controls={"deepest alone": lambda evidence: series([0.02, 0.04])},
        structural=True,
        registration=register([]),
    )
    here, control, structural, added = wording.remarks(found)
    assert here.startswith("here") and "reproduced" in here and "11 of 11 cases" in here
    assert control == "control deepest alone: 3 % [2 %, 4 %]"
    assert structural.startswith("structural: ")
    assert added == found.registration.words != ""


def test_a_line_tells_one_part_and_what_was_asked_of_it():
    alone = judged(series([1.0] * 11))
    assert wording.brief(alone) == ("", "100 % [100, 100]", "≥ 99.9 %, every seed")
    mean = judged(series([0.5] * 11), at_most(0.7, "nats"), rule="mean")
    assert wording.brief(mean) == ("", "0.5 nats [0.5, 0.5]", "≤ 0.7 nats")
    must = {"met": FRACTION, "sometimes_missed": FRACTION}
    parts = judged({"met": series([1.0] * 11), "sometimes_missed": series([1.0] * 10 + [0.5])}, must)
    assert wording.brief(parts)[::2] == ("sometimes missed", "≥ 99.9 %, every seed")
    met = judged({"met": series([1.0] * 11), "sometimes_missed": series([1.0] * 11)}, must)
    assert wording.brief(met)[0] == "met"
    # What its mean does not show: the seed, or the interval, that keeps it from its threshold.
    one_seed = judged(series([1.0] * 10 + [0.5]), at_least(0.9, "fraction"))
    assert wording.brief(one_seed)[1].endswith("], worst seed 50 %")
    worst = {"met": at_most(7), "missed": between(3, 5)}
    numbers = {"met": series([7.0] * 11), "missed": series([4.0] * 9 + [5.5, 1.0])}
    assert wording.brief(judged(numbers, worst))[1].endswith("], worst seed 1")
    open_interval = {"met": at_most(0.7), "crossed": at_most(0.52)}
    halves = {"met": series([0.5] * 11), "crossed": series([0.4, 0.6] * 5 + [0.5])}
    crossed = judged(halves, open_interval, rule="mean")
    assert crossed.verdict.value == "inconclusive" and wording.brief(crossed)[0] == "crossed"
    assert "worst" not in wording.brief(crossed)[1]
    nothing = judged(series([math.nan] * 11))
    assert wording.brief(nothing) == ("", "–", "≥ 99.9 %, every seed")


def test_a_line_says_that_readings_disagree():
    given = {"batch 256": lambda e: series([0.5] * 11), "batch 64": lambda e: series([1.0] * 11)}
    assert wording.brief(judged(None, readings=given))[2] == "≥ 99.9 %, every seed; readings disagree"
    alike = {**given, "batch 64": given["batch 256"]}
    assert wording.brief(judged(None, readings=alike))[2] == "≥ 99.9 %, every seed"


def test_a_claim_that_is_open_for_want_of_readings_says_so_without_a_contradiction():
    given = {"batch 256": lambda e: series([0.5] * 11), "batch 64": lambda e: series([0.4] * 11)}
    found = judged(None, readings=given, untried=lambda evidence: "batch 128, 50 epochs")
    assert found.verdict.value == "inconclusive" and "refuted under every tried reading" in found.words
    words = wording.reason(found)
    assert words.startswith("both readings that were tried refute it: 11 of 11")
    assert words.endswith("some were not tried: batch 128, 50 epochs. So it stays inconclusive")
    assert "refuted under" not in words
    assert wording.remarks(found) == ["here, by what this run tried alone: refuted"]
    one = judged(None, readings={"batch 256": given["batch 256"]}, untried=lambda evidence: "batch 64")
    assert wording.reason(one).startswith("the one reading that was tried (batch 256) refutes it: 11 of 11")
    whole = judged(None, readings=given, untried=lambda evidence: "")
    assert wording.reason(whole) == whole.words


@pytest.mark.parametrize(
    ("values", "words"),
    [([1.0] * 4, "agrees so far"), ([0.5, 1.0] * 3, "mixed so far"), ([0.1], "disagrees so far")],
)
def test_an_open_claim_says_where_it_points(values, words):
    found = judged(series(values), at_scale=lambda evidence: "x")
    assert wording.leaning_words(found) == words
    assert wording.leaning_words(judged(series([1.0] * 11))) == ""


LEDGER = Ledger(
    [
        judged(series([1.0] * 4), evidence=members(4)),
        judged(series([0.1] * 11), id="C<2>", statement="a < b & c", registration=register([])),
    ]
)


def test_a_ledger_prints_as_a_table():
    text = " ".join(str(LEDGER).split())
    for part in (
        "inconclusive",
        "agrees so far",
        "4 of 4 seeds agree; needs 10",
        "C<2>",
        "after the run had",
        "≥ 99.9 %",
    ):
        assert part in text
    assert repr(LEDGER) == str(LEDGER)


def test_a_ledger_is_a_table_in_a_notebook():
    html = LEDGER._repr_html_()
    assert ">a &lt; b &amp; c</td>" in html and ">C&lt;2&gt;</td>" in html
    open_tags = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag, attributes):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

    Checker().feed(html)
    assert not open_tags
    assert html.count("<tr>") == 6 and html.count("<th ") == 8 and html.count("<td ") == 16


def test_a_ledger_is_a_sequence_that_knows_ids():
    assert len(LEDGER) == 2 and [each.id for each in LEDGER] == ["C1", "C<2>"]
    assert LEDGER[1] is LEDGER["C<2>"] is LEDGER[-1]
    assert LEDGER[:1] == Ledger([LEDGER[0]]) != LEDGER
    assert Ledger.parse(LEDGER.to_json()) == LEDGER
    with pytest.raises(UserError, match="claim: expected one of C1, C<2>, found 'C3'"):
        LEDGER["C3"]


def test_a_pair_that_never_came_can_be_told():
    assert wording.sample_text(("inf", 2.0)) == f"({wording.sample_text('inf')}, 2)"
