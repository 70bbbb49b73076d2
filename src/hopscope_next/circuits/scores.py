"""The benchmark: what finders say of planted models, scored against the truth and by what is left of the model.

**Scores** are those of MIB (Mueller et al. 2025, arXiv:2504.13151).  Performance is m = exp(-loss), and faithfulness
f = (m(circuit) - m(no edge)) / (m(all edges) - m(no edge)), not clipped.  CPR is the area under f where the first 0.1,
0.2, 0.5, 1, 2, 5, 10, 20, 50 and 100 % of the edges are kept, by falling signed score (larger is better); CMD is the
area between f and 1, by falling absolute score (smaller is better).  AUROC is over signed scores.

**Truth.** A plant's construction says which heads each minimal circuit has.  Of the edges between them, and from them
to the logits, those are true whose ablation alone raises the loss by `LEAST_RISE`; the rises of models that were set by
hand fall into two groups with a wide gap between them.  Where there are several minimal circuits, the one that gives
the best value counts, and what is only in others counts neither for nor against.
"""

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch

from hopscope_next.circuits.finders import FINDERS, Edge, Finder, Found, HeadAt, Patching, ranked
from hopscope_next.circuits.plants import Plant
from hopscope_next.tasks import draw, held_out

LEAST_RISE = 0.01
"""Of the loss: squared error per component, or nats."""

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

_SAMPLES = {"vectors": 32, "classes": 256}  # right or wrong answers say less than vectors do

Item = TypeVar("Item", bound=Hashable)


def benchmark(
    plants: Iterable[Plant],
    finders: Mapping[str, Finder] = FINDERS,
    samples: int | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Scores of finders on planted models: a row for each plant and finder.

    Args:
        plants: what is looked into.
        finders: by name.
        samples: that a finder sees; by default 32, and 256 where answers are classes.
        seed: of these samples.  Truth is proven on other ones, and scores are taken on held-out ones.

    Returns:
        Rows with `plant`, `family`, `explained`, `finder`, the scores, and `seconds` of the CPU.
    """
    rows = []
    for plant in plants:
        count = samples or _SAMPLES[plant.task.shape().outputs]
        seeds = torch.tensor([seed])
        batches = [draw(plant.task, seeds, "probe", step, count) for step in range(2)]
        truths = true_circuits(plant, Patching(plant.model, plant.task, batches[1]))
        scoring = Patching(plant.model, plant.task, held_out(plant.task, 2 * count).take(slice(2 * count)))
        about = {"plant": plant.name, "family": plant.family, "explained": plant.explained}
        for name, finder in finders.items():
            began = time.process_time()
            found = finder(plant.model, plant.task, batches[0])
            seconds = time.process_time() - began
            rows.append({**about, "finder": name, **score(found, scoring, truths), "seconds": seconds})
    return rows


def true_circuits(plant: Plant, patching: Patching) -> list[frozenset[Edge]]:
    """The true edges of every minimal circuit; see the module."""
    found = []
    for circuit in plant.circuits:
        heads = {(read.layer, read.head) for read in circuit}
        inside = frozenset(edge for edge in patching.edges if edge.heads <= heads)
        least = patching.loss(inside) + LEAST_RISE
        found.append(frozenset(edge for edge in inside if patching.loss(inside - {edge}) >= least))
    return list(dict.fromkeys(found))


def score(found: Found, patching: Patching, truths: Sequence[frozenset[Edge]]) -> dict[str, float | None]:
    """Precision, recall and AUROC of edges, precision and recall of heads, faithfulness, CPR and CMD.

    Args:
        found: scores and circuit.
        patching: the model on samples that faithfulness is measured on.
        truths: true edges of every minimal circuit.

    Returns:
        Numbers by name; `None` where one cannot be said, such as the precision of nothing.
    """
    scores = {edge: found.scores.get(edge, 0.0) for edge in patching.edges}
    whole, nothing = math.exp(-patching.full), math.exp(-patching.empty)

    def faithful(kept: Sequence[Edge] | frozenset[Edge]) -> float:
        return (math.exp(-patching.loss(kept)) - nothing) / (whole - nothing)

    def curve(*, signed: bool) -> list[float]:
        order = ranked(scores, signed=signed)
        return [faithful(order[: int(share * len(order))]) for share in SHARES]

    precision, recall = best_match(found.circuit, truths)
    head_precision, head_recall = best_match(_heads(found.circuit), [_heads(truth) for truth in truths])
    some = frozenset[Edge]().union(*truths)
    false = [value for edge, value in scores.items() if edge not in some]
    ranks = [auroc([scores[edge] for edge in truth], false) for truth in truths]
    return {
        "precision": precision,
        "recall": recall,
        "auroc": max((each for each in ranks if each is not None), default=None),
        "head_precision": head_precision,
        "head_recall": head_recall,
        "faithfulness": faithful(found.circuit),
        "cpr": area(curve(signed=True)),
        "cmd": area([abs(1.0 - value) for value in curve(signed=False)]),
    }


def _heads(edges: frozenset[Edge]) -> frozenset[HeadAt]:
    return frozenset(head for edge in edges for head in edge.heads)


def best_match(
    found: frozenset[Item], truths: Sequence[frozenset[Item]]
) -> tuple[float | None, float | None]:
    """Precision and recall against the true set that gives the best F1; precision of nothing is `None`."""
    some = frozenset[Item]().union(*truths)
    matches = []
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


def area(values: Sequence[float]) -> float:
    """Area under values at `SHARES`, by trapezoids."""
    points = zip(SHARES, values, strict=True)
    return sum((x2 - x1) * (y1 + y2) / 2.0 for (x1, y1), (x2, y2) in pairwise(points))
