"""Greedy search of edges in the manner of ACDC (Conmy et al. 2023, arXiv:2304.14997).

Receivers are visited from the logits back to the first layer.  Each edge of a receiver is ablated, on top of all that
was ablated before; if the loss rises by less than a threshold, the edge stays ablated.  An edge's score is the rise at
the moment when it was tried.

ACDC compares outputs by their divergence and leaves the threshold open.  Here the rise is that of the task's loss, and
the threshold a fixed share of the loss between no edge and all, so that no model has a threshold of its own.
"""

from typing import Any

from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.edges import Budget, Edge, Patching
from hopscope.models.transformer import Transformer

THRESHOLD = 0.01
"""Share of the loss between no edge and all."""


def acdc(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Greedy removal of edges, the last receivers first."""
    patching = Patching.drawn(model, task, budget)
    kept, rises = set(patching.edges), {}
    loss, least = patching.full, THRESHOLD * (patching.empty - patching.full)
    for edge in sorted(patching.edges, key=_last_first):
        without = patching.loss(kept - {edge})
        rises[edge] = without - loss
        if rises[edge] < least:
            kept.remove(edge)
            loss = without
    return [ScoredEdge(edge=str(edge), score=rise, in_circuit=edge in kept) for edge, rise in rises.items()]


def _last_first(edge: Edge) -> tuple[int, int, str, int, int]:
    """Later receivers first; of one receiver, edges from later layers first."""
    receiver = edge.receiver
    return -receiver.layer, -receiver.head, str(receiver.part), -edge.source[0], -edge.source[1]
