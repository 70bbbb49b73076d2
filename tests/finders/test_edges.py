"""Patched passes against a slow reference that hooks one site of the plain module at a time."""

import pytest
import torch

from hopscope.finders.edges import Budget, Edge, Patching, Receiver, edges_between, edges_of, receivers_of
from hopscope.models.config import TransformerConfig
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask

LAYERS, HEADS, SAMPLES = 3, 2, 5


def task() -> RetrievalTask:
    return RetrievalTask(RetrievalConfig(steps=1, chains=3, symbol_dim=4, position="pair"))


def patching(norm: str = "none", mlp: float = 0.0, causal: bool = True) -> Patching:
    found = task()
    config = TransformerConfig.model_validate(
        {
            "layers": LAYERS, "heads": HEADS, "width": 14, "head_dim": 5, "mlp_ratio": mlp, "norm": norm,
            "causal": causal, "positions": "carried", "position_size": 4, "length": found.positions,
            "input_kind": "vectors", "input_size": found.input_size, "output_size": found.output_size,
            "readout": found.readout,
            "init": "encoder",
        }
    )  # fmt: skip
    model = Transformer.initial(config, torch.tensor([3]))
    return Patching.drawn(model, found, Budget(SAMPLES))


def test_the_edge_set_is_counted_by_hand():
    config = patching().config
    # Layer 1 has 2 heads of 3 inputs that read 2 heads, layer 2 likewise 4 heads; the logits read 6.
    assert len(edges_of(config)) == len(set(edges_of(config))) == 2 * 3 * 2 + 2 * 3 * 4 + 6
    assert str(edges_of(config)[0]) == "a0.h0->a1.h0<q>"
    assert str(edges_of(config)[-1]) == "a2.h1->logits"
    assert len(receivers_of(config)) == 2 * 2 * 3 + 1
    inside = edges_between(config, {(0, 1), (2, 0)})
    assert set(map(str, inside)) == {
        "a0.h1->a2.h0<q>", "a0.h1->a2.h0<k>", "a0.h1->a2.h0<v>", "a0.h1->logits", "a2.h0->logits",
    }  # fmt: skip


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
@pytest.mark.parametrize("mlp", [0.0, 1.5])
def test_with_every_edge_it_is_the_model(norm, mlp):
    found = patching(norm, mlp, causal=norm != "pre")
    expected = found.module(found.batch.inputs[0])[:, list(found.config.readout_positions)]
    assert torch.allclose(found.predictions(found.edges), expected, atol=1e-5)


def heads_of(found: Patching, layer: int, inputs: torch.Tensor) -> torch.Tensor:
    """What each head adds to the stream `[head, batch, position, width]`, from its recorded output."""
    z = found.module.cache(inputs)[f"blocks.{layer}.attn.hook_z"]
    weight = found.module.layers[layer].attention.output.weight
    size = found.config.head_size
    return torch.stack(
        [z[:, :, head] @ weight[:, head * size : (head + 1) * size].T for head in range(HEADS)]
    )


def stream_seen(found: Patching, source: tuple[int, int], upto: int) -> torch.Tensor:
    """The stream before a layer if one head's output alone is that of the other samples."""
    inputs = found.batch.inputs[0]
    symbol, code = found.module.embed(inputs)
    x = symbol + code
    for layer in range(upto):
        added = heads_of(found, layer, inputs)
        if layer == source[0]:
            added[source[1]] = heads_of(found, layer, inputs.roll(1, 0))[source[1]]
        block = found.module.layers[layer]
        x = x + added.sum(0) + block.attention.output.bias
        x = block.attention_norm(x) if found.config.norm == "post" else x
        if found.config.mlp_size:
            x = x + block.mlp(block.mlp_norm(x) if found.config.norm == "pre" else x)
            x = block.mlp_norm(x) if found.config.norm == "post" else x
    return x


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
@pytest.mark.parametrize(("part", "map_name"), [("q", "query"), ("k", "key"), ("v", "value")])
def test_one_ablated_edge_changes_one_input_of_one_head(norm, part, map_name):
    found = patching(norm, 1.5)
    source, (layer, head) = (0, 1), (2, 0)
    seen = stream_seen(found, source, layer)
    block = found.module.layers[layer]
    seen = block.attention_norm(seen) if norm == "pre" else seen
    size = found.config.head_size
    given = getattr(block.attention, map_name)(seen)[..., head * size : (head + 1) * size]

    def replaced(site: torch.Tensor) -> torch.Tensor:
        site[:, :, head] = given
        return site

    expected = found.module.intervene(found.batch, {f"blocks.{layer}.attn.hook_{part}": replaced})
    edge = Edge(source, Receiver(layer, head, part))
    ablated = found.predictions(set(found.edges) - {edge})
    assert torch.allclose(ablated, expected, atol=1e-5)
    assert not torch.allclose(ablated, found.predictions(found.edges), atol=1e-4)


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_an_ablated_edge_to_the_logits_changes_the_last_stream_alone(norm):
    found = patching(norm, 1.5)
    last = found.module.final_norm(stream_seen(found, (1, 0), LAYERS))
    expected = found.module.readout(last[:, list(found.config.readout_positions)])
    ablated = found.predictions(set(found.edges) - {Edge((1, 0), Receiver(LAYERS))})
    assert torch.allclose(ablated, expected, atol=1e-5)


def test_without_any_edge_the_heads_of_other_samples_speak():
    found = patching("none")
    inputs = found.batch.inputs[0]
    symbol, code = found.module.embed(inputs)
    x = symbol + code
    for layer in range(LAYERS):
        x = (
            x
            + heads_of(found, layer, inputs.roll(1, 0)).sum(0)
            + found.module.layers[layer].attention.output.bias
        )
    expected = found.module.readout(x[:, list(found.config.readout_positions)])
    assert torch.allclose(found.predictions(()), expected, atol=1e-5)


def test_derivatives_are_differences():
    found = patching("pre", 1.5)
    edge = Edge((0, 1), Receiver(1, 0, "k"))
    amounts = {each: torch.zeros(()) for each in found.edges}
    amounts[edge].requires_grad_()
    (slope,) = torch.autograd.grad(found.loss_of(found.nudged(found.embedded, amounts)), amounts[edge])
    step = 1e-2
    losses = [
        float(found.loss_of(found.nudged(found.embedded, amounts | {edge: torch.tensor(sign * step)})))
        for sign in (1.0, -1.0)
    ]
    assert float(slope) == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=0.02, abs=1e-6)
