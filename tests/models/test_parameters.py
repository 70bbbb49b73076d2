import itertools
import math

import pytest
import torch
from scipy import stats
from torch import nn

from hopscope.models.parameters import Parameters, parameter_specs

from .samples import config, page_config


def torch_modules(width, heads):
    return nn.ModuleDict(
        {
            "token": nn.Embedding(6, width),
            "position": nn.Embedding(9, width),
            "layer": nn.TransformerEncoderLayer(width, heads, dim_feedforward=2 * width, dropout=0.0),
            "readout": nn.Linear(width, 6),
        }
    )


def torch_weights(width, heads):
    """Freshly drawn weights of torch's own modules, under our names."""
    modules = torch_modules(width, heads)
    state = dict(modules.named_parameters())
    ours = {"embed.token.weight": state["token.weight"], "embed.position.weight": state["position.weight"]}
    for kind in ("weight", "bias"):
        split = state[f"layer.self_attn.in_proj_{kind}"].chunk(3)
        for part, tensor in zip(("query", "key", "value"), split, strict=True):
            ours[f"layers.0.attention.{part}.{kind}"] = tensor
        for name, theirs in {
            "layers.0.attention.output": "layer.self_attn.out_proj",
            "layers.0.attention_norm": "layer.norm1",
            "layers.0.mlp.inner": "layer.linear1",
            "layers.0.mlp.outer": "layer.linear2",
            "layers.0.mlp_norm": "layer.norm2",
            "readout": "readout",
        }.items():
            ours[f"{name}.{kind}"] = state[f"{theirs}.{kind}"]
    return {name: tensor.detach() for name, tensor in ours.items()}


@pytest.mark.parametrize(("width", "heads"), [(16, 1), (32, 1), (32, 2)])
def test_the_published_models_have_as_many_parameters_as_torch_modules(width, heads):
    with torch.random.fork_rng():
        theirs = torch_modules(width, heads)
    count = sum(math.prod(spec.shape) for spec in parameter_specs(page_config(width, heads)))
    assert count == sum(parameter.numel() for parameter in theirs.parameters())


def test_torch_initialisation_has_the_distribution_of_torch_modules():
    width, heads = 32, 2
    seeds = torch.arange(67)
    ours = Parameters.initial(page_config(width, heads), seeds).views()
    with torch.random.fork_rng():
        torch.manual_seed(71)
        drawn = [torch_weights(width, heads) for _ in seeds]
    assert drawn[0].keys() == ours.keys()
    for name, view in ours.items():
        theirs = torch.stack([weights[name] for weights in drawn])
        assert theirs[0].numel() == view[0].numel(), name
        if float(theirs.std()) == 0.0:
            assert (view == theirs.flatten()[0]).all(), name
        else:
            assert stats.ks_2samp(view.flatten(), theirs.flatten()).pvalue > 1e-4, name
            assert float(view.abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.2), name


def test_gpt2_initialisation_is_normal_and_smaller_into_the_residual_stream():
    layers = 3
    ours = Parameters.initial(config(layers=layers, init="gpt2", norm="pre"), torch.arange(73)).views()
    for name, view in ours.items():
        if name.endswith("norm.weight"):
            assert (view == 1.0).all(), name
        elif name.endswith("bias"):
            assert (view == 0.0).all(), name
        else:
            residual = name.endswith(("attention.output.weight", "mlp.outer.weight"))
            deviation = 0.02 / math.sqrt(2 * layers) if residual else 0.02
            assert stats.kstest(view.flatten(), "norm", (0.0, deviation)).pvalue > 1e-4, name


def test_linear_initialisation_is_that_of_torchs_linear_maps():
    ours = Parameters.initial(config(layers=2, init="linear", norm="none"), torch.arange(73)).views()
    assert all(name.startswith("embed.") or f"{name.rpartition('.')[0]}.bias" in ours for name in ours)
    for name, view in ours.items():
        if name.startswith("embed."):  # looked up, as torch.nn.Embedding draws it
            assert stats.kstest(view.flatten(), "norm").pvalue > 1e-4, name
            continue
        fan_in, fan_out = ours[f"{name.rpartition('.')[0]}.weight"].shape[1:]
        with torch.random.fork_rng():
            torch.manual_seed(79)
            modules = [nn.Linear(fan_in, fan_out) for _ in range(73)]
        theirs = torch.stack([getattr(module, name.rpartition(".")[2]) for module in modules]).detach()
        assert stats.ks_2samp(view.flatten(), theirs.flatten()).pvalue > 1e-4, name
        assert float(view.abs().max()) <= fan_in**-0.5


@pytest.mark.parametrize("gamma", [0.5, 0.95])
def test_a_number_sets_the_deviation_by_fan_in(gamma):
    ours = Parameters.initial(config(layers=2, init=gamma, norm="none"), torch.arange(73)).views()
    for name, view in ours.items():
        if name.endswith("bias"):
            assert (view == 0.0).all(), name
        else:
            assert stats.kstest(view.flatten(), "norm", (0.0, view.shape[1] ** -gamma)).pvalue > 1e-4, name


def test_mimetic_initialisation_matches_equal_tokens_and_tells_positions_by_sines():
    shape = config(layers=2, heads=1, width=64, head_dim=16, norm="pre", init="mimetic", positions="learned")
    ours = Parameters.initial(shape, torch.arange(5)).views()
    plain = Parameters.initial(shape.model_copy(update={"init": "encoder"}), torch.arange(5)).views()
    for name, view in ours.items():
        if name.endswith(("query.weight", "key.weight")):
            query = ours[name.replace("key", "query")]
            assert torch.equal(view, query)
            assert float(query.std()) == pytest.approx(64**-0.5, rel=0.05)
            # Products of queries and keys are near a multiple of the identity.
            product = query @ query.transpose(1, 2)
            diagonal = product.diagonal(dim1=1, dim2=2)
            assert float(diagonal.mean()) == pytest.approx(16 / 64, rel=0.1)
            assert float(product.mean()) == pytest.approx(float(diagonal.mean()) / 64, abs=0.01)
        elif name != "embed.position.weight":
            assert torch.equal(view, plain[name]), name
    codes = ours["embed.position.weight"]
    assert all(torch.equal(codes[0], other) for other in codes)
    assert float(codes.square().mean()) == pytest.approx(1.0, rel=0.05)
    products = codes[0] @ codes[0].T
    for distance in range(1, 4):
        # What two positions have in common depends on their distance alone.
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("init", ["gpt2", "linear", "encoder", 0.7, "mimetic"])
def test_a_member_starts_alike_whoever_is_beside_it(init):
    seeds = torch.tensor([31, 37, 41, 1 << 62, 43])
    together = Parameters.initial(config(init=init), seeds)
    for index in range(len(seeds)):
        alone = Parameters.initial(config(init=init), seeds[index : index + 1])
        assert torch.equal(together.flat[index], alone.flat[0])
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(together.flat, 2))


def test_every_tensor_has_its_own_draws():
    views = Parameters.initial(config(norm="none"), torch.tensor([31])).views()
    random = {name: view.flatten() for name, view in views.items() if float(view.std()) > 0}
    for (first, a), (second, b) in itertools.combinations(random.items(), 2):
        shared = min(len(a), len(b))
        correlation = torch.corrcoef(torch.stack((a[:shared], b[:shared])))[0, 1]
        assert float(correlation.abs()) < 0.99, (first, second)


def test_views_fill_the_flat_buffer_without_overlap():
    parameters = Parameters(parameter_specs(config()), 2)
    for number, view in enumerate(parameters.views().values(), start=1):
        assert not view.any()
        view.fill_(float(number))
    counts = parameters.flat.long().flatten().bincount()
    sizes = [2 * math.prod(spec.shape) for spec in parameters.specs]
    assert counts[1:].tolist() == sizes
    assert counts[0] < 2 * 16 * len(sizes), "gaps are for alignment only"
    assert all(
        view.data_ptr() % 64 == parameters.flat.data_ptr() % 64 for view in parameters.views().values()
    )


def test_views_of_another_buffer_are_cut_alike():
    parameters = Parameters.initial(config(), torch.tensor([31, 37]))
    gradient = torch.randn(parameters.flat.shape, generator=torch.Generator().manual_seed(53))
    other = parameters.views(gradient)
    parameters.flat.copy_(gradient)
    for name, view in parameters.views().items():
        assert torch.equal(view, other[name]), name


def test_weight_decay_is_meant_for_the_matrices_of_linear_maps():
    parameters = Parameters(parameter_specs(config()), 1)
    marked = parameters.views(parameters.decay_mask[None])
    for name, mask in marked.items():
        linear = name.endswith("weight") and not name.startswith(("embed.token", "embed.position"))
        meant = linear and not name.endswith("norm.weight")
        assert bool(mask.all()) == meant and bool(mask.any()) == meant, name


def test_weights_are_taken_over_by_name():
    source = Parameters.initial(config(), torch.tensor([31, 37]))
    target = Parameters(parameter_specs(config()), 2)
    target.load(dict(reversed(source.views().items())))
    assert torch.equal(target.flat, source.flat)


@pytest.mark.parametrize("fault", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_are_refused(fault):
    target = Parameters(parameter_specs(config()), 2)
    weights = {name: view.clone() for name, view in target.views().items()}
    if fault == "missing":
        del weights["readout.bias"]
    elif fault == "unknown":
        weights["readout.gain"] = torch.zeros(2, 3)
    else:
        weights["readout.bias"] = torch.zeros(2, 3)
    complaint = (
        r"readout.bias: expected shape \(2, 29\), found \(2, 3\)" if fault == "shape" else "expected weights"
    )
    with pytest.raises(ValueError, match=complaint):
        target.load(weights)
