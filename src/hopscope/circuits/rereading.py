"""Readings of one model beside each other: how far the circuits that they found are apart.  Loads no torch."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, starmap
from statistics import fmean
from typing import Any, NamedTuple

Circuits = frozenset[frozenset[tuple[int, int, str, str]]]
"""A set of circuits: of each, layer, head, rows and what they read."""


def circuits_of(circuits: Any) -> Circuits:
    """A set of circuits, from their JSON values: two are equal if the same heads do the same reads on the same rows."""
    return frozenset(
        frozenset(
            (path["layer"], path["head"], path["query"], path["target"] or path["rule"]["kind"])
            for path in circuit["paths"]
        )
        for circuit in circuits
    )


def distance(one: Circuits, other: Circuits) -> float:
    """1 minus the mean of the two shares of circuits that are in the other set; neither set is empty."""
    common = len(one & other)
    return 1.0 - (common / len(one) + common / len(other)) / 2.0


def path_distance(one: Circuits, other: Circuits) -> float:
    """1 minus the share of paths that a circuit of one set has in common with the nearest one of the other set.

    The share is of the paths that either of the two has.  It is a mean over the circuits of each set, and over both.
    """

    def nearest(circuits: Circuits, others: Circuits) -> float:
        return fmean(
            max(len(each & other) / len(each | other) if each | other else 1.0 for other in others)
            for each in circuits
        )

    return 1.0 - (nearest(one, other) + nearest(other, one)) / 2.0


def graph_distance(one: Circuits, other: Circuits) -> float:
    """`path_distance` of the graphs of reads: which rows read what, whatever layer and head do it."""
    return path_distance(_graphs(one), _graphs(other))


def _graphs(circuits: Circuits) -> Circuits:
    return frozenset(frozenset((0, 0, rows, read) for _, _, rows, read in circuit) for circuit in circuits)


def mean_distance(readings: Sequence[Circuits], apart: Callable[[Circuits, Circuits], float]) -> float:
    """The mean distance over all pairs of at least two readings."""
    return fmean(starmap(apart, combinations(readings, 2)))


class Rereading(NamedTuple):
    """Several readings of one model.

    Attributes:
        readings: number of readings with a circuit; a reading that found that nothing was learned has none.
        whole: mean distance over pairs of readings, where circuits are the same only if all their paths are; 0 is the
            same, 1 nothing in common.
        by_paths: the same by the share of paths that circuits have in common.
    """

    readings: int
    whole: float
    by_paths: float


def found_by(records: Sequence[Mapping[str, Any]]) -> list[Circuits]:
    """The minimal circuits of each reading that found some; records as of `compared`."""
    found = [circuits_of(each["circuit"] for each in record["minimal_circuits"]) for record in records]
    return [each for each in found if each]


def compared(records: Sequence[Mapping[str, Any]]) -> Rereading | None:
    """How far readings of one model are apart; `None` where fewer than two have a circuit.

    Args:
        records: of the readings, as `hopscope circuit --json` prints them.
    """
    sets = found_by(records)
    if len(sets) < 2:
        return None
    return Rereading(len(sets), mean_distance(sets, distance), mean_distance(sets, path_distance))
