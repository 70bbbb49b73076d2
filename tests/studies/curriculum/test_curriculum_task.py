"""The task of the curriculum study: the retrieval problem, and queries that are written out."""

import math

import pytest
import torch

import hopscope as hs
from hopscope.studies.curriculum.task import Curriculum
from hopscope.tasks.draws import Draws

CASES = {
    "whole": {},
    "part": {"targets": (3, 1)},
    "own positions": {"own_positions": True},
    "own positions, part": {"own_positions": True, "targets": (1, 3)},
    "subsets": {"shares": (0.5, 0.25, 1.0), "emphasis": "subsets"},
    "mixed lengths": {"shares": (0.5, 0.25, 0.25), "emphasis": "one", "padded": True},
    "growing length": {"targets": (1,), "schedule": ((2, (2,)), (3, (3,))), "padded": True},
    "own positions, subsets": {"shares": (0.5, 0.25, 1.0), "emphasis": "subsets", "own_positions": True},
}


def task(**fields):
    return Curriculum(**{"steps": 3, "chains": 5, "symbol_dim": 2, **fields})


def drawn(given, count=7):
    return given.sample(Draws.of(torch.tensor([3, 11]), "train", 2, count))


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_it_keeps_the_contract(fields):
    hs.testing.check_task(task(**fields))


@pytest.mark.parametrize("fields", [CASES["whole"], CASES["part"], CASES["subsets"]])
def test_without_own_positions_it_is_the_retrieval_problem(fields):
    ours, theirs = drawn(task(**fields)), drawn(task(**fields).retrieval)
    assert torch.equal(ours.inputs, theirs.inputs) and torch.equal(ours.targets, theirs.targets)
    assert (ours.weights is None) == (theirs.weights is None)
    if ours.weights is not None:
        assert torch.equal(ours.weights, theirs.weights)


@pytest.mark.parametrize("fields", [CASES["own positions"], CASES["own positions, part"]])
def test_each_step_is_asked_for_at_a_position_of_its_own(fields):
    given = task(**fields)
    plain = drawn(given.model_copy(update={"own_positions": False}))
    ours, asked, pairs = drawn(given), len(given.asked), 2 * 3 * 5
    assert given.shape().readout == tuple(range(pairs, pairs + 5 * asked))
    assert torch.equal(ours.inputs[:, :, :pairs, :2], plain.inputs[:, :, :pairs, :2])
    for query in range(5):
        for place in range(asked):
            at = query * asked + place
            assert torch.equal(ours.inputs[:, :, pairs + at, :2], plain.inputs[:, :, pairs + query, :2])
            part = plain.targets[:, :, query, 2 * place : 2 * place + 2]
            assert torch.equal(ours.targets[:, :, at], part)
    # Codes are those of the places of a circle: both tokens of a pair share one, no two positions of queries do.
    count = pairs // 2 + 5 * asked
    for position in range(pairs + 5 * asked):
        place = position // 2 if position < pairs else position - pairs // 2
        code = [math.cos(2 * math.pi * place / count), math.sin(2 * math.pi * place / count)]
        assert ours.inputs[0, 0, position, 2:].tolist() == pytest.approx(code, abs=1e-6)


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_losses_are_those_of_a_loop(fields):
    given = task(**fields)
    batch = drawn(given)
    predictions = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0))
    squared = (predictions - batch.targets).square()
    found = given.parts(predictions, batch)
    asked = len(given.asked)
    for place, step in enumerate(given.asked):
        if given.own_positions:
            expected = torch.stack([squared[:, :, q * asked + place] for q in range(5)]).mean((0, 2, 3))
        else:
            expected = squared[..., 2 * place : 2 * place + 2].mean((1, 2, 3))
        torch.testing.assert_close(found[f"loss_step_{step}"], expected)
    weights = torch.ones(()) if batch.weights is None else batch.weights
    torch.testing.assert_close(found["loss"], (squared * weights).mean((1, 2, 3)))


def test_weights_of_a_sample_are_those_of_its_steps():
    ours = drawn(task(**CASES["own positions, subsets"]))
    plain = drawn(task(**CASES["subsets"]))
    for query in range(5):
        for place in range(3):
            given = ours.weights[:, :, query * 3 + place]
            assert torch.equal(given, plain.weights[:, :, 0, 2 * place : 2 * place + 2])


def test_a_short_sample_is_blank_beyond_what_it_asks_for():
    given = task(**CASES["mixed lengths"])
    ours, plain = drawn(given, 31), drawn(given.model_copy(update={"padded": False}), 31)
    assert torch.equal(ours.inputs[..., 2:], plain.inputs[..., 2:])  # position codes
    seen = set()
    for member in range(2):
        for sample in range(31):
            asked = 1 + int(plain.weights[member, sample, 0, ::2].argmax())
            seen.add(asked)
            for position in range(plain.inputs.shape[2]):
                step = int(plain.roles["step"][member, sample, position])
                expected = plain.inputs[member, sample, position, :2] * float(step <= asked)
                assert torch.equal(ours.inputs[member, sample, position, :2], expected)
    assert seen == {1, 2, 3}


@pytest.mark.parametrize(("step", "blank"), [(1, {2, 3}), (2, {3}), (3, set())])
def test_lengths_grow_with_training(step, blank):
    given = task(**CASES["growing length"])
    batch = given.sample(Draws.of(torch.tensor([3]), "train", step, 5))
    empty = (batch.inputs[..., :2] == 0).all(-1)
    assert set(batch.roles["step"][empty].tolist()) == blank


def test_held_out_samples_are_whole():
    for name in ("mixed lengths", "growing length"):
        batch = task(**CASES[name]).sample(Draws.of(torch.tensor([3]), "held-out", 0, 5))
        assert not (batch.inputs[..., :2] == 0).all(-1).any()
