"""Training on a GPU, one configuration after another: the compiled engine, beside one model alone and plain PyTorch.

The configurations are the paper's: those of Figure 4 by layers, and transformers A and D.  With `--out` the file is
written after each, because a machine that is lent may go at any time.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.tasks import Retrieval

from ._plain import Plain
from ._shapes import SHAPES, Ours, Program, Shape, contest, shape_of
from ._timing import Asked, Comparison

LAYERS = (8, 6, 4, 2, 1)
MEMBERS = 8


def measure(asked: Asked) -> Iterator[Comparison]:
    """A comparison for each configuration, or of the one that is asked for."""
    if not torch.cuda.is_available():
        raise UserError("suite gpu: expected a CUDA device, found none; take another suite, such as engines")
    yield from (on(shape, asked, "cuda") for shape in ([shape_of(asked, "")] if asked.model else shapes()))


def shapes() -> list[Shape]:
    """The configurations, the dearest ones first."""
    models = [
        Model(layers=layers, width=128, heads=8, mlp_ratio=4.0, init="gpt2", positions="carried")
        for layers in LAYERS
    ]
    figure = [
        Shape(f"Figure 4: {each.layers} layers", Retrieval(steps=5), each, batch=512) for each in models
    ]
    return [SHAPES["transformer-d"], SHAPES["transformer-a"], *figure]


def on(shape: Shape, asked: Asked, device: str) -> Comparison:
    """Contestants on one device, with as many members as a study trains together."""
    shape = shape._replace(members=MEMBERS)
    seeds = range(MEMBERS)
    programs: dict[str, Callable[[], Program]] = {
        f"hopscope, {MEMBERS} models, float32": partial(Ours, shape, seeds, device=device),
        f"hopscope, {MEMBERS} models, bfloat16": partial(Ours, shape, seeds, "", "bfloat16", device),
        "hopscope, 1 model, bfloat16": partial(Ours, shape, [0], "", "bfloat16", device),
        "plain PyTorch, float32": partial(Plain, shape, [0], device=device),
    }
    alone = dict.fromkeys(["hopscope, 1 model, bfloat16", "plain PyTorch, float32"], 1)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    return contest(shape, programs, asked, alone, wait)
