"""Finders of circuits on one edge set, exact patching of any of its edges, and the benchmark on planted models.

docs/benchmark.md says what edges, ablation, scores and truth are, and where they are from.  An edge that is not in a
circuit carries what its head wrote on the sample before in the batch, in a pass without any patch.  The rises of models
that were set by hand fall into two groups with a wide gap between them: truth hardly depends on `LEAST_RISE`.
"""

import math
import random
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from scipy.integrate import trapezoid
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.plants import Plant
from hopscope.circuits.reader import ReaderConfig, read
from hopscope.models.config import TransformerConfig
from hopscope.models.layers import Layer, Stream
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Task, draw, held_out

Amounts = Float[Tensor, " edge"]

FAITHFUL = 0.05  # share of the loss between no edge and all that a circuit chosen from a ranking may lose
LEAST_RISE = 0.01  # of the loss: squared error per component, or nats
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_GREEDY = 0.01  # share of the loss between no edge and all, below which an edge stays ablated
_SHARP, _FEWEST = 0.5, 4  # attention of a row on one other token; keys that the row must see to count
_SAMPLES = {"vectors": 32, "classes": 256}  # right or wrong answers say less than vectors do


class Edge(NamedTuple):
    """From a head's output to the queries, keys or values of a later one, or (no `part`) to the logits."""

    layer: int
    head: int
    to_layer: int
    to_head: int = -1
    part: str = ""

    def __str__(self) -> str:
        to = f"a{self.to_layer}.h{self.to_head}<{self.part}>" if self.part else "logits"
        return f"a{self.layer}.h{self.head}->{to}"

    @property
    def heads(self) -> frozenset[tuple[int, int]]:
        """Layer and number of the heads at its ends."""
        return frozenset((self[:2], self[2:4]) if self.part else (self[:2],))


def edges_of(config: TransformerConfig) -> list[Edge]:
    """The whole edge set of a model, by receiver in the order of the forward pass."""
    heads = [(layer, head) for layer in range(config.layers) for head in range(config.heads)]
    receivers = [*((*head, part) for head in heads for part in "qkv"), (config.layers, -1, "")]
    return [Edge(layer, head, *to) for to in receivers for layer, head in heads if layer < to[0]]


class Patching:
    """One model on one batch (with a member axis of 1), in which any of its `edges` can be ablated.

    `start` is the stream before the first layer, `full` and `empty` the loss with all edges, and with none.
    """

    @torch.no_grad()
    def __init__(self, model: Transformer, task: Task, batch: Batch):
        self.model, self.task, self.batch, self.edges = model, task, batch, edges_of(model.config)
        self._edges_to = {to: [*edges] for to, edges in groupby(self.edges, key=lambda edge: edge[2:])}
        self.start = model.embedded(batch.inputs[0])
        names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.config.layers)]
        self._clean = [heads.transpose(1, 2) for heads in model.cache(batch.inputs[0], names).values()]
        self._others = [heads.roll(1, 0) for heads in self._clean]
        self.full, self.empty = self.loss(self.edges), self.loss(())

    @torch.no_grad()
    def loss(self, kept: Collection[Edge]) -> float:
        """Loss of the task if these edges alone are kept."""
        return float(self.task.parts(self.predictions(kept)[None], self.batch)["loss"])

    def predictions(
        self, kept: Collection[Edge], start: Stream | None = None, amounts: Amounts | None = None
    ) -> Float[Tensor, "batch readout output"]:
        """Predictions if these edges alone are kept, perhaps with another stream before the first layer.

        `amounts` of (clean - other) are what each of `edges` carries beside what it carries anyway: the derivative of a
        metric by one of them at 0 is the first-order effect of the edge.
        """
        chosen, heads, more = frozenset(kept), self.model.config.heads, dict[Any, Tensor]()
        gates = {to: tuple(edge in chosen for edge in edges) for to, edges in self._edges_to.items()}
        if amounts is not None:
            more = dict(zip(gates, amounts.split([*map(len, gates.values())]), strict=True))

        def place(to: Any, depth: int) -> Hashable:
            # Receivers see the same stream before a layer where the same edges lead to them.
            gate = gates.get(to, ())[: depth * heads]
            return gate, to if more and gate else None

        streams = {place(None, 0): self.start if start is None else start}
        intact, last = start is None and not more, (self.model.config.layers, -1, "")
        for depth, layer in enumerate(cast(list[Layer], [*self.model.layers])):
            clean, other = self._clean[depth], self._others[depth]
            here = slice(depth * heads, (depth + 1) * heads)
            intact = intact and all(all(gate) for to, gate in gates.items() if to[0] == depth)
            seen = [[streams[place((depth, head, part), depth)] for part in "qkv"] for head in range(heads)]
            written = clean
            if not intact:  # each head reads by the streams that its queries and keys see
                patterns = [layer.pattern(q, k, heads=[head]) for head, (q, k, _) in enumerate(seen)]
                each = [layer.heads_under(seen[head][2], read, [head]) for head, read in enumerate(patterns)]
                written = torch.cat(each, 1)
            for to, gate in ((to, gate) for to, gate in gates.items() if to[0] > depth):
                if (now := place(to, depth + 1)) not in streams:
                    keep = torch.tensor(gate[here], device=other.device)[:, None, None]
                    given = torch.where(keep, written, other)
                    given = given + more[to][here, None, None] * (clean - other) if more else given
                    streams[now] = layer.after_heads(streams[place(to, depth)], given)
        return self.model.read_out(streams[place(last, last[0])])[:, self.model.rows]


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
    """The shortest beginning of a ranking that loses at most `FAITHFUL`; sizes from 5 on grow by a quarter."""
    order, bound, size = ranked(scores), patching.full + FAITHFUL * (patching.empty - patching.full), 0
    while size < len(order) and patching.loss(order[:size]) > bound:
        size = min(len(order), max(size + 1, int(size * 1.25)))
    return Found(scores, frozenset(order[:size]))


def reader(model: Transformer, task: Task, batch: Batch) -> Found:
    """The reader of circuits, on as many samples, which it draws itself.

    Edges are uses of its paths, scored by the rise of the loss without them (of several row roles by the largest).
    """
    samples, scores = batch.inputs.shape[1], dict[Edge, float]()
    config = ReaderConfig(samples=samples, validation=2 * samples, orders=1, random_circuits=0)
    reading = read(model, task, config)
    for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True):
        for use in evidence.composition:
            edge = Edge(path.layer, path.head, model.config.layers)
            if use.layer is not None and use.head is not None and use.part is not None:
                edge = Edge(path.layer, path.head, use.layer, use.head, use.part.lower())
            scores[edge] = max(scores.get(edge, 0.0), use.rise)
    return Found(scores, frozenset(scores))


def greedy(model: Transformer, task: Task, batch: Batch) -> Found:
    """Edges are ablated one after another, from the logits back, and stay so if the loss rises by little.

    In the manner of ACDC (Conmy et al. 2023, arXiv:2304.14997), with the loss in place of a divergence, and a threshold
    of 1 % of the loss between no edge and all.  A score is the rise at the moment when an edge was tried.
    """
    patching, scores = Patching(model, task, batch), dict[Edge, float]()
    kept, loss, least = set(patching.edges), patching.full, _GREEDY * (patching.empty - patching.full)
    for edge in sorted(kept, key=lambda e: (-e.to_layer, -e.to_head, e.part, -e.layer, -e.head)):
        without = patching.loss(kept - {edge})
        scores[edge] = without - loss
        if scores[edge] < least:
            kept.remove(edge)
            loss = without
    return Found(scores, frozenset(kept))


def eap(model: Transformer, task: Task, batch: Batch, points: Sequence[float] = (1.0,)) -> Found:
    """Edge attribution patching: the first-order effect of every edge at once (Syed et al. 2023, arXiv:2310.10348).

    An effect is the derivative of a metric by how much more of (clean - other) the edge carries, averaged over inputs
    at some `points` between the other sample's (0) and the clean one (1).  The metric is, as is usual, a difference of
    answers (of tokens: of two logits), since all derivatives of the loss vanish where a model answers perfectly.
    """
    patching, targets = Patching(model, task, batch), batch.targets[0]
    if not targets.is_floating_point():
        targets = functional.one_hot(targets, model.config.output_size).float()
    edges, other = patching.edges, patching.start.roll(1, 0)
    total = torch.zeros(len(edges), device=other.device)
    with torch.enable_grad():
        for point in points:
            amounts = torch.zeros_like(total, requires_grad=True)
            predicted = patching.predictions(edges, other + point * (patching.start - other), amounts)
            metric = (predicted * (targets - targets.roll(1, 0))).sum(-1).mean()
            total += torch.autograd.grad(metric, amounts)[0] / len(points)
    return smallest_faithful(patching, dict(zip(edges, total.tolist(), strict=True)))


eap_ig = partial(eap, points=[0.2, 0.4, 0.6, 0.8, 1.0])
"""The mean of several such effects, on the way between both inputs (Hanna et al. 2024, arXiv:2403.17806)."""


def attention(model: Transformer, task: Task, batch: Batch) -> Found:
    """A threshold on attention: an edge counts if its heads look sharply at single other tokens.

    The mass of a head is the largest over rows (that see 4 tokens or more) of the mean largest weight on a token other
    than the row itself; an edge has the lesser mass of its ends, and is in the circuit from one half on.
    """
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.layers)]
    patterns = torch.stack([*model.cache(batch.inputs[0], names).values()])
    others = patterns.masked_fill(torch.eye(patterns.shape[-1], device=patterns.device).bool(), 0.0).amax(-1)
    first = min(_FEWEST, others.shape[-1]) - 1 if model.config.causal else 0
    mass = others[..., first:].mean(1).amax(-1).tolist()
    scores = {edge: min(mass[layer][head] for layer, head in edge.heads) for edge in edges_of(model.config)}
    return Found(scores, frozenset(edge for edge, score in scores.items() if score >= _SHARP))


FINDERS: dict[str, Finder] = {
    "reader": reader, "greedy": greedy, "eap": eap, "eap-ig": eap_ig, "attention": attention,
}  # fmt: skip


def benchmark(plants: Iterable[Plant], finders: Mapping[str, Finder] = FINDERS) -> list[dict[str, Any]]:
    """Scores of finders on planted models: a row for each plant and finder, with the CPU's seconds.

    Finders see 32 samples, and 256 where answers are classes.  Truth is proven on as many others, and scores are taken
    on held-out ones.
    """
    rows = []
    for plant in plants:
        model, task, count = plant.model, plant.task, _SAMPLES[plant.task.shape().outputs]
        seen, others = (draw(task, torch.tensor([0]), "probe", step, count) for step in range(2))
        truths = true_circuits(plant, Patching(model, task, others))
        scoring = Patching(model, task, held_out(task, 2 * count).take(slice(2 * count)))
        about = {"plant": plant.name, "family": plant.family, "explained": plant.explained}
        for name, finder in finders.items():
            began = time.process_time()
            found, seconds = finder(model, task, seen), time.process_time() - began
            rows.append({**about, "finder": name, **score(found, scoring, truths), "seconds": seconds})
    return rows


def true_circuits(plant: Plant, patching: Patching) -> list[frozenset[Edge]]:
    """The true edges of every minimal circuit."""
    found = []
    for circuit in plant.circuits:
        heads = {(read.layer, read.head) for read in circuit}
        inside = frozenset(edge for edge in patching.edges if edge.heads <= heads)
        least = patching.loss(inside) + LEAST_RISE
        found.append(frozenset(edge for edge in inside if patching.loss(inside - {edge}) >= least))
    return list(dict.fromkeys(found))


def score(found: Found, patching: Patching, truths: Sequence[frozenset[Edge]]) -> dict[str, float | None]:
    """Scores by name, faithfulness measured on the samples of `patching`; `None` where one cannot be said."""
    scores = {edge: found.scores.get(edge, 0.0) for edge in patching.edges}
    whole, nothing = math.exp(-patching.full), math.exp(-patching.empty)

    def faithful(kept: Collection[Edge]) -> float:
        return (math.exp(-patching.loss(kept)) - nothing) / (whole - nothing)

    def curve(order: list[Edge]) -> list[float]:
        return [faithful(order[: int(share * len(order))]) for share in SHARES]

    precision, recall = best_match(found.circuit, truths)
    false = scores.keys() - frozenset[Edge]().union(*truths)
    ranks = [auroc([scores[edge] for edge in truth], [scores[edge] for edge in false]) for truth in truths]
    return {
        "precision": precision,
        "recall": recall,
        "auroc": max((rank for rank in ranks if rank is not None), default=None),
        "faithfulness": faithful(found.circuit),
        "cpr": float(trapezoid(curve(ranked(scores)), SHARES)),
        "cmd": float(trapezoid([abs(1.0 - f) for f in curve(ranked(scores, signed=False))], SHARES)),
    }


def best_match(found: frozenset[Any], truths: Sequence[frozenset[Any]]) -> tuple[float | None, float | None]:
    """Precision (of nothing: `None`) and recall by the true set of the best F1, without what only others have."""
    some, matches = frozenset[Any]().union(*truths), []
    for truth in truths:
        counted = found - (some - truth)
        right = len(counted & truth)
        precision = right / len(counted) if counted else None
        matches.append((right / (len(counted) + len(truth)), precision, right / len(truth)))
    return max(matches, key=lambda match: match[0])[1:]


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float | None:
    """Probability that a positive has a larger score than a negative, ties one half; `None` without either."""
    won = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    return won / (len(positives) * len(negatives)) if positives and negatives else None
