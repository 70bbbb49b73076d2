"""Models and inputs on which the page's forward pass must agree with PyTorch, in Node and in the browser."""

import base64
from functools import cache
from typing import Any

import torch

from hopscope import rng
from hopscope.models.cache import Recorder
from hopscope.models.config import Model
from hopscope.models.intervening import visit_of
from hopscope.models.interventions import AblateHead, ReplacePattern
from hopscope.models.packing import explorer_shape
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch
from hopscope.tasks.task import Shape

LENGTH, TOKENS, FEATURES, OUTPUTS = 7, 11, 5, 13

# Each choice of a model at least once, in combinations that no other part of the pass could hide.
MODELS: dict[str, dict[str, Any]] = {
    "post, relu, 2 heads": {"norm": "post", "activation": "relu", "heads": 2, "head_dim": 5},
    "pre, gelu, 3 heads, 2 layers, pair": {"layers": 2, "heads": 3, "head_dim": 2, "positions": "pair"},
    "none, relu, no codes": {"norm": "none", "activation": "relu", "positions": "none"},
    "none, gelu, 3 layers": {"norm": "none", "layers": 3, "heads": 2, "head_dim": 3},
    "pre, no MLP, 5 layers": {"layers": 5, "mlp_ratio": 0.0},
    "post, no MLP, everything visible": {"norm": "post", "layers": 2, "mlp_ratio": 0.0, "causal": False},
    "vectors, carried codes": {"inputs": "vectors", "layers": 3, "mlp_ratio": 0.0, "position_size": 2},
    "vectors, learned codes, everything visible": {"inputs": "vectors", "causal": False, "heads": 2, "head_dim": 3},
}  # fmt: skip
_SEEDS = torch.tensor([3, 5])


def model(name: str) -> Transformer:
    """Two members with large weights everywhere, biases and norms too, so that no term of the pass is negligible."""
    settings = {"width": 17, "mlp_ratio": 19 / 17, "init": "encoder", "head_dim": None, **MODELS[name]}
    inputs = settings.pop("inputs", "tokens")
    carried = settings.pop("position_size", 0)
    if settings["head_dim"] is None and settings.get("heads", 1) == 1:
        settings["head_dim"] = 3
    shape = Shape(
        inputs=inputs, input_size=TOKENS if inputs == "tokens" else FEATURES, positions=LENGTH,
        readout=tuple(range(LENGTH)), output_size=OUTPUTS, position_size=carried,
    )  # fmt: skip
    made = Transformer.initial(Model.model_validate(settings).for_task(shape), _SEEDS)
    for number, view in enumerate(made.weights.values()):
        view.add_(0.4 * rng.normal_tensor(_SEEDS, "init", 101 + number, tuple(view.shape[1:])))
    return made


def inputs_of(made: Transformer) -> dict[str, torch.Tensor]:
    """Inputs of one member by name: of full length, and a shorter one."""
    if made.config.input_kind == "vectors":
        whole = rng.normal_tensor(_SEEDS[:1], "init", 991, (LENGTH, FEATURES))[0]
    else:
        whole = torch.tensor([2, 10, 1, 0, 4, 4, 7])
    return {"whole": whole, "short": whole[:3]}


# Rows of a head of a layer, as the page writes an edit, and as interventions say it.
EDITS = [
    {"layer": 0, "head": 0, "rows": None, "as": "zero"},
    {"layer": 0, "head": 0, "rows": [2], "as": "uniform"},
]
INTERVENTIONS = [
    AblateHead(layer=0, heads=(0,), by="zero"),
    ReplacePattern(layer=0, heads=(0,), rows={"place": 2}, by="uniform"),
]


def packed(made: Transformer, kind: str = "float32") -> str:
    """The weights of the second member, side by side."""
    numbers = torch.cat([view[1].flatten() for view in made.weights.values()])
    return base64.b64encode(numbers.numpy().astype("<f4" if kind == "float32" else "<f2").tobytes()).decode()


def cases() -> list[dict[str, Any]]:
    """Each model on each input, as it is and with a head edited: what the page computes from."""
    found = []
    for name in MODELS:
        made = model(name)
        for which, inputs in inputs_of(made).items():
            for edits in ([], EDITS[:1], EDITS[1:]):
                found.append(
                    {
                        "name": f"{name}: {which}, {len(edits)} edits",
                        **explorer_shape(made.config),
                        "weights": packed(made),
                        "inputs": inputs.tolist(),
                        "edits": edits,
                    }
                )
    return found


@cache
def expected() -> list[dict[str, Any]]:
    """The same in PyTorch: predictions `[position][output]`, patterns `[layer][head][query][key]` without edits."""
    found = []
    for name in MODELS:
        made = model(name)
        single, double = made.member(1), made.member(1).double()
        for inputs in inputs_of(made).values():
            for values in ([], INTERVENTIONS[:1], INTERVENTIONS[1:]):
                found.append(
                    {
                        "float32": _answer(single, inputs, values),
                        "float64": _answer(double, inputs.double() if inputs.is_floating_point() else inputs, values),
                        "patterns": None if values else _patterns(double, inputs),
                    }
                )  # fmt: skip
    return found


def _answer(module: Any, inputs: torch.Tensor, values: list[Any]) -> torch.Tensor:
    rows = torch.arange(len(inputs))[None, None]
    batch = Batch(
        inputs=inputs[None, None],
        targets=torch.zeros(1, 1, len(inputs), dtype=torch.int64),
        roles={"place": rows},
    )
    with torch.no_grad():
        return module(inputs[None], visit_of(values, module, batch, None))[0]


def _patterns(module: Any, inputs: torch.Tensor) -> torch.Tensor:
    recorder = Recorder("attn.hook_pattern")
    with torch.no_grad():
        module(inputs[None].double() if inputs.is_floating_point() else inputs[None], recorder)
    return torch.stack([pattern[0] for pattern in recorder.kept.patterns])


def compare(found: list[dict[str, Any]]) -> None:
    """Fail unless the page's results are PyTorch's: within 2e-5 of float32 and 1e-11 of float64."""
    for case, ours, theirs in zip(cases(), found, expected(), strict=True):
        predictions = torch.tensor(ours["predictions"], dtype=torch.float64)
        assert predictions.shape == (len(case["inputs"]), OUTPUTS), case["name"]
        # Interventions write a uniform pattern in float32.
        for precision, tolerance in (("float32", 2e-5), ("float64", 1e-6 if case["edits"] else 1e-11)):
            wanted = theirs[precision].double()
            error = float((predictions - wanted).abs().max() / wanted.abs().max())
            assert error <= tolerance, (case["name"], precision, error)
        if theirs["patterns"] is not None:
            error = float((_whole(ours["patterns"]) - theirs["patterns"]).abs().max())
            assert error <= 1e-11, (case["name"], error)


def _whole(patterns: list[list[list[list[float]]]]) -> torch.Tensor:
    """Patterns with zeros for the keys behind the query, where the page's rows end."""
    size = len(patterns[0][0])
    rows = [[[row + [0.0] * (size - len(row)) for row in head] for head in layer] for layer in patterns]
    return torch.tensor(rows, dtype=torch.float64)
