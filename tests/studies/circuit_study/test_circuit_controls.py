"""Controls of claims R4 to R8 and R12: what would be there too if a claim held for a reason of no interest."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from hopscope.claims import Verdict, judge
from hopscope.studies import find_study
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.emergence.config import EmergenceConfig

from .made_up import induction, member, path, proven

CONFIGS = {
    study: find_study(study).presets["paper"].model_copy(update={"steps": 2, "checkpoint_every": 100} | more)
    for study, more in {"circuits": {}, "emergence": {"crossed": 0}}.items()
}


@pytest.fixture(autouse=True)
def at_scale(monkeypatch):
    """Nothing departs from the paper but for D, so that members of two steps can be judged."""
    monkeypatch.setattr(CircuitsConfig, "paper", {})
    monkeypatch.setattr(EmergenceConfig, "paper", {})


class Run(NamedTuple):
    """A run of eight members, made up: when their reads formed, and whatever else is changed in it."""

    formed: tuple[float, float] = (150.0, 450.0)
    of_members: dict[str, Any] = {}
    given: dict[str, Any] = {}

    def evidence(self, study):
        """Its evidence table; each member has one head more than a chain of two steps needs."""
        later = self.formed[1]
        paths = [*induction(*self.formed), path(3, "query", "second 2", later, 2, rules=0.3)]
        loss = {"loss": 0.03} if study == "emergence" else {}
        return proven(
            [member(n, paths, **(loss | self.of_members)) for n in range(8)], CONFIGS[study], **self.given
        )

    def judged(self, study, name, *, controlled=True):
        """A claim on it, with its control or, as if nobody had asked, without it."""
        (claim,) = (claim for claim in find_study(study).claims(CONFIGS[study]) if claim.id == name)
        claim = claim if controlled else replace(claim, controls=None, must_not=None)
        return judge(claim, self.evidence(study))


def random(loss):
    """Random circuits have this loss."""
    return Run(of_members={"random": loss})


def falling(first, second):
    """The losses of both symbols fall at these steps; the reads for them form at 150 and 450."""
    return Run(of_members={"falls": {1: first, 2: second}})


CASES = {
    # Models that were good before they learned anything.
    "R4": ("circuits", Run(given={"untrained": 0.009}), Run(given={"untrained": 0.011})),
    # Circuits that do well whichever they are.
    "R5": ("circuits", random(0.24), random(0.26)),
    "R7": ("circuits", random(0.04), random(0.06)),
    # A reader that finds almost nothing again, so that its distances tell little of seeds.
    "R6": ("circuits", Run(given={"own": 0.5}), Run(given={"own": 0.49})),
    # Heads that all formed within one interval between checkpoints, so that no order was seen.
    "R8": ("emergence", Run((150.0, 170.0)), Run((150.0, 250.0))),
    # Losses that all fell with the head, so that nobody saw which came first.
    "R12": ("emergence", falling(200.0, 500.0), falling(200.0, 600.0)),
}
"""Claim → its study, a run whose control shows what it must not, and one whose control does not, but only just."""


@pytest.mark.parametrize("name", CASES)
def test_a_control_that_shows_it_takes_the_claim_back(name):
    study, shown, _ = CASES[name]
    alone = shown.judged(study, name, controlled=False)
    assert alone.here.verdict is Verdict.REPRODUCED, alone.words
    found = shown.judged(study, name)
    assert (found.verdict, found.here.verdict) == (Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
    assert [control.shows for control in found.controls.values()] == [True]
    assert f"the control {next(iter(found.controls))} shows it too" in found.words


@pytest.mark.parametrize("name", CASES)
def test_a_control_that_shows_nothing_leaves_the_claim(name):
    study, _, silent = CASES[name]
    found = silent.judged(study, name)
    assert found.here.verdict is Verdict.REPRODUCED, found.words
    assert [control.shows for control in found.controls.values()] == [False]


def test_every_claim_of_both_studies_has_a_control():
    every = [
        claim
        for study, config in CONFIGS.items()
        for claim in find_study(study).claims(config)
        if claim.id.startswith("R")
    ]
    assert {claim.id for claim in every} == {*CASES}
    assert all(claim.controls and claim.must_not is not None for claim in every)


def test_r12_has_the_same_control_in_both_studies():
    _, shown, silent = CASES["R12"]
    assert shown.judged("circuits", "R12").here.verdict is Verdict.INCONCLUSIVE
    assert silent.judged("circuits", "R12").here.verdict is Verdict.REPRODUCED


def test_random_circuits_may_be_good_enough_for_one_claim_and_not_for_the_other():
    """A loss of 0.1 is one that has learned (R5), and not one of a circuit alone (R7)."""
    found = {name: random(0.1).judged("circuits", name).verdict for name in ("R5", "R7")}
    assert found == {"R5": Verdict.INCONCLUSIVE, "R7": Verdict.REPRODUCED}


def test_a_loss_before_the_first_step_that_nobody_measured_keeps_r4_open():
    found = Run(given={"untrained": None}).judged("circuits", "R4")
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "the control before the first step was not measured" in found.words


def test_controls_are_those_of_independent_members():
    """Of members that share weights or data with others, none is asked."""
    seeds = [member(n, induction(), loss=0.03) for n in range(8)]
    crossed = [member(n, induction(), loss=0.03, init=0, data=n) for n in range(8, 11)]
    evidence = proven([*seeds, *crossed], CONFIGS["emergence"])
    for claim in find_study("emergence").claims(CONFIGS["emergence"]):
        (control,) = judge(claim, evidence).controls.values()
        assert (control.n, len(control.samples)) == (8, 8), claim.id
