"""What the figures of emergence show, from members whose answers are known."""

import pytest

from hopscope.studies.circuit_study.charts import NEVER, crossings
from hopscope.studies.circuit_study.figures import NO_STEP, timeline
from hopscope.studies.emergence import charts
from hopscope.studies.emergence.config import EmergenceConfig

from .made_up import CHECKPOINTS, evidence_of, induction, member, path, training

CONFIG = EmergenceConfig(seeds=3, crossed=3, steps=2, training_steps=1_000)

HOP_1, LOSS_1, HOP_2 = "reads for x₁ formed", "loss of x₁ fell", "reads for x₂ formed"


def members(paths=lambda plan: induction(150, 450)):
    return [
        member(plan.member, paths(plan), falls={1: 300.0, 2: 600.0}, init=plan.init_seed, data=plan.data_seed)
        for plan in CONFIG.members()
    ]


def rows(draw, found):
    return draw(CONFIG, evidence_of(found, CONFIG))[1]


def test_precedence_is_counted_over_independent_seeds_both_ways():
    found = {(row["first"], row["second"]): row for row in rows(charts.precedence, members())}
    assert found[HOP_1, HOP_2]["words"] == "3/3"
    assert found[HOP_2, HOP_1]["words"] == "0/3"
    assert found[HOP_1, HOP_2]["low"] == pytest.approx(0.025 ** (1 / 3), rel=1e-3)
    assert (HOP_1, HOP_1) not in found


def test_a_tie_is_before_in_neither_direction():
    tied = members(lambda plan: induction(150, 160))
    found = {(row["first"], row["second"]): row for row in rows(charts.precedence, tied)}
    assert (found[HOP_1, HOP_2]["words"], found[HOP_2, HOP_1]["words"]) == ("0/3", "0/3")
    assert found[HOP_1, HOP_2]["ties"] == 3


def test_alignment_has_a_point_for_each_model_and_step_to_which_both_happened():
    some = [
        *members()[:2],
        member(2, induction(150, None), falls={1: 300.0, 2: 600.0}),
        member(3, init=0, data=1),  # was read, but has no reads
        member(4, induction(), verdict="unexplained: no rule", init=0, data=2),
        member(5, induction(150, 450), falls={1: 300.0, 2: None}, init=1, data=0),
    ]
    found = rows(charts.alignment, some)
    assert [(row["member"], row["symbol"]) for row in found] == [
        ("seed 0", "x₁"), ("seed 1", "x₁"), ("seed 2", "x₁"), ("init 1, data 0", "x₁"), ("seed 0", "x₂"),
        ("seed 1", "x₂"),
    ]  # fmt: skip
    # Attention goes from 0.1 to 0.9 between the checkpoints at 100 and 200, the loss from 0.75 to 0.05 in ten steps.
    assert found[0]["formed"] == pytest.approx(150.0)
    assert found[0]["fell"] == pytest.approx(293.57, abs=0.01)


def test_shares_of_an_event_add_up():
    varied = members(lambda plan: induction(150 + 100 * plan.init_seed, 850))
    found = rows(charts.variance, varied)
    assert [row["share"] for row in found if row["event"] == HOP_1] == pytest.approx(
        [1.0, 0.0, 0.0], abs=1e-6
    )
    assert not [row for row in found if row["event"] == HOP_2]  # all at one time


def test_crossings_that_never_came_stand_at_the_end():
    found = rows(crossings, [member(0, induction(150, None), falls={1: 300.0, 2: None})])
    late = [row for row in found if row["seen"] == NEVER]
    assert [row["event"] for row in late] == ["seed 0: 2.0 query → second 2", "seed 0: partial loss of x₂"]
    assert [row["step"] for row in late] == [1000.0, 1000.0]


def test_crossings_and_the_timeline_are_of_independent_seeds():
    found = members()
    assert {row["event"].partition(":")[0] for row in rows(crossings, found)} == {
        "seed 0",
        "seed 1",
        "seed 2",
    }
    _, lines = timeline(CONFIG).draw(evidence_of(found, CONFIG, list(training(found))))
    assert {row["panel"] for row in lines} == {"seed 0", "seed 1", "seed 2"}


def test_the_timeline_has_every_loss_and_every_path():
    shown = member(0, [*induction(), path(3, "second 2", "first 2", 700, None)])
    _, found = timeline(CONFIG).draw(evidence_of([shown], CONFIG, list(training([shown]))))
    assert {(row["dash"], row["name"]) for row in found} == {
        ("partial loss", "x₁"), ("partial loss", "x₂"), ("held-out loss", "all targets"),
        ("training loss", "all targets"), ("attention on a path", "x₁"), ("attention on a path", "x₂"),
        ("attention on a path", NO_STEP),
    }  # fmt: skip
    assert len({row["line"] for row in found if row["name"] == "x₁"}) == 3  # the loss, and two paths
    attention = [row for row in found if row["line"] == "3.0 second 2 → first 2"]
    assert [row["at"] for row in attention] == list(CHECKPOINTS)
    assert [row["value"] for row in attention] == [0.1] * 8 + [0.9] * 3
    assert {row["name"] for row in attention} == {NO_STEP}
