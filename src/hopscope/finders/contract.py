"""What a finder of circuits is: a function `find(model, task, budget)` that returns scored edges.

Anybody's function of this kind can be run on the planted models (`hopscope zoo run --finders mine.py:find`).  It is
given the model (`hopscope.models.transformer.Transformer` with `members == 1`), its task, and a budget, and nothing of
the truth.  `Patching.drawn(model, task, budget)` gives samples with any edges ablated, and derivatives.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.edges import Budget, Edge, Patching
from hopscope.finders.scores import ranked
from hopscope.models.transformer import Transformer

Finder = Callable[[Transformer, Any, Budget], Sequence[ScoredEdge]]

FAITHFUL = 0.05
"""Share of the loss between no edge and all that a circuit chosen from a ranking may lose."""

_GROWTH = 1.25


def smallest_faithful(patching: Patching, scores: dict[Edge, float]) -> list[ScoredEdge]:
    """Scored edges, of which the circuit is the shortest beginning of the ranking that keeps the loss.

    Methods that rank edges leave open how many belong to the circuit.  Here it is the first of the sizes 0, 1, 2, …
    (from 5 on a quarter more each time) that loses at most `FAITHFUL` of the loss between no edge and all.
    """
    order = ranked(scores)
    bound = patching.full + FAITHFUL * (patching.empty - patching.full)
    size = 0
    while size < len(order) and patching.loss(order[:size]) > bound:
        size = min(len(order), max(size + 1, int(size * _GROWTH)))
    inside = set(order[:size])
    return [ScoredEdge(edge=str(edge), score=scores[edge], in_circuit=edge in inside) for edge in order]
