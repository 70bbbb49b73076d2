"""Samples, held-out sets, roles and relations equal to the bit; parts and floors equal."""

import pytest
import torch

from hopscope.studies.loading import BUILT_IN, find_study
from hopscope.tasks import Conditional
from hopscope.tasks import Equations as OldEquations
from hopscope.tasks import Permutation as OldPermutation
from hopscope.tasks import Retrieval as OldRetrieval
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.draws import Draws as OldDraws
from hopscope_next.tasks import Equations, Permutation, Retrieval, check_task, draw, held_out, losses

SEEDS = torch.tensor([1, 2, 5])
STEPS = range(2, 5)
NODES = [node.model_dump() for node in Conditional().nodes]
PATH = [{"name": "a"}, {"name": "b", "parents": ["a"]}, {"name": "c", "parents": ["b"]}]
SHARES = {"shares": (0.2, 0.3, 0.5)}

RETRIEVALS = [
    {}, {"position": "pair"}, {"steps": 4, "order": "random"}, {"targets": "last", "schedule": ((3, "ic"),)},
    {**SHARES}, {**SHARES, "emphasis": "one"}, {**SHARES, "emphasis": "subsets"}, {"targets": (1, 3), "split_seed": 7},
    {"frequencies": "geometric", "symbol_dim": 6, "chains": 9, "order": (2, 1, 3)},
]  # fmt: skip
GRAPHS = [
    {"nodes": NODES}, {"nodes": NODES, "order": "random", "targets": "last", "chains": 3}, {"nodes": PATH},
    {"nodes": NODES, "order": ("y", "z", "x"), "position": "pair", "chains": 2},
]  # fmt: skip
PERMUTATIONS = [
    {}, {"repeat_ratio": 0.3}, {"values": 9, "repeat_ratio": 1.0}, {"values": 3, "held_out_share": 0.5}, {"values": 12},
    {"values": 6, "repeat_ratio": 0.5, "repeat_slots": (3, 5), "split_seed": 11},
]  # fmt: skip
EQUATIONS = [
    {},
    {"depths": (1, 3), "mixture": "zipf", "repeated": False, "asked": "last", "lines": "paper"},
    {"chains": 3, "depths": (2,), "split_seed": 5},
    {"chains": 2, "depths": (1, 2, 4), "mixture": (1.0, 0.0, 3.0), "held_out_share": 0.5},
]
PAIRS = [
    *((Equations(**fields), OldEquations(**fields)) for fields in EQUATIONS),
    *((Retrieval(**fields), OldRetrieval(**fields)) for fields in RETRIEVALS),
    *((Retrieval(**fields), Conditional(**fields)) for fields in GRAPHS),
    *((Permutation(**fields), OldPermutation(**fields)) for fields in PERMUTATIONS),
]


def of_presets():
    """Tasks of the presets of all built-in studies, each once, in both houses."""
    found = {}
    for name in BUILT_IN:
        program = find_study(name)
        for preset in program.presets:
            for job in program.jobs(program.configured(preset, {})):
                fields = job.task.model_dump()
                kind = {"retrieval": Retrieval, "conditional": Retrieval, "permutation": Permutation}
                kind["equations"] = Equations
                if fields.get("kind") in kind:
                    key = repr(sorted(fields.items()))
                    found[key] = kind[fields.pop("kind")], fields, job.task
    for kind, fields, old in found.values():
        pool = fields.pop("pool", None)
        yield kind(**{name: value for name, value in fields.items() if name in kind.model_fields}), old, pool


def samples(task, use):
    return task.sample(OldDraws.of(SEEDS, use, STEPS, 7))


def equal(new, old):
    assert torch.equal(new.inputs, old.inputs) and torch.equal(new.targets, old.targets)
    assert (new.weights is None) == (old.weights is None)
    assert new.weights is None or torch.equal(new.weights, old.weights)
    for kind in ("roles", "relations", "groups"):
        ours, theirs = getattr(new, kind), getattr(old, kind)
        assert set(ours) == set(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("task", "old"), PAIRS, ids=lambda task: repr(task)[:60])
def test_samples_parts_and_floors(task, old):
    check_task(task)
    assert task.shape().model_dump() == old.shape().model_dump()
    assert dict(task.floors()) == dict(old.floors())
    for use in ("train", "held-out", "probe", "circuit"):
        equal(draw(task, SEEDS, use, STEPS, 7), samples(old, use))
    step = torch.tensor(3)
    equal(
        draw(task, SEEDS, "train", step, 5, start=2),
        old.sample(OldDraws.of(SEEDS, "train", step, 5, start=2)),
    )
    device = TaskOnDevice(old)
    equal(held_out(task, 11), device.evaluation(11))
    batch, theirs = draw(task, SEEDS, "train", 3, 11), old.sample(OldDraws.of(SEEDS, "train", 3, 11))
    shape = (*batch.targets.shape[:3], task.shape().output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    found, expected = losses(task, predictions, batch), device.losses(predictions, theirs)
    assert set(found) == set(expected)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], equal_nan=True)


def test_a_finite_pool():
    old = OldRetrieval(pool=17).on().sample(SEEDS, "train", 3, 11)
    equal(draw(Retrieval(), SEEDS, "train", 3, 11, examples=17), old)


@pytest.mark.parametrize("data", ["plain", "repeats"])
@pytest.mark.parametrize("limit", [50, 50_000])
def test_listed_sequences(data, limit):
    task, old = Permutation(repeat_ratio=0.3), OldPermutation(repeat_ratio=0.3).on()
    for held, split in ((True, "held_out"), (False, "train")):
        equal(
            task.listed(data, held_out=held, limit=limit).plain(),
            old.evaluation(data, split, limit=limit).plain(),
        )


def test_all_presets():
    checked = 0
    for task, old, pool in of_presets():
        new = draw(task, SEEDS, "train", 3, 5, examples=pool)
        equal(new, old.sample(OldDraws.of(SEEDS, "train", 3, 5)))
        equal(held_out(task, 5), TaskOnDevice(old).evaluation(5))
        checked += 1
    assert checked > 50


@pytest.mark.parametrize("familiar", [False, True])
def test_questions_of_a_depth(familiar):
    task, old = Equations(depths=(1, 2, 3)), OldEquations(depths=(1, 2, 3)).on()
    theirs = old.questions(0, "evaluate", 2, 11, 2, familiar=familiar)
    equal(task.questions(11, 2, familiar=familiar, step=2), theirs)
