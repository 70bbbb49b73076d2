"""The ledger: what its first words say, what it never says, and that it comes back as it was written."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.claims import Ledger, Samples, at_least, at_most
from hopscope.claims.verdict import Registration
from hopscope.errors import UserError

from .runs import GOOD, HIGH, NAN, NEVER, claim, judged, measured, members, of, series

LOW = [0.5] * 10
CASES = {  # verdict → what the line says of this run, and of the source
    "four of four": (lambda: measured([1.0] * 4), "holds here in 4 of 4 seeds", "inconclusive, 10 seeds are needed"),
    "enough": (lambda: measured(GOOD), "holds here in 10 of 10 seeds", "reproduced"),
    "one bad": (lambda: measured([1.0] * 9 + [0.5]), "fails here: holds in 9 of 10 seeds, the worst 50 %", "refuted"),
    "half diverged": (
        lambda: measured([1.0] * 5 + [NAN] * 5),
        "open here: holds in 5 of 10 seeds, 10 seeds are needed",
        "inconclusive, 10 seeds are needed",
    ),
    "short": (
        lambda: judged(of(GOOD), at_scale=lambda run: "1 of 20 epochs"),
        "holds here in 10 of 10 seeds",
        "inconclusive, below the protocol's scale: 1 of 20 epochs",
    ),
    "mean": (lambda: measured(LOW, rule="mean"), "fails here: 50 %, 95 % interval [50 %, 50 %]", "refuted"),
    "theorem": (
        lambda: judged(Samples(GOOD, "case"), structural="true by the theorem"),
        "holds here in 10 of 10 cases, counted through one by one",
        "true by the theorem",
    ),
    "parts": (
        lambda: judged(lambda run: {"a": GOOD, "b": LOW}, {"a": HIGH, "b": HIGH}),
        "fails here: holds in 1 of 2 parts",
        "refuted",
    ),
    "nothing": (lambda: judged(Samples([], note="not trained")), "not run", "not run"),
    "one seed": (
        lambda: measured([0.5], rule="mean"),
        "fails here: 50 %, without interval",
        "inconclusive, 10 seeds are needed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_line_says_first_what_this_run_shows_and_then_what_that_says_of_the_source(name):
    make, here, source = CASES[name]
    found = make()
    assert (found.here_words, found.source_words) == (here, source)
    first = str(Ledger([found])).replace("\n      ", " ")
    assert first.startswith(f"C1    {here}; the source: {source}")


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([0.95, 1.0]), min_size=1, max_size=7),
    st.integers(0, 9),
    st.sampled_from(["always", "mean"]),
)
def test_nothing_holds_here_where_many_numbers_are_missing(values, missing, rule):
    found = measured([*values, *[NAN] * missing], rule=rule)
    few = len(values) < 0.75 * (len(values) + missing)
    assert found.here_words.startswith("open here" if few else "holds here"), found.here_words
    assert (found.leaning == "agrees") is not few


def ledger():
    controls = {"c": of([NEVER] * 10), "d": of([0.1] * 10)}
    return Ledger(
        [make() for make, _, _ in CASES.values()]
        + [
            judged(of([3.0, NEVER] * 5), at_most(5.0), controls=controls, must_not=at_least(4.0), id="C2"),
            judged([(n, n % 3) for n in range(10)], at_least(0.0), rule="effect", kind="general", id="C3"),
            judged(None, readings={"a": of(GOOD), "b": of(LOW)}, trust=["much", "more"], id="C4"),
        ]
    )


def test_what_is_written_comes_back():
    written = ledger().to_json()
    assert Ledger.from_json(written) == ledger() and Ledger.from_json(written.encode()).to_json() == written
    entries = json.loads(written)
    assert [*entries[0]][:4] == ["id", "statement", "source", "protocol"]
    keys = "verdict value interval n unit words leaning here registration completion threshold values trust parts"
    assert {*keys.split()} <= {*entries[0]}
    assert entries[-3]["values"][1] == "inf" and entries[-1]["readings"]["b"]["verdict"] == "refuted"
    assert ledger()["C3"].n == 10 and ledger()[-1].id == "C4"
    with pytest.raises(UserError, match=r"claim: expected one of C1, .*found 'C9'"):
        ledger()["C9"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[", "[3]", "[{}]", '[{"id": "C1"}]', "[" * 10_000, "NaN", b"\xff", '"C1"']
)
def test_what_is_no_ledger_is_named_in_one_line(text):
    with pytest.raises(UserError, match=r"^runs/claims.json: ") as caught:
        Ledger.from_json(text, "runs/claims.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["verdict", "value", "interval", "n", "here", "registration", "leaning"])
def test_a_value_that_cannot_be_is_refused(key):
    entries = json.loads(ledger().to_json())
    entries[0][key] = {"nonsense": "x"}
    with pytest.raises(UserError, match=key):
        Ledger.from_json(json.dumps(entries))


def test_the_long_ledger_says_why():
    text = ledger().text(long=True, width=1_000)
    for each in ledger():
        assert each.words in text and (each.here is None or each.here.words in text)
        assert all(found.words in text for found in (*each.readings.values(), *each.controls.values()))
    assert "value: 50 % [50 %, 50 %], asked ≥ 90 %" in text
    assert max(map(len, ledger().text(long=True, width=72).split("\n"))) <= 72
    assert (
        ledger().closing_line.startswith("here: holds 4, fails 5, open 3")
        and Ledger().closing_line == "no claims"
    )


def test_words_of_a_claim_cannot_command_a_terminal_or_a_notebook():
    found = judged(of(GOOD, note="\x1b[31m<b>red</b>"), statement="<script>alert(1)</script>\x1b]0;x\x07")
    text, page = Ledger([found]).text(long=True), Ledger([found])._repr_html_()
    assert "\x1b" not in text + page and "\x07" not in text + page
    assert "<script" not in page and "<b>" not in page and "&lt;script&gt;" in page
    assert "holds here in 10 of 10 seeds" in page and page.count("<tr>") == 2


def test_a_rule_that_was_changed_is_told_in_a_notebook_too():
    found = judged(of(GOOD))
    found = found.model_copy(update={"registration": Registration(state="changed", words="by another rule")})
    assert "by another rule" in Ledger([found])._repr_html_() and "by another rule" in Ledger([found]).text()


def test_equal_runs_make_equal_ledgers():
    one, other = (judge_in_order([0, 1]), judge_in_order([1, 0]))
    assert one == other


def judge_in_order(order):
    values = series([0.91, 0.97] * 6)
    return judged(
        values,
        run=members(12),
        rule="mean",
        controls={"c": lambda run: claim(values[::-1]).value(run)},
        id="C1",
    )
