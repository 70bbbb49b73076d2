"""Probes of vector tasks against plain loops, and against models whose answers are known."""

import math

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.probes import retrieval
from hopscope.probes.retrieval import held_out, measure_retrieval, predict
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.zoo.witnesses import witness

CONFIG = RetrievalConfig(chains=3, steps=2, symbol_dim=4, position="pair")


@pytest.fixture
def task():
    return RetrievalTask(CONFIG)


@pytest.fixture
def untrained(task):
    config = TransformerConfig(
        layers=1,
        heads=1,
        width=7,
        positions="carried",
        position_size=4,
        length=task.positions,
        input_kind="vectors",
        input_size=8,
        output_size=8,
        readout=task.readout,
        init="gpt2",
    )
    return Transformer.initial(config, torch.tensor([11, 13]))


def test_a_network_that_solves_the_task_is_told_so(task):
    measured = measure_retrieval(witness(CONFIG), task, 101)
    assert measured["names"] == ["step_1", "step_2"] and measured["samples"] == 101
    assert measured["loss"][0] < 0.01 and max(measured["partial"][0]) < 0.01
    assert measured["accuracy"] == [[1.0, 1.0]]


def test_an_untrained_network_is_at_its_floors(task, untrained):
    measured = measure_retrieval(untrained, task, 2003)
    for member in range(2):
        assert measured["loss"][member] == pytest.approx(1.0, abs=0.05)
        for accuracy in measured["accuracy"][member]:
            assert accuracy == pytest.approx(1 / 3, abs=0.05)


def test_measurements_are_those_of_a_plain_loop(task, untrained):
    count = 17
    batch, measured = task.evaluation(count), measure_retrieval(untrained, task, count)
    predicted = predict(untrained, batch)
    for member in range(2):
        for number in range(2):
            dims = slice(4 * number, 4 * number + 4)
            losses, hits = [], 0
            for sample in range(count):
                right = batch.targets[0, sample, :, dims]
                mine = predicted[member, sample, :, dims]
                losses.append(float((mine - right).square().mean()))
                for query in range(3):
                    distances = [float((mine[query] - right[other]).norm()) for other in range(3)]
                    hits += distances.index(min(distances)) == query
            mean = sum(losses) / count
            spread = math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (count - 1) / count)
            assert measured["partial"][member][number] == pytest.approx(mean, rel=1e-5)
            assert measured["partial_error"][member][number] == pytest.approx(spread, rel=1e-4)
            assert measured["accuracy"][member][number] == pytest.approx(hits / (3 * count), abs=1e-12)


def test_chunks_change_nothing(task, untrained):
    batch = task.evaluation(retrieval.CHUNK + 23)
    torch.testing.assert_close(predict(untrained, batch), untrained(batch.inputs).detach())


def test_curves_hold_losses_and_accuracies_of_each_member(task, untrained):
    measured = held_out(untrained, task, task.evaluation(13))
    names = {"loss", "loss_step_1", "loss_step_2", "accuracy_step_1", "accuracy_step_2"}
    assert set(measured) == {("held_out", name) for name in names}
    assert all(values.shape == (2,) for values in measured.values())


def test_numbers_of_a_record_have_none_for_what_does_not_exist():
    values = torch.tensor([[0.1, math.nan], [-math.inf, 2.0]], dtype=torch.float64)
    assert retrieval.json_numbers(values) == [[0.1, None], [None, 2.0]]
    assert retrieval.json_numbers(torch.tensor(3)) == 3.0
