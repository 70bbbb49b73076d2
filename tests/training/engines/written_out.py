"""Gradients that are written out by hand against autograd, their slow obvious reference."""

import torch

from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer

SEEDS = torch.tensor([3, 5, 7])
KEY_BIAS = "attention.key.bias"


def config(**changes):
    shape = {
        "layers": 2,
        "heads": 3,
        "width": 11,
        "head_dim": 5,
        "mlp_ratio": 0.0,
        "readout": (4, 6),
        **changes,
    }
    return TransformerConfig(
        positions="carried", length=7, input_kind="vectors", input_size=4, output_size=13, **shape
    )


def model_of(shape, seeds=SEEDS):
    """Members whose biases, gains and shifts are all at work."""
    model = Transformer.initial(shape, seeds)
    for index, seed in enumerate(seeds.tolist()):
        noise = torch.randn(model.parameters.flat.shape[1], generator=torch.Generator().manual_seed(seed))
        model.parameters.flat[index] += 0.2 * noise
    return model


def drawn(shape, batch, seeds=SEEDS):
    """Inputs and targets."""
    sizes = ((shape.length, shape.input_size), (len(shape.readout_positions), shape.output_size))
    sources = [torch.Generator().manual_seed(seed) for seed in seeds.tolist()]
    inputs, targets = (
        torch.stack([torch.randn(batch, *size, generator=source) for source in sources]) for size in sizes
    )
    return inputs, targets


def reference(model, inputs, targets):
    """Predictions and gradient by tensor, by autograd through plain modules in double precision."""
    readout = list(model.config.readout_positions)
    predictions, gradients = [], []
    for index in range(len(inputs)):
        member = model.member(index).double()
        predictions.append(member(inputs[index].double())[:, readout])
        (predictions[-1] - targets[index]).square().mean().backward()
        gradients.append({name: weight.grad.t() for name, weight in member.named_parameters()})
    together = {name: torch.stack([each[name] for each in gradients]) for name in gradients[0]}
    return torch.stack(predictions).detach(), together


def by_way(way, model, inputs, targets):
    """Predictions and gradient by the class of an engine's gradient, or by what was made of it."""
    if isinstance(way, type):
        way = way(model.config, model.parameters, inputs.shape[1])
    gradient = torch.full_like(model.parameters.flat, 0.0)
    predictions = torch.full_like(targets, torch.nan)

    def loss_gradient(member, samples, found):
        predictions[member, samples] = found
        return 2.0 * (found - targets[member, samples]) / targets[0].numel()

    way(inputs, loss_gradient, gradient)
    return predictions, gradient


def assert_equal(way, model, inputs, targets, tolerance=1e-5):
    expected_predictions, expected = reference(model, inputs, targets)
    predictions, gradient = by_way(way, model, inputs, targets)
    torch.testing.assert_close(predictions.double(), expected_predictions, rtol=1e-5, atol=1e-5)
    size = max(each.abs().max() for each in expected.values())
    for name, view in model.parameters.views(gradient).items():
        difference, norm = (view - expected[name]).norm(), expected[name].norm()
        # A key bias shifts all scores of a row alike: it has no gradient but rounding.
        bound = 1e-6 * size if name.endswith(KEY_BIAS) else tolerance * (norm + 1e-3 * size)
        assert difference <= bound, (name, difference / (norm + 1e-30))
