"""Claim R8 on members whose answers are known."""

import dataclasses
import math

import pytest

from hopscope.circuits.places import FORMED, times
from hopscope.claims import Verdict
from hopscope.studies.circuit_study.claims import reads_for
from hopscope.studies.emergence.claims import before_induction, out_of_order
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


def r8(members, config, **given):
    return made_up.judged("emergence", members, config, **given)["R8"]


def formed(paths):
    return times(evidence_of([member(0, paths)], PAPER), FORMED)


def test_presets_of_the_paper_depart_in_nothing():
    assert PRESETS["paper"].protocol_deviations == []
    assert PRESETS["paper-batch-32768"].protocol_deviations == []
    assert PAPER.protocol_deviations == ["steps 2, not 4"]


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [(induction(150, 450), 0), (induction(450, 150), 1), (induction(150, 170), 0), ([], math.nan),
     ([path(0, "query", "second 1", 150, 1)], math.nan)],
)  # fmt: skip
def test_disorder_is_a_later_hop_that_formed_first(paths, wanted):
    assert out_of_order(formed(paths), 0, 2) == pytest.approx(wanted, nan_ok=True)


def test_reads_before_the_induction_head_are_those_of_later_steps_only():
    def count(*paths):
        evidence = evidence_of([member(0, paths)], PAPER)
        later = [place for place, step in reads_for(evidence, "both").items() if step > 1]
        return before_induction(times(evidence, FORMED), 0, later)

    early = path(0, "second 1", "second 2", 50, 2)
    helper = path(1, "first 2", "second 2", 50, None)
    vague = dataclasses.replace(early, layer=3, target="all second 2")
    later = [dataclasses.replace(each, layer=each.layer + 4) for each in induction()]
    assert count(early, helper, vague, *later) == 1
    assert count(*induction()) == 0
    assert math.isnan(count(path(0, "query", "second 1", 150, 1)))
    never = [path(0, "query", "second 1", None, 1), path(1, "query", "second 2", None, 2)]
    assert math.isnan(count(*never))  # no order is known


def test_r8_needs_losses_in_the_range_and_the_order_in_every_seed(at_scale):
    good = [member(n, induction(), loss=0.031) for n in range(10)]
    found = r8(good, at_scale)
    assert found.verdict is Verdict.REPRODUCED
    assert found.value == pytest.approx(
        {
            "loss": 0.031,
            "loss under the rules": 0.04,
            "hops out of order": 0.0,
            "reads before the induction head": 0.0,
        }
    )
    # As long as the paper's other batch is untried, nothing is refuted but here.
    swapped = r8([*good[1:], member(0, induction(450, 150), loss=0.031)], at_scale)
    worse = r8([member(n, induction(), loss=0.2) for n in range(10)], at_scale)
    for found in (swapped, worse):
        assert found.verdict is Verdict.INCONCLUSIVE
        assert found.here is not None and found.here.verdict is Verdict.REFUTED


def test_orders_and_losses_take_eight_seeds(at_scale):
    found = r8([member(n, induction(), loss=0.031) for n in range(7)], at_scale)
    assert found.verdict is Verdict.INCONCLUSIVE
    for reading in found.readings.values():
        assert reading.words.count("7 of 7 seeds agree; needs 8") == 2
        assert reading.words.count("7 seeds, needs 8") == 2


def test_r8_takes_independent_seeds_only(at_scale):
    crossed = [member(n, induction(450, 150), init=0, data=n) for n in range(10, 13)]
    found = r8([*(member(n, induction(), loss=0.03) for n in range(10)), *crossed], at_scale)
    assert found.n == 10
    assert found.value["hops out of order"] == 0.0


def test_a_seed_that_diverged_and_one_without_an_order_are_missing(at_scale):
    seeds = [member(n, induction(), loss=None if n == 4 else 0.03) for n in range(12)]
    found = r8([*seeds, member(12, [path(0, "query", "second 1", 150, 1)])], at_scale)
    assert found.samples["hops out of order"] == [0.0] * 4 + [None] + [0.0] * 7 + [None]
    assert len(found.samples["loss"]) == 13
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "hops out of order: all 11 of 11 seeds meet it" in found.words
    assert "2 of 13 seeds have no number, which counts as a violation" in found.words


def test_a_run_that_diverged_altogether_is_not_judged(at_scale):
    found = r8([member(n, loss=None) for n in range(3)], at_scale)
    assert found.verdict is Verdict.NOT_RUN
    assert "no member was trained to its end" in found.words


def test_below_the_papers_scale_nothing_is_settled():
    found = r8([member(n, induction()) for n in range(10)], PAPER)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "steps 2, not 4" in found.words
