"""Verdicts under the completions of a recipe: of a source's own models, and of what it says in general."""

from typing import get_args

import pytest

from hopscope.claims import COMPLETIONS, Ledger, Samples, at_most
from hopscope.claims.judge import joined
from hopscope.training.config import CompletionName

from .runs import HIGH, judged, series

YES, NO, OPEN = "reproduced", "refuted", "inconclusive"
GOOD, BAD = [1.0] * 10, [0.5] * 10
BASE, SCHEDULE, OTHER, LAST = COMPLETIONS


def test_the_completions_are_those_that_training_knows():
    assert get_args(CompletionName) == COMPLETIONS


@pytest.mark.parametrize("name", COMPLETIONS)
@pytest.mark.parametrize(
    ("kind", "values", "verdict", "here", "leaning"),
    [
        ("existence", GOOD, YES, YES, None),
        ("existence", BAD, OPEN, NO, "disagrees"),
        ("general", GOOD, OPEN, YES, "agrees"),
        ("general", BAD, NO, NO, None),
        (None, GOOD, YES, YES, None),
        (None, BAD, NO, NO, None),
    ],
)
def test_a_run_under_one_completion(kind, values, verdict, here, leaning, name):
    found = judged(series(values), kind=kind, completion=name)
    assert (found.verdict, found.here.verdict, found.leaning) == (verdict, here, leaning)
    assert found.completion == (kind and name)
    # Whatever is decided, the words name what was run and what was not.
    others = f"not run under {', '.join(each for each in COMPLETIONS if each != name)}"
    assert (others in found.words and f"under {name}" in found.words) is (kind is not None)
    assert (f"completion {name}" in str(Ledger([found]))) is (kind is not None)


@pytest.mark.parametrize(("kind", "values", "verdict"), [("existence", GOOD, OPEN), ("existence", BAD, OPEN),
                                                        ("general", GOOD, OPEN), ("general", BAD, NO)])  # fmt: skip
def test_a_run_that_departs_from_its_completion_is_under_none(kind, values, verdict):
    departing = f"{BASE}, but for beta2"
    found = judged(series(values), kind=kind, completion=departing)
    assert (found.verdict, found.completion) == (verdict, departing) and departing in found.words


@pytest.mark.parametrize(
    ("kind", "by_name", "verdict", "here"),
    [
        ("existence", [BAD, GOOD, None, None], YES, YES),  # one is enough
        ("existence", [BAD, BAD, BAD, None], OPEN, NO),
        ("existence", [BAD, BAD, BAD, BAD], NO, NO),
        ("general", [GOOD, GOOD, BAD, None], NO, NO),  # one is enough
        ("general", [GOOD, GOOD, GOOD, None], OPEN, YES),
        ("general", [GOOD, GOOD, GOOD, GOOD], YES, YES),
        ("general", [GOOD, GOOD, GOOD, "nothing"], YES, YES),  # nothing was learned under the last
        ("existence", [BAD, BAD, BAD, "nothing"], OPEN, NO),
        ("general", [None, None, None, None], "not run", None),
    ],
)
def test_readings_that_are_completions(kind, by_name, verdict, here):
    def reading(values):
        if values == "nothing":
            return lambda run: Samples(series(BAD), excluded="nothing was learned")
        return lambda run: Samples([], note="not run") if values is None else series(values)

    readings = {name: reading(values) for name, values in zip(COMPLETIONS, by_name, strict=True)}
    # The run's own completion says no more: each reading is under its own.
    found = judged(None, kind=kind, readings=readings, completion=BASE)
    assert (found.verdict, found.here and found.here.verdict) == (verdict, here)
    if verdict in (YES, NO):
        assert {each.value for each in found.readings.values() if each.verdict == verdict} == {found.value}
    left = [name for name, values in readings.items() if by_name[[*readings].index(name)] is None]
    assert verdict == "not run" or all(name in found.words for name in left)


def test_controls_and_untried_readings_still_count():
    shown = {"controls": {"c": lambda run: series(GOOD)}, "must_not": HIGH}
    assert judged(series(GOOD), kind="existence", completion=LAST, **shown).verdict == OPEN
    untried = judged(series(BAD), kind="general", completion=LAST, untried=lambda run: "random order")
    assert (untried.verdict, untried.here.verdict) == (OPEN, NO) and "random order" in untried.words


def run_under(name, values, **fields):
    """The ledger of a run under one completion."""
    return [judged(series(values), completion=name, **fields)]


@pytest.mark.parametrize(
    ("kind", "runs", "verdict"),
    [
        ("existence", {BASE: BAD, SCHEDULE: BAD, OTHER: BAD, LAST: BAD}, NO),
        ("existence", {BASE: BAD, SCHEDULE: BAD, OTHER: BAD}, OPEN),
        ("existence", {BASE: BAD, LAST: GOOD}, YES),
        ("general", {BASE: GOOD, SCHEDULE: GOOD, OTHER: GOOD, LAST: GOOD}, YES),
        ("general", {BASE: GOOD, LAST: GOOD}, OPEN),
        ("general", {BASE: GOOD, f"{LAST}, but for beta2": BAD}, NO),
    ],
)
def test_runs_together(kind, runs, verdict):
    found = joined(run_under(name, values, kind=kind) for name, values in runs.items())
    assert [each.verdict for each in found.values()] == [verdict]
    assert all(name in found["C1"].words for name in (*runs, *(COMPLETIONS if verdict == OPEN else ())))


def test_one_run_or_runs_under_one_completion_say_nothing_together():
    once = run_under(BASE, BAD, kind="general")
    assert (
        joined([once, once]) == joined([once]) == joined([run_under(BASE, BAD), run_under(LAST, BAD)]) == {}
    )
    other = [judged(series(GOOD), statement="t", completion=LAST, kind="general")]
    assert joined([once, other]) == {}  # another study's claim with this id
    departing = [run_under(f"{name}, but for beta2", BAD, kind="existence") for name in COMPLETIONS]
    assert joined(departing) == {}


def test_parts_that_are_completions_are_joined():
    def run(name, values):
        def value(evidence):
            return {each: series(values) if each == name else Samples([]) for each in (BASE, LAST)}

        return [judged(value, {BASE: at_most(0.5), LAST: HIGH})]

    whole = [
        judged(lambda evidence: {BASE: series(BAD), LAST: series(GOOD)}, {BASE: at_most(0.5), LAST: HIGH})
    ]
    assert joined([whole]) == {}  # says so itself

    assert joined([run(BASE, BAD), run(LAST, GOOD)])["C1"].verdict == YES
    assert joined([run(BASE, GOOD), run(LAST, GOOD)])["C1"].verdict == NO


def test_claims_of_two_studies_with_one_id_are_not_joined_with_each_other():
    one, last = run_under(BASE, BAD, kind="general"), run_under(LAST, BAD, kind="general")
    assert joined([one, last])
    other = Ledger(each.model_copy(update={"statement": "Something else."}) for each in run_under(LAST, GOOD))
    assert joined([one, last, other]) == {}
