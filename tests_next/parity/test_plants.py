"""Planted models and scores of finders equal those of the first house."""

from functools import cache

import pytest
import torch

from hopscope.finders.attribution import attributed as old_attributed
from hopscope.finders.catalogue import zoo_models
from hopscope.finders.circuit_file import FoundCircuit
from hopscope.finders.edges import Patching as OldPatching
from hopscope.finders.greedy import acdc
from hopscope.finders.scores import Bench
from hopscope.tasks.config import RetrievalConfig
from hopscope.zoo.permutations import planted_permutations
from hopscope.zoo.planted import planted_models
from hopscope.zoo.witnesses import witness as old_witness
from hopscope_next.circuits.finders import Found, Patching, eap, greedy, score, true_circuits
from hopscope_next.circuits.permutation_plants import permutation_plants
from hopscope_next.circuits.plants import chain_plants, witness
from hopscope_next.tasks import Batch, Retrieval

KINDS = ("first", "second", "query")
STARTS = {"relay": "relay", "leaking relay": "leaking relay", "copies": "copies straight"}
"""How names of a family begin in the first house, where they are more than the family."""


@cache
def old_chains() -> dict[str, list]:
    found: dict[str, list] = {}
    for plant in planted_models():
        family = plant.name.partition(",")[0].partition(":")[0]
        found.setdefault("leaking relay" if "leaking" in family else family.split()[0], []).append(plant)
    return found


def words(roles: dict[str, int] | None) -> str | None:
    return roles and f"{KINDS[roles['kind']]} {roles['step']}".removesuffix(" 0")


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("steps", range(1, 9))
def test_weights_of_witnesses(steps, causal):
    ours = witness(Retrieval(steps=steps, position="pair"), causal=causal)
    old = old_witness(RetrievalConfig(steps=steps, position="pair"), mask="causal" if causal else "none")
    assert all(torch.equal(weight, old.weights[name][0]) for name, weight in ours.weights().items())


@pytest.mark.parametrize("family", ["doubling", "reflection", "walk", "relay", "leak", "leaking relay"])
def test_weights_circuits_and_decoys_of_chain_plants(family):
    ours = [plant for plant in chain_plants() if plant.family == family]
    for plant, old in zip(ours, old_chains()[family], strict=True):
        assert all(
            torch.equal(weight, old.model.weights[name][0]) for name, weight in plant.model.weights().items()
        )
        # A row that reads itself is outside of a circuit; two unequal targets are one read now.
        reads = {(read.layer, read.head, words(read.rows), words(read.target)) for read in old.minimal[0]}
        (circuit,) = plant.circuits
        expected = {read[:3] for read in reads if read[2] != read[3]}
        assert {tuple(read[:3]) for read in circuit} == expected
        assert {tuple(read[:4]) for read in circuit if "+" not in str(read.target)} <= reads
        decoys = [(each.layer, each.head, each.attends) for each in old.decoys]
        assert [(each.layer, each.head, each.rule) for each in plant.decoys] == decoys
        assert plant.explained == (old.explained or old.uneven)


@pytest.mark.parametrize("values", [4, 5])
def test_answers_and_circuits_of_permutation_plants(values):
    ours = list(permutation_plants(values))
    olds = [plant for plant in planted_permutations() if plant.task.values == values]
    for plant, old in zip(ours, olds, strict=True):
        inputs = old.task.on().sample(torch.tensor([3]), "test", 0, 200).inputs
        with torch.no_grad():
            found, expected = plant.model(inputs[0]).softmax(-1), old.model(inputs)[0].softmax(-1)
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=0)
        circuits = [{(r.layer, r.head, r.rows, r.target, r.rule) for r in circuit} for circuit in old.minimal]
        assert [set(map(tuple, circuit)) for circuit in plant.circuits] == circuits


@pytest.mark.parametrize(
    ("name", "number"), [("doubling 2", 1), ("doubling 9", 8), ("reflection 3", 32), ("walk 1", 50)]
)
def test_scores_of_finders(name, number):
    plant = next(each for each in chain_plants() if each.name == name)
    zoo = next(each for place, each in enumerate(zoo_models()) if place == number)
    model = zoo.build()
    batch = zoo.task.sample(torch.tensor([5]), "circuit", 0, 16)
    ours = Patching(plant.model, plant.task, Batch(batch.inputs, batch.targets))
    old = OldPatching(model, zoo.task, batch)
    assert (ours.full, ours.empty) == pytest.approx((old.full, old.empty), abs=1e-5)
    found = eap(plant.model, plant.task, ours.batch, [0.5, 1.0]).scores
    expected = old_attributed(old, [0.5, 1.0])
    assert list(map(str, found)) == list(map(str, expected))
    assert list(found.values()) == pytest.approx(list(expected.values()), abs=1e-5)

    bench = Bench(zoo)
    scoring = bench.patching.batch
    whole = Patching(plant.model, plant.task, Batch(scoring.inputs, scoring.targets))
    truths = true_circuits(plant, ours)
    assert [set(map(str, truth)) for truth in truths] == [set(map(str, each.edges)) for each in bench.truth]
    said = acdc(model, zoo.task, type("Budget", (), {"samples": 16, "seed": 5})())
    by_name = {str(edge): edge for edge in ours.edges}
    scores = {by_name[each.edge]: each.score for each in said}
    circuit = frozenset(by_name[each.edge] for each in said if each.in_circuit)
    assert greedy(plant.model, plant.task, ours.batch).circuit == circuit
    right, mine = (
        bench.score(FoundCircuit(model=zoo.name, edges=tuple(said))),
        score(Found(scores, circuit), whole, truths),
    )
    for measure in ("precision", "recall", "auroc", "head_precision", "head_recall", "faithfulness"):
        assert mine[measure] == pytest.approx(getattr(right, measure), abs=1e-5), measure
    # Where an ablated edge leaves two keys that nearly fit, float32 decides: scores are in the ten thousands.
    assert (mine["cpr"], mine["cmd"]) == pytest.approx((right.cpr, right.cmd), abs=1e-4)
