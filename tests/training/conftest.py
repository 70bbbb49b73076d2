"""Tasks of users, members whose weights are all at work, and gradients by a plain module."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Shape, Task, draw
from hopscope.training import engines
from hopscope.training.config import Training

SEEDS = torch.tensor([3, 5, 7])
KEY_BIAS = "attention.key.bias"


class Vectors(Task):
    """Sums of vectors, of which some count more; now and then the second readout counts nothing."""

    readout: tuple[int, ...] = (4, 6)

    def shape(self):
        return Shape(
            inputs="vectors", input_size=5, positions=7, readout=self.readout, output_size=3, position_size=2
        )

    def sample(self, draws):
        vectors, weights = draws.normal("vectors", (7, 5)), draws.integers("weights", 3, (len(self.readout),))
        sums = vectors.cumsum(2)[..., list(self.readout), :3]
        return Batch(vectors, sums, weights=weights.float())


class Tokens(Task):
    """The token three places before."""

    readout: tuple[int, ...] = (3, 6)

    def shape(self):
        return Shape(inputs="tokens", input_size=5, positions=7, readout=self.readout, output_size=5)

    def sample(self, draws):
        tokens = draws.integers("tokens", 5, (7,))
        return Batch(tokens, tokens[..., [place - 3 for place in self.readout]])


class Grouped(Vectors):
    """Its losses and scores read groups and roles."""

    standard_loss: ClassVar[bool] = True

    def sample(self, draws):
        groups = {"large": draws.uniform("size") < 0.5}
        return replace(super().sample(draws), groups=groups, roles={"half": draws.constant(3, (7,))})

    def parts(self, predictions, batch):
        found = super().parts(predictions, batch)
        return {**found, "loss_large": found["loss"] * batch.groups["large"].float().mean(1)}

    def scores(self, predictions, batch):
        return {"half": batch.roles["half"].float().mean().expand(len(predictions))}


class OwnLoss(Vectors):
    """A loss of one's own."""

    def parts(self, predictions, batch):
        wrong = (predictions - batch.targets).square().flatten(1)
        return {"loss": wrong.square().mean(1) / 10, "loss_square": wrong.mean(1)}


def members(task, model, seeds=SEEDS, noise=0.2):
    """Members whose biases, gains and shifts are all at work, in one buffer; and the buffer."""
    ensemble = Transformer.initial(model.for_task(task.shape()), seeds)
    flat = ensemble.flatten()
    for row, seed in zip(flat, seeds.tolist(), strict=True):
        row += noise * torch.randn(row.shape, generator=torch.Generator().manual_seed(seed))
    return ensemble.knowing(task, seeds.tolist(), 0), flat


def by_engine(name, ensemble, task, training, steps=(3,), seeds=SEEDS):
    """Losses and gradients by name, after the last of these steps."""
    buffer = torch.zeros_like(ensemble.flatten())
    for view in ensemble.views(buffer).values():
        view.fill_(torch.nan)
    module = engines.load(name, task, ensemble.config, "cpu")
    gradient = module.gradient(ensemble, task, training, seeds, buffer)
    for step in steps:
        losses = gradient(step)
    return {each: loss.clone() for each, loss in losses.items()}, ensemble.views(buffer)


def by_module(ensemble, task, training, step=3, seeds=SEEDS):
    """The same through plain modules, member by member."""
    batch = draw(task, seeds, "train", step, training.batch_size, examples=training.examples)
    losses, gradients = [], []
    for index in range(len(ensemble)):
        member, own = ensemble.member(index), batch.member(index)
        losses.append(task.parts(member(own.inputs[0])[None], own))
        weights = dict(member.named_parameters())
        found = torch.autograd.grad(losses[-1]["loss"].sum(), list(weights.values()))
        gradients.append(dict(zip(weights, found, strict=True)))
    return tuple(
        {name: torch.stack([each[name].detach() for each in every]) for name in every[0]}
        for every in ([{name: loss[0] for name, loss in each.items()} for each in losses], gradients)
    )


def assert_close(found, expected, tolerance=1e-5):
    losses, gradients = found
    assert losses.keys() == expected[0].keys() and not any(loss.requires_grad for loss in losses.values())
    for name, loss in losses.items():
        torch.testing.assert_close(loss, expected[0][name], rtol=1e-5, atol=1e-5, msg=name)
    size = max(each.abs().max() for each in expected[1].values())
    for name, gradient in gradients.items():
        # A key bias shifts all scores of a row alike: it has no gradient but rounding.
        norm, bound = expected[1][name].norm(), 1e-6 * size
        bound = bound if name.endswith(KEY_BIAS) else tolerance * (norm + 1e-3 * size)
        assert (gradient - expected[1][name]).norm() <= bound, name


@pytest.fixture
def training():
    return Training(
        steps=13, batch_size=11, checkpoint_every=5, evaluate_every=2, warmup_steps=6, learning_rate=0.01
    )


LAYER = Model(heads=2, width=10, mlp_ratio=1.1, norm="post", activation="relu", init="encoder")
STACK = Model(layers=3, heads=2, head_dim=5, width=17, mlp_ratio=1.5)
NARROW = Model(layers=3, heads=2, head_dim=2, width=37, mlp_ratio=0.0)
