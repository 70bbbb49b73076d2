"""The forms that claims of the open questions share: who learned what, and when that is known."""

import pytest

from hopscope.claims import Claim
from hopscope.claims.judge import judge
from hopscope.runs import Evidence
from hopscope.studies.curriculum.wide import FEW, MODEL, MOST, NONE, SETTLED_STEPS, shares


def judged(must, learned, steps, seeds=16, **lacks):
    """A claim on how many of some seeds learn x₂, of which `learned` do."""
    members = [
        {"member": n, "seed": n, "configuration": "own", "overrides": {}, "unit": "u"} for n in range(seeds)
    ]
    rows = [{"member": n, "metric": "loss_step_2", "step": steps, "value": 0.01 if n < learned else 0.9}
            for n in range(seeds)]  # fmt: skip
    identity = {"training": {"steps": steps}, "model": {"width": MODEL.width}}
    rule = "always" if must is NONE else "share"
    claim = Claim(id="T1", statement="Models learn.", kind="general", seeds_needed=8, rule=rule, source="here",
                  protocol="who learned", **shares(({"part": ("own", 2)}, must), **lacks))  # fmt: skip
    return judge(claim, Evidence.of(rows, members, {"identity": identity}))


@pytest.mark.parametrize(
    "must, learned, soon, settled",
    [
        (MOST, 0, "inconclusive", "refuted"),  # none learned yet
        (MOST, 16, "reproduced", "reproduced"),
        (FEW, 0, "inconclusive", "reproduced"),
        (FEW, 16, "refuted", "refuted"),
        (NONE, 0, "inconclusive", "reproduced"),
        (NONE, 16, "refuted", "refuted"),
    ],
)
def test_that_models_do_not_learn_takes_a_settled_loss(must, learned, soon, settled):
    early, late = (judged(must, learned, steps) for steps in (SETTLED_STEPS - 1, SETTLED_STEPS))
    assert (early.verdict, late.verdict) == (soon, settled)
    assert ("1,599 of 1,600 steps to a settled loss" in early.words) == (learned == 0)


def test_a_null_can_lack_more():
    assert "no control" in judged(NONE, 0, SETTLED_STEPS, more="no control").words
    assert "1,600 of 3,600 steps" in judged(NONE, 0, SETTLED_STEPS, settled=3_600).words
    assert "no control" not in judged(NONE, 1, SETTLED_STEPS, more="no control").words


@pytest.mark.parametrize(
    "learned, soon, settled", [(0, "refuted", "refuted"), (16, "inconclusive", "reproduced")]
)
def test_that_models_keep_what_they_begin_with_takes_a_settled_loss(learned, soon, settled):
    early, late = (
        judged(MOST, learned, steps, begun=["part"]) for steps in (SETTLED_STEPS - 1, SETTLED_STEPS)
    )
    assert (early.verdict, late.verdict) == (soon, settled)
