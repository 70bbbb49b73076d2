"""Both proofs of a planted circuit, and its losses on unseen sequences."""

from functools import cache

import pytest
import torch
from tests.zoo.suites import suite

from hopscope.circuits.built_in_tasks import VectorCircuits
from hopscope.circuits.config import ReaderConfig, reading_name
from hopscope.circuits.reader import read_circuit
from hopscope.circuits.record import as_json
from hopscope.studies.circuit_study.config import ChainsConfig
from hopscope.studies.circuit_study.proof import reader_of
from hopscope.studies.circuit_study.proofs import _Losses, unseen_losses
from hopscope.tasks.retrieval import RetrievalTask

QUICK = {"samples": 16, "validation": 32, "orders": 1, "random_circuits": 2}


def induction():
    """The smallest planted model whose query finds a pair by its first token, which one head moves to the second."""
    found = [
        plant for plant in suite()
        if plant.explained and plant.task.steps == 1 and len(plant.minimal) == 1 and not plant.decoys
        and len(plant.minimal[0]) == 2
    ]  # fmt: skip
    return min(found, key=lambda plant: plant.task.positions * plant.model.config.layers)


@cache
def reading(proof: str):
    plant = induction()
    return read_circuit(plant.model, RetrievalTask(plant.task), ReaderConfig(**QUICK, proof=proof))


def test_rules_alone_keep_no_head_that_only_shapes_keys():
    both = {(path.query, path.target) for path in reading("both").circuit.paths}
    rules = {(path.query, path.target) for path in reading("rules").circuit.paths}
    assert len(both) == 2 and len(rules) == 1 and rules < both
    assert reading("rules").verdict == "read"
    assert reading("rules").loss["rules"] <= reading("rules").threshold < reading("rules").loss["recomputed"]


def test_a_path_is_needed_for_what_is_lost_in_the_mode_of_the_proof():
    assert [each.needed_for for each in reading("rules").evidence] == ["step_1"]
    assert {each.needed_for for each in reading("both").evidence} == {"step_1"}


def test_readings_of_both_proofs_have_names_of_their_own():
    config = ChainsConfig(orders=3)
    usual = reading_name(2, config.reader())
    assert reading_name(2, reader_of(config, "both")) == usual
    others = {
        reading_name(2, reader_of(config, "rules")),
        reading_name(2, reader_of(config, "both", again=True)),
    }
    assert usual not in others and len(others) == 2


@pytest.mark.parametrize("proof", ["both", "rules"])
def test_losses_are_those_that_the_reader_reports_on_its_own_sequences(proof):
    plant, found = induction(), reading(proof)
    on = _Losses(plant.model, VectorCircuits(RetrievalTask(plant.task)), list(found.learned), "report", 32)
    whole = on.assigned(found.circuit)
    assert on.of(whole, "rules") == pytest.approx(found.loss["rules"], abs=1e-6)
    assert on.of(whole, "recomputed") == pytest.approx(found.loss["recomputed"], abs=1e-6)
    for path, evidence in zip(found.circuit.paths, found.evidence, strict=True):
        assert on.without(whole, [path]) == pytest.approx(evidence.removed, abs=1e-6)


def test_unseen_sequences_are_no_others():
    setting = VectorCircuits(RetrievalTask(induction().task))
    drawn = [setting.batch(0, 7, use).inputs for use in ("search", "report", "watch", "check", "unseen")]
    assert all(not torch.equal(one, other) for place, one in enumerate(drawn) for other in drawn[place + 1 :])


def test_unseen_losses_of_a_circuit_and_without_its_reads():
    plant = induction()
    setting = VectorCircuits(RetrievalTask(plant.task))
    found = unseen_losses(plant.model, setting, as_json(reading("both"), 0, 0), samples=64)
    assert found["loss"]["rules"] < 0.1 < min(each["without"]["recomputed"] for each in found["paths"])
    first = min(found["paths"], key=lambda each: each["layer"])
    assert found["without_first_head"] == first["without"]


def test_an_unread_member_counts_with_the_circuit_that_came_nearest():
    plant = induction()
    setting = VectorCircuits(RetrievalTask(plant.task))
    read = as_json(reading("both"), 0, 0)
    worse = {**read["circuit"], "paths": []}
    unread = {
        **read, "verdict": "unexplained: a reason", "circuit": worse,
        "minimal_circuits": [{"found": 1, "circuit": worse}, {"found": 1, "circuit": read["circuit"]}],
    }  # fmt: skip
    assert unseen_losses(plant.model, setting, unread, 64)["circuit"] == read["circuit"]


def test_a_member_that_learned_nothing_has_no_losses():
    plant = induction()
    setting = VectorCircuits(RetrievalTask(plant.task))
    assert unseen_losses(plant.model, setting, {"learned": []}) == {}
