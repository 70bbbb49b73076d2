import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hopscope.models.transformer import Transformer

from .samples import (
    BATCH,
    HEAD_DIM,
    MEMBERS,
    MLP,
    OUTPUT,
    POSITIONS,
    SEEDS,
    SYMBOLS,
    TABLES,
    VARIANTS,
    WIDTH,
    config,
    inputs,
    lively,
    page_config,
)


@pytest.fixture(params=VARIANTS)
def model(request):
    return lively(config(**VARIANTS[request.param]))


def assert_equals_its_members(model, given, every_position):
    together = model(given, every_position=every_position)
    rows = range(model.config.length) if every_position else model.config.readout_positions
    assert together.shape == (MEMBERS, BATCH, len(rows), OUTPUT)
    for index in range(MEMBERS):
        alone = model.member(index)(given[index])
        torch.testing.assert_close(together[index], alone[:, list(rows)], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=0.1), "both members say the same"


@torch.no_grad()
@pytest.mark.parametrize("every_position", [False, True])
def test_equal_to_the_plain_module(model, every_position):
    assert_equals_its_members(model, inputs(model.config), every_position)


SHAPES = st.fixed_dictionaries(
    {
        "layers": st.integers(1, 3),
        "heads": st.integers(1, 3),
        "norm": st.sampled_from(["pre", "post", "none"]),
        "mlp_ratio": st.sampled_from([0.0, MLP / WIDTH]),
        "activation": st.sampled_from(["relu", "gelu"]),
        "causal": st.booleans(),
        "positions": st.sampled_from(["learned", "none"]),
        "input_kind": st.sampled_from(["tokens", "vectors"]),
        "readout": st.none()
        | st.sets(st.integers(0, POSITIONS - 1), min_size=1).map(lambda s: tuple(sorted(s))),
    }
)


@torch.no_grad()
@settings(max_examples=50)
@given(SHAPES, st.booleans())
def test_equal_to_the_plain_module_in_every_combination(shape, every_position):
    model = lively(config(**shape))
    assert_equals_its_members(model, inputs(model.config), every_position)


@torch.no_grad()
def test_readout_rows_are_those_of_every_position(model):
    given = inputs(model.config)
    rows = list(model.config.readout_positions)
    everywhere = model(given, every_position=True)
    torch.testing.assert_close(model(given), everywhere[:, :, rows], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_fewer_positions_are_allowed(model):
    given = inputs(model.config, positions=5)
    together = model(given, every_position=True)
    for index in range(MEMBERS):
        torch.testing.assert_close(together[index], model.member(index)(given[index]), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_one_batch_may_be_handed_to_every_member(model):
    shared = inputs(model.config, members=1)
    own = shared.expand(MEMBERS, *shared.shape[1:]).clone()
    torch.testing.assert_close(model(shared), model(own), rtol=1e-5, atol=1e-5)


# Against torch's own layer.


@torch.no_grad()
@pytest.mark.parametrize(("width", "heads"), [(16, 1), (32, 2)])
def test_equal_to_torch_encoder_layer_with_the_same_weights(width, heads):
    model = lively(page_config(width, heads))
    weights = {name: view[1] for name, view in model.weights.items()}
    with torch.random.fork_rng():
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)

    def linear(name):
        return {"weight": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]}

    for module, name in ((layer.linear1, "layers.0.mlp.inner"), (layer.linear2, "layers.0.mlp.outer")):
        module.load_state_dict(linear(name))
    layer.self_attn.out_proj.load_state_dict(linear("layers.0.attention.output"))
    parts = [linear(f"layers.0.attention.{part}") for part in ("query", "key", "value")]
    layer.self_attn.in_proj_weight.copy_(torch.cat([part["weight"] for part in parts]))
    layer.self_attn.in_proj_bias.copy_(torch.cat([part["bias"] for part in parts]))
    for module, name in ((layer.norm1, "attention_norm"), (layer.norm2, "mlp_norm")):
        module.load_state_dict({kind: weights[f"layers.0.{name}.{kind}"] for kind in ("weight", "bias")})

    tokens = inputs(model.config)
    stream = weights["embed.token.weight"][tokens[1]] + weights["embed.position.weight"]
    stream = layer(stream, src_mask=torch.full((9, 9), -torch.inf).triu(1))
    expected = stream @ weights["readout.weight"] + weights["readout.bias"]
    torch.testing.assert_close(model(tokens)[1], expected, rtol=1e-5, atol=1e-5)


# What may depend on what.


@torch.no_grad()
@pytest.mark.parametrize("causal", [True, False])
def test_what_comes_later_changes_earlier_predictions_only_without_the_mask(causal):
    model = lively(config(causal=causal))
    before = inputs(model.config)
    changed_at = 7
    after = before.clone()
    after[:, :, changed_at] = (after[:, :, changed_at] + 1) % SYMBOLS
    difference = (model(before) - model(after)).abs().amax((0, 1, 3))
    assert bool((difference[:changed_at] == 0).all()) == causal
    assert difference[changed_at] > 0.1
    assert difference[changed_at + 1 :].max() > 0.01


def test_the_gradient_of_one_member_is_its_own():
    model = lively(config())
    weights = [view.requires_grad_() for view in model.weights.values()]
    given = inputs(model.config)
    loss = model(given).pow(2).mean((1, 2, 3))
    gradients = torch.autograd.grad(loss[1], weights)
    for name, gradient in zip(model.weights, gradients, strict=True):
        assert gradient[1].isfinite().all() and gradient[1].any(), name
        assert not gradient[0].any(), name
    module = model.member(1)
    module(given[1]).pow(2).mean().backward()
    expected = dict(module.named_parameters())
    for name, gradient in zip(model.weights, gradients, strict=True):
        theirs = expected[name].grad
        theirs = theirs.T if theirs.ndim == 2 and name not in TABLES else theirs
        torch.testing.assert_close(gradient[1], theirs, rtol=1e-4, atol=1e-5, msg=name)


@torch.no_grad()
def test_a_member_is_a_copy():
    model = lively(config())
    given = inputs(model.config)
    module, before = model.member(0), model(given)
    for parameter in module.parameters():
        parameter.zero_()
    assert torch.equal(model(given), before)


@torch.no_grad()
def test_selected_members_answer_as_before_and_are_copies():
    model = lively(config(layers=1))
    given = inputs(model.config)
    chosen = model.select([1, 0, 1])
    before = model(given)
    assert chosen.members == 3
    torch.testing.assert_close(chosen(given[[1, 0, 1]]), before[[1, 0, 1]], rtol=1e-5, atol=1e-5)
    chosen.parameters.flat.zero_()
    assert torch.equal(model(given), before)


def test_fresh_members_and_modules_leave_the_global_random_state_alone():
    before = torch.get_rng_state()
    model = Transformer.initial(config(), SEEDS)
    model.member(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.members == len(SEEDS)


# What can be seen inside.


@torch.no_grad()
def test_captured_tensors_have_the_shapes_they_say(model):
    config = model.config
    predictions, captured = model.capture(inputs(config))
    lead, heads = (MEMBERS, BATCH), config.heads
    names = ("patterns", "heads", "mlps", "streams")
    shapes = {name: [tensor.shape for tensor in getattr(captured, name)] for name in names}
    assert predictions.shape == (*lead, POSITIONS, OUTPUT)
    assert shapes == {
        "patterns": [(*lead, heads, POSITIONS, POSITIONS)] * config.layers,
        "heads": [(*lead, heads, POSITIONS, config.head_size)] * config.layers,
        "mlps": [(*lead, POSITIONS, WIDTH)] * (config.layers if config.mlp_size else 0),
        "streams": [(*lead, POSITIONS, WIDTH)] * (config.layers + 1),
    }


@torch.no_grad()
def test_captured_patterns_and_streams_belong_to_this_pass(model):
    given = inputs(model.config)
    predictions, captured = model.capture(given)
    torch.testing.assert_close(predictions, model(given, every_position=True), rtol=1e-5, atol=1e-5)
    for pattern in captured.patterns:
        torch.testing.assert_close(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
        future = pattern.triu(1)
        assert bool((future == 0).all()) == model.config.causal
    module = model.member(1)
    symbol, position = module.embed(given[1])
    torch.testing.assert_close(captured.streams[0][1], symbol + position, rtol=1e-5, atol=1e-5)
    last = module.readout(module.final_norm(captured.streams[-1][1]))
    torch.testing.assert_close(last, predictions[1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_some_rows_and_heads_of_a_layer_are_those_of_all(model):
    given = inputs(model.config)
    block, stream = model.blocks[0], model.embedded(given)
    rows, heads = torch.tensor([7, 0, 5]), list(range(model.config.heads))[::-1][:2]
    every = block.pattern(stream)
    pattern = block.pattern(stream, rows=rows, heads=heads)
    torch.testing.assert_close(pattern, every[:, :, heads][..., rows, :], rtol=1e-5, atol=1e-5)
    outputs = block.heads_under(stream, pattern, heads)
    torch.testing.assert_close(
        outputs, block.heads_under(stream, every)[:, :, heads][..., rows, :], rtol=1e-5, atol=1e-5
    )
    after = block.under(stream, every[..., rows, :], rows)
    torch.testing.assert_close(after, block.under(stream, every)[:, :, rows], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_means_are_means_over_the_batch(model):
    given = inputs(model.config)
    means = model.means(given)
    _, captured = model.capture(given)
    layers, heads = model.config.layers, model.config.heads
    assert means.patterns.shape == (MEMBERS, layers, heads, POSITIONS, POSITIONS)
    assert means.heads.shape == (MEMBERS, layers, heads, POSITIONS, model.config.head_size)
    assert means.mlps.shape == (MEMBERS, layers, POSITIONS, WIDTH)
    for layer in range(layers):
        torch.testing.assert_close(means.patterns[:, layer], captured.patterns[layer].mean(1))
        torch.testing.assert_close(means.heads[:, layer], captured.heads[layer].mean(1))
        if captured.mlps:
            torch.testing.assert_close(means.mlps[:, layer], captured.mlps[layer].mean(1))
        else:
            assert not means.mlps.any()


def test_the_sizes_of_these_tests_are_different():
    sizes = (
        MEMBERS,
        BATCH,
        POSITIONS,
        HEAD_DIM,
        WIDTH,
        MLP,
        SYMBOLS,
        OUTPUT,
        config().heads,
        config().layers,
    )
    assert len(set(sizes)) == len(sizes) and config().mlp_size == MLP
