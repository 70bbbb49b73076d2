import pytest

from hopscope.claims import Claim
from hopscope.report.prose import Prose
from hopscope.report.record import read_run
from hopscope.report.verdicts import (
    MOST_ESTIMATES,
    SYMBOLS,
    is_share,
    threshold_words,
    verdict_counts,
    verdict_rows,
)


def claim(threshold, **fields):
    given = {"value": 0.5, "interval": None, "n": 7, "verdict": "inconclusive", **fields}
    return Claim(id="P1", statement="s", source="003", protocol="p", threshold=threshold, trust=[], **given)


@pytest.mark.parametrize(
    ("threshold", "name", "expected"),
    [
        ("≥ 99.9 % of sequences", "", True),
        ("costs ≥ 50 points", "", True),
        ("≤ 0.003", "", False),
        ("≤ 5 % above the floor", "training_loss", False),
        ("≤ 0.003", "recall accuracy", True),
        ({"recall": {"at_least": 0.99}}, "recall", True),
        ({"at_least": 0.99}, "", False),
    ],
)
def test_what_is_written_in_percent(threshold, name, expected):
    assert is_share(claim(threshold), name, [0.5, None]) is expected


def test_numbers_beyond_one_are_no_shares():
    assert not is_share(claim("≥ 99 %"), "recall step", [0.5, 1900])


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        ("never", ["never"]),
        ({"at_most": 0.003}, ["≤ 0.003"]),
        ({"between": [0.015, 0.06]}, ["0.015 to 0.06"]),
        ({"recall": {"at_least": 0.99}, "kl": {"at_most": 0.05}}, ["recall ≥ 99 %", "kl ≤ 0.05"]),
        ({"share_of_way": {"at_least": 0.1, "at_most": 0.9}}, ["share of way ≥ 10 %, ≤ 90 %"]),
    ],
)
def test_threshold_in_words(threshold, words):
    assert threshold_words(claim(threshold)) == words


def test_rows_and_counts(run_path):
    run = read_run(run_path)
    rows = {row.claim.id: row for row in verdict_rows(run, Prose(run.story.numbers))}
    assert [row.claim.id for row in rows.values()] == ["P4", "P3", "P10b", "P11"]
    assert [estimate.text for estimate in rows["P4"].estimates] == ["0.9571 [0.9566, 0.9575]"]
    assert [estimate.text for estimate in rows["P3"].estimates] == [
        "100 % [99.93, 100]",
        "99.96 % [99.91, 100]",
        "99.8 %",
    ]
    assert rows["P3"].seeds[0].texts == ["100 %", "99.96 %", "100 %", "–"]
    assert rows["P10b"].trust == ["The model has one layer, so rows 0–7 cannot reach row 8 by any other way."]
    assert rows["P11"].estimates[0].text == "–"
    assert verdict_counts(run) == [
        (name, slug, SYMBOLS[name], 1)
        for name, slug in [
            ("reproduced", "reproduced"),
            ("refuted", "refuted"),
            ("inconclusive", "inconclusive"),
            ("not run", "not-run"),
        ]
    ]
    assert len(set(SYMBOLS.values())) == 4


def test_many_values_of_a_claim_are_folded(run_path):
    run = read_run(run_path)
    many = {f"kind {number}": number / 100 for number in range(MOST_ESTIMATES + 5)}
    run = run.model_copy(
        update={"claims": [claim("≥ 90 %", value=many), claim("≥ 90 %", value={"one": 0.5})]}
    )
    several, single = verdict_rows(run, Prose(run.story.numbers))
    shown = [each.name for each in several.estimates + several.folded]
    assert shown == list(many)
    assert (len(several.estimates), len(several.folded)) == (MOST_ESTIMATES, 5)
    assert single.folded == []
