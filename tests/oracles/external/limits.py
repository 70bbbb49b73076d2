"""Plants that the reader is known to misread, each with the reason: the limits of what a reading says."""

from collections.abc import Iterator

import numpy as np

from .chains import Chains
from .machine import IDLE, Head
from .plant import Plant
from .retrieval import deep_doubling, deep_roots, far_parts, halves

STEEP = 1000.0
"""How sharply a sign decides."""

SPARED = (
    "under the mask the first pairs see little else than their mates, so that uniform attention stands in for the read "
    "up to a loss of 0.17 to 0.24 of a target; where patterns are recomputed the criterion asks for less than 0.25"
)
SHAPED = (
    "reads that only shape keys are proven with the head's own softmax, never under their rule, so that any near rule "
    "passes where the head chooses by content"
)


def misread_plants() -> Iterator[tuple[Plant, str]]:
    """All of them, always the same, with the reason."""
    for make in (halves, far_parts, deep_doubling, deep_roots):
        plant = make(causal=True)
        yield plant, SPARED
    yield _forked(), SHAPED


def _forked() -> Plant:
    """Second tokens read their mates with one of two heads, by a sign, and themselves with the other."""
    task = Chains(1, 5, 58)
    direction = np.random.default_rng(137).normal(size=task.size) / np.sqrt(task.size)
    mates = [
        Head(
            {row: [row - 1, row] for row in task.seconds()},
            ((side, "is first", STEEP),),
            (("symbol", "mate", 1.0),),
        )
        for side in ("one side", "other side")
    ]
    hop = task.asks("symbol", "mate", task.seconds(), ("symbol", "x1", 1.0))
    first = np.zeros(task.length)
    first[task.firsts()] = 1.0
    return task.plant(
        "mates by one of two heads, by a sign", [mates, [hop, IDLE]], [], seed=139, outside=[(0, 0), (0, 1)],
        sides={"one side": direction, "other side": -direction}, marks={"is first": first},
    )  # fmt: skip
