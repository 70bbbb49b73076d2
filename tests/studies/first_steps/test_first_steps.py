"""The study of first experiments: its grid, which heads are used, and what the claims say of made-up losses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hopscope import train
from hopscope.runs import Evidence
from hopscope.studies.chains.recipe import QUICK, chains_of
from hopscope.studies.first_steps.study import (
    LAYERS,
    STEPS,
    WITH,
    WITHOUT,
    Options,
    configurations,
    diagnosed,
    growth,
    label,
    of_learned,
    rises,
    signatures,
)
from hopscope.tasks import held_out, losses
from hopscope.training.config import Training


@pytest.mark.parametrize("layers, steps", [((1, 4), 2), ((2, 3), 1), ((5,), 3)])
def test_the_first_experiment_is_always_there(layers, steps):
    labels = [each.label for each in configurations(Options(layers=layers, most_steps=steps))]
    assert labels[:2] == [WITH, WITHOUT] and len(labels) == len({*labels})
    assert {label(each, n) for each in range(1, steps + 1) for n in layers} <= {*labels}


@pytest.fixture(scope="module")
def context():
    task, model = chains_of(STEPS), QUICK.model_copy(update={"width": 16, "heads": 3, "head_dim": 5})
    ensemble = train(task, model, Training(steps=4, batch_size=7), seeds=2)
    return SimpleNamespace(
        task=task, ensemble=ensemble, held_out=held_out(task, 53), members=range(2),
        job=SimpleNamespace(label=WITH, model=model),
    )  # fmt: skip


def test_a_head_is_taken_out_by_its_mean(context):
    rows = [*rises.function(context)]
    whole = losses(context.task, context.ensemble(context.held_out.inputs), context.held_out)

    def flat(z):
        z[..., 1, :] = z[..., 1, :].mean(1, keepdim=True)
        return z

    predicted = context.ensemble.intervene(context.held_out, {"blocks.2.attn.hook_z": flat})
    expected = losses(context.task, predicted, context.held_out)["loss_step_2"] - whole["loss_step_2"]
    place = ("rise", 2, 1, "step_2")
    keys = ("metric", "layer", "head", "part")
    found = next(row["value"] for row in rows if tuple(map(row.get, keys)) == place)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    largest = torch.stack([row["value"] for row in rows if row["metric"] == "rise"]).amax(0)
    assert torch.equal(next(row["value"] for row in rows if row["metric"] == "largest_rise"), largest)
    assert sum(row["metric"] == "rise" for row in rows) == LAYERS * 3 * STEPS


def test_other_models_have_no_rises(context):
    job = SimpleNamespace(label=WITHOUT, model=context.job.model)
    assert [*rises.function(SimpleNamespace(**{**vars(context), "job": job}))] == []


def made_up(final):
    """Evidence of configurations whose members ended at these losses, seed by seed."""
    members, rows = [], []
    for name, by_seed in final.items():
        for seed, values in enumerate(by_seed):
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": name, "overrides": {}, "unit": name}
            )
            for step, loss in enumerate(values, start=1):
                rows += [{"member": member, "metric": f"loss_step_{step}", "step": at, "value": value}
                         for at, value in ((0, 1.0), (9, loss))]  # fmt: skip
    return Evidence.of(rows, members)


def test_every_member_has_one_signature(context):
    evidence = made_up({WITH: [(0.1, 0.2), (0.1, 0.9)]})
    rows = [*signatures.function(SimpleNamespace(**{**vars(context), "evidence": evidence}))]
    found = {(row["metric"], row["part"]): row["value"] for row in rows}
    assert found["signature", "learned"] == [1.0, 0.0]
    assert found["signature", "only induction heads"] == [0.0, 1.0]
    assert sum(sum(value) for (metric, _), value in found.items() if metric == "cause") == 1.0


def test_growth_counts_layers_by_seed():
    final = {label(1, 1): [(0.9,), (0.1,)], label(1, 3): [(0.1,), (0.1,)],
             label(2, 1): [(0.9, 0.9)] * 2, label(2, 3): [(0.1, 0.1), (0.1, 0.1)]}  # fmt: skip
    found = growth(Options(layers=(1, 3), most_steps=2), made_up(final))
    assert found.values.tolist() == [0.0, 2.0] and found.unit == "seed"
    final |= {label(2, layers): [(0.1, 0.9)] * 2 for layers in (1, 3)}  # no depth learned the longer chain
    assert np.isnan(growth(Options(layers=(1, 3), most_steps=2), made_up(final)).values).all()


DONE, STUCK, FALLS = [1.0] * 4 + [0.1] * 4, [0.75] * 8, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.6]


@pytest.mark.parametrize(
    "layers, losses, expected",
    [
        (4, {1: DONE, 2: DONE}, ("learned", "")),
        (1, {1: STUCK, 2: STUCK}, ("early plateau", "too few layers")),
        (2, {1: DONE, 2: STUCK}, ("only induction heads", "too few layers")),
        (5, {1: DONE, 2: STUCK}, ("only induction heads", "not found")),
        (5, {2: STUCK}, ("long chains fail", "no curriculum")),
        (5, {1: DONE, 2: DONE, 3: FALLS}, ("long chains fail", "still falling")),
        (5, {1: [], 2: []}, ("diverged", "not a number")),
    ],
)
def test_why_a_member_failed(layers, losses, expected):
    task = chains_of(max(losses))
    assert diagnosed(task, QUICK.model_copy(update={"layers": layers}), losses) == expected


def test_heads_are_counted_in_models_that_learned():
    evidence = made_up({WITH: [(0.1, 0.2), (0.1, 0.9), (0.1, None)]})
    found = of_learned("loss_step_1")(evidence)
    # A diverged one is missing, not left out.
    assert found.isna().to_list() == [False, True] and found[0] == 0.1
    assert of_learned("loss_step_1")(made_up({WITH: [(0.1, 0.9)]})).note == "no model learned x₂"
