"""How a found circuit is scored: against the true edges and heads, and by what the model still does with it alone.

`CONVENTIONS` states every choice that the numbers depend on; it is printed and written beside them.
"""

import math
import random
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from hopscope.config import Config
from hopscope.finders.catalogue import ZooModel
from hopscope.finders.circuit_file import FoundCircuit, ScoredEdge, edges_said
from hopscope.finders.edges import SCORING, Budget, Edge, Head, Patching
from hopscope.finders.truth import true_edges

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the edge set at which the faithfulness curve is measured: those of MIB."""

SAMPLES = Budget(samples=64, seed=11)
"""Samples that faithfulness is measured on."""

CONVENTIONS = {
    "edge_set": "head output -> q, k, v of a later head, or logits; MLPs and norms belong to edges; the input reaches "
    "every receiver in every circuit",
    "ablation": "interchange: an ablated edge carries what its head wrote on the sample before in the batch, unpatched",
    "performance": "m = exp(-loss); the loss is the task's: mean squared error per component, or mean cross-entropy "
    "of answers in nats",
    "faithfulness": "f = (m(circuit) - m(no edge)) / (m(all edges) - m(no edge)): 1 is the model, 0 is nothing; not "
    "clipped",
    "cpr": "area under f at the shares 0.001 to 1 of edges (trapezoids, linear axis), edges by falling signed score; "
    "larger is better",
    "cmd": "area between f and 1 at the same shares, edges by falling absolute score; smaller is better",
    "ties": "edges of equal score stand in one fixed random order; edges without a score have score 0",
    "auroc": "rank statistic over signed scores, ties count one half",
    "redundancy": "with several minimal circuits, the one that gives the best value counts; edges and heads that are "
    "only in others count neither for nor against",
    "heads": "a head is in a circuit if an edge of it is; its score is the largest of its edges that leave it",
}


class Scores(Config):
    """The scores of one circuit; `None` where something cannot be said.

    Attributes:
        model, family, grammar: of the planted model.
        edges, true_edges, found_edges: number of edges in the edge set, in the true circuit, and in the found one.
        precision, recall, auroc: of edges.
        head_precision, head_recall, head_auroc: of heads.
        row_precision, row_recall: of head rows (layer, head, rows), for circuits that are given as such.
        faithfulness: of the circuit itself.
        cpr, cmd: areas of the curve.
        curve, curve_absolute: f at `SHARES`, by signed and by absolute score.
        seconds: CPU seconds that finding took, if the file says.
    """

    model: str
    family: str
    grammar: bool
    edges: int
    true_edges: int
    found_edges: int
    precision: float | None
    recall: float | None
    auroc: float | None
    head_precision: float | None
    head_recall: float | None
    head_auroc: float | None
    row_precision: float | None = None
    row_recall: float | None = None
    faithfulness: float
    cpr: float | None
    cmd: float | None
    curve: tuple[float, ...] | None
    curve_absolute: tuple[float, ...] | None
    seconds: float | None


class Bench:
    """One planted model, ready to score circuits of.

    Attributes:
        model: the planted model.
        transformer: the same, built.
        truth: its true edges.
        patching: the samples that faithfulness is measured on.
    """

    def __init__(self, model: ZooModel):
        self.model, self.transformer = model, model.build()
        self.truth = true_edges(model, self.transformer)
        self.patching = Patching.drawn(self.transformer, model.task, SAMPLES, SCORING)
        self._measured: dict[frozenset[Edge], float] = {}

    def score(self, found: FoundCircuit) -> Scores:
        """The scores of a circuit.

        Raises:
            UserError: it names an edge or a head that the model lacks.
        """
        said = edges_said(found, self.transformer.config)
        circuit = frozenset(edge for edge, each in said.items() if each.in_circuit)
        values = {edge: (said[edge].score or 0.0) if edge in said else 0.0 for edge in self.patching.edges}
        signed = self.curve(values, signed=True) if found.scored else None
        absolute = self.curve(values, signed=False) if found.scored else None
        truths = [each.edges for each in self.truth]
        precision, recall = best_match(circuit, truths)
        heads = self._heads(found, said)
        head_precision, head_recall = best_match(heads[0], [each.heads for each in self.truth])
        rows = self._rows(found)
        return Scores(
            model=self.model.name, family=self.model.truth.family, grammar=self.model.truth.grammar,
            edges=len(values), true_edges=min(map(len, truths)), found_edges=len(circuit),
            precision=precision, recall=recall, auroc=best_auroc(values, truths) if found.scored else None,
            head_precision=head_precision, head_recall=head_recall,
            head_auroc=best_auroc(heads[1], [each.heads for each in self.truth]) if found.scored else None,
            row_precision=rows[0], row_recall=rows[1], faithfulness=self.faithfulness(circuit),
            cpr=None if signed is None else area(signed),
            cmd=None if absolute is None else area([abs(1.0 - value) for value in absolute]),
            curve=signed, curve_absolute=absolute, seconds=found.seconds,
        )  # fmt: skip

    def _heads(
        self, found: FoundCircuit, said: Mapping[Edge, ScoredEdge]
    ) -> tuple[frozenset[Head], dict[Head, float]]:
        config = self.transformer.config
        values = {(layer, head): 0.0 for layer in range(config.layers) for head in range(config.heads)}
        if found.heads is not None:
            for row in found.heads:
                values[row.layer, row.head] = max(values[row.layer, row.head], row.score or 0.0)
            return frozenset((row.layer, row.head) for row in found.heads if row.in_circuit), values
        for edge, each in said.items():
            values[edge.source] = max(values[edge.source], each.score or 0.0)
        return frozenset(
            head for edge, each in said.items() if each.in_circuit for head in edge.heads
        ), values

    def _rows(self, found: FoundCircuit) -> tuple[float | None, float | None]:
        truths = [
            frozenset(
                (row.layer, row.head, row.rows) for row in circuit if row.rows and row.rows != row.reads
            )
            for circuit in self.model.truth.circuits
        ]
        if found.heads is None or not all(truths) or not all(row.rows for row in found.heads):
            return None, None
        said = frozenset((row.layer, row.head, row.rows) for row in found.heads if row.in_circuit)
        return best_match(said, truths)

    def faithfulness(self, kept: Collection[Edge]) -> float:
        """f, if these edges alone are kept; see `CONVENTIONS`."""
        chosen = frozenset(kept)
        if chosen not in self._measured:
            whole, nothing = (math.exp(-loss) for loss in (self.patching.full, self.patching.empty))
            self._measured[chosen] = (math.exp(-self.patching.loss(chosen)) - nothing) / (whole - nothing)
        return self._measured[chosen]

    def curve(self, values: Mapping[Edge, float], *, signed: bool) -> tuple[float, ...]:
        """f of the first edges at every share."""
        order = ranked(values, signed=signed)
        return tuple(self.faithfulness(order[: int(share * len(order))]) for share in SHARES)


def ranked(values: Mapping[Edge, float], *, signed: bool = True) -> list[Edge]:
    """Edges by falling score; those of equal score in one fixed random order."""
    shuffled = sorted(values)
    random.Random(0).shuffle(shuffled)
    return sorted(shuffled, key=lambda edge: -(values[edge] if signed else abs(values[edge])))


def area(values: Sequence[float]) -> float:
    """Area under values at `SHARES`, by trapezoids."""
    points = list(zip(SHARES, values, strict=True))
    return sum((x2 - x1) * (y1 + y2) / 2.0 for (x1, y1), (x2, y2) in pairwise(points))


Item = TypeVar("Item", bound=Hashable)


def best_match(
    found: frozenset[Item], truths: Sequence[frozenset[Item]]
) -> tuple[float | None, float | None]:
    """Precision and recall against the true set that gives the best F1; precision of nothing is `None`."""
    some = frozenset().union(*truths)

    def against(truth: frozenset[Item]) -> tuple[float, float | None, float | None]:
        counted = found - (some - truth)
        right = len(counted & truth)
        precision = right / len(counted) if counted else None
        recall = right / len(truth) if truth else None
        total = len(counted) + len(truth)
        return (2.0 * right / total if total else 0.0), precision, recall

    _, precision, recall = max((against(truth) for truth in truths), key=lambda each: each[0])
    return precision, recall


def best_auroc(values: Mapping[Item, float], truths: Sequence[frozenset[Item]]) -> float | None:
    """The largest AUROC over the true sets; `None` where there is nothing false, or nothing true."""
    some = frozenset().union(*truths)
    found = [
        auroc([values[each] for each in truth], [value for each, value in values.items() if each not in some])
        for truth in truths
    ]
    return max((each for each in found if each is not None), default=None)


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float | None:
    """Probability that a positive has a larger score than a negative, ties one half; `None` without either."""
    if not positives or not negatives:
        return None
    won = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    return won / (len(positives) * len(negatives))


def summary(scores: Sequence[Scores], interval: Callable[[Sequence[float]], Any]) -> dict[str, Any]:
    """Mean of every measure over models, its interval, and the number of models that have it."""
    found = {}
    for name in MEASURES:
        values = [float(value) for each in scores if (value := getattr(each, name)) is not None]
        if values:
            found[name] = {"mean": sum(values) / len(values), "interval": interval(values), "n": len(values)}
    return found


MEASURES = (
    "precision", "recall", "auroc", "head_precision", "head_recall", "head_auroc", "row_precision", "row_recall",
    "faithfulness", "cpr", "cmd", "seconds",
)  # fmt: skip
"""Measures that are averaged over models."""
