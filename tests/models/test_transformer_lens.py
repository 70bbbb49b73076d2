"""A member in TransformerLens has the same logits, patterns and heads; an adapted one has its calls."""

import os
import warnings
from importlib.util import find_spec

import pytest
import torch

from hopscope.errors import UserError
from hopscope.models.transformer_lens import HookedMember, is_native, to_transformer_lens

from .samples import VARIANTS, config, inputs, lively

NATIVE = [name for name, changes in VARIANTS.items() if is_native(config(**changes))]


@pytest.fixture
def transformer_lens():
    if find_spec("transformer_lens") is None:
        missing = "transformer_lens is not installed: `pip install -e .[transformer-lens]`"
        if os.environ.get("HOPSCOPE_REQUIRE_TRANSFORMER_LENS") == "1":
            pytest.fail(f"{missing}, and HOPSCOPE_REQUIRE_TRANSFORMER_LENS=1 asks for it")
        pytest.skip(missing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformer_lens
    return transformer_lens


@pytest.mark.extras
@pytest.mark.parametrize("name", NATIVE)
def test_a_native_model_is_the_same(transformer_lens, name):
    module = lively(config(**VARIANTS[name])).member(1)
    given = inputs(module.config)[1]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hooked = to_transformer_lens(module)
        logits, cache = hooked.run_with_cache(given)
        expected = module(given)
    assert torch.allclose(logits, expected, atol=2e-5)
    ours = module.cache(given)
    for layer in range(module.config.layers):
        for site in ("attn.hook_pattern", "attn.hook_z", "attn.hook_q", "hook_resid_post", "hook_attn_out"):
            there = cache[f"blocks.{layer}.{site}"]
            here = ours[f"blocks.{layer}.{site}"]
            assert there.shape == here.shape and torch.allclose(there, here, atol=2e-5), (layer, site)


def test_what_transformer_lens_has_no_model_for_is_refused():
    assert NATIVE and len(NATIVE) < len(VARIANTS)
    with pytest.raises(UserError, match="HookedMember"):
        to_transformer_lens(lively(config(norm="post")).member(0))


@pytest.mark.parametrize("name", ["post-norm", "vectors that carry positions", "as it is"])
@torch.no_grad()
def test_an_adapted_member_has_the_two_calls(name):
    module = lively(config(**VARIANTS[name])).member(0)
    given = inputs(module.config)[0]
    hooked = HookedMember(module)
    predictions, cache = hooked.run_with_cache(given)
    assert torch.equal(predictions, module(given)) and torch.equal(hooked(given), predictions)
    site = "blocks.1.attn.hook_z"
    assert torch.equal(cache[site], module.cache(given)[site])
    seen = []

    def ablate(z, hook):
        seen.append(hook)
        z[:, :, 2] = 0.0
        return z

    ablated = hooked.run_with_hooks(given, fwd_hooks=[(site, ablate), ("hook_embed", lambda x, hook: None)])
    assert seen == [site]

    def without(z):
        z[:, :, 2] = 0.0
        return z

    expected = module.intervene(_batch(given), {site: without})
    assert torch.allclose(ablated[:, list(module.config.readout_positions)], expected, atol=1e-6)
    with pytest.raises(UserError, match=r"found 'blocks\.9\.hook_z'"):
        hooked.run_with_hooks(given, fwd_hooks=[("blocks.9.hook_z", ablate)])


def _batch(given):
    from hopscope.tasks.batch import Batch

    return Batch(inputs=given, targets=torch.zeros(len(given), 1, dtype=torch.long))
