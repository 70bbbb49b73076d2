"""What the claims of the studies of circuits and of emergence share: whom they are about, and how values are given."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hopscope.claims import Samples

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

TRUST = (
    "the reader, proven on models whose circuit is known because it was built: precision and recall 1, decoys, "
    "redundant paths and mechanisms beyond its grammar among them; held-out samples have a stream of their own"
)
"""What a reader must trust to believe a verdict on a circuit."""

LEAST_MODELS = 8
"""Models that stand for the paper's few, and that a distribution of circuits takes."""


def independent(evidence: "Evidence") -> list[int]:
    """Members whose weights and data have the seed of the member, so that they are independent of each other."""
    return evidence.where(init_seed=None).members if "init_seed" in evidence.columns else evidence.members


def read_members(evidence: "Evidence") -> list[int]:
    """Independent members that learned the whole chain and were read.

    Those that diverged are among them: nothing is known of them, and their values are missing.
    """
    learned, read = evidence.last("learned_all"), evidence.last("was_read")
    return [member for member in independent(evidence) if learned[member] != 0.0 and read[member] != 0.0]


def last_of(
    evidence: "Evidence", metric: str, members: list[int], part: str | None = None
) -> "pd.Series[float]":
    """The last value of a metric, of some members; missing where a member has none."""
    import pandas as pd

    if metric not in evidence:  # no member has a circuit
        return pd.Series(float("nan"), index=members, dtype=float)
    return evidence.last(metric, part=part).reindex(members)


def by_seed(values: "pd.Series[float] | Mapping[int, float]", why_none: str = "") -> Samples:
    """Values of independent members, as a claim returns them; the reason where there is none."""
    import pandas as pd

    series = pd.Series(values, dtype=float)
    return Samples(series, unit="seed", note="" if len(series.dropna()) else why_none)
