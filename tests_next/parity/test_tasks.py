"""Samples, held-out sets, weights, groups, roles and relations equal to the bit; parts, scores and floors equal."""

from itertools import islice

import pytest
import torch

from hopscope.circuits import built_in_tasks as circuits
from hopscope.models.config import Model as OldModel
from hopscope.models.transformer import Transformer as OldTransformer
from hopscope.studies.loading import BUILT_IN, find_study
from hopscope.tasks import Conditional
from hopscope.tasks import Equations as OldEquations
from hopscope.tasks import Permutation as OldPermutation
from hopscope.tasks import Retrieval as OldRetrieval
from hopscope.tasks.device import TaskOnDevice
from hopscope.tasks.draws import Draws as OldDraws
from hopscope_next.language import Equations
from hopscope_next.tasks import Draws, Permutation, Retrieval, draw, held_out, losses

SEEDS = torch.tensor([1, 2, 5])
KINDS = {"retrieval": Retrieval, "conditional": Retrieval, "permutation": Permutation, "equations": Equations}
NODES = [node.model_dump() for node in Conditional().nodes]
PATH = [{"name": "a"}, {"name": "b", "parents": ["a"]}, {"name": "c", "parents": ["b"]}]
ROOTS = [{"name": "p"}, {"name": "q"}, {"name": "r", "parents": ["p", "q"]}, {"name": "s", "parents": ["r"]}]
SHARES = {"shares": (0.2, 0.3, 0.5)}

RETRIEVALS = [
    {}, {"position": "pair"}, {"steps": 4, "order": "random"}, {"targets": "last", "schedule": ((3, "ic"),)},
    {**SHARES}, {**SHARES, "emphasis": "one"}, {**SHARES, "emphasis": "subsets"}, {"targets": (1, 3), "split_seed": 7},
    {"frequencies": "geometric", "symbol_dim": 6, "chains": 9, "order": (2, 1, 3)}, {"order": "shallowest-first"},
    {"shares": (0.5, 0.5, 0.5)}, {"steps": 1, "chains": 1, "position": "pair", "order": "random"}, {"pool": 17},
    {"targets": (3,), "schedule": ((2, (1,)), (4, "last"))}, {"pool": 3, **SHARES, "emphasis": "one"},
]  # fmt: skip
GRAPHS = [
    {"nodes": NODES}, {"nodes": NODES, "order": "random", "targets": "last", "chains": 3}, {"nodes": PATH},
    {"nodes": NODES, "order": ("y", "z", "x"), "position": "pair", "chains": 2}, {"nodes": ROOTS, "chains": 3},
    {"nodes": ROOTS, "targets": ("s",), "order": "shallowest-first", "chains": 2, "pool": 5},
]  # fmt: skip
PERMUTATIONS = [
    *({"values": values} for values in range(3, 13)), {"repeat_ratio": 0.3}, {"values": 9, "repeat_ratio": 1.0},
    {"values": 3, "held_out_share": 0.5}, {"values": 6, "repeat_ratio": 0.5, "repeat_slots": (3, 5), "split_seed": 11},
    {"values": 8, "repeat_ratio": 0.7, "repeat_slots": (4, 8), "repeat_sources": (2,)},
]  # fmt: skip
EQUATIONS = [
    {}, {"depths": (1, 3), "mixture": "zipf", "repeated": False, "asked": "last", "lines": "paper"},
    {"chains": 3, "depths": (2,), "split_seed": 5}, {"depths": (1, 2, 3, 4, 5), "lines": "paper"},
    {"chains": 2, "depths": (1, 2, 4), "mixture": (1.0, 0.0, 3.0), "held_out_share": 0.9},
]  # fmt: skip


def pair(old):
    """The same task here, the old one, and the number of its examples."""
    fields = old.model_dump()
    new = KINDS[fields.pop("kind")]
    examples = fields.pop("pool", None)
    return new(**fields), old, examples


PAIRS = [
    pair(kind(**fields))
    for kind, every in (
        (OldRetrieval, RETRIEVALS), (Conditional, GRAPHS), (OldPermutation, PERMUTATIONS), (OldEquations, EQUATIONS)
    )
    for fields in every
]  # fmt: skip


def of_presets():
    """Tasks of the presets of all built-in studies, each once."""
    programs = [find_study(name) for name in BUILT_IN]
    jobs = [
        job for each in programs for preset in each.presets for job in each.jobs(each.configured(preset, {}))
    ]
    tasks = {repr(job.task): job.task for job in jobs if getattr(job.task, "kind", None) in KINDS}
    return [pair(task) for task in tasks.values()]


def equal(new, old):
    assert torch.equal(new.inputs, old.inputs) and torch.equal(new.targets, old.targets)
    assert (new.weights is None) == (old.weights is None)
    assert new.weights is None or torch.equal(new.weights, old.weights)
    for kind in ("roles", "relations", "groups"):
        ours, theirs = getattr(new, kind), getattr(old, kind)
        assert set(ours) == set(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("task", "old", "examples"), PAIRS, ids=lambda task: repr(task)[:60])
def test_everything_about_a_task(task, old, examples):
    assert task.shape().model_dump() == old.shape().model_dump()
    assert dict(task.floors()) == dict(old.floors())
    assert dict(task.words.get("roles", {})) == dict(old.words.get("roles", {}))
    # Circuits of equations are looked for on questions, which have a test of their own.
    for use in ("train", "held-out", "probe", *(() if isinstance(task, Equations) else ("circuit",))):
        for steps, start in ((range(2, 5), 0), (7, 2), (torch.tensor(3), 0)):
            expected = old.sample(OldDraws.of(SEEDS, use, steps, 7, start=start))
            equal(draw(task, SEEDS, use, steps, 7, start=start, examples=examples), expected)
    device = TaskOnDevice(old)
    equal(held_out(task, 11), device.evaluation(11))
    batch = draw(task, SEEDS, "train", 3, 11, examples=examples)
    theirs = old.sample(OldDraws.of(SEEDS, "train", 3, 11))
    shape = (*batch.targets.shape[:3], task.shape().output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    found, expected = losses(task, predictions, batch), device.losses(predictions, theirs)
    assert set(found) == set(expected)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-6, equal_nan=True)


def test_the_tasks_of_all_presets():
    tasks = of_presets()
    assert len(tasks) > 50
    for task, old, examples in tasks:
        for use, steps in (("train", range(3, 5)), ("probe", 2)):
            expected = old.sample(OldDraws.of(SEEDS, use, steps, 3))
            equal(draw(task, SEEDS, use, steps, 3, examples=examples), expected)
        equal(held_out(task, 5), TaskOnDevice(old).evaluation(5))


@pytest.mark.parametrize("data", ["plain", "repeats"])
@pytest.mark.parametrize("limit", [50, 50_000])
def test_listed_sequences(data, limit):
    task, old = Permutation(repeat_ratio=0.3), OldPermutation(repeat_ratio=0.3).on()
    for held, split in ((True, "held_out"), (False, "train")):
        assert task.listed_count(data, held) == old.evaluation_count(data, split)
        equal(task.listed(data, held, limit), old.evaluation(data, split, limit=limit))


@pytest.mark.parametrize("familiar", [False, True])
def test_questions_of_a_depth(familiar):
    task, old = Equations(depths=(1, 2, 3)), OldEquations(depths=(1, 2, 3)).on()
    theirs = old.questions(5, "circuit", 2, 11, 2, familiar=familiar)
    equal(task.questions(Draws(torch.tensor([5]), "circuit", 2, 11), 2, familiar=familiar), theirs)


READ = [
    ({}, OldRetrieval),
    ({}, Conditional),
    ({"repeat_ratio": 0.3}, OldPermutation),
    ({"depths": (1, 3)}, OldEquations),
]


class Bare(OldTransformer):
    """A model whose stream is its inputs."""

    def embedded(self, inputs):
        return inputs


@pytest.mark.parametrize(("fields", "kind"), READ)
def test_what_a_circuit_is_read_from(fields, kind):
    task, old, _ = pair(kind(**fields))
    reader = circuits.circuit_task_of(old.on())
    batch = task.sample(Draws(torch.tensor([7]), "held-out", 0, 13))
    found, model = (
        task.counterfactuals(batch),
        Bare.initial(OldModel().for_task(old.shape()), torch.tensor([0])),
    )
    theirs = old.sample(OldDraws.of(torch.tensor([7]), "held-out", 0, 13))
    # Those of position codes that are learned come last, and are no inputs.
    expected = [*islice(reader.counterfactuals(model, theirs), len(found))]
    assert list(found) == [each.name for each in expected]
    assert all(torch.equal(found[each.name], each.stream) for each in expected)
    assert {*task.row_roles} & {*batch.roles}
    skills = task.skills(batch)
    if kind is OldPermutation:
        expected = {name: circuits._permutation_asked(name, theirs)[None] for name in circuits.SKILLS}
    if kind is OldEquations:
        asked, expected = reader.skills.asked(theirs), {}
        for name, readout in zip(reader.skills.names, reader.skills.readouts, strict=True):
            only = torch.arange(asked.shape[-1]) == old.on().readout.index(reader.task.readout[readout])
            expected[name] = asked & only & batch.groups[name][..., None]
    if skills:
        assert {*skills} == {*expected} and all(
            torch.equal(skills[name], expected[name]) for name in expected
        )
        assert all(mask.any() for mask in skills.values())
    assert bool(skills) == (kind in (OldPermutation, OldEquations))
