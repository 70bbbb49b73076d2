"""One configuration, many seeds: the options of studies that read circuits, and what they ask of the evidence.

A circuit is proven by its rules alone, as in the paper (appendix E; metrics begin with `rules_`), or it must also hold
where its patterns are recomputed.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from hopscope.claims import Samples
from hopscope.claims.crossings import Crossing
from hopscope.claims.verdict import counted
from hopscope.studies.chains.recipe import Recipe
from hopscope.study.study import Configuration

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.circuits.reader import ReaderConfig
    from hopscope.runs import Evidence

Proof = Literal["both", "rules"]

PREFIX: dict[Proof, str] = {"both": "", "rules": "rules_"}
"""What a circuit must hold under → how the names of its metrics begin."""

READ_LEARNED = 0.25
"""Loss below which the reader calls a step learned."""

QUICK: dict[str, Any] = {
    "steps": 3, "layers": 4, "heads": 8, "width": 128, "head_size": 16, "mlp_ratio": 0.0, "position": "pair",
    "batch_size": 64, "learning_rate": 4e-3, "training_steps": 1_000, "checkpoint_every": 20, "evaluate_every": 20,
    "evaluation_samples": 256, "analysis_samples": 2_048, "members_per_unit": 1, "orders": 2, "searched": 0.75,
}  # fmt: skip
"""A shape that learns chains of three steps in under a minute of one core."""

SMOKE: dict[str, Any] = {
    "seeds": 2, "layers": 4, "heads": 2, "width": 32, "steps": 1, "training_steps": 500, "batch_size": 32,
    "learning_rate": 4e-3, "evaluation_samples": 256, "analysis_samples": 512, "orders": 1, "random_circuits": 5,
}  # fmt: skip


class ChainOptions(Recipe):  # noqa: D101 - which goes on with that of the recipe, for the flags
    __doc__ = (
        (Recipe.__doc__ or "").rstrip()
        + """
        layers: of the model.
        head_size: size of a head; width / heads by default.
        steps: retrieval steps D; all symbols of the chain are asked for.
        orders: random orders of elimination by which a circuit is looked for.
        random_circuits: of the same size, that stand beside it.
        searched: share of what a circuit may lose that its search may use up, so that it holds on fresh sequences too.
        read_again: how many times more members that learned the whole chain are read, by each proof.
    """
    )

    paper: ClassVar[dict[str, float | None]] = {}  # what it states of its model, by field

    layers: int = Field(8, ge=1, le=64)
    heads: int = Field(1, ge=1)
    head_size: int | None = Field(None, ge=1)
    steps: int = Field(2, ge=1, le=64)
    checkpoint_every: int = Field(100, ge=1)
    evaluate_every: int = Field(25, ge=1)
    orders: int = Field(4, ge=0)
    random_circuits: int = Field(20, ge=2)
    searched: float = Field(1.0, gt=0.0, le=1.0)
    read_again: int = Field(1, ge=0)

    @property
    def label(self) -> str:
        """What the configuration is called."""
        return f"D={self.steps}, {counted(self.layers, 'layer')} of {counted(self.heads, 'head')}"

    @property
    def plateau(self) -> float:
        """Loss of a model that knows which symbols a step could lead to, but not which of them is right."""
        return 1.0 - 1.0 / self.chains

    @property
    def lacks(self) -> str:
        """How this departs from what the paper states, in words; nothing where it is at scale."""
        found = {**self.model_dump(), "head_size": self.head_size or self.width // self.heads}
        said = self.paper.get("training_steps")
        few = said is not None and self.training_steps < said
        changed = [f"{self.training_steps:,} of {said:,} training steps"] * few
        for name, value in self.paper.items():
            if found[name] != value and name != "training_steps":
                changed.append(f"{name.replace('_', ' ')} {_written(found[name])}, not {_written(value)}")
        return ", ".join(changed)

    def configuration(self, label: str = "", **more: Any) -> Configuration:
        """What is trained, with further overrides."""
        own = self.overrides(self.steps, "ic", self.layers, self.head_size)
        return Configuration(label=label or self.label, overrides={**own, **more})

    def reader(self, proof: Proof) -> "ReaderConfig":
        """How members are read."""
        from hopscope.circuits.reader import ReaderConfig

        fields = {name: getattr(self, name) for name in ("orders", "random_circuits", "searched")}
        return ReaderConfig(proof=proof, **fields)


def _written(value: float | None) -> str:
    return "without end" if value is None else f"{value:,g}" if value < 1e5 else f"{value:,.0f}"


# What claims and figures ask of the evidence.


class Place(NamedTuple):
    """A path (at a layer and head; part: what it reads), or a step of the chain (part `step_k`)."""

    member: int
    layer: int | None
    head: int | None
    part: str

    @property
    def name(self) -> str:
        """A path in words: its head, and what that reads."""
        return f"{self.layer}.{self.head} {self.part}"


def of_places(evidence: "Evidence", metrics: Iterable[str], **where: Any) -> dict[Place, dict[str, float]]:
    """Place → metric → value; what was not measured is absent."""
    import pandas as pd

    found: dict[Place, dict[str, float]] = {}
    for metric in metrics:
        rows = evidence.rows(metric, **where).dropna(subset=["value"]) if metric in evidence else None
        for row in () if rows is None else rows.itertuples():
            layer, head = (None if pd.isna(each) else int(each) for each in (row.layer, row.head))
            place = Place(int(row.member), layer, head, row.part)
            found.setdefault(place, {})[metric] = float(row.value)
    return found


def times(evidence: "Evidence", event: str) -> dict[Place, Crossing]:
    """Place → when an event happened there; what never happened is censored, what was not seen is absent."""
    ends = [f"{event}_at{end}" for end in ("", "_low", "_high")]
    found = {}
    for place, values in of_places(evidence, [event, *ends]).items():
        at, low, high = map(values.get, ends)
        found[place] = Crossing(at, low, high, None) if values[event] else Crossing(None, None, None, low)
    return found


def of_step(found: Mapping[Place, Crossing], step: int) -> dict[int, Crossing]:
    """Member → when an event of a step of the chain happened."""
    return {place.member: time for place, time in found.items() if place[1:] == (None, None, f"step_{step}")}


def independent(evidence: "Evidence") -> list[int]:
    """Members whose weights and samples have one seed, so that they are independent of each other."""
    return evidence.where(init_seed=None).members if "init_seed" in evidence.columns else evidence.members


def learned_members(options: ChainOptions, evidence: "Evidence") -> list[int]:
    """Independent members that learned the whole chain; those that diverged are among them, with missing values."""
    steps = range(1, options.steps + 1)
    losses = [evidence.last("checkpoint_loss", part=f"step_{step}") for step in steps]
    gone = evidence.last("final_loss").isna()
    return [
        member
        for member in independent(evidence)
        if gone[member] or all(loss[member] < READ_LEARNED for loss in losses)
    ]


def last_of(
    evidence: "Evidence", metric: str, members: list[int], part: str | None = None
) -> "pd.Series[float]":
    """The last value of a metric, of some members; missing where a member has none."""
    import pandas as pd

    if metric not in evidence:  # no member has a circuit
        return pd.Series(math.nan, index=members, dtype=float)
    return evidence.last(metric, part=part).reindex(members)


def of_read(options: ChainOptions, evidence: "Evidence", metric: str, proof: Proof) -> "pd.Series[float]":
    """The last value of a metric, of members that learned the whole chain; missing where one was not read."""
    members = learned_members(options, evidence)
    read = last_of(evidence, f"{PREFIX[proof]}was_read", members)
    return last_of(evidence, metric, members).where(read == 1.0)


def by_seed(values: "pd.Series[float] | Mapping[int, float]", why_none: str = "") -> Samples:
    """Values of independent members, as a claim returns them; the reason where there is none."""
    import pandas as pd

    series = pd.Series(values, dtype=float)
    return Samples(series, unit="seed", note="" if len(series.dropna()) else why_none)
