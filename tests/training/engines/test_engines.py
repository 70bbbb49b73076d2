"""The contract, of every engine that a CPU trains with, and the table of their names."""

import subprocess
import sys
from typing import get_args

import pytest
import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig, RetrievalConfig
from hopscope.training.config import MemberPlan, TrainingConfig, TrainJob
from hopscope.training.engines import ENGINES, EngineName, chosen_engine

SEEDS = torch.tensor([3, 5, 7])
LAYER = {"heads": 2, "width": 10, "norm": "post", "activation": "relu"}
STACK = {"layers": 2, "heads": 1, "head_dim": 2, "width": 17, "positions": "carried", "position_size": 2}
PERMUTED, RETRIEVED = PermutationConfig(values=3), RetrievalConfig(chains=2, symbol_dim=2, steps=1)
CASES = {
    "general": (PERMUTED, LAYER | {"layers": 2}),
    "fused": (PERMUTED, LAYER),
    "stacked": (RETRIEVED, STACK | {"mlp_ratio": 1.5}),
    "virtual": (RETRIEVED, STACK | {"mlp_ratio": 0.0}),
}


def job_of(task, shape):
    on = task.on()
    sizes = {"length": on.positions, "input_size": on.input_size, "output_size": on.output_size}
    return TrainJob(
        label="contract",
        task=task,
        model=TransformerConfig(input_kind=on.input_kind, readout=on.readout, **sizes, **shape),
        training=TrainingConfig(steps=11, batch_size=13),
        members=tuple(MemberPlan(member=index, seed=int(seed)) for index, seed in enumerate(SEEDS)),
    )


def test_the_table_has_every_name_and_ends_with_an_engine_for_every_unit():
    assert set(ENGINES) == set(get_args(EngineName))
    assert all(engine.name == name for name, engine in ENGINES.items())
    last = list(ENGINES.values())[-1]
    assert all(last.fits(job_of(*case), device) for case in CASES.values() for device in ("cpu", "cuda"))


@pytest.mark.parametrize("name", CASES)
def test_an_engine_keeps_the_contract(name):
    engine, job = ENGINES[name], job_of(*CASES[name])
    if not engine.installed():
        pytest.skip(f"{engine.packages} are optional")
    assert chosen_engine(job, "cpu") == name
    model = Transformer.initial(job.model, SEEDS)
    weights = model.parameters.flat.clone()
    found = []
    for _ in range(2):
        buffer = torch.full_like(weights, torch.nan)
        for view in model.parameters.views(buffer.zero_()).values():
            view.fill_(torch.nan)
        gradient = engine.gradient(model, job.task.on(), job.training, SEEDS, buffer)
        gradient(5)
        losses = {each: loss.clone() for each, loss in gradient(3).items()}
        found.append((losses, buffer))
    (losses, buffer), (again, other) = found
    assert losses["loss"].shape == (3,) and not any(loss.requires_grad for loss in losses.values())
    assert buffer.isfinite().all() and torch.equal(buffer, other), "a step depends on its number alone"
    assert all(torch.equal(losses[each], again[each]) for each in losses)
    assert torch.equal(model.parameters.flat, weights), "an engine moves no weights"


def test_an_engine_is_chosen_without_torch():
    words = "import sys, hopscope.training.engines; print({'torch', 'numba'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
