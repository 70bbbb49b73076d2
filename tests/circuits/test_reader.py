"""The reader finds what was planted: all of it, nothing else, every way that there is, and says where it cannot."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from tests.zoo.suites import suite

from hopscope.circuits import circuit as circuits
from hopscope.circuits.built_in_tasks import VectorCircuits
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import NOT_LEARNED, READ, UNEXPLAINED
from hopscope.circuits.execution import Execution
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.reader import ReaderConfig, Reading, read_circuit
from hopscope.errors import UserError
from hopscope.models.config import TransformerConfig
from hopscope.models.patterns import MeanMap, OverRole
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.zoo.planted import Planted

QUICK = ReaderConfig(samples=16, validation=32, orders=1, random_circuits=2)


SMALL = 60
"""Positions times layers times heads of a model that is read in a moment."""


def families() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, plant in enumerate(suite()):
        found.setdefault(plant.name.partition(":")[0].partition(",")[0].split()[0], []).append(number)
    return found


def quick_ones() -> list[int]:
    """Of every family the one that is read fastest (short sequences, few heads) and a second small one; one uneven."""

    def size(number: int) -> int:
        plant = suite()[number]
        return plant.task.positions * plant.model.config.layers * plant.model.config.heads

    chosen = []
    for members in families().values():
        first, second, *_ = sorted(members, key=size)
        chosen += [first, second] if size(second) <= SMALL else [first]
    uneven = [number for number, plant in enumerate(suite()) if plant.uneven]
    return sorted({*chosen, min(uneven, key=size)})


def grammar_of(plant: Planted, samples: int = 3) -> Grammar:
    task = RetrievalTask(plant.task)
    batch = task.sample(torch.tensor([5]), "test", 0, samples)
    return Grammar(batch, causal=plant.model.config.causal, words=task.role_values)


def readable(plant: Planted) -> bool:
    """Whether the reader's grammar, which has unequal shares, describes the mechanism."""
    return plant.explained or plant.uneven


def truths(plant: Planted) -> list[set[tuple[int, int, str, str | None]]]:
    """Reads of every minimal circuit; rows that must read themselves are outside of a circuit."""
    words, last = grammar_of(plant).words, plant.task.steps
    uneven = f"second {last} + first {last}"
    return [
        {
            (read.layer, read.head, words(read.rows), words(read.target) if read.target else uneven)
            for read in circuit
            if read.target != read.rows
        }
        for circuit in plant.minimal
    ]


def reads(circuit: Circuit) -> set[tuple[int, int, str, str | None]]:
    return {(path.layer, path.head, path.query, path.target) for path in circuit.paths}


def check(plant: Planted, reading: Reading) -> None:
    if not readable(plant):
        assert reading.verdict.startswith(UNEXPLAINED), plant.name
        return
    assert reading.verdict == READ, plant.name
    expected, found = truths(plant), [reads(circuit) for circuit, _ in reading.minimal]
    for circuit in found:
        assert circuit in expected, plant.name
    for circuit in expected:
        assert circuit in found, plant.name
    assert reads(reading.circuit) in expected
    assert reading.loss["rules"] < 0.05
    assert reading.loss["complement"] > 0.2


@cache
def quick_reading(number: int) -> Reading:
    plant = suite()[number]
    return read_circuit(plant.model, RetrievalTask(plant.task), QUICK)


@pytest.mark.parametrize("number", quick_ones())
def test_what_was_planted_is_found(number):
    check(suite()[number], quick_reading(number))


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(suite())))
def test_everything_that_was_planted_is_found(number):
    plant = suite()[number]
    check(plant, read_circuit(plant.model, RetrievalTask(plant.task), QUICK))


@pytest.mark.parametrize("number", quick_ones())
def test_every_path_of_an_only_circuit_is_needed_for_something(number):
    plant, reading = suite()[number], quick_reading(number)
    if not plant.explained or len(plant.minimal) > 1:
        return
    needed = {
        path.query: each.needed_for
        for path, each in zip(reading.circuit.paths, reading.evidence, strict=True)
    }
    assert None not in needed.values()
    if plant.task.steps == 1:
        assert set(needed.values()) == {"step_1"}


def test_what_is_lost_is_judged_against_the_plateau():
    task = RetrievalTask(RetrievalConfig(steps=2, chains=4))
    batch = task.evaluation(64)
    exact = batch.targets.clone()
    goal = VectorCircuits(task).criterion(exact, batch, None)
    near, far = exact.clone(), exact.clone()
    near[..., 4:] += 0.55  # a squared error of 0.30: less than half of the plateau, 0.75
    far[..., 4:] += 0.65
    assert goal.names == ("step_1", "step_2")
    assert goal.lost(near, exact, batch) == []
    assert goal.lost(far, exact, batch) == ["step_2"]
    assert goal.lost(torch.zeros_like(exact), exact, batch) == ["step_1", "step_2"]
    assert goal.lost(far, near, batch) == []  # against a pass that is itself no better than this


def test_the_suite_is_large():
    assert len(suite()) >= 100
    root = Path(__file__).resolve().parents[2]
    assert f"{len(suite())} of them" in (root / "docs" / "circuits.md").read_text(encoding="utf-8")
    assert f"{len(suite())} models whose circuit was built" in (root / "README.md").read_text(
        encoding="utf-8"
    )
    assert len([plant for plant in suite() if not readable(plant)]) >= 30
    assert len([plant for plant in suite() if len(plant.minimal) > 1]) >= 10


def test_every_family_is_read_quickly_too():
    assert len(families()) == 8 < len(quick_ones())
    assert {readable(suite()[number]) for number in quick_ones()} == {True, False}
    assert any(len(suite()[number].minimal) > 1 for number in quick_ones())


# A wrong truth would be noticed.


@pytest.mark.parametrize("change", ["missing", "extra", "elsewhere"])
def test_a_wrong_truth_is_noticed(change):
    number = next(n for n in quick_ones() if suite()[n].explained and len(suite()[n].minimal) == 1)
    plant = suite()[number]
    (circuit,) = plant.minimal
    one, *rest = sorted(circuit, key=lambda read: (read.layer, read.head))
    moved = type(one)(one.layer, one.head, one.rows, {"kind": 2, "step": 0})
    wrong = {"missing": rest, "extra": [one, moved, *rest], "elsewhere": [moved, *rest]}[change]
    false = Planted(plant.name, plant.model, plant.task, (frozenset(wrong),), plant.decoys, True, False)
    with pytest.raises(AssertionError):
        check(false, quick_reading(number))


# Circuits are values.


def test_a_circuit_is_a_value():
    number = next(n for n in quick_ones() if suite()[n].explained)
    plant, reading = suite()[number], quick_reading(number)
    again = Circuit.model_validate_json(reading.circuit.model_dump_json())
    assert again == reading.circuit
    assert hash(again) == hash(reading.circuit)
    assert str(again).splitlines() == [str(path) for path in again.paths]
    execution = Execution(plant.model, grammar_of(plant))
    passed = {mode: again.run(execution, mode).predictions for mode in ("rules", "recomputed")}
    for predictions in passed.values():
        assert torch.allclose(predictions, execution.clean.predictions, atol=0.05)
    fewer = again.model_copy(update={"paths": again.paths[1:]})
    assert fewer != again
    assert not torch.allclose(
        fewer.run(execution, "recomputed").predictions, execution.clean.predictions, atol=0.5
    )


def test_equal_reads_in_other_places_are_equal_circuits():
    """The same recipe in models with other heads, idle layers and decoys."""
    doublings = sorted(families()["doubling"], key=lambda n: n not in quick_ones())
    same = [n for n in doublings if suite()[n].task.steps == 2][:2]
    circuits = [quick_reading(number).circuit for number in same]
    assert len({circuit.model_dump_json() for circuit in circuits}) == len(circuits) == 2
    assert len(set(circuits)) == 1
    other = next(n for n in doublings if suite()[n].task.steps == 1)
    assert quick_reading(other).circuit not in circuits


def path(layer: int, query: str, target: str) -> circuits.Path:
    """A path of which only the words matter."""
    rule = OverRole(keys={"kind": 1})
    return circuits.Path(layer=layer, head=0, roles={"kind": 0}, rule=rule, query=query, target=target)


def test_a_read_comes_after_those_that_it_builds_on():
    mates = path(0, "second 1", "first 1"), path(1, "second 2", "first 2")
    hops = path(3, "query", "second 1"), path(4, "query", "second 2 + all first 1")
    assert Circuit(paths=(*mates, *hops)).reads == (
        (1, "second 1", "first 1"),
        (1, "second 2", "first 2"),
        (2, "query", "second 1"),
        (3, "query", "second 2 + all first 1"),
    )
    alone = Circuit(paths=(mates[1], hops[1]))
    assert alone.reads == ((1, "second 2", "first 2"), (2, "query", "second 2 + all first 1"))
    silent = path(2, "query", "").model_copy(update={"rule": MeanMap()})
    assert Circuit(paths=(mates[0], silent, hops[0])) == Circuit(paths=(mates[0], hops[0]))


# Further orders.

PERSISTENT = QUICK.model_copy(update={"orders": 0, "further_orders": 3, "most_circuits": 1})
"""Searches once, and again only if that was no success."""


def persistent(plant: Planted, stages: dict, config: ReaderConfig = PERSISTENT) -> Reading:
    return read_circuit(plant.model, RetrievalTask(plant.task), config, stages=stages)


def test_further_orders_are_tried_only_while_nothing_holds():
    found = {}
    for number in (0, next(number for number in quick_ones() if not readable(suite()[number]))):
        stages: dict = {}
        verdict = persistent(suite()[number], stages).verdict
        found[verdict.split(":")[0]] = [name for name in stages if name.startswith("order")]
    first = "order by importance"
    assert found == {READ: [first], UNEXPLAINED: [first, "order 0", "order 1", "order 2"]}


def test_a_circuit_that_does_not_hold_is_passed_over():
    """What the first search found is told to be less than the circuit."""
    whole = quick_reading(0).circuit
    less = whole.model_copy(update={"paths": whole.paths[1:]}).model_dump(mode="json")
    told = {"order by importance": less}
    assert persistent(suite()[0], dict(told)).circuit == whole
    alone = persistent(suite()[0], dict(told), PERSISTENT.model_copy(update={"further_orders": 0}))
    assert "on fresh samples" in alone.verdict or "when recomputed" in alone.verdict


def test_what_holds_is_seen_on_sequences_drawn_anew(monkeypatch):
    """Where these are told to have other answers, what suits all others is no reason to stop."""
    drawn = VectorCircuits.batch

    def batch(self, seed, samples, use):
        found = drawn(self, seed, samples, use)
        return replace(found, targets=found.targets.roll(1, 1)) if use == "check" else found

    monkeypatch.setattr(VectorCircuits, "batch", batch)
    stages: dict = {}
    assert persistent(suite()[0], stages).verdict == READ
    assert "order 2" in stages


# What cannot be read.


def untrained() -> tuple[Transformer, RetrievalTask]:
    plant = suite()[0]
    config = TransformerConfig.model_validate(plant.model.config.model_dump())
    return Transformer.initial(config, torch.tensor([7])), RetrievalTask(plant.task)


def test_a_model_that_never_learned_has_no_circuit():
    model, task = untrained()
    reading = read_circuit(model, task, QUICK)
    assert (reading.verdict, reading.circuit.paths, reading.minimal) == (NOT_LEARNED, (), ())


def test_a_threshold_below_the_model_s_own_loss():
    plant = suite()[0]
    with pytest.raises(UserError, match=r"tau: expected at least the loss of the unablated model, 0\.0"):
        read_circuit(plant.model, RetrievalTask(plant.task), QUICK.model_copy(update={"threshold": 1e-30}))


def test_finished_stages_are_used_again():
    plant = suite()[0]
    task, stages, done = RetrievalTask(plant.task), {}, []
    first = read_circuit(plant.model, task, QUICK, stages=stages, progress=done.append)
    again: list[str] = []
    second = read_circuit(plant.model, task, QUICK, stages=stages, progress=again.append)
    assert second == first
    assert again == ["validation"]
    assert set(done) == {*stages, "validation"}
