"""Named sites: which there are, their shapes, and that each holds what its name says."""

import pytest
import torch
from tests.oracles.sites import site_shape
from torch.nn import functional

from hopscope.models.cache import Cache
from hopscope.models.ensemble import Ensemble
from hopscope.models.sites import site_names
from hopscope.models.transformer import Transformer

from .samples import BATCH, HEADS, LAYERS, MEMBERS, POSITIONS, SEEDS, VARIANTS, WIDTH, config, inputs, lively


@pytest.fixture(params=VARIANTS)
def model(request):
    return lively(config(**VARIANTS[request.param]))


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


def test_sites_have_the_shapes_and_the_order_that_are_promised(model):
    given = inputs(model.config)
    promised = {name: site_shape(name, model.config, BATCH) for name in site_names(model.config)}
    ensemble, member = model.cache(given), model.member(1).cache(given[1])
    assert {name: tuple(member[name].shape) for name in member} == promised
    assert {name: tuple(ensemble[name].shape) for name in ensemble} == {
        name: (MEMBERS, *shape) for name, shape in promised.items()
    }
    assert list(member) == list(ensemble) == list(promised)


def test_names_are_those_of_transformer_lens():
    names = site_names(config(layers=1))
    assert names == [
        "hook_embed",
        "hook_pos_embed",
        "blocks.0.hook_resid_pre",
        "blocks.0.attn.hook_q",
        "blocks.0.attn.hook_k",
        "blocks.0.attn.hook_attn_scores",
        "blocks.0.attn.hook_v",
        "blocks.0.attn.hook_pattern",
        "blocks.0.attn.hook_z",
        "blocks.0.hook_attn_out",
        "blocks.0.hook_resid_mid",
        "blocks.0.mlp.hook_pre",
        "blocks.0.mlp.hook_post",
        "blocks.0.hook_mlp_out",
        "blocks.0.hook_resid_post",
        "ln_final.hook_normalized",
        "predictions",
    ]


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"mlp_ratio": 0.0}, {"hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out"}),
        ({"norm": "post"}, {"ln_final.hook_normalized"}),
        ({"norm": "none"}, {"ln_final.hook_normalized"}),
        ({"positions": "none"}, {"hook_pos_embed"}),
        ({"input_kind": "vectors", "positions": "carried"}, {"hook_pos_embed"}),
        ({"input_kind": "vectors", "positions": "carried", "position_size": 3}, set()),
    ],
)
def test_what_a_model_lacks_has_no_name(changes, absent):
    here, everything = (site_names(config(layers=1, **each)) for each in (changes, {}))
    assert set(everything) - set(here) == {
        name for name in everything if name.removeprefix("blocks.0.") in absent
    }


def test_a_member_and_its_ensemble_hold_the_same(model):
    given = inputs(model.config)
    ensemble = model.cache(given)
    for index in range(MEMBERS):
        for name, tensor in model.member(index).cache(given[index]).items():
            close(ensemble[name][index], tensor, msg=name)
    stream = f"blocks.{model.config.layers - 1}.hook_resid_post"
    assert not torch.allclose(ensemble[stream][0], ensemble[stream][1], atol=0.1)


def test_a_fresh_member_and_its_ensemble_hold_the_same_to_a_millionth(model):
    fresh = Transformer.initial(model.config, SEEDS)
    given = inputs(model.config)
    ensemble = fresh.cache(given)
    for name, tensor in fresh.member(1).cache(given[1]).items():
        close(ensemble[name][1], tensor, rtol=1e-6, atol=1e-6, msg=name)


@torch.no_grad()
def test_predictions_are_those_of_the_model_and_of_the_last_stream(model):
    given, rows = inputs(model.config), list(model.config.readout_positions)
    ensemble, module = model.cache(given), model.member(1)
    member = module.cache(given[1])
    close(ensemble["predictions"], model(given))
    close(ensemble["predictions"], Ensemble(model)(given))
    close(member["predictions"], module(given[1])[:, rows])
    last = f"blocks.{model.config.layers - 1}.hook_resid_post"
    close(module.readout(module.final_norm(member[last]))[:, rows], member["predictions"])
    close(model.read_out(ensemble[last])[:, :, rows], ensemble["predictions"])
    if model.config.norm == "pre":
        close(module.readout(member["ln_final.hook_normalized"])[:, rows], member["predictions"])


@torch.no_grad()
def test_every_site_is_made_of_those_before_it(model):
    """Written out with the plain module's own maps, so that no name can hold its neighbour's tensor."""
    given, shape, module = inputs(model.config)[1], model.config, model.member(1)
    cache = module.cache(given)
    embedded = cache["hook_embed"] + cache.get("hook_pos_embed", 0.0)
    close(cache["blocks.0.hook_resid_pre"], embedded)
    for number, block in enumerate(module.layers):
        here = {name: cache[f"blocks.{number}.{name}"] for name in SHARED}
        read = block.attention_norm if shape.norm == "pre" else torch.nn.Identity()
        after = block.attention_norm if shape.norm == "post" else torch.nn.Identity()
        for site, projection in (("hook_q", "query"), ("hook_k", "key"), ("hook_v", "value")):
            projected = getattr(block.attention, projection)(read(here["hook_resid_pre"]))
            close(here[f"attn.{site}"].flatten(-2), projected)
        scores = torch.einsum("bqhd,bkhd->bhqk", here["attn.hook_q"], here["attn.hook_k"])
        hidden = torch.ones(POSITIONS, POSITIONS).triu(1).bool() & torch.tensor(shape.causal)
        scores = (scores / shape.head_size**0.5).masked_fill(hidden, -torch.inf)
        close(here["attn.hook_attn_scores"], scores)
        close(here["attn.hook_pattern"], scores.softmax(-1))
        z = torch.einsum("bhqk,bkhd->bqhd", here["attn.hook_pattern"], here["attn.hook_v"])
        close(here["attn.hook_z"], z)
        close(here["hook_attn_out"], block.attention.output(z.flatten(-2)))
        middle = after(here["hook_resid_pre"] + here["hook_attn_out"])
        close(here["hook_resid_post"], after_mlp(cache, number, block, shape, middle))
        if number + 1 < shape.layers:
            assert torch.equal(cache[f"blocks.{number + 1}.hook_resid_pre"], here["hook_resid_post"])


SHARED = [
    "hook_resid_pre",
    *(f"attn.hook_{part}" for part in ("q", "k", "v", "attn_scores", "pattern", "z")),
    "hook_attn_out",
    "hook_resid_post",
]
"""Sites of a layer that every model has."""


def after_mlp(cache, number, block, shape, middle):
    if not shape.mlp_size:
        return middle
    mid, pre, post, out = (
        cache[f"blocks.{number}.{name}"]
        for name in ("hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out")
    )
    close(mid, middle)
    close(pre, block.mlp.inner(block.mlp_norm(mid) if shape.norm == "pre" else mid))
    close(post, functional.relu(pre) if shape.activation == "relu" else functional.gelu(pre))
    close(out, block.mlp.outer(post))
    return block.mlp_norm(mid + out) if shape.norm == "post" else mid + out


def test_the_cache_of_a_short_input_has_the_readout_positions_that_there_are():
    model = lively(config(readout=(1, 4, 9)))
    given = inputs(model.config, positions=5)
    cache, member = model.cache(given), model.member(0).cache(given[0])
    assert cache["predictions"].shape[2] == member["predictions"].shape[1] == 2
    assert cache["blocks.2.attn.hook_pattern"].shape == (MEMBERS, BATCH, HEADS, 5, 5)
    close(cache["predictions"][0], member["predictions"])


def test_one_batch_may_be_handed_to_every_member():
    model = lively(config())
    shared = inputs(model.config, members=1)
    with_axis, without = model.cache(shared), model.cache(shared[0])
    own = model.cache(shared.expand(MEMBERS, -1, -1))
    for name, tensor in own.items():
        close(with_axis[name], tensor)
        assert torch.equal(without[name], with_axis[name])
    assert torch.equal(
        model.member(1).cache(shared)["predictions"], model.member(1).cache(shared[0])["predictions"]
    )


def test_a_cache_holds_values_of_its_own_without_gradients():
    model = lively(config())
    for weight in model.weights.values():
        weight.requires_grad_()
    given, before = inputs(model.config), {name: w.detach().clone() for name, w in model.weights.items()}
    for cache in (model.cache(given), model.member(0).cache(given[0]), model.cache(given[:, :1])):
        assert not any(tensor.requires_grad for tensor in cache.values())
        for tensor in cache.values():
            tensor.zero_()
    assert all(torch.equal(weight, before[name]) for name, weight in model.weights.items())


def test_a_cache_is_a_mapping():
    tensors = {"hook_embed": torch.zeros(2, 3), "predictions": torch.zeros(5)}
    cache = Cache(tensors)
    assert isinstance(cache, Cache) and dict(cache) == tensors and len(cache) == 2
    assert "hook_embed" in cache and "hook_embedding" not in cache
    assert cache.get("hook_embed") is tensors["hook_embed"]
    assert cache.get("elsewhere") is None and cache.get("elsewhere", 7) == 7
    assert repr(cache) == "Cache of 2 sites\nhook_embed   [2, 3]\npredictions  [5]"


def test_the_sizes_of_these_tests_are_different():
    shape = config()
    sizes = (
        MEMBERS,
        BATCH,
        POSITIONS,
        HEADS,
        LAYERS,
        WIDTH,
        shape.head_size,
        shape.mlp_size,
        shape.output_size,
    )
    assert len(set(sizes)) == len(sizes)
