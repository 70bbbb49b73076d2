"""Claims R4 to R8 and R12 by the rules of docs/protocols.md, on members whose answers are known."""

import dataclasses
import math

import pytest

from hopscope.circuits.history_rows import adding
from hopscope.claims import Verdict, judge
from hopscope.claims.registration import register
from hopscope.runs.evidence import Row
from hopscope.studies import find_study
from hopscope.studies.circuit_study.proof_rows import (
    Compared,
    circuits_of,
    distance,
    proof_rows,
    reread_rows,
    unseen_rows,
)
from hopscope.studies.circuits.config import PRESETS as CIRCUITS
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.emergence.config import PRESETS as EMERGENCE
from hopscope.studies.emergence.config import EmergenceConfig

from .made_up import evidence_of, induction, member, path

SMALL = {"steps": 2, "crossed": 0, "checkpoint_every": 100}
CONFIGS = {
    "circuits": CIRCUITS["paper"].model_copy(update={"steps": 2, "checkpoint_every": 100}),
    "emergence": EMERGENCE["paper"].model_copy(update=SMALL),
}
GOOD = {"loss": {"full": 0.01, "rules": 0.04, "recomputed": 0.05}, "without_first_head": {"rules": 0.07}}


@pytest.fixture(autouse=True)
def at_scale(monkeypatch):
    """Nothing departs from the paper but for D, so that members of two steps can be judged."""
    monkeypatch.setattr(CircuitsConfig, "paper", {})
    monkeypatch.setattr(EmergenceConfig, "paper", {})


def unseen_of(each, loss=0.04, first=0.07):
    paths = [
        {"layer": one.layer, "head": 0, "query_role": one.query, "target_role": one.target,
         "without": {"rules": one.removed["rules"]}} for one in each.every_path
    ]  # fmt: skip
    return {
        **GOOD,
        "loss": {**GOOD["loss"], "rules": loss},
        "paths": paths,
        "without_first_head": {"rules": first},
    }


def circuit_of(each, shift=0):
    return {
        "paths": [
            {"layer": one.layer + shift, "head": 0, "query": one.query, "target": one.target}
            for one in each.every_path
        ]
    }


def judged(study, members, by_rules=None, unseen=None, losses=None, again=0):
    """Claims on members, each with the circuit that its rules alone prove (by default the same)."""
    rows, compared = [], {}
    config = CONFIGS[study]
    for number, each in enumerate(members):
        add = adding(each.member, config.training_steps)
        for step in (1, 2):
            at = 0.05 if losses is None else losses[number]
            value = None if each.diverged else at
            rows.append(
                Row(each.member, "retrieval", "checkpoint_loss", value, step=1000, part=f"step_{step}")
            )
        if each.diverged:
            rows.append(add("proof", "rules_was_read", None))
            continue
        rules = each if by_rules is None else by_rules[number]
        rows += proof_rows(add, each, rules)
        found = unseen_of(each) if unseen is None else unseen[number]
        rows += unseen_rows(add, {"both": found, "rules": found}, "file")
        sets = circuits_of([circuit_of(each, number)])
        second = circuits_of([circuit_of(each, number + again)])
        compared[each.member] = Compared(
            add, "file", {"both": second, "rules": second}, {"both": sets, "rules": sets}
        )
    rows += reread_rows(compared)
    evidence = evidence_of(members, config, rows)
    return {claim.id: judge(claim, evidence) for claim in find_study(study).claims(config)}


def four_heads(formed=150.0, later=450.0):
    """One head more than a chain of two steps needs."""
    return [*induction(formed, later), path(3, "query", "second 2", later, 2, rules=0.3)]


def eight(**changes):
    return [member(n, four_heads(), **changes) for n in range(8)]


def test_models_of_the_papers_size_are_judged_by_these_rules_and_smaller_ones_by_the_earlier():
    assert list(judged("circuits", eight())) == ["R4", "R5", "R6", "R7", "R12"]
    assert list(judged("emergence", eight())) == ["R8", "R12"]
    smaller = find_study("emergence").claims(EMERGENCE["smoke"].model_copy(update={"layers": 3}))
    assert [claim.id for claim in smaller] == ["R8", "R12"]  # nothing departs here
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmergenceConfig, "paper", {"layers": 24})
        assert [claim.id for claim in find_study("emergence").claims(EMERGENCE["smoke"])] == ["R8"]


def test_what_both_ways_agree_on_is_reproduced():
    found = judged("circuits", eight())
    assert {name: each.verdict for name, each in found.items()} == dict.fromkeys(
        ("R4", "R5", "R6", "R7", "R12"), Verdict.REPRODUCED
    )
    assert found["R5"].value["heads that read"] == 4.0
    assert judged("emergence", eight(loss=0.03))["R8"].verdict is Verdict.REPRODUCED


def test_ways_to_count_heads_that_disagree_decide_nothing():
    """The earlier rule counted heads in one way, and would have said that few heads read."""
    many = [path(layer, "query", "second 2", 450, 2) for layer in range(4, 8)]
    few, lots = eight(), [member(n, [*four_heads(), *many]) for n in range(8)]
    found = judged("circuits", lots, by_rules=few)["R5"]
    assert found.verdict is Verdict.INCONCLUSIVE and "the ways to measure it disagree" in found.words
    assert {each.verdict for each in found.readings.values()} == {Verdict.REPRODUCED, Verdict.REFUTED}


def test_a_member_that_was_not_read_counts_against_what_is_always_so():
    """The earlier rule left it out, and would have called it reproduced."""
    members = [member(n, four_heads(), verdict="unexplained: x" if n == 8 else "read") for n in range(9)]
    found = judged("circuits", members)
    assert found["R5"].samples["first one links a pair"][8] is None
    assert found["R5"].verdict is Verdict.INCONCLUSIVE
    assert found["R7"].verdict is Verdict.REPRODUCED and found["R7"].n == 9  # its nearest circuit counts


def test_a_member_that_did_not_learn_the_chain_is_not_asked_for_its_circuit():
    found = judged("circuits", [*eight(), member(8, loss=0.02)], losses=[0.05] * 8 + [0.6])
    assert found["R5"].verdict is Verdict.REPRODUCED and found["R5"].n == 8
    assert found["R4"].n == 9


def test_the_loss_under_the_rules_is_that_of_unseen_sequences():
    """The loss on the sequences that admitted the circuit is below the bound by construction."""
    members = eight()
    found = judged("circuits", members, unseen=[unseen_of(each, loss=0.09) for each in members])["R7"]
    assert found.verdict is Verdict.REFUTED
    assert found.value["loss under the rules"] == pytest.approx(0.09)


def test_circuits_differ_only_beyond_what_two_readings_of_a_member_differ():
    """The earlier rule compared seeds alone, and would have called it reproduced."""
    same = judged("circuits", eight())["R6"]
    assert same.value["distance between seeds beyond that between readings"] == 1.0
    other = judged("circuits", eight(), again=100)["R6"]
    assert other.value["distance between seeds beyond that between readings"] == 0.0
    assert other.verdict is Verdict.REFUTED


def test_the_distance_of_sets_is_that_of_their_shares():
    one, two, three = (frozenset({(0, 0, "query", name)}) for name in ("a", "b", "c"))
    assert distance(frozenset({one}), frozenset({one, two})) == pytest.approx(1 - (1 + 0.5) / 2)
    assert distance(frozenset({one, two}), frozenset({three})) == 1.0


def test_a_refuted_order_waits_for_the_other_batch():
    late = [member(n, induction(formed=450.0, later=150.0), loss=0.03) for n in range(8)]
    found = judged("emergence", late)["R8"]
    assert found.verdict is Verdict.INCONCLUSIVE and "a batch of 32,768" in found.words
    assert found.here is not None and found.here.verdict is Verdict.REFUTED


@pytest.mark.parametrize(("falls", "wanted"), [(300.0, 0), (80.0, 0), (40.0, 1)])
def test_r12_counts_losses_that_fall_well_before_their_first_read(falls, wanted):
    """The reads form at 150; one interval between checkpoints is 100."""
    members = [member(n, induction(), falls={1: falls, 2: 600.0}) for n in range(8)]
    found = judged("emergence", members)["R12"]
    assert found.samples == [float(wanted)] * 8
    assert found.verdict is (Verdict.REFUTED if wanted else Verdict.REPRODUCED)


def test_r12_takes_the_first_read_and_the_last_fall():
    slow = [*induction(), path(3, "first 2", "second 1", 900, 1)]
    members = [member(n, slow, falls={1: 300.0, 2: 600.0}) for n in range(8)]
    again = ([0, 10, 20, 30, 1000], [0.75, 0.4, 0.75, 0.75, 0.05])
    members = [dataclasses.replace(each, curves={**each.curves, 1: again}) for each in members]
    assert judged("emergence", members)["R12"].samples == [0.0] * 8


def test_a_member_that_diverged_is_missing():
    found = judged("circuits", [*eight(), member(8, loss=None)])
    assert found["R12"].samples[8] is None and math.isfinite(found["R4"].value)


def test_rules_are_registered_with_what_is_their_own():
    rules = register(find_study("emergence").claims(CONFIGS["emergence"]))["claims"]["R8"]["rule"]
    assert rules["readings_agree"] is True and "32,768" in rules["untried"]
    assert (
        "untried"
        not in register(find_study("emergence").claims(CONFIGS["emergence"]))["claims"]["R12"]["rule"]
    )
