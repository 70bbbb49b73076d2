"""Rounded products and torch's attention, each beside the float32 softmax that it stands for."""

import pytest
import torch

from hopscope.models.edits import Edits
from hopscope.models.interventions import AblateHead
from hopscope.models.linear import affine, linear, linears
from hopscope.models.transformer import Transformer

from .samples import BATCH, HEADS, MEMBERS, POSITIONS, batch, config, inputs, lively

CARRIED = {"input_kind": "vectors", "positions": "carried", "position_size": 3}
KINDS = {
    "all positions": {},
    "evenly spaced readout": {"readout": (1, 4, 7, 10)},
    "the last positions": {"readout": (8, 9, 10)},
    "unevenly spaced readout": {"readout": (0, 3, 10)},
    "one position": {"readout": (5,)},
    "not causal": {"causal": False, "readout": (0, 3, 10)},
    "post-norm": {"norm": "post", "readout": (0, 3, 10)},
    "vectors": CARRIED | {"readout": (9, 10)},
}


@pytest.fixture(params=KINDS)
def explicit(request):
    model = lively(config(**KINDS[request.param]))
    assert model.attention == "explicit"
    return model


def gradient_of(model, given):
    weights = [weight.requires_grad_() for weight in model.weights.values()]
    return torch.autograd.grad(model(given).square().sum((1, 2, 3)).sum(), weights)


def test_fused_attention_is_a_softmax_between_two_products(explicit):
    given = inputs(explicit.config)
    fused = Transformer(explicit.config, explicit.parameters, attention="fused")
    torch.testing.assert_close(fused(given), explicit(given), rtol=1e-5, atol=1e-5)
    everywhere = [model(given, every_position=True) for model in (fused, explicit)]
    torch.testing.assert_close(*everywhere, rtol=1e-5, atol=1e-5)
    for name, found, expected in zip(
        explicit.weights, gradient_of(fused, given), gradient_of(explicit, given), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-4, msg=name)


def test_patterns_and_edits_leave_fused_attention_aside(explicit):
    fused = Transformer(explicit.config, explicit.parameters, attention="fused")
    samples = batch(explicit.config)
    edits = Edits(explicit, [AblateHead(layer=0, heads=(1,), by="zero")], samples)
    if explicit.config.input_kind == "tokens":
        assert torch.equal(fused(samples.inputs, edits), explicit(samples.inputs, edits))
    patterns = [model.capture(samples.inputs)[1].patterns for model in (fused, explicit)]
    for found, expected in zip(*patterns, strict=True):
        assert found.shape == (MEMBERS, BATCH, HEADS, POSITIONS, POSITIONS)
        assert torch.equal(found, expected)


def test_rounded_products_are_close_and_not_equal(explicit):
    given = inputs(explicit.config)
    rounded = explicit.at("bfloat16")
    assert (rounded.precision, rounded.attention) == ("bfloat16", "fused")
    found, expected = rounded(given), explicit(given)
    assert found.dtype == torch.float32
    # A bfloat16 has eight bits: about three digits are left after a few layers.
    assert 1e-4 < (found - expected).norm() / expected.norm() < 2e-2
    pairs = zip(gradient_of(rounded, given), gradient_of(explicit, given), strict=True)
    flat, true = (torch.cat([each.flatten(1) for each in part], 1) for part in zip(*pairs, strict=True))
    assert flat.dtype == torch.float32
    assert (torch.cosine_similarity(flat, true) > 0.999).all()
    assert ((flat - true).norm(dim=1) / true.norm(dim=1) > 1e-4).all()


def test_both_kinds_of_attention_round_alike(explicit):
    given = inputs(explicit.config)
    fused, written_out = (
        Transformer(explicit.config, explicit.parameters, "bfloat16", attention)
        for attention in ("fused", "explicit")
    )
    expected = explicit(given)
    torch.testing.assert_close(fused(given), written_out(given), rtol=0.0, atol=0.05 * expected.std().item())
    captured, _ = written_out.capture(given)
    every = written_out(given, every_position=True)
    assert torch.equal(captured, every)


def test_precisions_share_weights():
    model = lively(config(layers=1, **CARRIED))
    rounded = model.at("bfloat16")
    assert rounded.at("bfloat16") is rounded and model.at("float32") is model
    given = inputs(model.config)
    before = rounded(given)
    with torch.no_grad():
        model.weights["readout.bias"] += 1.0
    torch.testing.assert_close(rounded(given), before + 1.0)
    chosen = Transformer(model.config, model.parameters, "bfloat16", "explicit").select([1])
    assert (chosen.precision, chosen.attention) == ("bfloat16", "explicit")
    assert {weight.dtype for weight in chosen.weights.values()} == {torch.float32}


def test_token_models_that_look_up_do_so_in_float32_only():
    shape = config(layers=1, input_size=7, positions="learned")
    model = lively(shape)
    given = inputs(shape)
    # Looked-up products are those of a table, so rounding would fall elsewhere than in a deeper model.
    found, _ = model.at("bfloat16").capture(given)
    torch.testing.assert_close(model.at("bfloat16")(given), found, rtol=0.0, atol=0.05)
    torch.testing.assert_close(model(given), found, rtol=0.0, atol=0.2)


def test_maps_of_the_same_input_are_one_product():
    weights = {
        "a.weight": torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(7)),
        "a.bias": torch.arange(10.0).view(2, 5),
        "b.weight": torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(11)),
        "b.bias": torch.arange(14.0).view(2, 7),
    }
    x = torch.randn(2, 11, 13, 3, generator=torch.Generator().manual_seed(13))
    for precision, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.0)):
        together = linears(weights, ["a", "b"], x, precision)
        for name, found in zip("ab", together, strict=True):
            expected = linear(weights, name, x, precision)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_a_rounded_product_sums_in_float32():
    """With eight bits the sum of many equal terms would come to a halt, and the small bias would be lost."""
    x = torch.full((1, 1, 1, 512), 1.0 + 2.0**-4)
    weight = torch.full((1, 512, 1), 2.0**-9)
    assert affine(x, weight, torch.tensor([[2.0**-12]]), torch.bfloat16).item() == 1.0 + 2.0**-4 + 2.0**-12
