"""When a text is an answer, and the rows of answers whose every number is known."""

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.claims.intervals import wilson
from hopscope.errors import UserError
from hopscope.language.answers import Answer, matched, normal_form, rows
from hopscope.language.questions import Line, Question

CITIES = ("Amsterdam", "Berlin", "Cairo")
# Two chains of three steps: z = x, x = v, v = 1 is asked; y = w, w = u, u = 0 is the other one.
LINES = [(1, 3, "u = 0"), (0, 3, "v = 1"), (0, 2, "x = v"), (1, 2, "w = u"), (0, 1, "z = x"), (1, 1, "y = w")]
ASKED = Question(
    "q", "1", ("0", "1"), 0, (("z", "x", "v", "1"), ("y", "w", "u", "0")),
    tuple(Line(*line) for line in LINES), "What is the value of z?",
)  # fmt: skip


@pytest.mark.parametrize(
    "text", ["Berlin", " berlin\n", "BERLIN.", '"Berlin"', "“Berlin.”", "'Berlin'.", "`Berlin` ."]
)
def test_a_word_is_itself_whatever_stands_around_it(text):
    assert matched(text, CITIES) == "Berlin"


@pytest.mark.parametrize("text", ["", ".", "Berlin, Cairo", "It is Berlin", "Berlin!", "Berli", "x = Berlin"])
def test_a_text_that_says_more_or_less_is_no_answer(text):
    assert matched(text, CITIES) is None


@given(st.text(max_size=7))
def test_a_normal_form_is_its_own(text):
    assert normal_form(normal_form(text)) == normal_form(text)


def table(*answers):
    found = {}
    for row in rows(answers):
        found.setdefault(row["part"], {}).setdefault(row["metric"], []).append(row["value"])
    return found


def one(*said, model="m", kind="equations D = 3", **changes):
    return Answer(model, kind, ASKED, said, **changes)


def test_every_share_is_over_its_own_questions():
    answers = [
        *[one("1")] * 5, *[one("x", "1")] * 3, *[one("0")] * 2, one("hm", "w", "0"), *[one("", "", "", stuck=True)] * 2,
    ]  # fmt: skip
    found = table(*answers)
    numbers = found["m, equations D = 3"]
    assert numbers["correct"] == [1.0] * 8 + [0.0] * 3 + [None] * 2
    shares = {
        "accuracy": (8, 11),
        "first_accuracy": (5, 13),
        "acceptance": (7, 13),
        "answered": (11, 13),
        "stuck": (2, 13),
    }
    for name, (count, of) in shares.items():
        ends = wilson(count, of)
        assert [numbers[f"{name}{end}"][0] for end in ("", "_low", "_high")] == pytest.approx(
            [count / of, *ends]
        )
    assert (numbers["questions"], numbers["guess"]) == ([13.0], [0.5])
    assert numbers["attempts"] == [pytest.approx((5 + 6 + 2 + 3 + 6) / 13)]
    counts = {part.partition(": ")[2]: each["count"][0] for part, each in found.items() if ": " in part}
    assert counts == {
        "rejected, empty": 6, "rejected, other": 1, "rejected, other chain, hop 1": 1,
        "rejected, asked chain, hop 1": 3, "said asked chain, hop 3": 5, "said asked chain, hop 1": 3,
        "said other chain, hop 3": 2,
    }  # fmt: skip


def test_of_a_choice_the_likeliest_symbol_counts_as_said():
    assert "m, equations D = 3: said other chain, hop 0" in table(one("1", likeliest="y"))


def test_models_and_kinds_stand_apart_and_what_is_too_long_was_not_run():
    long = "equations D = 7"
    found = table(one("1"), one("1", kind=long), one(kind=long, too_long=True), one("hm", model="n"))
    assert found[f"m, {long}"] == {"too_long": [1.0]}
    assert found["m, equations D = 3"]["accuracy"] == [1.0] and found["n, equations D = 3"]["accuracy"] == [
        None
    ]
    assert found["n, equations D = 3"]["accuracy_low"] == [None]


def test_without_the_extra_its_name_and_command_are_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.delitem(sys.modules, "hopscope.language.evaluate", raising=False)
    with pytest.raises(
        UserError, match=r"inspect_ai: expected this package, found none; pip install 'hopscope\[llm\]'"
    ):
        importlib.import_module("hopscope.language.evaluate")
