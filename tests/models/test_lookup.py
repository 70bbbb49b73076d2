"""The faster way for small one-layer token models against the plain module; gradients too, for it is trained by."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.models import lookup

from .samples import BATCH, MEMBERS, OUTPUT, POSITIONS, TABLES, config, inputs, lively

SMALL = {"layers": 1, "input_size": 7, "head_dim": 3}

SHAPES = st.fixed_dictionaries(
    {
        "heads": st.integers(1, 3),
        "norm": st.sampled_from(["pre", "post", "none"]),
        "mlp_ratio": st.sampled_from([0.0, 1.0]),
        "activation": st.sampled_from(["relu", "gelu"]),
        "causal": st.booleans(),
        "positions": st.sampled_from(["learned", "none"]),
        "readout": st.none()
        | st.sets(st.integers(0, POSITIONS - 1), min_size=1).map(lambda s: tuple(sorted(s))),
    }
)


@torch.no_grad()
@settings(max_examples=50)
@given(SHAPES)
def test_equal_to_the_plain_module_and_to_the_general_way(shape):
    model = lively(config(**SMALL, **shape))
    assert lookup.fits(model.config)
    given_, rows = inputs(model.config), list(model.config.readout_positions)
    fast, general = model(given_), model(given_, every_position=True)[:, :, rows]
    assert fast.shape == (MEMBERS, BATCH, len(rows), OUTPUT)
    torch.testing.assert_close(fast, general, rtol=1e-5, atol=1e-5)
    for index in range(MEMBERS):
        alone = model.member(index)(given_[index])[:, rows]
        torch.testing.assert_close(fast[index], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_batch_may_be_handed_to_every_member():
    model = lively(config(**SMALL))
    shared = inputs(model.config, members=1)
    torch.testing.assert_close(model(shared), model(shared.repeat(MEMBERS, 1, 1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_equal_those_of_the_plain_module(norm):
    model = lively(config(**SMALL, norm=norm, readout=(0, 3, 10)))
    given_ = inputs(model.config)
    weights = [view.requires_grad_() for view in model.weights.values()]
    gradients = torch.autograd.grad(model(given_).pow(2).mean((1, 2, 3)).sum(), weights)
    for index in range(MEMBERS):
        module = model.member(index)
        module(given_[index])[:, [0, 3, 10]].pow(2).mean().backward()
        expected = dict(module.named_parameters())
        for name, gradient in zip(model.weights, gradients, strict=True):
            theirs = expected[name].grad
            theirs = theirs.T if theirs.ndim == 2 and name not in TABLES else theirs
            torch.testing.assert_close(gradient[index], theirs, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "changes",
    [{"layers": 2}, {"input_kind": "vectors"}, {"input_size": 13}],
    ids=["layers", "vectors", "large"],
)
def test_other_models_go_the_general_way(changes):
    assert not lookup.fits(config(**SMALL | changes))
