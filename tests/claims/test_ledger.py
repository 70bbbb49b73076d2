import json
import subprocess
import sys

import pytest
from pydantic import ValidationError
from rich.console import Console

from hopscope.claims import (
    Criterion,
    JudgedClaim,
    Judgement,
    Ledger,
    Verdict,
    judge_always,
    not_run,
)
from hopscope.errors import UserError

from .stand_in import numbers

OLD_KEYS = [
    "id",
    "statement",
    "source",
    "protocol",
    "threshold",
    "value",
    "interval",
    "n",
    "verdict",
    "trust",
]
KEYS = [
    *OLD_KEYS,
    *("unit", "n_counts", "words", "samples", "leaning", "here", "structural", "rule", "need"),
    *("completion", "readings", "controls", "must_not", "registration"),
]
ACCURACY = Criterion(at_least=0.999, unit="fraction")
TEXTS = {"statement": "s", "source": "003 §6", "protocol": "p", "trust": "the evaluation"}

SINGLE = JudgedClaim.judged(
    judge_always([1.0] * 11, ACCURACY, source_n=1), id="P1", threshold=ACCURACY, samples=[1.0] * 11, **TEXTS
)
NAMED = JudgedClaim.judged(
    Judgement(
        verdict=Verdict.REFUTED,
        value={"recall": 0.25, "mass": 0.0001},
        interval={"recall": (0.125, 0.5), "mass": None},
        n=13,
        words="w",
    ),
    id="P2",
    threshold={"recall": Criterion(at_most=0.01), "mass": Criterion(between=(0.9, 1))},
    **TEXTS,
)
MISSING = JudgedClaim.judged(not_run(), id="R10", threshold="Wilson interval above 0.9", **TEXTS)
LEDGER = [SINGLE, NAMED, MISSING]


def entry(**changes):
    return SINGLE.to_json() | changes


def test_a_claim_in_json_has_exactly_the_ledgers_keys():
    for claim in LEDGER:
        assert list(claim.to_json()) == KEYS
    assert SINGLE.to_json() == {
        "id": "P1",
        **TEXTS,
        "threshold": {"at_least": 0.999},
        "value": 1.0,
        "interval": [1.0, 1.0],
        "n": 11,
        "verdict": "reproduced",
        "unit": "fraction",
        "n_counts": None,
        "words": SINGLE.words,
        "samples": [1.0] * 11,
        "leaning": None,
        "here": None,
        "structural": False,
        "rule": None,
        "need": None,
        "completion": None,
        "readings": {},
        "controls": {},
        "must_not": None,
        "registration": {"state": "none"},
    }
    named = NAMED.to_json()
    assert named["threshold"] == {"recall": {"at_most": 0.01}, "mass": {"between": [0.9, 1.0]}}
    assert named["value"] == {"recall": 0.25, "mass": 0.0001}
    assert named["interval"] == {"recall": [0.125, 0.5], "mass": None}
    absent = MISSING.to_json()
    assert (absent["value"], absent["interval"], absent["n"], absent["verdict"]) == (None, None, 0, "not run")


def test_a_ledger_reads_back_as_it_was_written(tmp_path):
    path = tmp_path / "claims.json"
    path.write_text(json.dumps([claim.to_json() for claim in LEDGER], ensure_ascii=False), encoding="utf-8")
    assert Ledger.read(path) == Ledger(LEDGER) == Ledger.read(tmp_path)
    path.write_text("[]", encoding="utf-8")
    assert Ledger.read(path) == Ledger()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "not run"}, "expected value null, interval null, n 0"),
        ({"n": 0}, "expected n >= 1 for 'reproduced', found 0"),
        ({"interval": [0.9, 0.1]}, r"expected low <= high, found \[0.9, 0.1\]"),
        ({"interval": {"recall": [0, 1]}}, "same shape and names"),
        ({"value": {"recall": 0.5}, "interval": [0, 1]}, "same shape and names"),
        ({"value": {"recall": 0.5}, "interval": {"mass": [0, 1]}}, "same shape and names"),
        ({"verdict": "confirmed"}, "verdict: "),
        ({"value": "high"}, "value"),
        ({"value": float("nan")}, "value"),
        ({"n": -1}, "n: "),
        ({"id": ""}, "id: "),
        ({"note": "x"}, "note: Extra inputs"),
    ],
)
def test_a_damaged_claim_is_named_in_one_line(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        Ledger.parse([MISSING.to_json(), entry(**changes)], "run/claims.json")
    text = str(caught.value)
    assert text.startswith(
        f"run/claims.json: claim {'number 2' if 'id' in changes else repr('P1')} is damaged: "
    )
    assert text.endswith("; `hopscope claims` of its run folder makes it again from the evidence")
    assert "\n" not in text
    with pytest.raises(ValidationError):
        JudgedClaim(**entry(**changes))


def test_a_ledger_of_before_reads_without_the_newer_keys():
    old = {key: value for key, value in SINGLE.to_json().items() if key in OLD_KEYS}
    (claim,) = Ledger.parse([old])
    assert (claim.id, claim.value, claim.words, claim.unit, claim.samples) == ("P1", 1.0, None, None, None)
    assert claim.to_json()["registration"] == {"state": "none"}


@pytest.mark.parametrize("key", OLD_KEYS)
def test_a_claim_without_one_of_its_keys_is_damaged(key):
    incomplete = {name: value for name, value in entry().items() if name != key}
    with pytest.raises(UserError, match=f"{key}: Field required"):
        Ledger.parse([incomplete])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"claims": []}, "expected a list of claims, found an object"),
        ("P1", "found a string"),
        (None, "found null"),
        (3, "found a number"),
        ([3], "claim number 1 is damaged"),
        ([SINGLE.to_json(), SINGLE.to_json()], "expected each id once, found 'P1' twice"),
    ],
)
def test_what_is_no_ledger_is_refused(data, message):
    with pytest.raises(UserError, match=message):
        Ledger.parse(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected a readable file, found No such file or directory"),
        (b"[{", "expected JSON, found"),
        (b"\xff\xfe", "expected JSON, found"),
        (b"[NaN]", "found NaN is not a JSON number"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path, content, message):
    path = tmp_path / "claims.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        Ledger.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def shown_in(width, table):
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def printed(claims, words=None):
    return shown_in(200, Ledger(claims).table(words))


def old(claim):
    return JudgedClaim(**{key: value for key, value in claim.to_json().items() if key in OLD_KEYS})


def test_a_ledger_of_before_has_the_words_of_its_story_and_plain_numbers():
    text = printed([old(SINGLE)], {"P1": "all 11 of 11 seeds meet it [really]"})
    for shown in ("≥ 0.999", "1 [1, 1]", "all 11 of 11 seeds meet it [really]"):
        assert shown in text
    assert "all 11 of 11" not in printed([old(SINGLE)])


def test_the_table_shows_every_claim_with_its_numbers_and_words():
    text = printed(LEDGER, {"P1": "words of the story"})
    assert "words of the story" not in text
    for shown in (
        *(
            "P1",
            "≥ 99.9 %",
            "100 % [100, 100]",
            "11",
            "reproduced",
            "all 11 of 11 seeds meet it;",
        ),
        *("P2", "recall ≤ 0.01", "mass 0.9 to 1", "recall 0.25 [0.12, 0.50]", "mass 0.0001", "refuted"),
        *("R10", "Wilson interval above 0.9", "–", "not run"),
    ):
        assert shown in text


def test_no_number_in_the_table_is_rounded_to_perfection():
    almost = SINGLE.model_copy(update={"value": 0.999999, "interval": (0.00001, 1.0)})
    assert "99.9999 % [0.001, 100]" in printed([almost])
    assert "0.999999 [0.00001, 1.00]" in printed([almost.model_copy(update={"unit": "number"})])
    large = SINGLE.model_copy(update={"value": 12000.25, "interval": None, "unit": "steps"})
    assert "12,000 steps" in printed([large])


def brief(claims):
    return shown_in(80, Ledger(claims).brief_table())


def test_the_brief_table_fits_eighty_columns_and_keeps_every_claim():
    text = brief(LEDGER)
    assert all(len(line) <= 80 for line in text.splitlines())
    for shown in (
        "P1",
        "100 %",
        "reproduced",
        "0.25 recall",
        "0.0001 mass",
        "refuted",
        "R10",
        "–",
        "not run",
    ):
        assert shown in text
    for left_out in ("[", "≥", "Wilson", "seeds meet it"):
        assert left_out not in text


def test_the_brief_table_cuts_long_statements_and_many_parts():
    words = " ".join(f"word{at}" for at in range(40))
    parts = {f"a part with a long name {at}": at / 8 for at in range(7)}
    many = NAMED.model_copy(update={"statement": words, "value": parts, "interval": None})
    text = brief([many])
    assert all(len(line) <= 80 for line in text.splitlines())
    flat = " ".join(text.split())
    assert "…" in flat and "word39" not in flat
    assert "0 a part with" in flat and "and 4 more" in flat and "0.375" not in flat


def test_a_changed_rule_is_said_in_the_brief_table_too():
    words = "judged by a rule that was changed after the run"
    registration = SINGLE.registration.model_copy(update={"state": "changed", "words": words})
    changed = brief([SINGLE.model_copy(update={"registration": registration})])
    assert words in " ".join(changed.split()) and words not in " ".join(brief([SINGLE]).split())


def test_leanings_stand_for_open_verdicts_and_are_counted():
    def open_claim(at, leaning):
        update = {"id": f"C{at}", "verdict": Verdict.INCONCLUSIVE, "leaning": leaning}
        return SINGLE.model_copy(update=update)

    leanings = ["agrees", "agrees", "disagrees", "mixed", None]
    ledger = Ledger([*LEDGER, *(open_claim(at, each) for at, each in enumerate(leanings))])
    assert numbers(ledger.closing_line) == [1, 1, 2, 1, 1, 1, 1]
    for words in ("1 refuted", "2 agree", "1 mixed", "1 inconclusive", "1 not run"):
        assert words in ledger.closing_line
    assert "agrees so far" in brief(ledger) and "disagrees so far" in brief(ledger)
    assert Ledger().closing_line == "no claims"


def test_records_say_at_any_width_what_the_table_says():
    text = shown_in(50, Ledger(LEDGER).records())
    assert all(len(line) <= 50 for line in text.splitlines())
    for shown in (
        "threshold",
        "≥ 99.9 %",
        "100 % [100, 100]",
        "mass 0.9 to 1",
        "all 11 of 11 seeds",
        "not run",
    ):
        assert shown in text


def test_verdicts_are_coloured():
    cells = list(Ledger(LEDGER).table().columns[5].cells)
    assert [(cell.plain, str(cell.spans[0].style)) for cell in cells] == [
        ("reproduced", "green"),
        ("refuted", "red"),
        ("not run", "dim"),
    ]


def test_the_ledger_needs_no_torch_and_loads_no_table_or_statistics_library():
    judging = "hopscope.claims.judge_bootstrap([1.0, 2.0], hopscope.claims.Criterion(at_most=3))"
    script = f"import sys, hopscope.claims; {judging}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert "hopscope" in loaded
    assert not loaded & {"torch", "scipy", "rich", "pandas", "pyarrow"}


def test_a_foreign_ledger_commands_no_terminal():
    words = {"statement": "s\x1b]0;title\x07", "words": "w\x1b[2J"}
    ledger = Ledger.parse([{**claim.to_json(), **words} for claim in LEDGER])
    console = Console(width=160, color_system=None, force_terminal=False)
    with console.capture() as capture:
        for table in (ledger.table(), ledger.records(), ledger.brief_table()):
            console.print(table)
    assert r"s\x1b]0;title\x07" in capture.get()
    assert "\x1b" not in capture.get() and "\x07" not in capture.get()


def test_a_threshold_without_a_bound_is_refused():
    (claim, *_) = [claim for claim in LEDGER if isinstance(claim.threshold, dict)]
    with pytest.raises(UserError, match="is damaged: threshold"):
        Ledger.parse([{**claim.to_json(), "threshold": {"between": []}}])
