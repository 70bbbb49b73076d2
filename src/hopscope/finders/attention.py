"""Thresholds on attention: a head counts if its rows at some position mostly look at single other tokens.

Nothing is ablated.  The mass of a row is the largest weight that it gives to a token other than itself, and the mass of
a head is the largest over positions of the mean over samples.  Rows that see fewer than `FEWEST` tokens are left out,
where uniform attention has much mass too.  An edge has the lesser mass of its two ends, and is in the circuit if that
is at least one half.
"""

from typing import Any

import torch

from hopscope.finders.circuit_file import ScoredEdge
from hopscope.finders.edges import Budget, Head, Patching, edges_of
from hopscope.models.transformer import Transformer

THRESHOLD = 0.5

FEWEST = 4
"""Tokens that a row must see to count."""


def attention_mass(model: Transformer, task: Any, budget: Budget) -> list[ScoredEdge]:
    """Edges between heads that attend sharply."""
    patching = Patching.drawn(model, task, budget)
    cache = patching.module.cache(patching.batch.inputs[0])
    mass: dict[Head, float] = {}
    for layer, pattern in enumerate(cache.patterns):
        others = pattern.masked_fill(torch.eye(pattern.shape[-1], dtype=torch.bool), 0.0).amax(-1)
        rows = others[:, :, FEWEST - 1 :] if model.config.causal else others
        mass |= {(layer, head): float(rows[:, head].mean(0).amax()) for head in range(model.config.heads)}
    scores = {edge: min(mass[head] for head in edge.heads) for edge in edges_of(model.config)}
    return [
        ScoredEdge(edge=str(edge), score=score, in_circuit=score >= THRESHOLD)
        for edge, score in scores.items()
    ]
