"""Claim R8 on members whose answers are known."""

import dataclasses

import pytest

from hopscope.circuits.places import FORMED, times
from hopscope.claims import Verdict
from hopscope.studies.emergence.claims import before_induction, claims, out_of_order, reads_of_later_steps
from hopscope.studies.emergence.config import PRESETS, EmergenceConfig

from . import made_up
from .made_up import evidence_of, induction, member, path

PAPER = PRESETS["paper"].model_copy(update={"steps": 2, "crossed": 0})
"""At the paper's scale but for D, so that members of two steps can be judged."""


@pytest.fixture
def at_scale(monkeypatch):
    """Nothing departs from the paper."""
    monkeypatch.setattr(EmergenceConfig, "paper", {})
    return PAPER


def r8(members, config):
    return made_up.judged(claims(config), members, config)["R8"]


def formed(paths):
    return times(evidence_of([member(0, paths)], PAPER), FORMED)


def test_presets_of_the_paper_depart_in_nothing():
    assert PRESETS["paper"].departures == []
    assert PRESETS["paper-batch-32768"].departures == []
    assert PAPER.departures == ["steps 2, not 4"]


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [(induction(150, 450), 0), (induction(450, 150), 1), (induction(150, 170), 0), ([], None),
     ([path(0, "query", "second 1", 150, 1)], None)],
)  # fmt: skip
def test_disorder_is_a_later_hop_that_formed_first(paths, wanted):
    assert out_of_order(formed(paths), 0, 2) == wanted


def test_reads_before_the_induction_head_are_those_of_later_steps_only():
    def count(*paths):
        evidence = evidence_of([member(0, paths)], PAPER)
        return before_induction(times(evidence, FORMED), 0, reads_of_later_steps(evidence))

    early = path(0, "second 1", "second 2", 50, 2)
    helper = path(1, "first 2", "second 2", 50, None)
    vague = dataclasses.replace(early, layer=3, target="all second 2")
    later = [dataclasses.replace(each, layer=each.layer + 4) for each in induction()]
    assert count(early, helper, vague, *later) == 1
    assert count(*induction()) == 0
    assert count(path(0, "query", "second 1", 150, 1)) is None
    never = [path(0, "query", "second 1", None, 1), path(1, "query", "second 2", None, 2)]
    assert count(*never) is None  # no order is known


def test_r8_needs_losses_in_the_range_and_the_order_in_every_seed(at_scale):
    good = [member(n, induction(), loss=0.031, rules=0.045) for n in range(10)]
    found = r8(good, at_scale)
    assert found.verdict is Verdict.REPRODUCED
    assert found.value == pytest.approx(
        {
            "loss": 0.031,
            "loss under the rules": 0.045,
            "hops out of order": 0.0,
            "reads before the induction head": 0.0,
        }
    )
    swapped = [*good[1:], member(0, induction(450, 150), loss=0.031, rules=0.045)]
    assert r8(swapped, at_scale).verdict is Verdict.REFUTED
    worse = [member(n, induction(), loss=0.2, rules=0.045) for n in range(10)]
    assert r8(worse, at_scale).verdict is Verdict.REFUTED


def test_orders_take_ten_seeds_and_losses_eight(at_scale):
    found = r8([member(n, induction(), loss=0.031, rules=0.045) for n in range(9)], at_scale)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.words.count("9 of 9 seeds agree; needs 10") == 2
    assert "needs 8" not in found.words


def test_r8_takes_independent_seeds_only(at_scale):
    crossed = [member(n, induction(450, 150), init=0, data=n) for n in range(10, 13)]
    found = r8([*(member(n, induction(), loss=0.03) for n in range(10)), *crossed], at_scale)
    assert found.n == 10
    assert found.value["hops out of order"] == 0.0


def test_a_diverged_seed_is_missing_and_one_without_an_order_is_not(at_scale):
    seeds = [member(n, induction(), loss=None if n == 4 else 0.03) for n in range(12)]
    found = r8([*seeds, member(12, [path(0, "query", "second 1", 150, 1)])], at_scale)
    assert found.samples["hops out of order"] == [0.0] * 4 + [None] + [0.0] * 7
    assert len(found.samples["loss"]) == 13
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "hops out of order: all 11 of 11 seeds meet it" in found.words
    assert "1 of 12 seeds has no number, which counts as a violation" in found.words


def test_a_run_that_diverged_altogether_is_not_judged(at_scale):
    found = r8([member(n, loss=None) for n in range(3)], at_scale)
    assert found.verdict is Verdict.NOT_RUN
    assert "no member was trained to its end" in found.words


def test_below_the_papers_scale_nothing_is_settled():
    found = r8([member(n, induction()) for n in range(10)], PAPER)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "steps 2, not 4" in found.words
