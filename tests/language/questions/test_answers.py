"""Rows and tallies on records written by hand, whose every number is known."""

from types import SimpleNamespace

import pytest

from hopscope.claims.intervals import wilson
from hopscope.errors import UserError
from hopscope.language.questions.answers import classify, row, rows, share, tallies

# Two chains of three steps: z = x, x = v, v = 1 is asked; y = w, w = u, u = 0 is the other one.
ASKED = {
    "formulation": "equations",
    "depth": 3,
    "chains": 2,
    "seed": 7,
    "acceptable": ["0", "1"],
    "alternatives": [{"answer": "0", "chain": 1, "lost": [1, 2, 3]}],
    "symbols": [["z", "x", "v", "1"], ["y", "w", "u", "0"]],
    "chain": 0,
}


def one(*texts, number=0, stuck=False, model="m", **changes):
    """A row whose answers are these; those in the acceptable ones are acceptable."""
    asked = {**ASKED, **changes}
    attempts = [{"text": text, "acceptable": text if text in asked["acceptable"] else None} for text in texts]
    return row(f"q{number}", model, 1, asked, {"answer": "1", "attempts": attempts, "stuck": stuck})


def test_a_row_of_a_right_answer():
    found = one("1", number=3)
    assert found.model_dump(mode="json") == {
        "id": "q3",
        "model": "m",
        "epoch": 1,
        "formulation": "equations",
        "depth": 3,
        "chains": 2,
        "chain": 0,
        "expected": "1",
        "guess": 0.5,
        "answer": "1",
        "correct": True,
        "first": "1",
        "first_correct": True,
        "attempts": 1,
        "stuck": False,
        "lost_chain": None,
        "lost_steps": [],
        "rejected": [],
        "said": "asked chain, hop 3",
    }


def test_a_row_of_a_wrong_answer_says_whose_it_is():
    found = one("hm", "0")
    assert (found.answer, found.correct, found.first, found.first_correct) == ("0", False, None, False)
    assert (found.lost_chain, found.lost_steps, found.attempts) == (1, (1, 2, 3), 2)
    assert [rejected.kind for rejected in found.rejected] == ["other"]


def test_a_row_without_an_answer():
    found = one("no", "no", "no", stuck=True)
    assert (found.answer, found.correct, found.first_correct, found.stuck) == (None, None, False, True)
    assert (found.lost_chain, found.lost_steps) == (None, ())


@pytest.mark.parametrize(
    ("text", "kind", "chain", "hop"),
    [
        ("z", "stopped", 0, 0),
        (" X. ", "stopped", 0, 1),
        ("v", "stopped", 0, 2),
        ("y", "other chain", 1, 0),
        ('"u"', "other chain", 1, 2),
        ("  ", "empty", None, None),
        ('""', "empty", None, None),
        ("z = x", "other", None, None),
        ("2", "other", None, None),
    ],
)
def test_unacceptable_answers_are_told_apart(text, kind, chain, hop):
    found = classify(text, ASKED)
    assert (found.text, found.kind, found.chain, found.hop) == (text, kind, chain, hop)


def test_a_symbol_of_several_chains_counts_for_the_asked_one():
    shared = {**ASKED, "symbols": [["y", "doctor", "0"], ["z", "doctor", "1"]], "chain": 1}
    assert classify("doctor", shared).model_dump(exclude={"text"}) == {
        "kind": "stopped",
        "chain": 1,
        "hop": 1,
    }
    assert classify("y", shared).kind == "other chain"


def test_a_tally_counts_each_share_over_its_own_questions():
    found = tallies(
        [
            *(one("1", number=n) for n in range(5)),  # right at once
            *(one("x", "1", number=n) for n in range(5, 8)),  # right at the second attempt
            *(one("0", number=n) for n in range(8, 10)),  # wrong at once
            one("hm", "w", "0", number=10),  # wrong at the third
            *(one("", "", "", number=n, stuck=True) for n in range(11, 13)),  # never
        ]
    )
    (tally,) = found
    assert (tally.model, tally.formulation, tally.depth, tally.questions) == ("m", "equations", 3, 13)
    counts = {name: getattr(tally, name) for name in ("accuracy", "first_accuracy", "acceptance", "answered")}
    assert {name: (share.count, share.of) for name, share in counts.items()} == {
        "accuracy": (8, 11),
        "first_accuracy": (5, 13),
        "acceptance": (7, 13),
        "answered": (11, 13),
    }
    for found_share in counts.values():
        assert found_share.value == found_share.count / found_share.of
        assert (found_share.low, found_share.high) == wilson(found_share.count, found_share.of)
    assert (tally.guess, tally.stuck, tally.lost_chain, tally.lost_steps) == (0.5, 2, 3, {"1,2,3": 3})
    assert tally.attempts == pytest.approx((5 + 2 * 3 + 2 + 3 + 3 * 2) / 13)
    assert tally.rejected == {"empty": 6, "other": 1, "other chain": 1, "stopped at hop 1": 3}


def test_the_guess_line_is_the_mean_over_questions():
    four = {"acceptable": ["0", "1", "2", "3"]}
    (tally,) = tallies([one("1"), one("1", **four), one("1", **four)])
    assert tally.guess == pytest.approx((1 / 2 + 1 / 4 + 1 / 4) / 3)


def test_tallies_stand_by_model_then_formulation_then_depth():
    kinds = [("b", "relatives", 4), ("b", "equations", 5), ("a", "equations", 2), ("b", "equations", 2)]
    found = tallies([one("1", model=m, formulation=f, depth=d) for m, f, d in kinds])
    assert [(tally.model, tally.formulation, tally.depth) for tally in found] == [
        ("b", "equations", 2),
        ("b", "equations", 5),
        ("b", "relatives", 4),
        ("a", "equations", 2),
    ]


def test_a_share_of_nothing_has_no_value():
    assert share(0, 0).model_dump() == {"count": 0, "of": 0, "value": None, "low": None, "high": None}
    with pytest.raises(ValueError, match="impossible counts"):
        share(1, 0)


def log_of(*samples):
    return SimpleNamespace(eval=SimpleNamespace(model="openai/m"), samples=list(samples))


def sample(score="retrieval_score", **changes):
    scored = {"answer": "1", "attempts": [{"text": "1", "acceptable": "1", "stop": "stop"}], "stuck": False}
    fields = {"id": "q0", "epoch": 2, "metadata": {**ASKED, "of another": 1}, **changes}
    return SimpleNamespace(scores={score: SimpleNamespace(metadata=scored)} if score else None, **fields)


def test_a_log_is_read_by_its_attributes():
    (found,) = rows(log_of(sample(), sample(score=None)))
    assert (found.id, found.model, found.epoch, found.correct) == ("q0", "openai/m", 2, True)
    assert rows(log_of()) == []


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (
            log_of(sample(score="match")),
            "sample q0: expected .* the score retrieval_score, found no 'attempts'",
        ),
        (
            log_of(sample(metadata={})),
            "sample q0: expected a question of Hopscope's .* found no 'alternatives'",
        ),
        (SimpleNamespace(eval=SimpleNamespace(model="m"), samples=None), "log of m: expected samples"),
    ],
)
def test_a_log_of_other_tasks(log, words):
    with pytest.raises(UserError, match=words):
        rows(log)


@pytest.mark.parametrize(
    ("asked", "scored"),
    [
        ({"acceptable": []}, {}),
        ({"acceptable": 7}, {}),
        ({"symbols": [[7]]}, {}),
        ({"symbols": None}, {}),
        ({"alternatives": [None]}, {}),
        ({}, {"attempts": []}),
        ({}, {"attempts": [{"text": 7, "acceptable": None}]}),
        ({}, {"attempts": "x"}),
        ({}, {"answer": None}),
    ],
)
def test_a_damaged_sample_is_said_in_one_line(asked, scored):
    right = {"answer": "1", "attempts": [{"text": "hm", "acceptable": None}], "stuck": False}
    with pytest.raises(UserError, match="sample q0: expected a question of Hopscope's tasks"):
        row("q0", "m", 1, {**ASKED, **asked}, {**right, **scored})
