"""The true edges of a planted model, derived from its construction and verified by exact activation patching.

The construction says which heads each minimal circuit has.  Everything outside is ablated: only edges between these
heads, and from them to the logits, are kept.  Each of those edges is then ablated by itself.  It is true if the loss
rises by at least `LEAST_RISE`.  In models that were set by hand, the rises fall into two groups with a wide gap between
them, which `TrueEdges` records; in trained ones the bound is a choice.  Last, the true edges alone are kept: `loss`
says what that costs.
"""

from dataclasses import dataclass

from hopscope.finders.catalogue import ZooModel
from hopscope.finders.edges import PROVING, Budget, Edge, Head, Patching, edges_between
from hopscope.models.transformer import Transformer

LEAST_RISE = 0.01
"""Rise of the loss from which on an edge is true: squared error per component, or nats."""

PROOF = Budget(samples=32, seed=7)
"""Samples that truth is verified on."""


@dataclass(frozen=True)
class TrueEdges:
    """The true edges of one minimal circuit.

    Attributes:
        heads: its heads, by construction.
        edges: the true edges.
        least_true, most_false: the smallest rise of a true edge, and the largest of an edge between the heads that is
            not true; `None` where there is none.
        loss, full: with the true edges alone, and of the whole model.
    """

    heads: frozenset[Head]
    edges: frozenset[Edge]
    least_true: float | None
    most_false: float | None
    loss: float
    full: float


def true_edges(model: ZooModel, transformer: Transformer) -> tuple[TrueEdges, ...]:
    """The true edges of every minimal circuit of a model, in the order of its circuits.

    Args:
        model: the planted model.
        transformer: the same, built.
    """
    patching = Patching.drawn(transformer, model.task, PROOF, PROVING)
    known: dict[frozenset[Head], TrueEdges] = {}
    for heads in model.heads:
        if heads not in known:
            known[heads] = _proven(patching, heads)
    return tuple(known.values())


def _proven(patching: Patching, heads: frozenset[Head]) -> TrueEdges:
    inside = edges_between(patching.config, heads)
    base = patching.loss(inside)
    rises = {edge: patching.loss(inside - {edge}) - base for edge in inside}
    edges = frozenset(edge for edge, rise in rises.items() if rise >= LEAST_RISE)
    return TrueEdges(
        heads=heads,
        edges=edges,
        least_true=min((rises[edge] for edge in edges), default=None),
        most_false=max((rises[edge] for edge in inside - edges), default=None),
        loss=patching.loss(edges),
        full=patching.full,
    )
