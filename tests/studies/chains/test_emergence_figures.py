"""Rows of the figures of emergence, from members whose answers are known."""

import pytest

from hopscope.studies.chains.figures.timeline import NEVER, NO_HOP, crossing_rows, timeline_rows
from hopscope.studies.emergence.config import EmergenceConfig
from hopscope.studies.emergence.figures import alignment_rows, precedence_rows, variance_rows

from .made_up import CHECKPOINTS, induction, member, path

CONFIG = EmergenceConfig(seeds=3, crossed=3, steps=2, training_steps=1_000)

HOP_1, LOSS_1, HOP_2 = "reads for x₁ formed", "loss of x₁ fell", "reads for x₂ formed"


def members():
    return [
        member(
            plan.member,
            induction(150, 450),
            falls={1: 300.0, 2: 600.0},
            init=plan.init_seed,
            data=plan.data_seed,
        )
        for plan in CONFIG.members()
    ]


def test_precedence_is_counted_over_independent_seeds_both_ways():
    rows = {(row["first"], row["second"]): row for row in precedence_rows(CONFIG, members())}
    assert rows[HOP_1, HOP_2]["words"] == "3/3"
    assert rows[HOP_2, HOP_1]["words"] == "0/3"
    assert rows[HOP_1, HOP_2]["low"] == pytest.approx(0.025 ** (1 / 3), rel=1e-3)
    assert (HOP_1, HOP_1) not in rows


def test_a_tie_is_before_in_neither_direction():
    tied = [member(n, induction(150, 160)) for n in range(3)]
    rows = {(row["first"], row["second"]): row for row in precedence_rows(CONFIG, tied)}
    assert (rows[HOP_1, HOP_2]["words"], rows[HOP_2, HOP_1]["words"]) == ("0/3", "0/3")
    assert rows[HOP_1, HOP_2]["ties"] == 3


def test_alignment_has_a_point_for_each_model_and_step_to_which_both_happened():
    some = [
        *members()[:2],
        member(7, induction(150, None), falls={1: 300.0, 2: 600.0}),
        member(8),
    ]  # 8 was read, but has no reads
    rows = alignment_rows(CONFIG, some)
    assert [(row["member"], row["symbol"]) for row in rows] == [
        ("seed 0", "x₁"), ("seed 1", "x₁"), ("seed 7", "x₁"), ("seed 0", "x₂"), ("seed 1", "x₂"),
    ]  # fmt: skip
    # Attention goes from 0.1 to 0.9 between the checkpoints at 100 and 200, the loss from 0.75 to 0.05 in ten steps.
    assert rows[0]["formed"] == pytest.approx(150.0)
    assert rows[0]["fell"] == pytest.approx(293.57, abs=0.01)


def test_shares_of_an_event_add_up():
    varied = [
        member(
            each.member, induction(150 + 100 * each.init_seed, 850), init=each.init_seed, data=each.data_seed
        )
        for each in CONFIG.members()
    ]
    rows = [row for row in variance_rows(CONFIG, varied) if row["event"] == HOP_1]
    assert [row["share"] for row in rows] == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)
    assert not [row for row in variance_rows(CONFIG, varied) if row["event"] == HOP_2]  # all at one time


def test_crossings_that_never_came_stand_at_the_end():
    rows = crossing_rows([member(0, induction(150, None), falls={1: 300.0, 2: None})])
    late = [row for row in rows if row["seen"] == NEVER]
    assert [row["event"] for row in late] == ["seed 0: 2.0 query → second 2", "seed 0: partial loss of x₂"]
    assert [row["step"] for row in late] == [1000.0, 1000.0]


def test_the_timeline_has_every_loss_and_every_path():
    shown = member(0, [*induction(), path(3, "second 2", "first 2", 700, None)])
    rows = timeline_rows([shown])
    lines = {row["line"] for row in rows}
    assert len(lines) == 4 + 4  # train, held out, two partial losses; four paths
    attention = [row for row in rows if row["line"] == "3.0 second 2 → first 2"]
    assert [row["step"] for row in attention] == list(CHECKPOINTS)
    assert {row["symbol"] for row in attention} == {NO_HOP}
