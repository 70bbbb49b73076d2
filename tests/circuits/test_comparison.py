"""Bounds of paths and circuits of other models, against plain interventions."""

import pytest
import torch

from hopscope.circuits.built_in_tasks import circuit_task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.comparison import OTHERS, path_bounds, transferred
from hopscope.circuits.config import ReaderConfig
from hopscope.circuits.reader import read_circuit
from hopscope.errors import UserError
from hopscope.models.interventions import ReplacePattern
from hopscope.models.patterns import Uniform
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.zoo.witnesses import witness

CONFIG = RetrievalConfig(steps=2, chains=3, position="pair")
READER = ReaderConfig(orders=1, random_circuits=2, samples=37, validation=53, seed=5)


@pytest.fixture(scope="module")
def task():
    return RetrievalTask(CONFIG)


@pytest.fixture(scope="module")
def model():
    return witness(CONFIG)


@pytest.fixture(scope="module")
def circuit(model, task):
    return read_circuit(model, task, READER).circuit


def plain_loss(model, task, layer, heads, roles):
    """Mean squared error of the model whose rows of a role read uniformly in some heads; all else is its own."""
    put = circuit_task_of(task)
    batch = put.batch(READER.seed, READER.validation, "report")
    predictions = model.intervene(batch, [ReplacePattern(layer=layer, heads=heads, rows=roles, by=Uniform())])
    losses = put.task.losses(predictions, batch)
    return sum(float(losses[f"loss_step_{step}"]) for step in (1, 2)) / 2


def test_bounds_are_plain_interventions(model, task, circuit):
    found = path_bounds(model, task, circuit, READER)
    assert [each.path for each in found] == [*circuit.paths]
    inside = {(path.layer, path.head, str(path.roles)) for path in circuit.paths}
    for each in found:
        path = each.path
        assert each.removed == pytest.approx(
            plain_loss(model, task, path.layer, (path.head,), path.roles), abs=1e-5
        )
        heads = tuple(range(model.config.heads))
        assert each.layer == pytest.approx(plain_loss(model, task, path.layer, heads, path.roles), abs=1e-5)
        others = [
            plain_loss(model, task, layer, (head,), path.roles)
            for layer in range(model.config.layers)
            for head in heads
            if (layer, head, str(path.roles)) not in inside
        ]
        assert 0 < len(others) <= OTHERS
        assert sorted(each.others) == pytest.approx(sorted(others), abs=1e-5)
        assert max(each.others) < 0.05 < each.removed


def test_a_circuit_in_its_own_model_is_that_of_the_reading(model, task):
    reading = read_circuit(model, task, READER)
    found = transferred(model, task, [reading.circuit], READER)[0]
    assert (found.full, found.rules, found.recomputed) == tuple(
        reading.loss[name] for name in ("full", "rules", "recomputed")
    )


def test_a_circuit_without_a_path_reads_nothing(model, task):
    found = transferred(model, task, [Circuit(paths=())], READER)[0]
    assert found.full < 0.01 < 0.5 < min(found.rules, found.recomputed)


def test_what_does_not_fit_is_said(model, task, circuit):
    deep = Circuit(paths=(circuit.paths[0].model_copy(update={"layer": 19}),))
    with pytest.raises(UserError, match="found layer 19, head 0"):
        transferred(model, task, [deep], READER)
    with pytest.raises(UserError, match="expected a model that has learned something"):
        path_bounds(Transformer.initial(model.config, torch.tensor([3])), task, circuit, READER)
