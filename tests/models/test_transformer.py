"""One module, with a member axis or without: the same numbers, sites, interventions, weights and starts."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from hopscope.errors import UserError
from hopscope.models.config import Model, TransformerConfig
from hopscope.models.sites import Cache, calling, site_names
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Permutation, Retrieval

MEMBERS, BATCH = 3, 5
COMMON = {
    "layers": 2,
    "heads": 2,
    "head_dim": 7,
    "width": 11,
    "mlp_ratio": 1.2,
    "length": 13,
    "output_size": 17,
}
VECTORS = {
    "input_kind": "vectors",
    "input_size": 19,
    "positions": "carried",
    "position_size": 7,
    "readout": (1, 4, 5),
}
CONFIGS = [
    {"input_size": 19, "norm": norm, "positions": positions, "activation": activation}
    for norm, positions, activation in [
        ("pre", "learned", "gelu"),
        ("post", "pair", "relu"),
        ("none", "none", "gelu"),
    ]
] + [VECTORS, {**VECTORS, "causal": False, "mlp_ratio": 0.0}]


def config_of(**fields):
    return TransformerConfig(**(COMMON | fields))


def inputs_of(config, *lead):
    generator = torch.Generator().manual_seed(23)
    shape = (*lead, config.length)
    if config.input_kind == "tokens":
        return torch.randint(config.input_size, shape, generator=generator)
    return torch.randn(*shape, config.input_size, generator=generator)


@pytest.fixture(params=CONFIGS, ids=str)
def ensemble(request):
    return Transformer.initial(config_of(**request.param), torch.arange(MEMBERS))


def plainly(model, inputs):
    """The forward pass in torch's own words, sample by sample, head by head."""
    config, weights = model.config, model.weights()

    def linear(x, name):
        return functional.linear(x, weights[f"{name}.weight"].T, weights[f"{name}.bias"])

    def norm(x, name):
        return functional.layer_norm(x, (config.width,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    predictions = []
    for sample in inputs:
        if config.input_kind == "tokens":
            stream = weights["embed.token.weight"][sample]
        else:
            stream = linear(sample, "embed.vector")
        if config.position_count:
            stream = stream + weights["embed.position.weight"][list(config.position_codes)]
        for layer in (f"layers.{number}." for number in range(config.layers)):
            read = norm(stream, f"{layer}attention_norm") if config.norm == "pre" else stream
            parts = [linear(read, f"{layer}attention.{part}") for part in ("query", "key", "value")]
            heads = []
            for query, key, value in zip(*(part.split(config.head_size, -1) for part in parts), strict=True):
                scores = query @ key.T / math.sqrt(config.head_size)
                if config.causal:
                    scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
                heads.append(scores.softmax(-1) @ value)
            stream = stream + linear(torch.cat(heads, -1), f"{layer}attention.output")
            stream = norm(stream, f"{layer}attention_norm") if config.norm == "post" else stream
            if config.mlp_size:
                read = norm(stream, f"{layer}mlp_norm") if config.norm == "pre" else stream
                hidden = getattr(functional, config.activation)(linear(read, f"{layer}mlp.inner"))
                stream = stream + linear(hidden, f"{layer}mlp.outer")
                stream = norm(stream, f"{layer}mlp_norm") if config.norm == "post" else stream
        stream = norm(stream, "final_norm") if config.norm == "pre" else stream
        predictions.append(linear(stream, "readout"))
    return torch.stack(predictions)


def test_members_and_ensemble_predict_what_plain_torch_does(ensemble):
    inputs = inputs_of(ensemble.config, MEMBERS, BATCH)
    together = ensemble(inputs, every_position=True)
    for index in range(MEMBERS):
        one = ensemble.member(index)
        torch.testing.assert_close(together[index], plainly(one, inputs[index]), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            one(inputs[index], every_position=True), together[index], rtol=1e-5, atol=1e-5
        )
    rows = list(ensemble.config.readout_positions)
    torch.testing.assert_close(ensemble(inputs), together[:, :, rows], rtol=1e-5, atol=1e-5)
    shared = ensemble(inputs[:1])
    torch.testing.assert_close(shared[0], ensemble(inputs)[0])
    short = ensemble(inputs[:, :, :5])
    if ensemble.config.causal:
        torch.testing.assert_close(
            short, together[:, :, [row for row in rows if row < 5]], rtol=1e-5, atol=1e-5
        )


def test_the_cache_has_every_site_in_order_and_sums_hold(ensemble):
    config, inputs = ensemble.config, inputs_of(ensemble.config, BATCH)
    for model in (ensemble, ensemble.member(1)):
        cache = model.cache(inputs)
        assert list(cache) == site_names(config)
        lead = (MEMBERS,) if model.members else ()
        pattern = cache["blocks.1.attn.hook_pattern"]
        assert cache._repr_html_().count("<svg") == config.layers * config.heads
        assert pattern.shape == (*lead, BATCH, config.heads, config.length, config.length)
        assert cache["blocks.0.attn.hook_z"].shape == (
            *lead,
            BATCH,
            config.length,
            config.heads,
            config.head_size,
        )
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
        if config.norm != "post" and not config.mlp_size:
            total = cache["blocks.0.hook_resid_pre"] + cache["blocks.0.hook_attn_out"]
            torch.testing.assert_close(cache["blocks.1.hook_resid_pre"], total)
        torch.testing.assert_close(cache["predictions"], model(inputs), rtol=1e-5, atol=1e-5)
    some = ensemble.cache(inputs, names=["hook_embed", "predictions"])
    assert list(some) == ["hook_embed", "predictions"]
    with pytest.raises(UserError, match=r"blocks\.0\.hook_resid_pre"):
        cache["blocks.0.hook_resid_pr"]


def test_a_function_at_any_site_changes_what_follows_and_nothing_before(ensemble):
    model = ensemble.member(0)
    batch = Batch(inputs_of(model.config, BATCH), torch.zeros(BATCH, 3, dtype=torch.int64))
    before = model.cache(batch.inputs)
    for name in site_names(model.config):
        cache = Cache()
        found = model.intervene(batch, {name: torch.zeros_like})
        zeroed = calling({name: [torch.zeros_like]})
        model(batch.inputs, lambda site, x, at=zeroed, cache=cache: cache(site, at(site, x)))
        torch.testing.assert_close(found, cache["predictions"])
        earlier = itertools.takewhile(lambda site, name=name: site != name, before)
        assert all(torch.equal(cache[site], before[site]) for site in earlier)
        if name not in ("hook_pos_embed", "blocks.0.attn.hook_q", "blocks.0.attn.hook_k"):
            assert not torch.allclose(found, before["predictions"]), name


def test_gradients_flow_through_sites_and_weights(ensemble):
    inputs = inputs_of(ensemble.config, MEMBERS, BATCH)
    cache = Cache(["blocks.0.attn.hook_z"])
    loss = ensemble(inputs, cache).square().sum()
    found = torch.autograd.grad(loss, [cache["blocks.0.attn.hook_z"], *ensemble.parameters()])
    assert all(gradient.any() for gradient in found)


def test_one_buffer_holds_all_weights(ensemble):
    inputs = inputs_of(ensemble.config, MEMBERS, BATCH)
    before, weights = ensemble(inputs), {name: weight.clone() for name, weight in ensemble.weights().items()}
    flat = ensemble.flatten()
    assert all(start % 16 == 0 for _, start, _, _ in ensemble.layout)
    assert {name: view.shape for name, view in ensemble.views(flat).items()} == {
        name: weight.shape for name, weight in weights.items()
    }
    torch.testing.assert_close(ensemble(inputs), before)
    maps = [name for name, weight in weights.items() if weight.ndim == 3]
    maps = [name for name in maps if name not in ("embed.token.weight", "embed.position.weight")]
    assert ensemble.decay_mask().sum() == sum(weights[name][0].numel() for name in maps)
    flat[1] = 0.0
    for name, weight in ensemble.weights().items():
        assert not weight[1].any() and torch.equal(weight[0], weights[name][0])
    rounded = ensemble.at_precision("bfloat16")
    flat[0] *= 2.0
    assert rounded.weights()["readout.weight"].data_ptr() == ensemble.weights()["readout.weight"].data_ptr()


def test_a_model_in_double_precision_is_one(ensemble):
    inputs = inputs_of(ensemble.config, MEMBERS, BATCH)
    single = ensemble(inputs)
    found = ensemble.double()(inputs.double() if inputs.is_floating_point() else inputs)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), single, rtol=1e-4, atol=1e-4)


@given(gamma=st.floats(0.1, 2.0), layers=st.integers(1, 5))
def test_a_start_of_a_size_has_it(gamma, layers):
    config = config_of(input_size=19, init=gamma, layers=layers, width=110, heads=2, head_dim=55)
    weights = Transformer.initial(config, torch.arange(2)).weights()
    assert weights["layers.0.attention.query.weight"].std().item() == pytest.approx(110**-gamma, rel=0.05)
    assert not weights["readout.bias"].any()


def test_linear_and_encoder_start_as_torch_does():
    config = config_of(**VECTORS, init="linear")
    weights = Transformer.initial(config, torch.arange(MEMBERS)).weights()
    for name, fan_in in (("embed.vector", 19), ("layers.1.attention.output", 14), ("layers.0.mlp.outer", 13)):
        for kind in ("weight", "bias"):
            assert 0.8 < weights[f"{name}.{kind}"].abs().max() * math.sqrt(fan_in) <= 1.0
    encoder = Transformer.initial(config_of(**VECTORS, init="encoder"), torch.arange(MEMBERS)).weights()
    assert encoder["layers.0.attention.value.weight"].abs().max() <= math.sqrt(6.0 / (11 + 3 * 14))
    assert not encoder["layers.0.attention.value.bias"].any() and encoder["layers.0.mlp.inner.bias"].any()


def test_a_member_knows_its_task():
    task = Retrieval(steps=1, chains=3)
    model = Model(layers=1, heads=1, width=5).for_task(task.shape())
    ensemble = Transformer.initial(model, torch.tensor([3, 7])).knowing(lambda: task, [3, 7], 11)
    one = ensemble.member(1)
    assert one.task is task and one.seeds == (7,) and one.step == 11
    for use in ("train", "probe"):
        torch.testing.assert_close(one.batch(5, use).inputs, ensemble.batch(5, use).inputs[1])
    assert one.batch(5).inputs.shape == (5, 9, 8) and ensemble.batch(5).inputs.shape == (1, 5, 9, 8)
    assert ensemble.select([1]).seeds == (7,)
    with pytest.raises(UserError, match="draws: expected samples for a use"):
        one.batch(5, "tests")
    with pytest.raises(UserError, match="member: expected some of 0 to 1, found"):
        ensemble.member(2)
    with pytest.raises(UserError, match="indices: expected some of 0 to 1, found"):
        ensemble.select([True, False])
    assert ensemble.select(torch.tensor([1, 0])).seeds == (7, 3)
    assert ensemble.double().member(0).readout.weight.dtype == torch.float64
    cache = one.cache(one.batch(5).inputs, "blocks.0.attn.hook_pattern")
    with pytest.raises(UserError, match=r"expected one that was kept \(blocks.*\), found 'hook_embed'"):
        cache["hook_embed"]


def test_samples_of_an_exhaustive_set_and_of_a_pool():
    """The first of a set in order are all of one mapping, and its neighbours hardly differ."""
    task = Permutation(values=5)
    model = Transformer.initial(Model(width=6, heads=2).for_task(task.shape()), 3)
    model.knowing(task, [3], 11, examples=2)
    held, few = model.batch(10**6).inputs, model.batch(64)
    assert len(few.inputs) == 64 and torch.equal(few.inputs, model.batch(64).inputs)
    assert (
        torch.equal(few.inputs, held[:64])
        and few.inputs[:, 0].unique().tolist() == held[:, 0].unique().tolist()
    )
    assert (
        len(model.batch(64, "train").inputs.unique(dim=0))
        == 2
        < len(model.batch(64, "probe").inputs.unique(dim=0))
    )


def test_a_code_that_is_carried_cannot_be_left_out():
    with pytest.raises(UserError, match="positions: expected no 'none' for a task whose inputs carry"):
        Model(positions="none").for_task(Retrieval(steps=1).shape())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"init": 0.0}, "0 < γ <= 4"),
        ({"init": "torch"}, "gpt2, linear, encoder, mimetic"),
        ({"width": 5, "heads": 2}, "multiple of heads"),
        ({"positions": "carried"}, "vectors"),
        ({"layers": 0}, "greater than or equal to 1"),
    ],
)
def test_bad_fields_are_told(fields, words):
    with pytest.raises(UserError, match=words):
        Model(**fields).for_task(Permutation(values=5).shape())


@pytest.mark.parametrize(
    "inputs",
    [torch.zeros(2, 3, 13), torch.zeros(5, 14, dtype=torch.int64), torch.full((5, 13), 99), torch.zeros(())],
    ids=lambda inputs: str(getattr(inputs, "shape", inputs)),
)
def test_bad_inputs_are_told_in_one_line(inputs):
    model = Transformer.initial(config_of(input_size=19), 0)
    with pytest.raises(UserError, match="inputs: expected"):
        model(inputs)


def test_vectors_of_another_kind_are_told_in_one_line():
    model = Transformer.initial(config_of(input_kind="vectors", input_size=5), 0)
    with pytest.raises(UserError, match=r"inputs: expected float32 vectors .*, found float64"):
        model(torch.zeros(2, 13, 5, dtype=torch.float64))


def test_a_member_s_wrong_id_is_not_another_member_s():
    ensemble = Transformer.initial(config_of(input_size=19), torch.tensor([3, 5]))
    for wrong in (19, -1):
        inputs = torch.zeros(2, 5, 13, dtype=torch.int64)
        inputs[int(wrong < 0), 0, 0] = wrong
        with pytest.raises(UserError, match="inputs: expected token ids from 0 to 18, found"):
            ensemble(inputs)
    for indices in ([], [2], [-1]):
        with pytest.raises(UserError, match="indices: expected some of 0 to 1, found"):
            ensemble.select(indices)


def test_bad_interventions_are_told_in_one_line():
    model = Transformer.initial(config_of(input_size=19), 0)
    batch = Batch(inputs_of(model.config, BATCH), torch.zeros(BATCH, 13, dtype=torch.int64))
    for interventions, words in [
        ({"blocks.9.hook_resid_pre": torch.relu}, "close to it"),
        ({"hook_embed": 3}, "expected a function"),
        ({"hook_embed": lambda stream: stream[:1]}, r"float32 \[5, 13, 11\]"),
        ([3], "expected ones such as"),
        ("uniform", "expected ones such as"),
    ]:
        with pytest.raises(UserError, match=words):
            model.intervene(batch, interventions)
