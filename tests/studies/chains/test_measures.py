"""Measures of studies of chains against plain arithmetic, on a member of a few steps."""

import math
from types import SimpleNamespace

import pytest
import torch

from hopscope import train
from hopscope.models.config import Model
from hopscope.runs import Evidence
from hopscope.studies.chains import measures
from hopscope.studies.chains.recipe import chains_of
from hopscope.studies.conditional.study import Branching
from hopscope.tasks import Retrieval, held_out
from hopscope.training.config import Training

SAMPLES, SEEDS = 101, 3
CURVES = {"loss": [1.0, 0.7, 0.4], "loss_step_1": [1.1, 0.4, 0.2], "loss_step_2": [1.2, 0.8, 0.6]}


@pytest.fixture(scope="module")
def context():
    task, training = chains_of(2), Training(steps=5, batch_size=7)
    ensemble = train(task, Model(layers=1, heads=2, width=16, mlp_ratio=0.0), training, seeds=SEEDS)
    members = [
        {"member": n, "seed": n, "configuration": "one", "overrides": {}, "unit": "a"} for n in range(SEEDS)
    ]
    rows = [
        {"metric": metric, "member": n, "step": step, "value": None if n == 2 and step else value + n}
        for metric, curve in CURVES.items()
        for n in range(SEEDS)
        for step, value in zip((0, 2, 5), curve, strict=True)
    ]
    job = {"task": {"fields": {"steps": 2, "order": "deepest-first"}}, "model": {"causal": True}}
    longer = {**job, "task": {"fields": {"steps": 3, "order": "random"}}}
    return SimpleNamespace(
        task=task, ensemble=ensemble, members=range(SEEDS), evidence=Evidence.of(rows, members),
        options=SimpleNamespace(analysis_samples=SAMPLES),
        job=SimpleNamespace(device="cpu", training=SimpleNamespace(final_steps=lambda: [2, 5])),
        run=SimpleNamespace(units=[SimpleNamespace(job=each) for each in (job, longer)]),
    )  # fmt: skip


def rows_of(measure, context):
    return {(row["metric"], row["part"]): row["value"] for row in measure.function(context)}


def test_the_final_loss_is_the_mean_over_the_final_window(context):
    found = rows_of(measures.final, context)
    assert found["final_loss", None][:2] == pytest.approx([(0.7 + 0.4) / 2, (0.7 + 0.4) / 2 + 1])
    assert found["final_loss", "step_2"][0] == pytest.approx((0.8 + 0.6) / 2)
    assert math.isnan(found["final_loss", "step_1"][2])


def test_losses_of_the_last_checkpoint(context):
    found, batch = rows_of(measures.retrieval, context), held_out(context.task, SAMPLES)
    predicted = context.ensemble(batch.inputs).detach().double()
    squared = (
        (predicted - batch.targets).square().unflatten(-1, (2, 4))
    )  # [member, sample, query, symbol, dimension]
    second = squared[..., 1, :].mean((2, 3))
    torch.testing.assert_close(found["checkpoint_loss", "step_2"], second.mean(1), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        found["checkpoint_loss", None], squared.mean((1, 2, 3, 4)), rtol=1e-5, atol=1e-7
    )
    error = second.std(1) / SAMPLES**0.5
    torch.testing.assert_close(found["checkpoint_loss_error", "step_2"], error, rtol=1e-5, atol=1e-7)
    assert found["accuracy", "step_1"].shape == (SEEDS,) and ("accuracy", None) not in found


def test_when_each_symbol_was_learned(context):
    found = rows_of(measures.learned_at, context)
    assert found == {
        ("learned_at", "step_1"): [2.0, math.inf, math.inf],
        ("learned_at", "step_2"): [math.inf, math.inf, math.inf],
    }


@pytest.mark.parametrize("task, bound", [(Retrieval(chains=8), 0.583333), (Retrieval(chains=4), 0.5),
                                         (Branching(chains=3), 0.5)])  # fmt: skip
@pytest.mark.parametrize("beside, expected", [(-0.01, 7.0), (0.01, math.inf)])
def test_a_symbol_is_learned_under_its_share_of_the_plateau(task, bound, beside, expected):
    member = {"member": 0, "seed": 3, "configuration": "own", "overrides": {}, "unit": "u"}
    rows = [{"member": 0, "metric": "loss_z", "step": 7, "value": bound + beside}]
    context = SimpleNamespace(task=task, members=[0], evidence=Evidence.of(rows, [member]))
    assert rows_of(measures.learned_at, context) == {("learned_at", "z"): [expected]}


def test_what_theory_asks_for_is_of_the_longest_chain(context):
    found = rows_of(measures.least_layers, context)
    assert [found["exact_layers", f"step_{step}"] for step in (1, 2, 3)] == [2, 3, 3]
    assert found["bound", "step_3"] == pytest.approx(math.log(6) / math.log(3))
