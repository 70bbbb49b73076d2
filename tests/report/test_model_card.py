"""What a card says of learning, for every kind of result: one verdict, which the numbers bear out."""

import itertools
import re

import pytest

from hopscope.circuits import config as circuits
from hopscope.report.model_card import LEARNED, NOTHING, CardFacts, _learned, _Result, _table, plain

VERDICTS = (
    "It counts as learned",
    "A part counts as learned",
    "It does not count as learned",
    "It has learned nothing",
)


def facts(**changes):
    given = {
        "layout": "hopscope",
        "why_not": "",
        "tokenizer": False,
        "weights": 7,
        "finite": True,
        "version": "0",
    }
    return CardFacts(**{**given, "floors": lambda metric: {}, **changes})


def result(name, value, step=11, **floors):
    held_out = None if value is None else (step, value)
    return _Result(name, "number", held_out, (step, 3.0), floors)


def said(*results, step=11, diverged=None, **changes):
    return _learned(results, step, diverged, facts(**changes))


def test_a_card_calls_learned_what_the_reader_of_circuits_does():
    assert LEARNED == circuits.LEARNED


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (0.3, "It counts as learned: its held-out loss of 0.3 is below a quarter of the lowest floor, `elimination` ("),
        (0.9, "It does not count as learned, for which its held-out loss would have to be below a quarter"),
        (1.29, "It has learned nothing beyond the lowest floor, `elimination` (1.3): its held-out loss of 1.29 is 99%"),
        (1.6, "It has learned nothing: its held-out loss of 1.6 is 123% of the lowest floor, `elimination` (1.3)."),
    ],
)  # fmt: skip
def test_the_loss_beside_its_floors(loss, words):
    assert said(result("loss", loss, guess=1.6, elimination=1.3)).startswith(words)


def test_what_lies_between_two_floors_is_named():
    assert said(result("loss", 1.3, guess=1.6, elimination=1.3)).endswith("and clearly below `guess` (1.6).")


def test_parts_that_were_learned_are_never_hidden():
    whole, one, other = (
        result("loss", 0.97, zero=1.0), result("loss_step_1", 0.1, zero=1.0), result("loss_step_2", 0.99, zero=1.0)
    )  # fmt: skip
    assert said(whole, one, other) == (
        "A part counts as learned: `loss_step_1` is below a quarter of its lowest floor. Its whole held-out loss of "
        "0.97 is 97% of the lowest floor, `zero` (1)."
    )
    assert said(one, other).startswith("A part counts as learned: `loss_step_1` is")
    assert said(one) == "It counts as learned: `loss_step_1` is below a quarter of its lowest floor."
    assert said(other).startswith("It has learned nothing: no part")
    assert said(other, result("loss_step_1", 0.5, zero=1.0)).startswith(
        "It does not count as learned: no part"
    )


@pytest.mark.parametrize(
    ("results", "changes", "words"),
    [
        ([], {}, "No held-out loss is on record"),
        ([result("loss", None, guess=1.0)], {}, "No held-out loss is on record"),
        ([result("loss", 0.1)], {}, "Its held-out loss is 0.1. Its task names no positive floor"),
        ([result("loss", 0.1, guess=0.0)], {}, "Its held-out loss is 0.1. Its task names no positive floor"),
        ([result("loss", 0.1)], {"floors": None}, "Its held-out loss is 0.1. Its task could not be asked"),
        ([result("loss", 0.1, guess=1.0)], {"step": 0}, "These are its weights before any training"),
        ([result("loss", 0.1, guess=1.0)], {"diverged": 7}, "Its training diverged by step 7"),
        ([result("loss", 0.1, guess=1.0)], {"finite": False}, "Some of its weights are not finite"),
        (
            [result("loss", 0.1, step=5, guess=1.0)],
            {},
            "It was measured last at step 5. It counts as learned",
        ),
        ([result("accuracy", 0.1, guess=0.2)], {}, "No held-out loss is on record"),
    ],
)
def test_what_is_not_known_is_not_said(results, changes, words):
    assert said(*results, **changes).startswith(words)


@pytest.mark.parametrize("ratios", list(itertools.product([None, 0.1, 0.5, 0.96, 1.4], repeat=3)))
def test_there_is_one_verdict_and_the_numbers_bear_it_out(ratios):
    names = ("loss", "loss_step_1", "loss_step_2")
    given = [result(n, r, zero=1.0) for n, r in zip(names, ratios, strict=True) if r is not None]
    text = said(*given)
    found = [verdict for verdict in VERDICTS if verdict in text]
    if not given:
        assert not found
        return
    assert len(found) == 1
    whole, parts = ratios[0], [ratio for ratio in ratios[1:] if ratio is not None]
    deciding = [whole] if whole is not None else parts
    expected = {
        VERDICTS[0]: all(ratio < LEARNED for ratio in deciding),
        VERDICTS[1]: any(ratio < LEARNED for ratio in parts),
        VERDICTS[2]: any(ratio < NOTHING for ratio in deciding)
        and not any(r < LEARNED for r in [*deciding, *parts]),
        VERDICTS[3]: all(ratio >= NOTHING for ratio in deciding) and not any(r < LEARNED for r in parts),
    }
    assert expected[found[0]]


def test_the_table_shows_every_number_once():
    table = _table([result("loss", 0.25, zero=1.0), result("accuracy", None)])
    rows = table.splitlines()
    assert rows[2] == "| `loss` | 0.25 (step 11) | 3 (step 11) | zero: 1 |"
    assert rows[3] == "| `accuracy` | – | 3 (step 11) | – |"
    many = _table([result(f"loss_{number}", 0.5) for number in range(77)])
    assert len(many.splitlines()) == 2 + 60 + 2 and many.endswith(
        "and 17 further metrics in the run's evidence."
    )


def test_words_of_a_run_stay_words():
    assert plain("a\n<b> | c") == "a &lt;b> \\| c"
    assert not re.search(r"(?<!\\)\|", plain("|x|"))
