"""R10 from the evidence table, on answers whose every count is known."""

import random
import re

import pytest

from hopscope.claims import Claim, Verdict, judge
from hopscope.claims.intervals import wilson
from hopscope.runs.evidence import Evidence, Row
from hopscope.studies.llm.claims import ANSWERS, THRESHOLD, answers, claims, parts_of
from hopscope.studies.llm.config import PRESETS, LanguageModelConfig

from .made_up import answered, evidence_of, judged


@pytest.fixture(scope="module")
def whole():
    """The paper's scale, all right."""
    config = PRESETS["paper"].model_copy(update={"model": ("a/b",)})
    return config, answered(config, lambda model, question, number: [question.answer])


def with_counts(found, depth, right, of):
    """The answers to equations of one depth: so many right, of so many that are acceptable."""
    rows, number = [], 0
    for row in found.rows:
        if (row.formulation, row.depth) == ("equations", depth):
            correct = None if number >= of else number < right
            row, number = row.model_copy(update={"correct": correct}), number + 1
        rows.append(row)
    assert number == 500
    return found.model_copy(update={"rows": tuple(rows)})


@pytest.mark.parametrize(
    ("right", "of", "verdict"),
    [
        (500, 500, Verdict.REPRODUCED),
        (464, 500, Verdict.REPRODUCED),  # from 0.9019
        (463, 500, Verdict.INCONCLUSIVE),  # from 0.8997
        (440, 500, Verdict.INCONCLUSIVE),  # up to 0.9056
        (435, 500, Verdict.REFUTED),  # up to 0.8967
        (495, 495, Verdict.REPRODUCED),  # five without an answer change nothing
        (300, 300, Verdict.INCONCLUSIVE),  # two hundred could
    ],
)
def test_one_kind_of_question_decides(whole, right, of, verdict):
    config, found = whole
    claim = judged(with_counts(found, 4, right, of), config)
    assert claim.verdict is verdict
    assert claim.value["equations D = 4"] == right / of
    assert claim.interval["equations D = 4"] == wilson(right, of)
    assert (claim.n, claim.n_counts) == (of, "question")
    assert list(claim.value) == [*(f"equations D = {depth}" for depth in (1, 2, 3, 4, 5)),
                                 "lives with", "kingdoms", "functions", "relatives"]  # fmt: skip
    assert len(claim.samples["equations D = 4"]) == 500


def by_counts(right, of, asked):
    """The rule, from counts: the interval decides if no answer that never came could change it."""

    def said(interval):
        return THRESHOLD.met_by(interval), THRESHOLD.failed_by(interval)

    given = wilson(right, of)
    if said(given) != said((wilson(right, asked)[0], wilson(right + asked - of, asked)[1])):
        return Verdict.INCONCLUSIVE
    return {(True, False): Verdict.REPRODUCED, (False, True): Verdict.REFUTED}.get(
        said(given), Verdict.INCONCLUSIVE
    )


def test_the_verdict_is_that_of_the_counts():
    chance, seen = random.Random(3), set()
    for _ in range(120):
        asked = chance.choice((23, 101, 499))
        of = chance.choice((asked, asked - chance.randrange(4), chance.randint(10, asked)))
        right = chance.choice((of, round(0.93 * of), chance.randint(0, of)))
        values = [1.0] * right + [0.0] * (of - right) + [None] * (asked - of)
        table = Evidence.of(
            [], [Row(None, ANSWERS, "correct", value, part="a/b, kingdoms") for value in values]
        )
        claim = Claim(
            "R", "s", "s", "p", lambda found: answers(found, "a/b, kingdoms"), THRESHOLD, rule="mean"
        )
        verdict = judge(claim, table).verdict
        assert verdict is by_counts(right, of, asked), (right, of, asked)
        seen.add((verdict, of < asked))
    assert len(seen) == 6  # each verdict, with and without questions that have no answer


def test_fewer_questions_say_what_was_seen_and_decide_nothing():
    config = PRESETS["smoke"].model_copy(update={"model": ("a/b", "c/d")})

    def say(model, question, number):
        knows = model == "a/b" or (question.formulation, question.depth) == ("equations", 1)
        return [question.answer if knows else question.structure.alternatives[0].answer]

    claim = judged(answered(config, say), config)
    assert claim.verdict is Verdict.INCONCLUSIVE and claim.n == 8
    scale, of_ab, of_cd = re.split("; (?=a/b)| · ", claim.words)
    assert "8 of 500 questions" in scale
    assert "0 of 9 kinds" in of_ab and "below" not in of_ab
    assert "0 of 9 kinds" in of_cd and "8 wholly below (equations D = 2, 3, 4, 5; lives with; " in of_cd
    assert len(claim.value) == 18 and claim.value["a/b, functions"] == 1.0
    assert claim.value["c/d, equations D = 2"] == 0.0
    assert claim.leaning == "mixed"


def test_questions_without_an_answer_that_could_decide_are_named(whole):
    config, found = whole
    claim = judged(with_counts(found, 2, 300, 300), config)
    assert "9 of 9 kinds" in claim.words and "1 open" in claim.words and "(equations D = 2)" in claim.words


@pytest.mark.parametrize(
    ("right", "accepted", "below"), [(9, 10, False), (8, 10, True), (9, 8, True), (9, 0, True)]
)
def test_a_model_that_fails_one_step_decides_nothing(right, accepted, below):
    """Of each ten equations with D = 1, so many are acceptable at once, and so many right."""
    config = LanguageModelConfig(model=("a/b", "c/d"), formulations=("equations",), depths=(1, 3), count=500)

    def say(model, question, number):
        if model == "a/b":
            return [question.answer]
        wrong = question.structure.alternatives[0].answer
        if question.depth == 3:
            return [wrong]
        place = number % 10
        return ["hm"] * (place >= accepted) + [question.answer if place < right else wrong]

    claim = judged(answered(config, say), config)
    assert ("below the task" in claim.words) is below
    assert ("c/d, equations D = 3" in claim.value) is not below
    assert claim.readings == {} and claim.here.verdict is (Verdict.REPRODUCED if below else Verdict.REFUTED)


def test_where_every_model_is_below_the_task_nothing_is_judged():
    config = LanguageModelConfig(model=("a/b",), formulations=("equations",), depths=(1, 2), count=7)
    claim = judged(
        answered(config, lambda model, question, number: [question.structure.alternatives[0].answer]), config
    )
    assert claim.verdict is Verdict.NOT_RUN and "below the task" in claim.words


def test_a_threshold_that_guessing_reaches_is_no_threshold(whole):
    config, found = whole
    cells = tuple(cell.model_copy(update={"guess": 0.95}) for cell in found.cells)
    claim = judged(found.model_copy(update={"cells": cells}), config)
    assert claim.verdict is Verdict.INCONCLUSIVE and "the control a blind guess shows it too" in claim.words


def test_a_model_that_never_answers_is_no_failure_of_retrieval():
    config = LanguageModelConfig(model=("a/b",), formulations=("functions",), count=7)
    claim = judged(answered(config, lambda m, q, n: ["hm"] * 3), config)
    assert (claim.verdict, claim.value, claim.n) == (Verdict.NOT_RUN, None, 0)
    assert "none of 7 questions" in claim.words and "no acceptable answer" in claim.words


def test_beside_a_model_that_answers_it_is_counted():
    config = LanguageModelConfig(model=("a/b", "c/d"), formulations=("functions",), count=500)
    claim = judged(answered(config, lambda m, q, n: [q.answer if m == "a/b" else "hm"]), config)
    assert claim.verdict is Verdict.INCONCLUSIVE and claim.n == 500
    assert "c/d: 0 of 1 kind" in claim.words and "1 without any acceptable answer" in claim.words


def test_without_a_model_or_a_kind_that_it_is_about_it_is_not_run():
    (claim,) = claims(LanguageModelConfig())
    assert judge(claim, Evidence.of([], [], LanguageModelConfig().model_dump(mode="json"))).n == 0
    deep = LanguageModelConfig(model=("a/b",), formulations=("equations",), depths=(6, 7))
    (claim,) = claims(deep)
    assert "nothing" in judge(claim, Evidence.of([], [], deep.model_dump(mode="json"))).words


def test_a_long_name_of_a_model_is_shortened_in_the_ledger_only():
    long = "hopscope/" + "long/" * 9 + "tiny"
    config = PRESETS["smoke"].model_copy(update={"model": ("a/b", long), "formulations": ("kingdoms",)})
    assert list(parts_of(config)) == ["a/b, kingdoms", "hopscope/…/tiny, kingdoms"]
    found = evidence_of(answered(config, lambda m, q, n: [q.answer]), config)
    assert set(found.rows("correct")["part"]) == {"a/b, kingdoms", f"{long}, kingdoms"}


# Rows.


def test_the_tally_of_each_kind_of_question_is_in_the_table():
    config = LanguageModelConfig(model=("a/b",), formulations=("equations",), depths=(1, 3), count=23)

    def say(model, question, number):
        symbol = question.structure.symbols[question.structure.chain][0]
        return [[question.answer], [symbol, question.structure.alternatives[0].answer], ["hm"] * 4][
            number % 3
        ]

    made = answered(config, say)
    found = evidence_of(made, config)
    assert found.members == []
    for cell in made.cells:
        part = f"a/b, equations D = {cell.depth}"
        table = found.rows(measure="tally", part=part).set_index("metric")["value"]
        assert table["accuracy"] == cell.accuracy.value < 1
        assert (table["accuracy_low"], table["accuracy_high"]) == (cell.accuracy.low, cell.accuracy.high)
        assert table["first_accuracy"] == cell.first_accuracy.count / 23
        assert (table["questions"], table["wrong"], table["lost_chain"]) == (23, cell.wrong, cell.lost_chain)
        assert table["attempts"] == cell.attempts > 1
        correct = found.rows("correct", part=part)["value"]
        assert (len(correct), correct.sum(), correct.notna().sum()) == (
            23, cell.accuracy.count, cell.accuracy.of,
        )  # fmt: skip
        for metric in ("rejected", "lost_steps", "from_first_line", "from_answer_line"):
            rows = found.rows(metric)
            counts = {
                name.removeprefix(f"{part}: "): count
                for name, count in zip(rows["part"], rows["value"], strict=True)
                if name.startswith(f"{part}: ")
            }
            assert counts == getattr(cell, metric) and counts
