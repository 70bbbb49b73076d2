"""What studies of chains share: the recipe's fields, and who learned what and when."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.runs import Evidence
from hopscope.studies.chains import evidence as found
from hopscope.studies.chains.recipe import QUICK, Recipe, chains_of, exact_layers_of
from hopscope.study.load import load
from hopscope.study.study import Configuration, Study
from hopscope.theory import exact_layers
from hopscope.training.config import COMPLETION_NAMES, Training, completion_values

STUDY = Study(name="some", task=chains_of(2), model=QUICK, training=Training(steps=3))


def trained(recipe, completion="torch-schedule"):
    """Task, model and training of a configuration that the recipe gives."""
    study = STUDY.changed({"completion": completion})
    return study.of(Configuration(overrides=recipe.overrides(3, "ic", 5, 7)))


@pytest.mark.parametrize("completion", COMPLETION_NAMES)
def test_what_is_not_given_follows_from_the_completion(completion):
    of = trained(Recipe(training_steps=70), completion)
    said = completion_values(completion, Training(steps=70))
    assert of.model.init == said["model"]["init"]
    assert {name: getattr(of.training, name) for name in said["training"]} == said["training"]


@pytest.mark.parametrize("completion", COMPLETION_NAMES)
def test_what_is_given_wins(completion):
    given = {"beta1": 0.7, "beta2": 0.97, "clip_norm": "none", "warmup_steps": 11, "schedule": "constant",
             "final_rate": 0.3, "init": 0.5}  # fmt: skip
    of = trained(Recipe(pool=101, chains=5, width=17, **given), completion)
    assert of.training.betas == (0.7, 0.97) and of.training.clip_norm is None
    assert (of.training.warmup_steps, of.training.schedule, of.training.final_rate) == (11, "constant", 0.3)
    assert (of.model.init, of.model.width, of.model.head_dim, of.model.layers) == (0.5, 17, 7, 5)
    assert (of.training.examples, of.task.chains, of.task.steps, of.held_out) == (101, 5, 3, 512)


@pytest.mark.parametrize(
    "fields, said", [({"pool": 3}, "enlarge pool"), ({"beta1": 0.5}, "give both"), ({"width": 0}, "width")]
)
def test_options_that_do_not_fit(fields, said):
    with pytest.raises(UserError, match=said):
        Recipe(**fields)


@given(st.integers(1, 7), st.booleans(), st.sampled_from(["deepest-first", "shallowest-first", "random"]))
def test_exact_layers_are_those_of_the_theory(steps, causal, order):
    of = exact_layers_of(steps, causal, order)
    pairs = "deepest-first" if order == "random" else order
    assert of[steps] == exact_layers(steps, "causal" if causal else "none", pairs)
    assert Recipe(causal=causal, order=order).exact(steps) == of


LOSSES = {
    "two layers": {3: (0.1, 0.9), 5: (0.2, None), 7: (0.8, 0.8)},
    "four layers": {3: (0.1, 0.2), 5: (0.2, 0.1), 7: (0.1, 0.8)},
}
"""Configuration → seed → final loss of both steps."""


@pytest.fixture
def evidence():
    members, rows = [], []
    for label, seeds in LOSSES.items():
        for seed, losses in seeds.items():
            member = len(members)
            members.append(
                {"member": member, "seed": seed, "configuration": label, "overrides": {}, "unit": label}
            )
            for step, loss in enumerate(losses, start=1):
                rows.append({"member": member, "metric": f"loss_step_{step}", "step": 10, "value": loss})
    return Evidence.of(rows, members)


def test_who_learned_what(evidence):
    assert found.learned(evidence, "two layers", 1).tolist() == [1.0, 1.0, 0.0]
    parts = found.learned_in({"second": ("four layers", "step_2")})(evidence)
    assert parts["second"].tolist() == [1.0, 1.0, 0.0]
    counts = found.steps_learned(evidence, "two layers", 2)
    assert counts[3] == 1.0 and math.isnan(counts[5]) and counts[7] == 0.0
    assert found.has(evidence, "two layers") and not found.has(evidence, "six layers")


def test_the_smallest_depth_that_learned(evidence):
    labels = {4: "four layers", 2: "two layers"}
    depths = found.smallest_depths(evidence, labels, 2)
    assert depths[3] == 4.0 and math.isnan(depths[5]) and math.isinf(depths[7])
    apart = found.between_seeds(found.smallest_depths(evidence, labels, 1))
    assert apart.values.tolist() == [0.0, 2.0, 2.0] and apart.unit == "seed"
    assert found.between_seeds({3: math.inf, 5: math.nan}).note


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("circuits", {"model.init": "gpt2"}), ("depth", {"training.schedule": "constant"}),
        ("emergence", {"training.betas": (0.9, 0.95)}), ("recipes", {"completion": "gpt2-base"}),
        ("recipes", {"task.steps": 2}), ("sharing", {"task.steps": 1}), ("capacity", {"model.heads": 8}),
        ("capacity", {"task.steps": 1}),
        ("first-steps", {"task.chains": 8}), ("curriculum", {"task.chains": 8}), ("natural", {"task.chains": 8}),
        ("conditional", {"task.chains": 4}), ("conditional", {"task.graph": "chain"}),
        ("natural", {"task.padded": False}), ("circuits", {"task.schedule": ((5, "last"),)}),
        ("recipes", {"model.layers": 2}), ("recipes", {"task.targets": "last"}),
        ("capacity", {"task.targets": (1,)}), ("sharing", {"task.second": "turned"}),
        ("curriculum", {"task.own_positions": True}),
    ],
)  # fmt: skip
def test_what_claims_and_pages_count_on_is_no_flag(name, fields):
    study = load(name).study
    assert not {*fields} & {flag.name for flag in study.fields()}
    with pytest.raises(UserError, match=r"expected a field that the study .* leaves open"):
        study.chosen(None, fields)


@pytest.mark.parametrize(
    ("name", "fields", "id"),
    [
        ("first-steps", {"layers": (4,)}, "F4"), ("first-steps", {"most_steps": 1}, "F4"),
        ("first-steps", {"model.causal": False}, "F4"),
        ("capacity", {"heads": (4,)}, "S4b"), ("sharing", {"order_layers": (4, 6)}, "S3e"),
    ],
)  # fmt: skip
def test_what_a_run_cannot_decide_is_not_claimed(name, fields, id):
    study = load(name).study
    assert id in {claim.id for claim in study.all_claims()}
    assert id not in {claim.id for claim in study.changed(fields).all_claims()}


@pytest.mark.parametrize("chains, bound", [(4, 0.5), (8, 0.583333)])
def test_a_line_is_where_a_symbol_counts_as_learned(chains, bound):
    chosen = load("circuits").study.chosen("smoke", {"chains": chains})
    assert {each.name: each.draw.shown.get("levels") for each in chosen.all_figures()}["losses"][
        "learned"
    ] == bound
