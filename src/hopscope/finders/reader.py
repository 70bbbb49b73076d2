"""Hopscope's own reader as a finder: the uses of the paths of the circuit that it reads, as edges.

The reader proves which rows of which heads read what.  It then removes each path for one use at a time: for one input
of one other path, or for the logits.  The rise of the loss is the score of the edge between the two heads; of several
row roles the largest counts.  An edge is in the circuit if the rise is one that the reader counts at all.  A model of
which it reads nothing (`no circuit`) has an empty one.
"""

from typing import Any

from hopscope.circuits.config import ReaderConfig
from hopscope.circuits.reader import Reading, read_circuit
from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.edges import Budget, Edge, Receiver
from hopscope.models.transformer import Transformer


def read(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """The circuit that the reader finds, searched on the budget's samples and reported on twice as many."""
    config = ReaderConfig(
        samples=budget.samples, validation=2 * budget.samples, orders=1, random_circuits=0, seed=budget.seed
    )
    reading = read_circuit(model, task, config)
    scores = edges_read(reading, model.config.layers)
    return [ScoredEdge(edge=str(edge), score=score) for edge, score in scores.items()]


def edges_read(reading: Reading, layers: int) -> dict[Edge, float]:
    """The uses of every path as edges between heads, with the largest rise of the loss."""
    scores: dict[Edge, float] = {}
    for path, evidence in zip(reading.circuit.paths, reading.evidence, strict=True):
        for use in evidence.composition:
            receiver = Receiver(layers)
            if use.reader is not None:
                layer, head, _ = use.reader
                part = {"Q": "q", "K": "k", "V": "v"}[str(use.part)]
                receiver = Receiver(layer, head, part)  # type: ignore[arg-type]
            edge = Edge((path.layer, path.head), receiver)
            scores[edge] = max(scores.get(edge, 0.0), use.rise)
    return scores
