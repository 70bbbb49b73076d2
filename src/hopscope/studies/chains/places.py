"""Paths and steps of members in the evidence table: what was measured of each, and when it formed or fell."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from hopscope.claims.crossings import Crossing

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

FORMED, FELL = "formed", "fell"
"""Metrics of times; see `hopscope.studies.chains.measures`."""


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


def of_places(evidence: "Evidence", measure: str, metrics: Collection[str]) -> dict[Place, dict[str, float]]:
    """Place → metric → value, of some metrics of a measure; what was not measured is absent."""
    table = evidence.to_pandas()
    found: dict[Place, dict[str, float]] = {}
    chosen = table[
        (table["measure"] == measure) & table["metric"].isin(list(metrics)) & table["value"].notna()
    ]
    for row in chosen.itertuples():
        place = Place(int(row.member), _whole(row.layer), _whole(row.head), row.part)
        found.setdefault(place, {})[row.metric] = float(row.value)
    return found


def times(evidence: "Evidence", event: str, measure: str = "formation") -> dict[Place, Crossing]:
    """Place → when an event happened there; what never happened is censored, what cannot happen is absent."""
    metrics = [event, f"{event}_at", f"{event}_at_low", f"{event}_at_high"]
    return {
        place: _crossing(event, values) for place, values in of_places(evidence, measure, metrics).items()
    }


def _crossing(event: str, values: Mapping[str, float]) -> Crossing:
    """The time that the rows of one place say."""
    at, low, high = (values.get(f"{event}_at{end}") for end in ("", "_low", "_high"))
    return Crossing(at, low, high, None) if values[event] else Crossing(None, None, None, low)


def _whole(number: float | None) -> int | None:
    """A number of a nullable column."""
    import pandas as pd

    return None if pd.isna(number) else int(number)  # type: ignore[arg-type]
