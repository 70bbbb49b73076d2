"""Starts equal to the bit, predictions and sites to rounding."""

import pytest
import torch

from hopscope.models.config import TransformerConfig as OldConfig
from hopscope.models.transformer import Transformer as Old
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.transformer import Transformer

VECTORS = {
    "input_kind": "vectors",
    "input_size": 12,
    "positions": "carried",
    "position_size": 4,
    "readout": (3, 7),
}
TOKENS = {"input_size": 12}


@pytest.mark.parametrize("init", ["gpt2", "linear", "encoder", "mimetic", 0.61])
@pytest.mark.parametrize("shape", [VECTORS, TOKENS, {**TOKENS, "norm": "post", "positions": "pair"}], ids=str)
def test_starts_and_passes(shape, init):
    fields = {
        "layers": 3,
        "heads": 2,
        "width": 10,
        "head_dim": 7,
        "length": 8,
        "output_size": 5,
        "init": init,
        **shape,
    }
    seeds = torch.tensor([0, 1, 5])
    old = Old.initial(OldConfig(**fields), seeds)
    new = Transformer.initial(TransformerConfig(**fields), seeds)
    weights = new.weights()
    assert list(weights) == list(old.weights)
    assert all(torch.equal(weights[name], old.weights[name]) for name in weights)
    assert torch.equal(new.flatten(), old.parameters.flat)
    assert torch.equal(new.decay_mask(), old.parameters.decay_mask)
    inputs = torch.randint(12, (3, 4, 8)) if shape is not VECTORS else torch.randn(3, 4, 8, 12)
    torch.testing.assert_close(new(inputs), old(inputs), rtol=1e-5, atol=1e-5)
    before, after = old.cache(inputs), new.cache(inputs)
    assert list(before) == list(after)
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=1e-5, atol=1e-5)
