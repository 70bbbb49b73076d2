"""N21 and N22 on evidence that is made up: what they must say where it is known."""

import numpy as np
import pytest
from made import judged, rows_of

from hopscope.claims.crossings import Crossing
from hopscope.studies.chains.readings import time_rows
from hopscope.studies.emergence.needs import errors_left_out
from hopscope.studies.emergence.study import study

STEPS, READ = 800, {"layer": 1, "head": 2, "part": "query 1 → second 2"}


def at(time):
    return Crossing(time, time - 1, time + 1, None)


def made(later, alignment, held, control, own_held):
    """Rows of 24 members: when x₂ fell (by seed), how its read was aligned, when it and x₁ fell with rows held."""

    def rows(planned):
        yield from rows_of(planned, "learned")
        for member in range(24):
            where = {"member": member, "step": STEPS, "measure": "circuit"}
            for step in (1, 2):
                own = {**where, "part": f"step_{step}"}
                yield {**own, "measure": "retrieval", "metric": "checkpoint_loss", "value": 0.02}
                yield from time_rows("fell", at(100.0 if step == 1 else later(member)), **own)
            yield {**where, "metric": "was_read", "value": 1.0}
            yield {**where, **READ, "metric": "to_one_token", "value": 1.0}
            yield {**where, **READ, "metric": "needed_for", "value": 2.0}
            for step, value in ((0, 0.1), (80, alignment(member)), (160, 0.9)):
                yield {**where, **READ, "metric": "attention", "step": step, "value": value}
            for run, time in (
                ("nothing clamped", 200.0),
                ("step_1", held(member)),
                ("control for step_1", control(member)),
            ):
                crossing = Crossing(None, None, None, time[0]) if isinstance(time, tuple) else at(time)
                own = {**where, "measure": "clamps", "part": run}
                yield from time_rows("clamped_fell_step_2", crossing, **own)
                first = own_held(member) if run == "step_1" else 100.0
                yield from time_rows("clamped_fell_step_1", at(first), **own)

    return rows


def ledger_of(tmp_path, **given):
    same = {
        "later": lambda member: 200.0 + 10 * member,
        "alignment": lambda member: 0.1 + 0.02 * member,
        "held": lambda member: 500.0,
        "control": lambda member: 210.0,
        "own_held": lambda member: 200.0,
    }
    return judged(tmp_path, "emergence", "needs", rows=made(**{**same, **given}))[-1]


@pytest.mark.parametrize(
    "held, control, verdict",
    [
        (lambda member: 400.0, lambda member: 399.0, "reproduced"),
        (lambda member: (800.0,), lambda member: 210.0, "reproduced"),  # it never fell
        (lambda member: 399.0, lambda member: 210.0, "refuted"),
        (lambda member: 500.0, lambda member: 500.0, "refuted"),
        (lambda member: 500.0 if member % 2 else 210.0, lambda member: 210.0, "inconclusive"),
        (lambda member: (300.0,), lambda member: 210.0, "not run"),  # it was not watched for twice the time
    ],
)
def test_a_read_is_needed_where_it_delays_the_next_loss(tmp_path, held, control, verdict):
    found = ledger_of(tmp_path, held=held, control=control)["N21"]
    delayed = found.parts["seeds delayed with the read held"]
    assert (delayed if verdict == "not run" else found).verdict == verdict


@pytest.mark.parametrize(
    "late, n, verdict",
    [(24, 24, "refuted"), (18, 18, "refuted"), (11, 11, "inconclusive"), (0, 0, "not run")],
)
def test_a_read_that_others_did_is_not_put_to_the_test(tmp_path, late, n, verdict):
    """Where x₁ itself is not delayed with its read held, its heads were replaced."""
    found = ledger_of(
        tmp_path, held=lambda member: 210.0, own_held=lambda member: 200.0 if member < late else 199.0
    )
    delayed = found["N21"].parts["seeds delayed with the read held"]
    assert (delayed.n, delayed.verdict) == (n, verdict)
    assert found["N21"].verdict == ("refuted" if verdict == "refuted" else "inconclusive")


@pytest.mark.parametrize(
    "alignment, verdict",
    [
        (lambda member: 0.9 - 0.02 * member, "reproduced"),
        (lambda member: 0.3 + 0.1 * (member % 2), "refuted"),
    ],
)
def test_alignment_foretells_or_not(tmp_path, alignment, verdict):
    assert ledger_of(tmp_path, alignment=alignment)["N22"].verdict == verdict


def test_each_value_is_foretold_from_the_others():
    by, values = np.array([0.0, 1.0, 2.0, 4.0]), np.array([1.0, 3.0, 5.0, 10.0])
    # Without the last the line is 1 + 2x, which gives 9; the mean of the others is 3.
    assert errors_left_out(values, by)[-1] == pytest.approx(1.0)
    assert errors_left_out(values)[-1] == pytest.approx(49.0)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({}, ""),
        ({"steps": 3}, "D 3, not 2"),
        ({"layers": 3, "width": 16, "heads": 2}, "3 of 4 layers, 2 of 8 heads, 16 of 128 width"),
        ({"training_steps": 50}, "50 of 600 training steps"),
    ],
)
def test_smaller_runs_decide_nothing(fields, words):
    claims = {each.id: each for each in study.chosen("needs", fields).all_claims()}
    assert [claims[name].at_scale(None) for name in ("N21", "N22")] == [words] * 2


def test_times_that_never_vary_have_no_share(tmp_path):
    assert "at one time" in ledger_of(tmp_path, later=lambda member: 200.0)["N22"].words
