"""Plants that were trained: plain PyTorch modules whose attention is clamped to a known circuit while they learn.

The values flow along the clamped patterns, so the rest of the model learns to use exactly those reads.  Heads that read
nothing are clamped to look at everything alike; the other rows of a head that reads do as they like.  Queries and keys
are fitted to the same patterns.  Then the clamp is taken away.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from .chains import Chains
from .plant import Plant, Read


class Layer(nn.Module):
    """Attention of one head or more, and a layer norm before it or none."""

    def __init__(self, width: int, heads: int, size: int, *, norm: bool):
        super().__init__()
        self.heads, self.size = heads, size
        self.norm = nn.LayerNorm(width) if norm else None
        self.query, self.key, self.value = (nn.Linear(width, heads * size) for _ in range(3))
        self.output = nn.Linear(heads * size, width)

    def forward(self, stream: Tensor, mask: Tensor, clamp: Tensor | None) -> tuple[Tensor, Tensor]:
        """The stream behind it, and the logarithm of its own patterns `[batch, head, row, key]`."""
        inside = stream if self.norm is None else self.norm(stream)
        query, key, value = (
            part(inside).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) / self.size**0.5 + mask
        own = scores.log_softmax(-1)
        pattern = (
            own.exp() if clamp is None else torch.where(clamp.sum(-1, keepdim=True) > 0.0, clamp, own.exp())
        )
        return stream + self.output((pattern @ value).transpose(1, 2).flatten(-2)), own


class Model(nn.Module):
    """Embedding, layers, readout."""

    def __init__(
        self, inputs: int, outputs: int, layers: int, heads: int, width: int, size: int, *, norm: bool
    ):
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(Layer(width, heads, size, norm=norm) for _ in range(layers))
        self.final = nn.LayerNorm(width) if norm else None
        self.readout = nn.Linear(width, outputs)

    def forward(self, inputs: Tensor, mask: Tensor, clamps: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Predictions at every position, and the logarithm of each layer's own patterns."""
        stream, own = self.embed(inputs), []
        for number, layer in enumerate(self.layers):
            stream, found = layer(stream, mask, None if clamps is None else clamps[:, number])
            own.append(found)
        return self.readout(stream if self.final is None else self.final(stream)), own


def clamps_of(
    task: Chains, reads: Sequence[Read], inputs: np.ndarray, mask: Tensor, layers: int, heads: int
) -> Tensor:
    """The patterns of a circuit `[batch, layer, head, row, key]`; zero at rows that are not clamped."""
    flat = (mask == 0.0).float()
    found = (flat / flat.sum(-1, keepdim=True)).expand(len(inputs), layers, heads, -1, -1).clone()
    for layer, head, *_ in reads:
        found[:, layer, head] = 0.0
    for layer, head, rows, keys in reads:
        for sample, sequence in enumerate(inputs):
            for row, key in task.linked(sequence, rows, keys):
                found[sample, layer, head, row] = nn.functional.one_hot(torch.tensor(key), task.length)
    return found


def _trained(
    name: str, task: Chains, reads: set[Read], heads: int, *, norm: bool, causal: bool, seed: int, steps: int
) -> Plant:
    layers = 1 + max(layer for layer, *_ in reads)
    torch.manual_seed(seed)
    size = max(task.size, task.length)
    width = (task.steps + 3) * task.size
    model = Model(2 * task.size, task.steps * task.size, layers, heads, width, size, norm=norm)
    mask = torch.zeros(task.length, task.length)
    if causal:
        mask = mask.masked_fill(~torch.ones_like(mask).tril().bool(), -torch.inf)
    drawn, answers = task.samples(seed, 1024)
    inputs, right = torch.tensor(drawn).float(), torch.tensor(answers).float()
    clamps = clamps_of(task, sorted(reads), drawn, mask, layers, heads)
    reading = clamps.amax(-1) == 1.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    random = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(inputs), (32,), generator=random)
        # Symbols turned at random are as good as new ones, and equal symbols stay equal.
        turn = torch.linalg.qr(torch.randn(task.size, task.size, generator=random))[0]
        given = torch.cat((inputs[chosen, :, : task.size] @ turn, inputs[chosen, :, task.size :]), -1)
        wanted = (right[chosen].unflatten(-1, (-1, task.size)) @ turn).flatten(-2)
        said, own = model(given, mask, clamps[chosen])
        error = (said[:, task.queries] - wanted).square().mean()
        missed = -(clamps[chosen] * torch.stack(own, 1).clamp(min=-50.0)).sum(-1)
        missed = missed[reading[chosen]].mean() + missed.mean()
        optimizer.zero_grad()
        (error + missed).backward()
        optimizer.step()
        schedule.step()
    return _plant(name, task, reads, model, causal=causal)


def _plant(name: str, task: Chains, reads: set[Read], model: Model, *, causal: bool) -> Plant:
    weights: dict[str, np.ndarray] = {}

    def take(target: str, part: nn.Module) -> None:
        for kind, value in part.state_dict().items():
            array = value.double().numpy()
            weights[f"{target}.{kind}"] = array.T if array.ndim == 2 else array

    take("embed.vector", model.embed)
    for number, layer in enumerate(model.layers):
        for part in ("query", "key", "value", "output"):
            take(f"layers.{number}.attention.{part}", getattr(layer, part))
        if layer.norm is not None:
            take(f"layers.{number}.attention_norm", layer.norm)
    if model.final is not None:
        take("final_norm", model.final)
    take("readout", model.readout)
    shape = {
        "layers": len(model.layers),
        "heads": model.layers[0].heads,
        "width": model.embed.out_features,
        "head_dim": model.layers[0].size,
        "mlp_ratio": 0.0,
        "norm": "none" if model.final is None else "pre",
        "causal": causal,
        "length": task.length,
        "positions": "carried",
        "position_size": task.size,
        "input_kind": "vectors",
        "input_size": 2 * task.size,
        "output_size": task.steps * task.size,
        "readout": tuple(task.queries),
    }

    def embed(inputs: np.ndarray) -> np.ndarray:
        return inputs @ weights["embed.vector.weight"] + weights["embed.vector.bias"]

    return Plant(name, task.config, shape, weights, task.samples, embed, task.linked, (frozenset(reads),))


def _masked_walk(name: str) -> Plant:
    reads = {(0, 0, "second 1", "first 1"), (1, 0, "query", "second 1")}
    return _trained(name, Chains(1, 5, 22), reads, 1, norm=False, causal=True, seed=149, steps=1200)


def _forwards(name: str) -> Plant:
    reads = {(0, 1, "first 1", "second 1"), (1, 0, "query", "first 1")}
    return _trained(name, Chains(1, 5, 26), reads, 2, norm=True, causal=False, seed=151, steps=1200)


def _longer_walk(name: str) -> Plant:
    reads = {
        (0, 0, "second 1", "first 1"),
        (0, 0, "second 2", "first 2"),
        (1, 1, "query", "second 1"),
        (2, 0, "query", "second 2"),
    }
    return _trained(name, Chains(2, 3, 22), reads, 2, norm=True, causal=True, seed=157, steps=1200)


TRAINED: dict[str, Callable[[str], Plant]] = {
    "trained: walk, D = 1": _masked_walk,
    "trained: forwards, D = 1, pre-norm, no mask": _forwards,
    "trained: walk, D = 2, pre-norm": _longer_walk,
}
"""Makers of all of them by name; training takes up to a minute each."""
