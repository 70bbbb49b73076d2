"""Paths and steps of members in the evidence table: what was measured of each, and when it formed or fell."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hopscope.circuits.config import LEAST_EFFECT
from hopscope.claims.crossings import Crossing

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

FORMED, FELL = "formed", "fell"
"""Metrics of times; see `hopscope.studies.circuit_study.members`."""

MODES = ("rules", "clean", "recomputed")
"""How a path is taken away; `loss_without_…` is the loss then."""


class Place(NamedTuple):
    """A path (at a layer and head; part: what it reads), or a step of the chain (part `step_k`)."""

    member: int
    layer: int | None
    head: int | None
    part: str

    @property
    def where(self) -> tuple[int, int]:
        """Layer and head of a path."""
        assert self.layer is not None and self.head is not None
        return self.layer, self.head

    @property
    def head_name(self) -> str:
        """Layer and head of a path in words, both counted from 0."""
        return f"{self.layer}.{self.head}"

    @property
    def name(self) -> str:
        """A path in words: its head, and what that reads."""
        return f"{self.head_name} {self.part}"

    @property
    def columns(self) -> dict[str, int | str | None]:
        """Where its rows are in the evidence table."""
        return self._asdict()


def of_places(
    evidence: "Evidence", measure: str, metrics: Collection[str], **where: Any
) -> dict[Place, dict[str, float]]:
    """Place → metric → value, of some metrics of a measure; what was not measured is absent.

    Args:
        evidence: of a run.
        measure, metrics: what is wanted.
        where: values of other columns, as for `Evidence.rows`.
    """
    found: dict[Place, dict[str, float]] = {}
    for metric in metrics:
        if metric not in evidence:
            continue
        rows = evidence.rows(metric, measure=measure, **where).dropna(subset=["value"])
        for row in rows.itertuples():
            place = Place(int(row.member), _whole(row.layer), _whole(row.head), row.part)
            found.setdefault(place, {})[metric] = float(row.value)
    return found


def times(evidence: "Evidence", event: str, measure: str = "formation") -> dict[Place, Crossing]:
    """Place → when an event happened there.

    What never happened is censored.  What cannot happen, or was not seen, is absent.
    """
    metrics = [event, f"{event}_at", f"{event}_at_low", f"{event}_at_high"]
    return {
        place: _crossing(event, values) for place, values in of_places(evidence, measure, metrics).items()
    }


def of_step(found: Mapping[Place, Crossing], step: int) -> dict[int, Crossing]:
    """Member → when an event of a step of the chain happened."""
    return {place.member: time for place, time in found.items() if place[1:] == (None, None, f"step_{step}")}


def followed_paths(evidence: "Evidence") -> dict[Place, dict[str, float]]:
    """Each path that was followed through training, from the lowest layer → what was measured of it at the end.

    Paths that only a mean map describes read nothing that could be followed.  The metrics are those of the measure
    `circuit`; see `hopscope.circuits.history_rows`.
    """
    metrics = ["mean_attention", "to_one_token", "needed_for", *(f"loss_without_{mode}" for mode in MODES)]
    measured = of_places(evidence, "circuit", metrics)
    # Every path has attention at every checkpoint; the last one stands for all of them.
    paths = of_places(evidence, "formation", ["attention"], step=evidence.config["training_steps"])
    return {place: measured[place] for place in sorted(paths)}


def first_reads(paths: Mapping[Place, Mapping[str, float]]) -> dict[int, Place]:
    """Member → the costliest read of a single token by the first head that does any; only of members that have one.

    Args:
        paths: as `followed_paths` gives them; the costliest is what the loss rises most without, all else recomputed.
    """
    sharp = [place for place, found in paths.items() if found["to_one_token"]]
    first: dict[int, tuple[int, int]] = {}
    for place in sharp:
        first[place.member] = min(first.get(place.member, place.where), place.where)
    of_first = [place for place in sharp if place.where == first[place.member]]
    return {
        member: max(
            (place for place in of_first if place.member == member),
            key=lambda place: paths[place]["loss_without_recomputed"],
        )
        for member in first
    }


def carried(evidence: "Evidence") -> dict[tuple[int, int, int, str], list[str]]:
    """Member, layer, head and row role of a path → what it brings: things whose exchange makes the loss rise."""
    found: dict[tuple[int, int, int, str], list[str]] = {}
    for place, values in of_places(evidence, "circuit", ["rise_if_exchanged"]).items():
        if values["rise_if_exchanged"] >= LEAST_EFFECT:
            role, _, thing = place.part.partition(": ")
            found.setdefault((place.member, *place.where, role), []).append(thing)
    return found


def _crossing(event: str, values: Mapping[str, float]) -> Crossing:
    """The time that the rows of one place say."""
    at, low, high = (values.get(f"{event}_at{end}") for end in ("", "_low", "_high"))
    return Crossing(at, low, high, None) if values[event] else Crossing(None, None, None, low)


def _whole(number: float | None) -> int | None:
    """A number of a nullable column."""
    import pandas as pd

    return None if pd.isna(number) else int(number)  # type: ignore[arg-type]
