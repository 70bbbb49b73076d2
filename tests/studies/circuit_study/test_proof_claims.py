"""Claims R4 to R8 and R12 by the rules of docs/protocols.md, on members whose answers are known."""

import dataclasses
import math
from functools import partial

import pytest

from hopscope.circuits.rereading import circuits_of, distance
from hopscope.claims import Verdict
from hopscope.claims.registration import register, registered_rule
from hopscope.runs.evidence import Row
from hopscope.studies import find_study
from hopscope.studies.circuit_study.proof import (
    PROOFS,
    Compared,
    proofs_name,
    reread_rows,
)
from hopscope.studies.circuits.config import PRESETS as CIRCUITS
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.emergence.config import PRESETS as EMERGENCE
from hopscope.studies.emergence.config import EmergenceConfig

from . import made_up
from .made_up import induction, last_look, member, path, unseen_of

SMALL = {"steps": 2, "crossed": 0, "checkpoint_every": 100}
IDS = {"circuits": ["R4", "R5", "R6", "R7", "R12"], "emergence": ["R8", "R12"]}
CONFIGS = {
    "circuits": CIRCUITS["paper"].model_copy(update={"steps": 2, "checkpoint_every": 100}),
    "emergence": EMERGENCE["paper"].model_copy(update=SMALL),
}


@pytest.fixture(autouse=True)
def at_scale(monkeypatch):
    """Nothing departs from the paper but for D, so that members of two steps can be judged."""
    monkeypatch.setattr(CircuitsConfig, "paper", {})
    monkeypatch.setattr(EmergenceConfig, "paper", {})


def judged(study, members, config=None, **given):
    return made_up.judged(study, members, config or CONFIGS[study], **given)


def four_heads(formed=150.0, later=450.0):
    """One head more than a chain of two steps needs."""
    return [*induction(formed, later), path(3, "query", "second 2", later, 2, rules=0.3)]


def eight(**changes):
    return [member(n, four_heads(), **changes) for n in range(8)]


@pytest.mark.parametrize(
    ("study", "ids"), [("circuits", ["R4", "R5", "R6", "R7", "R12"]), ("emergence", ["R8", "R12"])]
)
def test_every_preset_is_judged_and_registered_by_the_same_rules(study, ids):
    assert list(judged(study, eight())) == ids
    registered = [register(find_study(study).claims(config)) for config in (CIRCUITS | EMERGENCE).values()]
    own = ["N10", "N14", "N17"] if study == "circuits" else []
    assert list(registered[0]["claims"]) == [*ids, *own]
    assert all(each == registered[0] for each in registered)


@pytest.mark.parametrize("study", ["circuits", "emergence"])
def test_below_the_papers_scale_nothing_is_settled_and_the_words_say_what_is_seen(study, monkeypatch):
    config = CONFIGS[study]
    monkeypatch.setattr(type(config), "paper", {"layers": 7})
    for claim in judged(study, [member(n, four_heads(), loss=0.03) for n in range(8)]).values():
        assert claim.verdict is Verdict.INCONCLUSIVE
        assert f"layers {config.layers}, not 7" in claim.words
        assert claim.here is not None and claim.here.verdict in (Verdict.REPRODUCED, Verdict.REFUTED)


def test_what_both_ways_agree_on_is_reproduced():
    found = judged("circuits", eight())
    assert {name: each.here.verdict for name, each in found.items()} == dict.fromkeys(
        ("R4", "R5", "R6", "R7", "R12"), Verdict.REPRODUCED
    )
    # What is said of the paper's models holds by one completion, and what is said in general does not.
    assert {name for name, each in found.items() if each.verdict is not Verdict.REPRODUCED} == {"R12"}
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
    assert (found.verdict, found.here.verdict) == (Verdict.INCONCLUSIVE, Verdict.REFUTED)
    assert found.value["loss under the rules"] == pytest.approx(0.09)


def test_circuits_differ_only_beyond_what_two_readings_of_a_member_differ():
    """The earlier rule compared seeds alone, and would have called it reproduced."""
    same = judged("circuits", eight())["R6"]
    assert same.value["distance between seeds beyond that between readings"] == 1.0
    other = judged("circuits", eight(), again=100)["R6"]
    assert other.value["distance between seeds beyond that between readings"] == 0.0
    assert other.here.verdict is Verdict.REFUTED


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
    found = judged("circuits", members)["R12"]
    assert found.samples == [float(wanted)] * 8
    assert found.here.verdict is (Verdict.REFUTED if wanted else Verdict.REPRODUCED)
    # One completion refutes what is said in general, and does not reproduce it.
    assert found.verdict is (Verdict.REFUTED if wanted else Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(("study", "id_"), [("circuits", "R12"), ("emergence", "R12"), ("emergence", "R8")])
def test_a_member_whose_first_checkpoints_are_gone_says_nothing_of_order(study, id_):
    whole = judged(study, eight(loss=0.03))[id_]
    members = eight(loss=0.03)
    found = judged(study, [*members[:7], last_look(members[7])])[id_]
    assert whole.here.verdict is Verdict.REPRODUCED and found.here.verdict is Verdict.INCONCLUSIVE
    samples = found.samples if id_ == "R12" else found.samples["hops out of order"]
    assert samples == [0.0] * 7 + [None]


def test_r12_takes_the_first_read_and_the_last_fall():
    slow = [*induction(), path(3, "first 2", "second 1", 900, 1)]
    members = [member(n, slow, falls={1: 300.0, 2: 600.0}) for n in range(8)]
    again = ([0, 10, 20, 30, 1000], [0.75, 0.4, 0.75, 0.75, 0.05])
    members = [dataclasses.replace(each, curves={**each.curves, 1: again}) for each in members]
    found = judged("emergence", members)["R12"]
    assert found.samples == [0.0] * 8 and found.verdict is Verdict.INCONCLUSIVE
    verdicts = {name: each.verdict for name, each in found.readings.items()}
    assert verdicts == {"the loss falls for good": "reproduced", "the loss first falls": "refuted"}


def test_a_member_that_diverged_is_missing():
    found = judged("circuits", [*eight(), member(8, loss=None)])
    assert found["R12"].samples[8] is None and math.isfinite(found["R4"].value["mean loss"])


def test_rules_are_registered_with_what_is_their_own():
    rules = registered_rule(register(find_study("emergence").claims(CONFIGS["emergence"])), "R8")
    assert rules["readings_agree"] is True and "32,768" in rules["untried"]
    assert (
        "32,768"
        in registered_rule(register(find_study("emergence").claims(CONFIGS["emergence"])), "R12")["untried"]
    )
    assert "untried" not in registered_rule(
        register(find_study("circuits").claims(CONFIGS["circuits"])), "R12"
    )


def test_the_distance_of_several_readings_is_the_mean_of_all_pairs():
    """Of four readings three are equal, and one has a second circuit: three pairs of six are a quarter apart."""
    add = partial(Row, 3)
    one, other = ({"paths": [{"layer": 0, "head": 0, "query": "a", "target": t, "rule": None}]} for t in "bc")
    whole, half = circuits_of([one]), circuits_of([one, other])
    rows = reread_rows({3: Compared(add, "f", dict.fromkeys(PROOFS, (whole, whole, half, whole)))})
    found = {row.metric: row.value for row in rows}
    assert found["readings"] == 4
    assert (
        found["reread_distance"] == found["rules_reread_distance"] == 3 * distance(whole, half) / 6 == 0.125
    )


def test_a_file_of_proofs_says_how_often_its_member_was_read():
    """Two studies of one unit, of which one reads again, do not take each other's files."""
    assert len({proofs_name(7, again) for again in range(4)}) == 4
