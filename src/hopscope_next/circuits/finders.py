"""Finders of circuits, all on one edge set, and exact patching of any of its edges.

**Edges.** From the output of one attention head to one input of a later part: the queries, keys or values of a head of
a later layer, or the logits; named as in EAP and MIB, `a0.h1->a2.h0<k>`, `a2.h0->logits`.  What lies between two ends
belongs to the edge: norms and MLPs are computed anew on what the receiver is given, as in path patching (Wang et al.
2022, arXiv:2211.00593).  The input reaches every receiver in every circuit.  Without MLPs, this is MIB's edge set
without the edges of the input.

**Ablation.** An edge that is not in a circuit carries what its head wrote on another sample, the one before in the
batch, in a pass without any patch (*interchange*).  An edge in the circuit carries what its head writes in this pass.
"""

import random
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from hopscope_next.circuits.reader import ReaderConfig, read
from hopscope_next.models.config import TransformerConfig
from hopscope_next.models.layers import Layer
from hopscope_next.models.transformer import Transformer
from hopscope_next.tasks import Batch, Task

FAITHFUL = 0.05
"""Share of the loss between no edge and all that a circuit chosen from a ranking may lose."""

_GREEDY = 0.01  # share of the loss between no edge and all, below which an edge stays ablated
_STEPS = 5  # points between two inputs, as in the paper of EAP-IG
_SHARP, _FEWEST = 0.5, 4  # attention of a row on one other token; keys that the row must see to count

Part = Literal["q", "k", "v"]
PARTS: tuple[Part, ...] = ("q", "k", "v")

HeadAt = tuple[int, int]
"""Layer and head, from 0."""


class Receiver(NamedTuple):
    """An input that reads the stream: queries, keys or values of a head, or the logits (layer: number of layers)."""

    layer: int
    head: int = -1
    part: Part | None = None


class Edge(NamedTuple):
    """From a head's output to an input of a later part."""

    source: HeadAt
    receiver: Receiver

    def __str__(self) -> str:
        layer, head, part = self.receiver
        return f"a{self.source[0]}.h{self.source[1]}->" + (f"a{layer}.h{head}<{part}>" if part else "logits")

    @property
    def heads(self) -> frozenset[HeadAt]:
        """The heads at its ends."""
        layer, head, part = self.receiver
        return frozenset((self.source, (layer, head)) if part else (self.source,))


def edges_of(config: TransformerConfig) -> list[Edge]:
    """The whole edge set of a model, by receiver in the order of the forward pass."""
    inputs = [
        Receiver(layer, head, part)
        for layer in range(1, config.layers)
        for head in range(config.heads)
        for part in PARTS
    ]
    return [
        Edge((layer, head), receiver)
        for receiver in (*inputs, Receiver(config.layers))
        for layer in range(receiver.layer)
        for head in range(config.heads)
    ]


class Patching:
    """One model on one batch, in which any edges can be ablated.

    Attributes:
        model: a single transformer.
        task, batch: what is asked, with a member axis of 1.
        edges: the edge set.
        start: stream before the first layer.
        clean, others: head outputs of each layer `[batch, head, position, head_dim]`, of these samples and of those
            that ablated edges come from.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, task: Task, batch: Batch):
        self.model, self.task, self.batch = model, task, batch
        self.edges = edges_of(model.config)
        self.start = model.embedded(batch.inputs[0])
        self.clean: list[Tensor] = []
        self.clean = self._pass(
            self.start, lambda receiver, depth: depth, lambda receiver, layer, heads: heads
        )[1]
        self.others = [heads.roll(1, 0) for heads in self.clean]

    @torch.no_grad()
    def loss(self, kept: Collection[Edge]) -> float:
        """Loss of the task if these edges alone are kept."""
        return float(self.task.parts(self.predictions(kept)[None], self.batch)["loss"])

    @cached_property
    def full(self) -> float:
        """Loss of the whole model."""
        return self.loss(self.edges)

    @cached_property
    def empty(self) -> float:
        """Loss with every edge ablated."""
        return self.loss(())

    def predictions(self, kept: Collection[Edge]) -> Float[Tensor, "batch readout output"]:
        """Predictions if these edges alone are kept."""
        chosen, width = frozenset(kept), self.model.config.heads
        gates: dict[Receiver, tuple[bool, ...]] = {}
        for edge in self.edges:
            gates[edge.receiver] = (*gates.get(edge.receiver, ()), edge in chosen)

        def given(receiver: Receiver, layer: int, heads: Tensor) -> Tensor:
            keep = gates[receiver][layer * width : (layer + 1) * width]
            gate = torch.tensor(keep, device=heads.device)[:, None, None]
            return heads if all(keep) else torch.where(gate, heads, self.others[layer])

        first = min((receiver.layer for receiver, keep in gates.items() if not all(keep)), default=0)
        # What receivers see is the same where the same edges lead to them.
        return self._pass(
            self.start, lambda receiver, depth: gates.get(receiver, ())[: depth * width], given, first
        )[0]

    def nudged(
        self, start: Float[Tensor, "batch position model"], amounts: Mapping[Edge, Float[Tensor, ""]]
    ) -> Float[Tensor, "batch readout output"]:
        """Predictions if each edge carries, beside what it carries anyway, so much of (clean - other).

        The derivative of a metric by an amount at 0 is the first-order effect of the edge.
        """
        numbers = range(self.model.config.heads)
        differences = [clean - other for clean, other in zip(self.clean, self.others, strict=True)]

        def given(receiver: Receiver, layer: int, heads: Tensor) -> Tensor:
            by = torch.stack([amounts[Edge((layer, number), receiver)] for number in numbers])
            return heads + by[:, None, None] * differences[layer]

        return self._pass(start, lambda receiver, depth: receiver, given)[0]

    def _pass(
        self,
        start: Tensor,
        key: Callable[[Receiver, int], Hashable],
        given: Callable[[Receiver, int, Tensor], Tensor],
        first: int = 0,
    ) -> tuple[Tensor, list[Tensor]]:
        """Predictions, and what heads write; heads of layers before `first` are known to be clean.

        Args:
            start: the stream before the first layer.
            key: of a receiver and a number of layers; equal keys, equal streams.
            given: what a receiver gets of the heads of a layer.
            first: see above.
        """
        layers, written = cast(list[Layer], list(self.model.layers)), self.clean[:first]
        known: dict[Hashable, Tensor] = {}

        def stream(receiver: Receiver, depth: int) -> Tensor:
            name = depth, key(receiver, depth)
            if depth and name not in known:
                heads = given(receiver, depth - 1, written[depth - 1])
                known[name] = layers[depth - 1].after_heads(stream(receiver, depth - 1), heads)
            return known[name] if depth else start

        for number in range(first, len(layers)):
            written.append(_heads(layers[number], number, stream))
        found = self.model.read_out(stream(Receiver(len(layers)), len(layers)))
        return found[:, self.model.rows], written


def _heads(layer: Layer, number: int, stream: Callable[[Receiver, int], Tensor]) -> Tensor:
    """Outputs of all heads of a layer; those that see the same streams are computed together."""
    seen = [
        [stream(Receiver(number, head, part), number) for part in PARTS] for head in range(layer.config.heads)
    ]
    together: dict[tuple[int, ...], list[int]] = {}
    for head, streams in enumerate(seen):
        together.setdefault(tuple(map(id, streams)), []).append(head)
    found: dict[int, Tensor] = {}
    for heads in together.values():
        queries, keys, values = seen[heads[0]]
        out = layer.heads_under(values, layer.pattern(queries, keys, heads=heads), heads)
        found |= dict(zip(heads, out.unbind(1), strict=True))
    return torch.stack([found[head] for head in range(layer.config.heads)], 1)


# Finders.


class Found(NamedTuple):
    """What a finder says: a score for edges (one that is missing has 0), and which of them are the circuit."""

    scores: Mapping[Edge, float]
    circuit: frozenset[Edge]


Finder = Callable[[Transformer, Task, Batch], Found]
"""A finder is given a single model, its task and samples of it with a member axis of 1, and nothing of the truth."""


def ranked(scores: Mapping[Edge, float], *, signed: bool = True) -> list[Edge]:
    """Edges by falling score, or by its size; those of equal score in one fixed random order."""
    shuffled = sorted(scores)
    random.Random(0).shuffle(shuffled)
    return sorted(shuffled, key=lambda edge: -(scores[edge] if signed else abs(scores[edge])))


def smallest_faithful(patching: Patching, scores: Mapping[Edge, float]) -> Found:
    """The shortest beginning of a ranking that loses at most `FAITHFUL`, of the sizes 0, 1, 2, … (from 5 on a quarter
    more each time)."""
    order = ranked(scores)
    bound, size = patching.full + FAITHFUL * (patching.empty - patching.full), 0
    while size < len(order) and patching.loss(order[:size]) > bound:
        size = min(len(order), max(size + 1, int(size * 1.25)))
    return Found(scores, frozenset(order[:size]))


def reader(model: Transformer, task: Task, batch: Batch) -> Found:
    """The reader of circuits, on as many samples, which it draws itself: the uses of the paths that it reads, as edges.

    An edge is scored by the rise of the loss without that use; of several row roles the largest counts.
    """
    samples = batch.inputs.shape[1]
    reading = read(
        model, task, ReaderConfig(samples=samples, validation=2 * samples, orders=1, random_circuits=0)
    )
    scores: dict[Edge, float] = {}
    for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True):
        for use in evidence.composition:
            receiver = Receiver(model.config.layers)
            if use.layer is not None and use.head is not None and use.part is not None:
                receiver = Receiver(use.layer, use.head, PARTS["QKV".index(use.part)])
            edge = Edge((path.layer, path.head), receiver)
            scores[edge] = max(scores.get(edge, 0.0), use.rise)
    return Found(scores, frozenset(scores))


def greedy(model: Transformer, task: Task, batch: Batch) -> Found:
    """Edges are ablated one after another, from the logits back, and stay so if the loss rises by little.

    In the manner of ACDC (Conmy et al. 2023, arXiv:2304.14997), with the loss in place of a divergence, and a threshold
    of 1 % of the loss between no edge and all.  A score is the rise at the moment when an edge was tried.
    """
    patching = Patching(model, task, batch)
    kept, scores, loss = set(patching.edges), {}, patching.full
    least = _GREEDY * (patching.empty - patching.full)

    def last_first(edge: Edge) -> tuple[Any, ...]:
        (layer, head), receiver = edge
        return -receiver.layer, -receiver.head, receiver.part, -layer, -head

    for edge in sorted(patching.edges, key=last_first):
        without = patching.loss(kept - {edge})
        scores[edge] = without - loss
        if scores[edge] < least:
            kept.remove(edge)
            loss = without
    return Found(scores, frozenset(kept))


def eap(model: Transformer, task: Task, batch: Batch, points: Sequence[float] = (1.0,)) -> Found:
    """Edge attribution patching: the first-order effect of every edge at once (Syed et al. 2023, arXiv:2310.10348)."""
    patching = Patching(model, task, batch)
    return smallest_faithful(patching, attributed(patching, points))


def eap_ig(model: Transformer, task: Task, batch: Batch) -> Found:
    """The mean of several such effects, on the way from the other sample's input to the clean one (Hanna et al. 2024,
    arXiv:2403.17806)."""
    return eap(model, task, batch, [step / _STEPS for step in range(1, _STEPS + 1)])


@torch.enable_grad()
def attributed(patching: Patching, points: Sequence[float]) -> dict[Edge, float]:
    """Mean derivative of a metric by how much more of (clean - other) each edge carries.

    At the loss of a model that answers perfectly all derivatives vanish.  So the metric is, as is usual, a difference
    of answers: the prediction's product with the right answer minus that of the other sample (of tokens: the difference
    of two logits).

    Args:
        patching: the model on samples.
        points: where derivatives are taken: 0 is the other sample's input, 1 the clean one.
    """
    targets = patching.batch.targets[0]
    if not targets.is_floating_point():
        targets = functional.one_hot(targets, patching.model.config.output_size).float()
    other = patching.start.roll(1, 0)
    total = torch.zeros(len(patching.edges), device=other.device)
    for point in points:
        amounts = torch.zeros_like(total, requires_grad=True)
        by_edge = dict(zip(patching.edges, amounts.unbind(), strict=True))
        predicted = patching.nudged(other + point * (patching.start - other), by_edge)
        metric = (predicted * (targets - targets.roll(1, 0))).sum(-1).mean()
        total += torch.autograd.grad(metric, amounts)[0] / len(points)
    return dict(zip(patching.edges, total.tolist(), strict=True))


def attention(model: Transformer, task: Task, batch: Batch) -> Found:
    """A threshold on attention: an edge counts if its heads look sharply at single other tokens.

    The mass of a head is the largest over rows (that see 4 tokens or more) of the mean largest weight on a token other
    than the row itself; an edge has the lesser mass of its ends, and is in the circuit from one half on.
    """
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.layers)]
    mass: dict[HeadAt, float] = {}
    for layer, pattern in enumerate(model.cache(batch.inputs[0], names).values()):
        others = (pattern - pattern * torch.eye(pattern.shape[-1], device=pattern.device)).amax(-1)
        found = others[..., _FEWEST - 1 if model.config.causal else 0 :].mean(0).amax(-1)
        mass |= {(layer, head): float(value) for head, value in enumerate(found)}
    scores = {edge: min(mass[head] for head in edge.heads) for edge in edges_of(model.config)}
    return Found(scores, frozenset(edge for edge, score in scores.items() if score >= _SHARP))


FINDERS: dict[str, Finder] = {
    "reader": reader,
    "greedy": greedy,
    "eap": eap,
    "eap-ig": eap_ig,
    "attention": attention,
}
