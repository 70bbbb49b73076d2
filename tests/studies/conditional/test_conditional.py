"""The study of conditional retrieval: its task, the heads that are used, and steps that a first phase saves."""

import math
from types import SimpleNamespace

import pytest
import torch

from hopscope import train
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.runs import Evidence
from hopscope.studies.conditional.study import (
    CHAIN_FIRST,
    MIXED,
    PARENTS,
    SWITCH,
    TWO,
    VARIANTS,
    Branching,
    reused,
    rises,
    steps_saved,
    study,
    used,
)
from hopscope.tasks import Draws, check_task, draw, held_out, losses
from hopscope.training.config import Training

SEEDS = torch.tensor([3, 5])


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_is_a_task(fields):
    task = Branching(chains=2, **{name.removeprefix("task."): value for name, value in fields.items()})
    check_task(task)
    batch = draw(task, SEEDS, "train", 7, 11)
    found = task.parts(batch.targets, batch)
    assert {*found} == {"loss", *(["loss_z"] if task.targets == "last" else ["loss_x", "loss_y", "loss_z"])}
    assert not any(name.startswith("accuracy") for name in task.floors())


@pytest.mark.parametrize("graph", PARENTS)
def test_z_needs_all_its_keys(graph):
    floors = Branching(graph=graph, chains=3).floors()["loss_z"]
    assert len(floors) == 1 + len(PARENTS[graph]) and floors["position"] == pytest.approx(
        1 - 3.0 ** -len(PARENTS[graph])
    )


def test_samples_show_the_chain_or_the_graph():
    task = Branching(chains=3, chain_share=0.5)
    batch = draw(task, SEEDS, "held-out", 0, 53)
    chain = task.retrieval("chain").sample(Draws(SEEDS, "held-out", 0, 53))
    graph = task.retrieval("two parents").sample(Draws(SEEDS, "held-out", 0, 53))
    here, before = batch.groups["chain"], batch.inputs.shape[2] - chain.inputs.shape[2]
    assert torch.equal(here, ~batch.groups["branching"]) and 0 < here.float().mean() < 1
    assert torch.equal(batch.inputs[here][:, before:], chain.inputs[here])
    assert not batch.inputs[here][:, :before].any()
    assert torch.equal(batch.inputs[~here], graph.inputs[~here])


@pytest.mark.parametrize("easier_first", [True, False])
def test_chains_come_first_in_training_alone(easier_first):
    task = Branching(chains=3, chain_until=5, easier_first=easier_first)
    batch = draw(task, SEEDS, "train", range(3, 7), 7)
    blank = batch.inputs[:, :, 0].eq(0.0).all(-1)
    first = torch.arange(28) < 14
    assert torch.equal(blank, first.expand(2, -1))
    assert not draw(task, SEEDS, "held-out", 0, 7).inputs[:, :, 0].eq(0.0).all(-1).any()
    if easier_first:
        assert batch.weights is None
    else:
        noise = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(13))
        whole, some = task.parts(noise, batch), task.parts(noise[:, :14], batch.take(slice(14)))
        torch.testing.assert_close(some["loss"], some["loss_z"])
        assert not torch.allclose(whole["loss"], whole["loss_z"])


def test_an_unknown_variant_is_one_line():
    with pytest.raises(UserError, match="variants: expected some of two parents"):
        study.changed({"variants": ("chian",)})


def test_rises_are_of_each_kind_of_samples():
    task = Branching(chains=2, chain_share=0.5)
    ensemble = train(
        task, Model(layers=2, heads=3, head_dim=5, width=16, mlp_ratio=0.0), Training(steps=3), seeds=2
    )
    batch = held_out(task, 53)
    found = [*rises.function(SimpleNamespace(task=task, ensemble=ensemble, held_out=batch))]
    assert len(found) == 2 * 3 * 2 and {row["part"] for row in found} == {"chain", "branching"}

    def flat(z):
        z[..., 1, :] = z[..., 1, :].mean(1, keepdim=True)
        return z

    without = losses(task, ensemble.intervene(batch, {"blocks.1.attn.hook_z": flat}), batch)
    rise = without["loss_z@chain"] - losses(task, ensemble(batch.inputs), batch)["loss_z@chain"]
    mine = next(row["value"] for row in found if (row["layer"], row["head"], row["part"]) == (1, 1, "chain"))
    torch.testing.assert_close(mine, rise, rtol=1e-4, atol=1e-6)
    plain = held_out(Branching(chains=2), 7)
    assert [*rises.function(SimpleNamespace(held_out=plain))] == []


def made_up(names, rows, seeds=3):
    places = [(name, seed) for name in names for seed in range(seeds)]
    members = [{"member": number, "seed": seed, "configuration": name, "overrides": {}, "unit": name}
               for number, (name, seed) in enumerate(places)]  # fmt: skip
    return Evidence.of(rows, members, {"identity": {"training": {"steps": 900}}})


def test_heads_that_both_use():
    heads = {
        0: {"chain": (0, 1), "branching": (1, 2)},
        1: {"chain": (2,), "branching": (2,)},
        2: {"chain": (0,), "branching": ()},
    }
    rows = []
    for seed, of in heads.items():
        for part, own in of.items():
            loss = 0.9 if (seed, part) == (2, "branching") else 0.1
            rows.append({"member": seed, "metric": "loss_z", "part": part, "step": 9, "value": loss})
            rows += [{"member": seed, "metric": "rise", "part": part, "layer": 0, "head": head, "step": 9,
                      "value": 0.06 * (head in own)} for head in range(3)]  # fmt: skip
    evidence = made_up([MIXED], rows)
    assert used(evidence) == {
        seed: {part: {(0, head) for head in own} for part, own in heads[seed].items()} for seed in (0, 1)
    }
    assert reused(0, evidence).values.tolist() == [0.5, 1.0] and reused(1, evidence).values.tolist() == [
        0.0,
        1.0,
    ]
    assert reused(0, made_up([MIXED], rows[:1])).note == "no model learned z of both"


def test_steps_that_a_first_phase_saves():
    times = {TWO: (600.0, math.inf, math.inf), CHAIN_FIRST: (500.0, 700.0, math.inf)}
    rows = [{"member": 3 * number + seed, "metric": "learned_at", "part": "z", "step": 900, "value": time}
            for number, name in enumerate(times) for seed, time in enumerate(times[name])]  # fmt: skip
    found = steps_saved(CHAIN_FIRST, made_up(times, rows)).values
    assert found[:2].tolist() == [600 - (500 - SWITCH), 900 - (700 - SWITCH)] and math.isnan(found[2])
