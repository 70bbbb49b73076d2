"""Interventions in the training step: what is clamped does not learn, the rest does."""

import pytest
import torch
from tests.oracles.edits import Edited

from hopscope.models.edits import Edits
from hopscope.models.interventions import AblateHead, AblateMLP, ReplacePattern, Site, SwapValues
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import PermutationConfig
from hopscope.tasks.permutation import PermutationTask
from hopscope.training.config import TrainingConfig
from hopscope.training.optimizer import Optimizer

from .samples import HEAD_DIM, HEADS, MEMBERS, SEEDS, TABLES, batch, config, inputs, lively, only, under


def gradients(model, interventions, means=None):
    """Name → gradient of the sum of the members' losses, trained under the interventions."""
    data = batch(model.config)
    weights = [view.requires_grad_() for view in model.weights.values()]
    loss = under(model, data, interventions, means=means)[0].pow(2).mean((1, 2, 3)).sum()
    found = torch.autograd.grad(loss, weights)
    return dict(zip(model.weights, found, strict=True))


def of_head(gradient, head):
    return gradient[..., head * HEAD_DIM : (head + 1) * HEAD_DIM]


@pytest.mark.parametrize("by", ["uniform", "identity", "mean"])
def test_a_clamped_pattern_sends_nothing_to_its_queries_and_keys(by):
    model = lively(config())
    means = model.means(inputs(model.config))
    found = gradients(model, [ReplacePattern(layer=1, heads=(2,), by=by)], means)
    for part in ("query", "key"):
        gradient = found[f"layers.1.attention.{part}.weight"]
        assert not of_head(gradient, 2).any()
        for head in set(range(HEADS)) - {2}:
            assert of_head(gradient, head).any()
        assert of_head(found[f"layers.0.attention.{part}.weight"], 2).any()
    assert of_head(found["layers.1.attention.value.weight"], 2).any()


@pytest.mark.parametrize("by", ["zero", "mean"])
def test_an_ablated_head_or_mlp_does_not_learn_and_the_others_do(by):
    model = lively(config())
    means = model.means(inputs(model.config))
    found = gradients(model, [AblateHead(layer=1, heads=(2,), by=by), AblateMLP(layer=0, by=by)], means)
    for part in ("query", "key", "value"):
        gradient = found[f"layers.1.attention.{part}.weight"]
        assert not of_head(gradient, 2).any() and of_head(gradient, 3).any()
    assert not found["layers.0.mlp.inner.weight"].any() and found["layers.1.mlp.inner.weight"].any()


def test_a_resampled_head_learns_through_the_donor():
    model = lively(config())
    found = gradients(model, [AblateHead(layer=2, by="resample")])
    assert all(of_head(found["layers.2.attention.value.weight"], head).any() for head in range(HEADS))


INTERVENTIONS = {
    "pattern": ReplacePattern(layer=1, rows={"kind": 1}, by="one_hot", relation="past"),
    "values": SwapValues(
        layer=1, what="stream", first=Site(roles={"slot": 1}), second=Site(roles={"slot": 7})
    ),
    "head": AblateHead(layer=0, heads=(1, 3), rows={"kind": 0}, by="resample"),
    "MLP": AblateMLP(layer=2, rows={"kind": 0}, by="zero"),
}


@pytest.mark.parametrize("kind", INTERVENTIONS)
def test_gradients_under_edits_equal_those_of_the_plain_module(kind):
    model = lively(config())
    found = gradients(model, [INTERVENTIONS[kind]])
    data = batch(model.config)
    for member in range(MEMBERS):
        module, alone = model.member(member), only(data, member)
        edited = Edited([INTERVENTIONS[kind]], alone, module=module)
        module(alone.inputs[0], edited).pow(2).mean().backward()
        expected = dict(module.named_parameters())
        for name, gradient in found.items():
            theirs = expected[name].grad
            theirs = theirs.T if theirs.ndim == 2 and name not in TABLES else theirs
            torch.testing.assert_close(gradient[member], theirs, rtol=1e-4, atol=1e-5, msg=name)


def test_training_under_a_clamp_learns_and_leaves_the_clamped_weights_as_they_were():
    task = PermutationTask(PermutationConfig(values=3))
    shape = config(
        layers=1, heads=1, length=task.positions, input_size=4, output_size=4, readout=task.readout
    )
    model = Transformer.initial(shape, SEEDS)
    optimizer = Optimizer(model.parameters, TrainingConfig(steps=61, learning_rate=0.01, weight_decay=0.0))
    weights = [view.requires_grad_() for view in model.weights.values()]
    before = {name: view.detach().clone() for name, view in model.weights.items()}
    losses = []
    for step in range(61):
        data = task.sample(SEEDS, "train", step, 67)
        edits = Edits(model, [ReplacePattern(layer=0, by="uniform", keys={"kind": 1})], data)
        loss = task.losses(model(data.inputs, edits), data)["loss"]
        found = torch.autograd.grad(loss.sum(), weights)
        optimizer.step(step, loss.detach(), dict(zip(model.weights, found, strict=True)))
        losses.append(loss.detach())
    assert (losses[-1] < losses[0] - 0.2).all()
    # The first row sees no y and is left alone, but alone it attends to itself whatever its query.
    for part in ("query", "key"):
        name = f"layers.0.attention.{part}.weight"
        assert torch.equal(model.weights[name].detach(), before[name]), name
    assert not torch.equal(
        model.weights["layers.0.attention.value.weight"], before["layers.0.attention.value.weight"]
    )
