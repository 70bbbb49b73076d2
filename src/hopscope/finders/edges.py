"""The edges on which circuit finders are compared, and exact activation patching of any set of them.

**Edge set.** An edge goes from the output of one attention head to one input of a later part: the queries, keys or
values of a head of a later layer, or the logits.  Names are those of EAP and MIB: `a0.h1->a2.h0<k>`,
`a2.h0->logits`.  What lies between two ends belongs to the edge: norms and MLPs are computed anew on what the receiver
is given, as in path patching (Wang et al. 2022, arXiv:2211.00593).  So there is no edge from or to an MLP, and none
from the input, which reaches every receiver in every circuit.  In a model without MLPs, this is MIB's edge set without
the edges of the input.  In a post-norm model the stream is no sum, but the same holds: it is folded layer by layer.

**Ablation.** An edge that is not in a circuit carries what its head wrote on another sample of the same batch, the one
before (*interchange* or *resample* ablation).  That head is computed without any patch.  An edge that is in the circuit
carries what its head writes in this pass.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hopscope.circuits.built_in_tasks import ReadTask, circuit_task_of
from hopscope.circuits.circuit_task import Use
from hopscope.models.config import TransformerConfig
from hopscope.models.member import Block, MemberTransformer
from hopscope.models.transformer import Transformer
from hopscope.tasks.batch import Batch

Part = Literal["q", "k", "v"]
PARTS: tuple[Part, ...] = ("q", "k", "v")

Head = tuple[int, int]
"""Layer and head, from 0."""


class Receiver(NamedTuple):
    """An input that reads the stream: a head's queries, keys or values, or the logits (`head` is -1).

    Attributes:
        layer: of the head; for the logits the number of layers.
        head, part: which input of the layer.
    """

    layer: int
    head: int = -1
    part: Part | None = None

    def __str__(self) -> str:
        return f"a{self.layer}.h{self.head}<{self.part}>" if self.part else "logits"


class Edge(NamedTuple):
    """From a head's output to an input of a later part."""

    source: Head
    receiver: Receiver

    def __str__(self) -> str:
        return f"a{self.source[0]}.h{self.source[1]}->{self.receiver}"

    @property
    def heads(self) -> frozenset[Head]:
        """The heads at its ends."""
        here = (
            {self.source, (self.receiver.layer, self.receiver.head)} if self.receiver.part else {self.source}
        )
        return frozenset(here)


def receivers_of(config: TransformerConfig) -> list[Receiver]:
    """Every input that edges lead to, in the order of the forward pass."""
    heads = [
        Receiver(layer, head, part)
        for layer in range(1, config.layers)
        for head in range(config.heads)
        for part in PARTS
    ]
    return [*heads, Receiver(config.layers)]


def edges_of(config: TransformerConfig) -> list[Edge]:
    """The whole edge set of a model, by receiver in the order of the forward pass."""
    return [
        Edge((layer, head), receiver)
        for receiver in receivers_of(config)
        for layer in range(receiver.layer)
        for head in range(config.heads)
    ]


def edges_between(config: TransformerConfig, heads: Collection[Head]) -> frozenset[Edge]:
    """All edges whose ends are among these heads, and those from them to the logits."""
    return frozenset(edge for edge in edges_of(config) if edge.heads <= set(heads))


Streams = Callable[[int, Receiver], Tensor]
"""The stream before a layer, as a receiver sees it."""


class _Plan(NamedTuple):
    """What receivers are given.

    Attributes:
        key: receiver and number of layers → a name for the stream that it sees before that layer: equal names, equal
            streams.
        given: receiver, layer, and the layer's heads `[head, batch, position, width]` → what it gets of them.
    """

    key: Callable[[Receiver, int], Hashable]
    given: Callable[[Receiver, int, Tensor], Tensor]


@dataclass(frozen=True)
class Budget:
    """What a finder may look at.

    Attributes:
        samples: number of sequences.
        seed: that they are drawn from.
    """

    samples: int = 32
    seed: int = 0


FINDING: Use = "search"
SCORING: Use = "report"
PROVING: Use = "check"
"""Which of the sequences that circuits are read on serve what: finders, scores, and the proof of the truth."""


class Patching:
    """One model on one batch, in which any edges can be ablated.

    Attributes:
        module: the model as a plain module.
        config: its configuration.
        task, batch: what is asked, with a member axis of 1.
        edges: the edge set.
        clean: what each layer's heads write, without any patch: `[head, batch, position, width]` for each layer.
        others: the same for the samples that ablated edges come from.
    """

    def __init__(self, model: Transformer, task: Any, batch: Batch):
        self.module: MemberTransformer = model.member(0).requires_grad_(False)
        self.config, self.task, self.batch = model.config, task, batch
        self.edges = edges_of(model.config)
        self.embedded = self.embed(batch.inputs[0])
        self.other_embedded = self.embedded.roll(1, 0)
        self._whole = _Plan(lambda receiver, depth: depth, lambda receiver, layer, heads: heads.sum(0))
        self.clean: list[Tensor] = []
        _, self.clean = self._passed(self.embedded, self._whole, 0)
        self.others = [heads.roll(1, 1) for heads in self.clean]

    @classmethod
    def drawn(cls, model: Transformer, task: ReadTask, budget: Budget, use: Use = FINDING) -> "Patching":
        """The model on samples of its task: the sequences that the reader would see, of each sort so many."""
        found = circuit_task_of(task)
        return cls(found.model(model), found.task, found.batch(budget.seed, budget.samples, use))

    def embed(self, inputs: Tensor) -> Tensor:
        """The stream before the first layer `[batch, position, width]`."""
        symbol, code = self.module.embed(inputs)
        return symbol + code

    # Measures.

    def loss(self, kept: Collection[Edge]) -> float:
        """Loss of the task if these edges alone are kept."""
        with torch.no_grad():
            return float(self.loss_of(self.predictions(kept)))

    def loss_of(self, predictions: Tensor) -> Tensor:
        """The task's loss of predictions `[batch, readout, output]`."""
        losses = self.task.losses(predictions[None], self.batch)
        # Of a text, what is answered counts, not what any language model could predict of it.
        found: Tensor = losses.get("loss_answer", losses["loss"])[0]
        return found

    @cached_property
    def full(self) -> float:
        """Loss of the whole model."""
        return self.loss(self.edges)

    @cached_property
    def empty(self) -> float:
        """Loss of the model with every edge ablated."""
        return self.loss(())

    # Passes.

    def predictions(self, kept: Collection[Edge]) -> Tensor:
        """Predictions `[batch, readout, output]` if these edges alone are kept."""
        chosen = set(kept)
        heads = range(self.config.heads)
        rows = {
            receiver: tuple(
                Edge((layer, head), receiver) in chosen for layer in range(receiver.layer) for head in heads
            )
            for receiver in receivers_of(self.config)
        }
        width = self.config.heads

        def given(receiver: Receiver, layer: int, found: Tensor) -> Tensor:
            wanted = rows[receiver][layer * width : (layer + 1) * width]
            if all(wanted):
                return found.sum(0)
            return torch.stack(
                [(found if keep else self.others[layer])[n] for n, keep in enumerate(wanted)]
            ).sum(0)

        plan = _Plan(lambda receiver, depth: rows.get(receiver, ())[: depth * width], given)
        first = min((receiver.layer for receiver, row in rows.items() if not all(row)), default=0)
        return self._passed(self.embedded, plan, first)[0]

    def nudged(self, embedded: Tensor, amounts: dict[Edge, Tensor]) -> Tensor:
        """Predictions if each edge carries, beside what it carries anyway, so much of (clean - other).

        The derivative of the loss by an amount at 0 is the first-order effect of the edge.
        """
        heads = range(self.config.heads)
        differences = [clean - other for clean, other in zip(self.clean, self.others, strict=True)]

        def given(receiver: Receiver, layer: int, found: Tensor) -> Tensor:
            by = torch.stack([amounts[Edge((layer, head), receiver)] for head in heads])
            return found.sum(0) + torch.einsum("h,hbpw->bpw", by, differences[layer])

        return self._passed(embedded, _Plan(lambda receiver, depth: (receiver, depth), given), 0)[0]

    def _passed(self, embedded: Tensor, plan: _Plan, first: int) -> tuple[Tensor, list[Tensor]]:
        """Predictions, and what heads write; heads of layers before `first` are known to be clean."""
        written: list[Tensor] = list(self.clean[:first])
        known: dict[Hashable, Tensor] = {}

        def stream(depth: int, receiver: Receiver) -> Tensor:
            if depth == 0:
                return embedded
            key = (depth, plan.key(receiver, depth))
            if key not in known:
                before = stream(depth - 1, receiver)
                known[key] = self._after(
                    depth - 1, before, plan.given(receiver, depth - 1, written[depth - 1])
                )
            return known[key]

        for layer in range(len(written), self.config.layers):
            written.append(self._written(layer, stream))
        last = self.module.final_norm(stream(self.config.layers, Receiver(self.config.layers)))
        return self.module.readout(last[:, list(self.config.readout_positions)]), written

    def _after(self, layer: int, stream: Tensor, attended: Tensor) -> Tensor:
        """The stream after a layer, from what its heads add together."""
        block = self._block(layer)
        pre = self.config.norm == "pre"
        stream = stream + attended + block.attention.output.bias
        stream = stream if pre else block.attention_norm(stream)
        if self.config.mlp_size:
            stream = stream + block.mlp(block.mlp_norm(stream) if pre else stream)
            stream = stream if pre else block.mlp_norm(stream)
        return stream

    def _written(self, layer: int, stream: Streams) -> Tensor:
        """What each head of a layer adds to the stream `[head, batch, position, width]`, without the bias."""
        block = self._block(layer)
        normed: dict[int, Tensor] = {}

        def read(head: int, part: Part) -> Tensor:
            seen = stream(layer, Receiver(layer, head, part))
            if id(seen) not in normed:
                normed[id(seen)] = block.attention_norm(seen) if self.config.norm == "pre" else seen
            maps = {"q": block.attention.query, "k": block.attention.key, "v": block.attention.value}
            here = self._slice(head)
            return functional.linear(normed[id(seen)], maps[part].weight[here], maps[part].bias[here])

        return torch.stack([self._head(block, head, read) for head in range(self.config.heads)])

    def _head(self, block: Block, head: int, read: Callable[[int, Part], Tensor]) -> Tensor:
        scores = read(head, "q") @ read(head, "k").transpose(-1, -2) / self.config.head_size**0.5
        if self.config.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        mixed = scores.softmax(-1) @ read(head, "v")
        return mixed @ block.attention.output.weight[:, self._slice(head)].T

    def _slice(self, head: int) -> slice:
        size = self.config.head_size
        return slice(head * size, (head + 1) * size)

    def _block(self, layer: int) -> Block:
        block = self.module.layers[layer]
        assert isinstance(block, Block)
        return block


def by_name(edges: Sequence[Edge]) -> dict[str, Edge]:
    """Edges by their names, in the same order."""
    return {str(edge): edge for edge in edges}
