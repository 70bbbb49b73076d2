"""What other seeds beside a member, and threads, change: nothing of its data and first weights, and else rounding.

`docs/determinism.md` has the whole table.
"""

import pytest
import torch

from hopscope.executors.timing import Steps
from hopscope.models.config import TransformerConfig
from hopscope.tasks.config import PermutationConfig, RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES

SEEDS, STEPS = (3, 5, 7, 11, 13), 20

ROUNDING = 2e-6
"""Largest difference of a weight after 20 steps; ten times what was seen, and a thousandth of what a step moves."""

LAYER = {"heads": 2, "width": 32, "norm": "post", "activation": "relu"}
STACK = {"layers": 3, "heads": 2, "head_dim": 4, "width": 29, "positions": "carried", "position_size": 2}
PERMUTED, CHAINED = (
    PermutationConfig(values=5, repeat_ratio=0.5),
    RetrievalConfig(chains=3, symbol_dim=2, steps=2),
)
CASES = {
    "autograd": ("general", PERMUTED, LAYER | {"layers": 2}, 67),
    "autograd, odd sizes": ("general", CHAINED, STACK | {"mlp_ratio": 2.0}, 37),
    "fused": ("fused", PERMUTED, LAYER, 67),
    "stacked": ("stacked", CHAINED, STACK | {"mlp_ratio": 2.0}, 64),
    "virtual": ("virtual", CHAINED, STACK | {"mlp_ratio": 0.0}, 64),
}


def begin(name, seeds):
    engine, task, shape, batch = CASES[name]
    if not ENGINES[engine].installed():
        pytest.skip("numba is optional")
    on = task.on()
    sizes = {"length": on.positions, "input_size": on.input_size, "output_size": on.output_size}
    training = TrainingConfig(
        steps=STEPS, batch_size=batch, learning_rate=1e-3, clip_norm=1.0, warmup_steps=5
    )
    job = TrainJob(
        label="company",
        task=task,
        model=TransformerConfig(input_kind=on.input_kind, readout=on.readout, **sizes, **shape),
        training=training,
        members=tuple(MemberPlan(member=index, seed=seed) for index, seed in enumerate(seeds)),
    )
    return Steps(job, on, engine)


def trained(steps, count=STEPS):
    for _ in range(count):
        steps.take()
    return {name: weight.detach().clone() for name, weight in steps.model.weights.items()}


def farthest(found, expected, rows):
    # A key bias shifts all scores of a row alike: its gradient is rounding, which Adam makes full steps of.
    return max(
        float((weight - expected[name][rows]).abs().max())
        for name, weight in found.items()
        if not name.endswith("key.bias")
    )


@pytest.mark.parametrize("name", CASES)
def test_company_changes_nothing_but_rounding(name):
    together = begin(name, SEEDS)
    first = together.model.parameters.flat.detach().clone()
    expected = trained(together)
    moved = together.model.parameters.flat.detach() - first
    assert moved.abs().max() > 1000 * ROUNDING
    for seeds in ((3,), (13, 5)):
        rows = [SEEDS.index(seed) for seed in seeds]
        alone = begin(name, seeds)
        assert torch.equal(alone.model.parameters.flat, first[rows]), (
            "first weights are the seed's, bit for bit"
        )
        assert farthest(trained(alone), expected, rows) <= ROUNDING


@pytest.mark.parametrize("name", CASES)
def test_the_same_unit_has_the_same_bits(name):
    first, again = trained(begin(name, SEEDS[:2])), trained(begin(name, SEEDS[:2]))
    assert all(torch.equal(again[each], weight) for each, weight in first.items())


def test_threads_change_nothing_but_rounding():
    """Few steps: where other work has the cores, threads wait for each other at every product."""
    before = torch.get_num_threads()
    ends = []
    try:
        for threads in (1, 2, 2):
            torch.set_num_threads(threads)
            ends.append(trained(begin("autograd", SEEDS[:2]), 5))
    finally:
        torch.set_num_threads(before)
    one, two, again = ends
    assert farthest(two, one, slice(None)) <= ROUNDING
    assert all(torch.equal(again[name], weight) for name, weight in two.items())
