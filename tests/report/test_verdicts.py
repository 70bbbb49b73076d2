import json
import re
from types import SimpleNamespace

import pytest

from hopscope.claims import Claim, JudgedClaim, Samples, at_least, judge
from hopscope.claims.wording import SYMBOLS
from hopscope.report.page import build_report
from hopscope.report.prose import Prose
from hopscope.report.record import read_run
from hopscope.report.verdicts import verdict_counts, verdict_rows


def claim(threshold, **fields):
    given = {"value": 0.5, "interval": None, "n": 7, "verdict": "inconclusive", **fields}
    return JudgedClaim(
        id="P1", statement="s", source="003", protocol="p", threshold=threshold, trust=[], **given
    )


UNITS = {"recall": "fraction", "kl": "nats"}


@pytest.mark.parametrize(
    ("threshold", "unit", "words"),
    [
        ("never", None, ["never"]),
        ({"at_most": 0.003}, None, ["≤ 0.003"]),
        ({"at_least": 0.999}, "fraction", ["≥ 99.9 %"]),
        ({"between": [0.015, 0.06]}, "number", ["0.015 to 0.06"]),
        ({"recall": {"at_least": 0.99}, "kl": {"at_most": 0.05}}, UNITS, ["recall ≥ 99 %", "kl ≤ 0.05 nats"]),
        ({"recall": {"at_least": 0.99}, "kl": {"at_most": 0.05}}, None, ["recall ≥ 0.99", "kl ≤ 0.05"]),
        ({"share_of_way": {"at_least": 0.1, "at_most": 0.9}}, None, ["share of way ≥ 0.1, ≤ 0.9"]),
    ],
)
def test_threshold_in_words(run_path, threshold, unit, words):
    (row,) = rows(run_path, claim(threshold, unit=unit))
    assert row.threshold == words


def rows(run_path, *claims):
    run = read_run(run_path)
    run = run.model_copy(update={"claims": list(claims)} if claims else {})
    return verdict_rows(run, Prose(run.story.numbers))


def judged(value, **fields):
    function = None if value is None else (lambda evidence: value)
    made = Claim(id="P3", statement="s", source="003", protocol="p", value=function, **fields)
    return judge(made, SimpleNamespace(members=[0, 1, 2], seeds={0: 3, 1: 5, 2: 7}))


def test_a_record_speaks_for_itself(run_path):
    """P3 of the story has words and values of its own: those of the record go before."""
    found = judged([0.9996, 1.0, None], must=at_least(0.999, "fraction"))
    (row,) = rows(run_path, found)
    assert all(part in row.words for part in ("2 of 2 seeds", "needs 10", "1 of 3 seeds"))
    assert row.seeds == [("value by seed", ["99.96 %", "100 %", "–"])]
    assert row.estimates[0][1] == "99.98 % [99.96, 100]"
    assert (row.leaning, row.remarks, row.readings) == ("agrees so far", [], [])


def test_braces_in_a_records_words_are_no_numbers(run_path):
    found = judged(Samples([1.0], note="{seeds} <b>"), must=at_least(0.999))
    (row,) = rows(run_path, found)
    assert row.words.endswith("; {seeds} &lt;b&gt;")


def test_what_stands_beside_a_verdict_is_on_the_page(run_path):
    found = judged(
        None,
        must=at_least(0.999, "fraction"),
        readings={"batch 64": lambda e: [1.0] * 3, "batch 128": lambda e: [0.5] * 3},
        controls={"deepest alone": lambda e: [0.02] * 3},
        at_scale=lambda e: "1 of 20 epochs",
    )
    (row,) = rows(run_path, found)
    assert [name for name, _ in row.readings] == ["batch 64", "batch 128"]
    assert row.readings[1][1].startswith(
        "inconclusive: below the protocol's scale: 1 of 20 epochs; 0 of 3 seeds"
    )
    path = run_path / "claims.json"
    claims = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps([claims[0], found.to_json(), *claims[2:]]), encoding="utf-8")
    to = run_path / "page.html"
    build_report([run_path], to)
    text = " ".join(re.sub(r"<[^>]+>", " ", to.read_text(encoding="utf-8")).replace("\u00a0", " ").split())
    for part in (
        "? inconclusive mixed so far",
        "here, at the scale of this run: inconclusive (the readings disagree",
        "control deepest alone: 2 % [2 %, 2 %]",
        "Reading: batch 64 inconclusive: below",
        "value by seed 100 % 100 % 100 %",
    ):
        assert part in text


def test_rows_and_counts(run_path):
    run = read_run(run_path)
    rows = {row.claim.id: row for row in verdict_rows(run, Prose(run.story.numbers))}
    assert [row.claim.id for row in rows.values()] == ["P4", "P3", "P10b", "P11"]
    assert [text for _, text in rows["P4"].estimates] == ["0.9571 [0.9566, 0.9575]"]
    assert [text for _, text in rows["P3"].estimates] == [
        "100 % [99.93, 100]",
        "99.96 % [99.91, 100]",
        "99.8 %",
    ]
    assert rows["P3"].seeds[0][1] == ["100 %", "99.96 %", "100 %", "–"]
    assert rows["P10b"].trust == [rows["P10b"].claim.trust]
    assert rows["P11"].estimates[0][1] == "–"
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
    many = {f"kind {number}": number / 100 for number in range(6)}
    run = run.model_copy(
        update={"claims": [claim("≥ 90 %", value=many), claim("≥ 90 %", value={"one": 0.5})]}
    )
    several, single = verdict_rows(run, Prose(run.story.numbers))
    assert several.brief == ("kind 0", "0", "≥ 90 %")
    assert [name for name, _ in several.estimates] == list(many)
    assert (several.more, single.more) == (5, 0)


def test_the_line_says_what_was_asked(run_path):
    run = read_run(run_path)
    lines = {row.claim.id: row.brief for row in verdict_rows(run, Prose(run.story.numbers))}
    assert lines["P4"] == ("", "0.9571 [0.9566, 0.9575]", "|training loss − 0.9575| ≤ 0.003")
    build_report([run_path], run_path / "page.html")
    page = (run_path / "page.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "0.9571 [0.9566, 0.9575], asked |training loss − 0.9575| ≤ 0.003" in words
