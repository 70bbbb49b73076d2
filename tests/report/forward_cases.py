"""Models and sequences on which the page's forward pass must agree with PyTorch, in Node and in the browser."""

from typing import Any

import torch

from hopscope import rng
from hopscope.models.config import TransformerConfig
from hopscope.models.member import MemberTransformer
from hopscope.models.packing import explorer_model
from hopscope.models.transformer import Transformer

# What the permutation study can train, each choice at least once; the first is the presentation's (section 5).
MODELS: dict[str, dict[str, Any]] = {
    "post, relu, 2 heads": {"norm": "post", "activation": "relu", "heads": 2, "width": 10},
    "post, relu, 1 head": {"norm": "post", "activation": "relu", "heads": 1},
    "pre, gelu, 3 heads, pair": {"norm": "pre", "activation": "gelu", "heads": 3, "positions": "pair"},
    "none, gelu, 2 heads": {"norm": "none", "activation": "gelu", "heads": 2},
    "none, relu, no positions": {"norm": "none", "activation": "relu", "positions": "none"},
    "pre, no MLP, no positions": {"norm": "pre", "mlp_ratio": 0.0, "positions": "none", "heads": 2},
    "post, no MLP, pair": {"norm": "post", "mlp_ratio": 0.0, "positions": "pair"},
}
SEQUENCES = {
    "plain": [2, 3, 1, 5, 4, 4, 3, 2, 5],
    "repeat": [2, 4, 5, 3, 4, 5, 3, 2, 2],
    "short": [5, 1, 3],
    "one": [4],
}
_VALUES, _LENGTH = 5, 9


def member(name: str) -> MemberTransformer:
    """A member with large weights everywhere, biases and norms too, so that no term of the pass is negligible."""
    settings = {"width": 7, "mlp_ratio": 13 / 7, "init": "torch", **MODELS[name]}
    # Head size and width differ where the number of heads allows it.
    if "width" not in MODELS[name]:
        settings["head_dim"] = 11
    shape = {"length": _LENGTH, "input_size": _VALUES + 1, "output_size": _VALUES + 1}
    model = Transformer.initial(TransformerConfig.model_validate({**settings, **shape}), torch.tensor([3, 5]))
    for number, view in enumerate(model.weights.values()):
        view.add_(0.4 * rng.normal_tensor(torch.tensor([3, 5]), "init", 101 + number, tuple(view.shape[1:])))
    return model.member(1)


def cases() -> list[dict[str, Any]]:
    """Each model on each sequence: what the page computes from."""
    return [
        {"name": f"{name}: {which}", "model": explorer_model(member(name), name, "file"), "tokens": tokens}
        for name in MODELS
        for which, tokens in SEQUENCES.items()
    ]


def expected() -> list[dict[str, Any]]:
    """The same in PyTorch: probabilities `[position][token]` in both precisions, patterns `[head][query][key]`."""
    found = []
    for name in MODELS:
        single, double = member(name), member(name).double()
        for tokens in SEQUENCES.values():
            inputs = torch.tensor([tokens])
            with torch.no_grad():
                found.append(
                    {
                        "float32": single(inputs)[0].softmax(-1),
                        "float64": double(inputs)[0].softmax(-1),
                        "patterns": _patterns(double, inputs),
                    }
                )
    return found


def _patterns(module: MemberTransformer, inputs: torch.Tensor) -> torch.Tensor:
    symbol, position = module.embed(inputs)
    block = module.layers[0]
    stream = symbol + position
    return block.attention.pattern(block.attention_norm(stream) if module.config.norm == "pre" else stream)[0]


def compare(found: list[dict[str, Any]]) -> None:
    """Fail unless the page's results are PyTorch's: 1e-5 to float32, 1e-11 to float64."""
    for case, ours, theirs in zip(cases(), found, expected(), strict=True):
        probabilities = torch.tensor(ours["probabilities"], dtype=torch.float64)
        assert probabilities.shape == (len(case["tokens"]), _VALUES + 1), case["name"]
        for precision, tolerance in (("float32", 1e-5), ("float64", 1e-11)):
            error = (probabilities - theirs[precision].double()).abs().max().item()
            assert error <= tolerance, (case["name"], precision, error)
        # A row of the page's patterns ends at the query itself; behind it PyTorch has zeros.
        for head, pattern in enumerate(ours["patterns"]):
            for query, row in enumerate(pattern):
                whole = torch.zeros(len(case["tokens"]), dtype=torch.float64)
                whole[: query + 1] = torch.tensor(row, dtype=torch.float64)
                error = (whole - theirs["patterns"][head, query]).abs().max().item()
                assert error <= 1e-11, (case["name"], head, query, error)
        assert len(ours["patterns"]) == theirs["patterns"].shape[0]
