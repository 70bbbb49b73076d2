"""Circuits of tasks that a user wrote: what was planted is found, what was trained is read, in the task's own words."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hopscope as hs
from hopscope.circuits.any_task import AnyTask, PartsCriterion
from hopscope.circuits.built_in_tasks import circuit_task_of, task_of
from hopscope.circuits.config import NOT_LEARNED, READ, UNEXPLAINED, ReaderConfig
from hopscope.circuits.reader import Reading, read_circuit
from hopscope.errors import UserError
from hopscope.models.patterns import MeanMap
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import TaskReference
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.zoo.permutations import planted_permutations

from .any_tasks import Lookup, Pairs, Sum, Where, lookup_model, on_device, pairs_model, sum_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK = ReaderConfig(orders=1, random_circuits=7)


def example(name: str):
    spec = importlib.util.spec_from_file_location(f"declared_example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(task, model, config=QUICK) -> Reading:
    return read_circuit(model, on_device(task), config)


def paths(reading: Reading) -> list[tuple[int, int, str, str]]:
    return [(path.layer, path.head, path.query, path.target) for path in reading.circuit.paths]


def carried(reading: Reading) -> list[list[str]]:
    return [
        [each.name for each in evidence.carries if each.rise >= reading.least_effect]
        for evidence in reading.evidence
    ]


# Planted.

PLANTED = {
    "a query finds the item with its key": (
        Lookup(),
        lookup_model,
        [(0, 1, "query", "match (item)")],
        [["item"]],
    ),
    "what follows a key is found by what stands before it": (
        Pairs(),
        pairs_model,
        [(0, 0, "value", "previous (key)"), (1, 0, "query", "answer (value)")],
        [["key"], ["value"]],
    ),
    "without roles and relations, two parts": (
        Sum(),
        sum_model,
        [(0, 0, "position 4", "position 0"), (0, 1, "position 4", "position 2")],
        [["position 0"], ["position 2"]],
    ),
    "parts of unequal size": (
        Sum(scale=0.03),
        sum_model,
        [(0, 0, "position 4", "position 0"), (0, 1, "position 4", "position 2")],
        [["position 0"], ["position 2"]],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_found_and_nothing_else(name):
    task, made, expected, brought = PLANTED[name]
    reading = read(task, made(task))
    assert reading.verdict == READ
    assert paths(reading) == expected
    assert [circuit for circuit, _ in reading.minimal] == [reading.circuit]
    assert carried(reading) == brought
    assert all(evidence.needed_for for evidence in reading.evidence)
    assert str(reading.circuit).splitlines() == [
        f"layer {layer}, head {head}: {query} → {target}" for layer, head, query, target in expected
    ]
    loss = reading.loss
    assert max(loss["full"], loss["rules"], loss["recomputed"]) < 0.01 * loss["complement"]
    assert sum(loss["random_circuits"]) / 7 > reading.threshold


def test_reads_are_in_the_order_in_which_they_build_on_each_other():
    task = Pairs()
    assert read(task, pairs_model(task)).circuit.reads == (
        (1, "value", "previous (key)"),
        (2, "query", "answer (value)"),
    )


def test_a_read_that_only_shapes_later_keys_is_seen_when_recomputed():
    task = Pairs()
    first, _ = read(task, pairs_model(task)).evidence
    assert first.removed["rules"] < 1e-3
    assert first.removed["recomputed"] > 0.2
    assert [(use.reader, use.part) for use in first.composition] == [((1, 0, 2), "K")]


def test_what_was_not_learned_is_not_asked_for():
    task = Sum()
    reading = read(task, sum_model(task, second=0.0))
    assert reading.learned == ("first", "first@third")
    assert paths(reading) == [(0, 0, "position 4", "position 0")]


class Unrelated(Lookup):
    """Nobody says which item is meant."""

    def sample(self, draws):
        return replace(super().sample(draws), relations={})


def test_a_read_that_no_word_tells_is_unexplained():
    task = Unrelated()
    reading = read(task, lookup_model(task))
    assert reading.verdict == f"{UNEXPLAINED}: no rule for layer 0, head 1: query → learned"


@pytest.mark.parametrize("task", [Lookup(), Sum()])
def test_a_model_that_never_learned_has_no_circuit(task):
    built = lookup_model(task) if isinstance(task, Lookup) else sum_model(task)
    untrained = Transformer.initial(built.config, torch.tensor([7]))
    assert (read(task, untrained).verdict, read(task, untrained).learned) == (NOT_LEARNED, ())
    untrained.parameters.flat.fill_(torch.nan)
    assert read(task, untrained).verdict == NOT_LEARNED


def test_a_threshold_below_the_model_s_own_loss():
    task = Lookup()
    with pytest.raises(UserError, match="tau: expected at least the loss of the unablated model"):
        read(task, lookup_model(task, share=0.9), QUICK.model_copy(update={"threshold": 1e-9}))


def test_groups_and_parts_of_a_built_in_task_as_anybody_could_have_written_it():
    """The planted answer to a repeat and to what is left, read from parts, groups and roles alone."""
    (plant,) = [each for each in planted_permutations() if each.name == "recall: V = 4, matching head 0"]
    reading = read(plant.task, plant.model)
    assert reading.verdict == READ
    assert reading.learned == ("loss_step_4@plain", "loss_step_4@repeat")
    assert (0, 0, "x step 4 repeat", "same_symbol (x)") in paths(reading)
    assert {head for _, head, query, _ in paths(reading) if query == "x step 4"} == {1}


# Trained.


def test_a_trained_member_of_an_example_on_vectors():
    task = example("nearest_key").NearestKey()
    model = hs.Model(layers=1, heads=1, width=32, positions="none")
    ensemble = hs.train(task, model, hs.Training(steps=600, batch_size=64, learning_rate=3e-3))
    reading = read(task, ensemble.transformer)
    assert reading.verdict == READ
    # It leaves about half of its attention on itself, where the query has no value.
    assert paths(reading) == [(0, 0, "query", "match (item) + itself")]
    assert reading.evidence[0].mean_attention > 0.9
    assert carried(reading) == [["item"]] or carried(reading) == [["item", "query"]]
    assert reading.loss["rules"] < 0.1 < 0.5 < min(reading.loss["random_circuits"])
    assert reading.loss["complement"] > 0.5


def test_a_trained_member_of_an_example_on_tokens():
    task = example("copying").Copy()
    ensemble = hs.train(task, hs.Model(width=32), hs.Training(steps=250, batch_size=64, learning_rate=3e-3))
    reading = read(task, ensemble.transformer)
    assert reading.verdict == READ
    assert paths(reading) == [(0, 0, "position 10", "source (position 7)")]
    assert "position 7" in carried(reading)[0]
    assert not {f"position {number}" for number in range(11) if number != 7} & set(carried(reading)[0])
    loss = reading.loss
    assert loss["rules"] < reading.threshold < 1.0 < loss["complement"]
    assert sum(loss["random_circuits"]) / 7 > 1.0


@pytest.mark.parametrize("later", [0, 1])
def test_weights_by_match_say_that_a_row_finds_its_own_token_and_not_another(later):
    """The attention of both hangs on symbols of row and key together; only the first is a match."""
    task, model = Where(later=later), hs.Model(layers=1, heads=1, width=32)
    ensemble = hs.train(task, model, hs.Training(steps=400, batch_size=64, learning_rate=3e-3))
    reading = read(task, ensemble.transformer)
    assert reading.loss["full"] < 0.05
    (path,) = reading.circuit.paths
    if later:
        assert reading.verdict == f"{UNEXPLAINED}: no rule for layer 0, head 0: position 5 → learned"
    else:
        assert (reading.verdict, path.rule) == (READ, MeanMap(by="match"))
        assert reading.loss["rules"] < reading.threshold < 1.0 < min(reading.loss["random_circuits"])


# The setting.


def test_each_use_has_samples_of_its_own():
    setting = AnyTask(on_device(Lookup()))
    uses = ("search", "report", "watch", "check")
    batches = [setting.batch(3, 5, use).inputs for use in uses]
    assert all(not torch.equal(one, other) for at, one in enumerate(batches) for other in batches[at + 1 :])
    assert torch.equal(setting.batch(3, 5, "watch").inputs, batches[2])
    assert torch.equal(setting.batch(3, 7, "watch").inputs[:, :5], batches[2])
    assert not torch.equal(setting.batch(4, 5, "watch").inputs, batches[2])


def test_long_inputs_are_read_on_fewer_samples():
    class Long(Lookup):
        items: int = 4095

    assert AnyTask(on_device(Lookup())).samples == 256
    assert AnyTask(on_device(Lookup(items=90))).samples == 2**20 // 91**2
    assert AnyTask(on_device(Long())).samples == 16


class Strict(Lookup):
    """With a criterion of its own: a tenth of what others may lose."""

    def faithfulness_criterion(self, predictions, batch, threshold):
        found = PartsCriterion.of_task(on_device(self), predictions, batch, threshold)
        return replace(found, threshold=found.full + 0.1 * (found.threshold - found.full))


class Careless(Lookup):
    def faithfulness_criterion(self, predictions, batch, threshold):
        return {"loss": 0.3}


def test_a_task_may_bring_a_criterion_of_its_own():
    usual, strict = (read(task, lookup_model(task)) for task in (Lookup(), Strict()))
    assert usual.threshold == pytest.approx(0.05 * 0.8)
    assert strict.threshold == pytest.approx(0.1 * 0.05 * 0.8, rel=0.01)
    assert strict.circuit == usual.circuit
    with pytest.raises(
        UserError,
        match=r"^Careless\.faithfulness_criterion: expected what .*FaithfulnessCriterion has, found a dict without nam",
    ):
        read(Careless(), lookup_model(Careless()))


def test_which_setting_a_task_has():
    built_in = hs.tasks.Retrieval(steps=1)
    assert isinstance(circuit_task_of(on_device(built_in)), AnyTask)
    assert isinstance(task_of(built_in), RetrievalTask)
    reference = TaskReference(reference="Lookup", source="0", shape=Lookup().shape())
    with pytest.raises(UserError, match=r"task Lookup: expected the task itself .* open the run with"):
        task_of(reference)
