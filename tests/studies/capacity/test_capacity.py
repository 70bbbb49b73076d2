"""The study of capacity: its variants, the solution that models begin from, and layers by number of heads."""

import math

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.runs import Evidence
from hopscope.studies.capacity.study import (
    DRAWN,
    STANDARD,
    Options,
    at_solution,
    begun,
    claims,
    configurations,
    more_layers,
    start,
    study,
    variants,
)
from hopscope.studies.curriculum.wide import at_depth
from hopscope.study.jobs import plan
from hopscope.tasks import held_out, losses


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"layers": ()}, "layers: expected one"), ({"noises": (-1.0,)}, "noises: .*found -1")],
)
def test_what_cannot_be_tried_is_told_before_training(fields, words):
    with pytest.raises(UserError, match=words):
        study.chosen("smoke", fields).grid()


@pytest.mark.parametrize("preset", [None, *study.presets])
def test_a_variant_differs_in_one_field(preset):
    options = study.chosen(preset).options if preset else Options()
    assert all(len(fields) == (name != STANDARD) for name, fields in variants(options).items())
    labels = [each.label for each in configurations(options)]
    assert (
        len(labels)
        == len({*labels})
        == len(variants(options)) * len(options.layers) + len(at_solution(options))
    )


@pytest.fixture(scope="module")
def jobs():
    chosen = study.changed({"seeds": 3, "layers": (2,), "widths": (), "heads": (), "head_sizes": ()})
    return {job.label: job for job in plan(chosen.changed({"members_per_unit": 3}))}


@pytest.mark.parametrize("noise, knows", [(0.0, True), (0.001, True), (0.01, None)])
def test_models_begin_at_a_solution(jobs, noise, knows):
    job = jobs[begun(1e-6, noise)]
    weights = start(job)
    ensemble = Transformer(job.config, 3).load(weights)
    task = study.task
    batch = held_out(task, 101)
    with torch.no_grad():
        loss = losses(task, ensemble(batch.inputs), batch)["loss_step_2"]
    assert knows is None or (loss < 0.1).all()
    first = weights["readout.weight"]
    assert torch.equal(first[0], first[1]) == (noise == 0.0)


def test_others_are_drawn(jobs):
    assert start(jobs[DRAWN]) is None and start(jobs[at_depth(STANDARD, 2)]) is None


def made_up(final):
    members, rows = [], []
    for name, losses_of in final.items():
        for seed, loss in enumerate(losses_of):
            number = len(members)
            members.append(
                {"member": number, "seed": seed, "configuration": name, "overrides": {}, "unit": name}
            )
            rows.append({"member": number, "metric": "loss_step_2", "step": 9, "value": loss})
    return Evidence.of(rows, members, {"identity": {"training": {"steps": 400}}})


def test_layers_that_the_fewest_heads_need_beyond_the_most():
    options = Options(layers=(2, 5), heads=(1, 8))
    found = more_layers(options, made_up({
        at_depth("1 head", 2): [0.9, 0.9, 0.1, 0.9, None], at_depth("1 head", 5): [0.1, 0.9, 0.1, 0.1, 0.1],
        at_depth("8 heads", 2): [0.1, 0.1, 0.9, 0.9, 0.1], at_depth("8 heads", 5): [0.1, 0.1, 0.1, 0.9, 0.1],
    }))["heads"]  # fmt: skip
    assert found.values[:3].tolist() == [3.0, 4.0, -3.0]
    assert math.isnan(found.values[3]) and math.isnan(found.values[4])


def test_a_run_without_the_fewest_layers_says_so():
    claim = next(each for each in claims(Options()) if each.id == "S4d")
    parts = claim.value(made_up({begun(1e-3): [0.1, 0.9]}))
    assert parts["begun at a solution"].values.tolist() == [1.0, 0.0]
    assert parts["drawn"].note == "no models of standard, 3 layers"
