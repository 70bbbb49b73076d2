"""Multi-query recall: samples against loops, slots as they are drawn one after another, and what place alone tells."""

from collections import Counter
from itertools import permutations

import pytest
import torch
from pydantic import ValidationError

import hopscope as hs
from hopscope.studies.recall.task import MultiQueryRecall
from hopscope.tasks.draws import Draws


def drawn(samples=7, **fields):
    task = MultiQueryRecall(**{"pairs": 5, "vocabulary": 34, **fields})
    return task, task.sample(Draws.of(torch.tensor([3, 13]), "train", 2, samples))


@pytest.mark.parametrize(
    "fields", [{}, {"pairs": 2, "vocabulary": 6}, {"pairs": 3, "vocabulary": 22, "length": 26, "power": 1.0}]
)
def test_it_keeps_the_contract(fields):
    hs.testing.check_task(MultiQueryRecall(**fields))


@pytest.mark.parametrize("length", [None, 38])
def test_every_key_comes_again_once_and_asks_for_its_value(length):
    _, batch = drawn(length=length)
    slots = (length or 20) // 2 - 5
    counts = batch.weights if length else torch.ones_like(batch.targets)
    for member in range(2):
        for sample in range(7):
            tokens = batch.inputs[member, sample].tolist()
            keys, values, queries = tokens[:10:2], tokens[1:10:2], tokens[10::2]
            assert len(set(keys)) == len(set(values)) == 5 and len(queries) == slots
            assert all(1 <= key < 17 for key in keys) and all(17 <= value < 34 for value in values)
            assert tokens[11::2] == [0] * slots
            assert sorted(filter(None, queries)) == sorted(keys)
            source = batch.relations["value"][member, sample].tolist()
            assert source[:10] == [-1] * 10 and source[11::2] == [-1] * slots
            for slot, query in enumerate(queries):
                assert bool(counts[member, sample, slot]) == (query > 0)
                if query:
                    answer = values[keys.index(query)]
                    assert batch.targets[member, sample, slot] == answer == tokens[source[10 + 2 * slot]]
                else:
                    assert source[10 + 2 * slot] == -1
    assert batch.relations["key"][0, 0].tolist() == [-1, 0, -1, 2, -1, 4, -1, 6, -1, 8] + [-1] * 2 * slots


def one_after_another(rates, pairs):
    """Probability of each sequence of slots, drawn without replacement in proportion to the rates."""
    found = {}
    for order in permutations(range(len(rates)), pairs):
        left, probability = sum(rates), 1.0
        for slot in order:
            probability *= rates[slot] / left
            left -= rates[slot]
        found[order] = probability
    return found


@pytest.mark.parametrize(("length", "power"), [(12, 0.01), (14, 0.01), (12, 1.0)])
def test_slots_are_drawn_one_after_another_by_a_power_law(length, power):
    task, batch = drawn(20_000, pairs=3, vocabulary=22, length=length, power=power)
    slots = length // 2 - 3
    expected = one_after_another([slot ** (power - 1) for slot in range(1, 1 + slots)], 3)
    pair = batch.relations["value"][..., 6::2].flatten(0, 1)  # 2 · pair + 1, or -1
    found = Counter(tuple(row.index(2 * number + 1) for number in range(3)) for row in pair.tolist())
    for order, probability in expected.items():
        assert found[order] / 40_000 == pytest.approx(probability, abs=0.012)
    best = sum(
        max(sum(p for order, p in expected.items() if order[number] == slot) for number in range(3))
        for slot in range(slots)
    )
    assert task.by_place() == pytest.approx(best / 3, abs=1e-3)
    assert task.floors()["accuracy"] == {"any value of the sample": 1 / 3, "by place alone": task.by_place()}


def test_uniform_slots_tell_nothing():
    assert MultiQueryRecall(pairs=7, power=1.0).by_place() == pytest.approx(1 / 7)
    assert MultiQueryRecall(pairs=7).by_place() > 1.5 / 7


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"pairs": 5, "length": 18}, "4 \\* pairs = 20"), ({"pairs": 5, "vocabulary": 10}, "12")],
)
def test_what_does_not_fit_is_refused(fields, words):
    with pytest.raises(ValidationError, match=words):
        MultiQueryRecall(**fields)
