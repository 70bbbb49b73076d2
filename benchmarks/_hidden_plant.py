"""A deep model whose circuit is known: three hand-built heads, hidden among layers of random weights.

The reader's cost hangs on the shape of a model and on how many of its rows must be tried.  A trained model of twelve
layers would not say whether what was read is right; a planted one does, and random layers around it attend as sharply
as trained ones do.  They read the whole stream and write where no head of the circuit reads: dimensions that the
hand-built model does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hopscope.circuits.circuit import Circuit
from hopscope.models.interventions import Roles
from hopscope.models.linear import norm
from hopscope.models.parameters import Parameters, parameter_specs
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import RetrievalConfig
from hopscope.tasks.retrieval import KINDS, RetrievalTask
from hopscope.zoo.hand_built import Design, HeadDesign, build
from hopscope.zoo.witnesses import answers_of, plan

TASK = RetrievalConfig(steps=3, chains=4, symbol_dim=4, position="pair")
LAYERS, WIDTH, HEAD_SIZE, MLP_SIZE = 12, 128, 128, 512
PLACES = (1, 5, 9)
"""Layers of the hand-built heads."""

_BUILT = 64
"""Width of the hand-built model."""

_SAMPLES = 64
"""By which random weights are scaled."""

_SCORES = 2.0
"""Standard deviation of a random head's scores: its attention is neither flat nor certain."""

Read = tuple[int, str, str]
"""Layer, rows and what they read, in words."""


@dataclass(frozen=True)
class HiddenPlant:
    """A deep model and what its circuit does.

    Attributes:
        model: one member.
        task: what it solves.
        truth: the reads of its circuit.
    """

    model: Transformer
    task: RetrievalTask
    truth: frozenset[Read]

    def is_truth(self, circuit: Circuit) -> bool:
        """Whether a circuit does the planted reads and no others."""
        return {(path.layer, path.query, path.target) for path in circuit.paths} == self.truth

    @property
    def shape(self) -> dict[str, int]:
        """What the reading's cost hangs on."""
        model, task = self.model.config, self.task.config
        return {
            "layers": model.layers,
            "heads": model.heads,
            "width": model.width,
            "head_size": model.head_size,
            "mlp_size": model.mlp_size,
            "steps": task.steps,
            "chains": task.chains,
            "symbol_dim": task.symbol_dim,
        }


def hidden_plant(seed: int = 0) -> HiddenPlant:
    """The model, with random layers by a seed."""
    planned = plan(TASK.steps)
    layers: list[tuple[HeadDesign | None, ...]] = [(None,)] * LAYERS
    truth = set()
    for place, heads in zip(PLACES, planned.layers, strict=True):
        (head,) = heads
        layers[place] = (head.design,)
        truth |= {(place, _words(read.rows), _words(read.target)) for read in head.reads}
    task = RetrievalTask(TASK)
    model = _widened(build(TASK, Design("causal", tuple(layers), answers_of(TASK))))
    _fill(model, task, torch.Generator().manual_seed(seed))
    return HiddenPlant(model, task, frozenset(truth))


def _words(roles: Roles) -> str:
    """A role as the reader names it."""
    kind, step = KINDS[roles["kind"]], roles["step"]
    return f"{kind} {step}" if step else kind


def _widened(small: Transformer) -> Transformer:
    """The same function in a wider stream, with a larger head and more hidden units, all of which do nothing yet."""
    old = small.config
    assert old.width == _BUILT
    shape = old.model_copy(update={"width": WIDTH, "head_dim": HEAD_SIZE, "mlp_ratio": MLP_SIZE / WIDTH})
    model = Transformer(shape, Parameters(parameter_specs(shape), 1))
    for name, weight in small.weights.items():
        wider = model.weights[name]
        if "_norm." in name:
            # The stream is divided by its length over the root of the width.
            weight = weight * (old.width / WIDTH) ** 0.5
        elif ".query." in name:
            weight = weight * (HEAD_SIZE / old.head_size) ** 0.5
        wider[tuple(slice(size) for size in weight.shape)] = weight
    return model


def _fill(model: Transformer, task: RetrievalTask, generator: torch.Generator) -> None:
    """Random heads in the layers that have none, and random units where an MLP has room."""
    stream = model.embedded(task.sample(torch.tensor([0]), "test", 0, _SAMPLES).inputs)
    for layer, block in enumerate(model.blocks):
        if layer not in PLACES:
            seen = norm(block.weights, "attention_norm", stream)
            for part, size in (("query", _SCORES), ("key", 1.0), ("value", 1.0)):
                _read_anything(block.weights, f"attention.{part}", seen, size, generator)
            _write_aside(block.weights, "attention.output", generator)
        heads = block.heads_under(stream, block.pattern(stream))
        seen = norm(block.weights, "mlp_norm", stream + block.projected(heads))
        _read_anything(block.weights, "mlp.inner", seen, 1.0, generator)
        _write_aside(block.weights, "mlp.outer", generator)
        stream = block.after_heads(stream, heads)


def _read_anything(
    weights: Mapping[str, Tensor], name: str, seen: Tensor, size: float, generator: torch.Generator
) -> None:
    """Columns that read nothing yet read at random what varies in a stream; each then varies by `size`."""
    weight, bias = weights[f"{name}.weight"][0], weights[f"{name}.bias"][0]
    free = (weight == 0).all(0)
    drawn = torch.randn(weight.shape[0], int(free.sum()), generator=generator)
    rows = seen.flatten(0, 2)
    drawn *= size / ((rows - rows.mean(0)) @ drawn).std(0)
    weight[:, free], bias[free] = drawn, -rows.mean(0) @ drawn


def _write_aside(weights: Mapping[str, Tensor], name: str, generator: torch.Generator) -> None:
    """Rows that write nothing yet write at random to the dimensions that the hand-built model does not have."""
    weight = weights[f"{name}.weight"][0]
    free = (weight == 0).all(1).nonzero()[:, 0]
    drawn = torch.randn(len(free), WIDTH - _BUILT, generator=generator)
    weight[free, _BUILT:] = drawn / weight.shape[0] ** 0.5
