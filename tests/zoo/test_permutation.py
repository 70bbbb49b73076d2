"""Permutation models whose circuit was built: they solve the task, and the reader finds what was planted, no more."""

from functools import cache
from pathlib import Path

import pytest
import torch
from tests.circuits.plain import predictions

from hopscope.circuits.built_in_tasks import SKILLS, PermutationCircuits, PermutationSkills
from hopscope.circuits.config import NOT_LEARNED, READ, ReaderConfig
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.reader import Reading, read_circuit
from hopscope.models.patterns import History, Identity, Learned, MeanMap, Related, Uniform, said
from hopscope.models.transformer import Transformer
from hopscope.tasks.permutation import PermutationTask
from hopscope.zoo.permutations import PlantedPermutation, Read, planted_permutations

QUICK = ReaderConfig(samples=64, validation=128, orders=1, random_circuits=2)


@cache
def suite() -> tuple[PlantedPermutation, ...]:
    return tuple(planted_permutations())


def named(name: str) -> PlantedPermutation:
    (plant,) = [plant for plant in suite() if plant.name == name]
    return plant


@cache
def reading(name: str) -> Reading:
    plant = named(name)
    return read_circuit(plant.model, PermutationTask(plant.task), QUICK)


def execution(plant: PlantedPermutation, samples: int) -> Execution:
    setting = PermutationCircuits(PermutationTask(plant.task))
    batch = setting.batch(3, samples, "search")
    return Execution(plant.model, Grammar(batch, causal=True, words=setting.words))


def reads(found: Reading) -> list[frozenset[Read]]:
    return [
        frozenset(
            Read(path.layer, path.head, path.query, said(path.rule), path.target) for path in circuit.paths
        )
        for circuit, _ in found.minimal
    ]


def check(plant: PlantedPermutation, found: Reading) -> None:
    assert found.learned == (SKILLS if plant.task.repeat_ratio else SKILLS[:1]), plant.name
    assert found.verdict == READ, plant.name
    assert set(reads(found)) == set(plant.minimal), plant.name
    assert found.loss["rules"] - found.loss["full"] < 1e-3 > found.loss["recomputed"] - found.loss["full"]
    assert min(found.loss["complement"], *found.loss["random_circuits"]) > found.loss["full"] + 0.5


@pytest.mark.parametrize("name", [plant.name for plant in suite() if plant.task.values == 4])
def test_what_was_planted_is_found(name):
    check(named(name), reading(name))


@pytest.mark.soak
@pytest.mark.parametrize("name", [plant.name for plant in suite() if plant.task.values == 5])
def test_what_was_planted_for_five_values_is_found(name):
    check(named(name), read_circuit(named(name).model, PermutationTask(named(name).task), ReaderConfig()))


def test_the_suite_has_every_kind():
    documentation = Path(__file__).resolve().parents[2] / "docs" / "circuits.md"
    assert f"{len(suite())} models whose weights were set by hand" in documentation.read_text(
        encoding="utf-8"
    )
    assert len({plant.name for plant in suite()}) == len(suite())
    rules = {read.rule for plant in suite() for circuit in plant.minimal for read in circuit}
    assert rules == {
        "previous",
        "same_symbol",
        "over_role",
        "history",
        "history by symbol",
        "history by match",
    }
    assert sum(len(plant.minimal) > 1 for plant in suite()) == 2


@pytest.mark.parametrize("change", ["missing", "extra", "other rule"])
def test_a_wrong_truth_is_noticed(change):
    plant = named("recall: V = 4, matching head 0")
    one, *rest = sorted(plant.minimal[0])
    extra = Read(0, 0, "x 3", "previous", "y 2")
    wrong = {
        "missing": rest,
        "extra": [one, extra, *rest],
        "other rule": [one._replace(rule="identity"), *rest],
    }[change]
    false = PlantedPermutation(plant.name, plant.model, plant.task, (frozenset(wrong),))
    with pytest.raises(AssertionError):
        check(false, reading(plant.name))


# The models are what they are said to be.


@pytest.mark.parametrize("name", [plant.name for plant in suite()])
def test_a_plant_answers_like_the_ideal_observer(name):
    """On held-out mappings: the loss is ln(V!)/V without repeats, and both skills are perfect."""
    plant = named(name)
    setting = PermutationCircuits(PermutationTask(plant.task))
    batch = setting.batch(0, 64, "report")
    found = plant.model(batch.inputs)
    plain = (batch.roles["repeat"] == 0).all(-1)[0]
    loss = setting.task.losses(found[:, plain], batch.take(plain))["loss"]
    values = plant.task.values
    assert float(loss) == pytest.approx(float(torch.arange(1.0, values + 1).log().mean()), abs=1e-3)
    assert PermutationSkills().accuracy("elimination", found, batch) == 1.0
    assert PermutationSkills().accuracy("recall", found, batch) == (1.0 if plant.task.repeat_ratio else 0.0)


def test_decoys_attend_as_sharply_and_write_as_much():
    plant = named("decoys: V = 4")
    found = execution(plant, 32)
    heads = plant.model.blocks[0].heads_under(found.clean.streams[0], found.patterns[0])[0]
    repeat, plain = (
        number
        for number, roles in enumerate(found.grammar.roles)
        if roles["step"] == 4 and roles["kind"] == 0
    )
    repeat, plain = sorted((repeat, plain), key=lambda role: -found.grammar.roles[role]["repeat"])
    for decoy, rule, role in ((0, "previous", plain), (3, "same_symbol", repeat)):
        rows = found.grammar.rows[role]
        wanted = found.grammar.pattern(Related(relation=rule))[rows]
        assert float((found.patterns[0][0, :, decoy][rows] * wanted).sum(-1).mean()) > 0.9
        own, true = (heads[:, head][rows].norm(dim=-1).mean() for head in (decoy, 1))
        assert float(own) > 0.5 * float(true) > 0.1


# What flows.


def carried(found: Reading, query: str, rule: str) -> dict:
    (evidence,) = [
        evidence
        for path, evidence in zip(found.circuit.paths, found.evidence, strict=True)
        if (path.query, said(path.rule)) == (query, rule)
    ]
    return {each.name: each for each in evidence.carries}


def test_the_pointer_brings_the_position_of_x_and_the_history_the_y():
    found = reading("recall: V = 4, matching head 1")
    pointer = carried(found, "x 4 repeat", "same_symbol")
    # The answer becomes the y of the pair whose position code was handed on.
    assert (pointer["x position"].kept, pointer["x position"].follows) == (0.0, 1.0)
    assert pointer["x position"].rise > 1.0
    for name in ("x", "y", "y position"):
        assert abs(pointer[name].rise) < 1e-3
    history = carried(found, "x 4", "history")
    assert (history["y"].kept, history["y"].follows) == (0.0, 1.0)
    assert history["y"].rise > 1.0
    for name in ("x", "x position", "y position"):
        assert abs(history[name].rise) < 1e-3
    assert carried(found, "x 4 repeat", "history")["y"].follows == 1.0


def test_every_path_is_used_by_the_readout_and_by_nothing_else():
    found = reading("recall: V = 4, matching head 0")
    for evidence in found.evidence:
        (use,) = evidence.composition
        assert (use.reader, use.part) == (None, None)
        # One layer: to take a path away and to hide it from the readout are the same.
        assert use.rise == pytest.approx(evidence.removed["recomputed"] - found.loss["recomputed"], abs=1e-4)
        assert min(evidence.removed.values()) > found.loss["full"] + 0.1
        assert evidence.mean_attention > 0.99


# Two implementations agree.


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
def test_passes_under_rules_equal_plain_loops(mode):
    """Of tokens, after-norms, an MLP, a causal mask, several heads, and every rule with a head's mean weights."""
    plant = named("weights: V = 4")
    found = execution(plant, 7)
    every = [
        History(keys={"kind": 1}), MeanMap(by="symbol"), History(keys={"kind": 1}, by="symbol"), MeanMap(),
        Identity(), Uniform(), Learned(), Related(relation="previous"), MeanMap(by="match"),
        History(keys={"kind": 0}, by="match"), History(keys={"kind": 1}, by="match"),
    ]  # fmt: skip
    rules = {slot: every[number % len(every)] for number, slot in enumerate(found.slots)}
    assert len({rule.model_dump_json() for rule in rules.values()}) >= 7
    fast = found.run(found.assigned(found.untouched(), rules), mode).predictions[0]
    slow = predictions(plant.model.member(0), found.grammar.batch, found.grammar.roles, rules, mode)
    assert torch.allclose(fast, slow, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(fast, found.clean.predictions[0], atol=1e-2)


def test_a_model_that_never_learned_has_no_circuit():
    plant = named("recall: V = 4, matching head 0")
    model = Transformer.initial(plant.model.config, torch.tensor([7]))
    found = read_circuit(model, PermutationTask(plant.task), QUICK)
    assert (found.verdict, found.learned, found.circuit.paths) == (NOT_LEARNED, (), ())


def test_a_skill_that_was_not_learned_is_not_asked_for():
    """A model that eliminates only, read on a task with repeats."""
    plant = named("elimination: V = 4, 1 heads")
    task = PermutationTask(plant.task.model_copy(update={"repeat_ratio": 0.3}))
    found = read_circuit(plant.model, task, QUICK)
    assert (found.verdict, found.learned) == (READ, ("elimination",))
    assert set(reads(found)) == set(plant.minimal)
