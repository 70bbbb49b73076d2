"""What flows along paths equals the plain loops, on untrained models, where everything is of some use."""

import math

import pytest
import torch

from hopscope.circuits import path_patching
from hopscope.circuits.built_in_tasks import VectorCircuits, VectorCriterion
from hopscope.circuits.circuit_task import NO_ANSWER, Counterfactual

from .plain_patching import PlainFlow
from .untrained import SHAPES, TASKS, everywhere, execution

CASES = [
    *zip(TASKS, SHAPES, strict=False),
    ("chain", "some rows read out"),
    ("any order", "one layer, every third row read out"),
]


class Anywhere(VectorCriterion):
    """Squared distance to anything at all, so that any positions may be read out."""

    def loss(self, predictions, batch):
        wanted = torch.randn(predictions.shape, generator=torch.Generator().manual_seed(13))
        return float((predictions - wanted).square().mean())


def both(task: str, shape: str, seed: int = 11):
    """What is tested, the plain loops, and the criterion."""
    found = execution(task, shape, strength=3.0)
    rules = everywhere(found, seed)
    goal = Anywhere(TASKS[task](), {"anything": 1.0}, threshold=math.inf)
    fast = path_patching.PathPatching(found, goal, found.assigned(found.untouched(), rules))
    batch, module = found.grammar.batch, found.model.member(0)
    return (
        fast,
        PlainFlow(module, batch, found.grammar.roles, rules),
        lambda predictions: goal.loss(predictions, batch),
    )


@pytest.mark.parametrize(("task", "shape"), CASES)
def test_what_paths_carry(task, shape):
    fast, slow, loss = both(task, shape)
    setting = VectorCircuits(TASKS[task]())
    exchanges = list(setting.counterfactuals(fast.execution.model, fast.execution.grammar.batch))
    found = fast.carries(exchanges)
    assert list(found) == fast.assignment.circuit
    for slot in fast.assignment.circuit[::3]:
        rises = [loss(slow.carried(slot, each.stream[0])) - fast.loss for each in exchanges]
        assert [each.rise for each in found[slot]] == pytest.approx(rises, abs=1e-5)
    every = [each.rise for slot in found for each in found[slot]]
    assert max(map(abs, every)) > 1e-3


@pytest.mark.parametrize(("task", "shape"), CASES)
def test_who_uses_a_path_and_how(task, shape, monkeypatch):
    monkeypatch.setattr(path_patching, "least_effect", lambda _: -math.inf)
    fast, slow, loss = both(task, shape)
    circuit = fast.assignment.circuit
    chosen = [circuit[0], *circuit[5::11]]
    strengths = {None: [], "Q": [], "K": [], "V": []}
    for slot in chosen:
        found = {(use.reader, use.part): use.rise for use in fast.composition(slot)}
        readers = [reader for reader in circuit if reader[0] > slot[0]]
        assert set(found) == {(None, None), *((reader, part) for reader in readers for part in "QKV")}
        expected = {(None, None): slow.noticed_by_the_readout(slot)}
        for reader in readers[::4]:
            expected |= {(reader, part): slow.used(slot, reader, part) for part in "QKV"}
        for use, predictions in expected.items():
            assert found[use] == pytest.approx(loss(predictions) - fast.loss, abs=1e-5)
            strengths[use[1]].append(abs(found[use]))
    # Ten times what they may differ by: a wrong input would show.
    assert all(max(each) > 1e-4 for each in strengths.values() if each)


def test_the_base_is_the_circuit_alone():
    fast, slow, loss = both("chain", "post-norm")
    slot = fast.assignment.circuit[0]
    same = slow.carried(slot, torch.stack(slow.streams))
    assert torch.allclose(fast.base.predictions, same, atol=1e-5)
    assert fast.loss == pytest.approx(loss(same), abs=1e-5)


def test_answers_that_stay_and_that_follow_are_counted_at_the_rows_of_the_path():
    fast, slow, _ = both("chain", "pre-norm, MLP, not causal")
    model, batch = fast.execution.model, fast.execution.grammar.batch
    shape = batch.inputs.shape[1], len(model.config.readout_positions)
    generator = torch.Generator().manual_seed(3)
    right, follows = (torch.randint(NO_ANSWER, 5, (1, *shape), generator=generator) for _ in range(2))
    stream = model.embedded(batch.inputs.roll(1, 1))
    counted = 0
    for slot, (carried,) in fast.carries([Counterfactual("other", stream, right, follows)]).items():
        answers = slow.carried(slot, stream[0])[0].argmax(-1)
        kept, followed = [], []
        for sample in range(shape[0]):
            for place, row in enumerate(model.config.readout_positions):
                before, after = int(right[0, sample, place]), int(follows[0, sample, place])
                told = NO_ANSWER not in (before, after) and before != after
                if told and slow.at(slot, sample, slot[0], slot[1], row):
                    kept.append(int(answers[sample, place]) == before)
                    followed.append(int(answers[sample, place]) == after)
        if kept:
            counted += 1
            assert (carried.kept, carried.follows) == (
                pytest.approx(sum(kept) / len(kept)),
                pytest.approx(sum(followed) / len(kept)),
            )
        else:
            assert (carried.kept, carried.follows) == (None, None)
    assert counted > 3
