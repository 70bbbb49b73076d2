"""What the studies of circuits and of emergence share: options, questions to the evidence, claim R12, and figures.

Both train one configuration with many seeds.  A circuit is proven by its rules alone, as in the paper (appendix E;
metrics begin with `rules_`), or it must also hold where its patterns are recomputed.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from hopscope.claims import Claim, Samples, at_most
from hopscope.claims.crossings import Crossing, earliest
from hopscope.claims.verdict import counted
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, asked_for, of_plateau
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
"""Loss below which a step counts as learned where circuits are read; the reader's own bound with four chains."""

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


class ChainOptions(Recipe):
    """What the studies have beside the recipe.

    Attributes:
        layers: of the model.
        head_size: size of a head; width / heads by default.
        steps: retrieval steps D; all symbols of the chain are asked for.
        orders: random orders of elimination by which a circuit is looked for.
        random_circuits: of the same size, for comparison.
        searched: share of what a circuit may lose that its search may use up, so that it holds on fresh sequences too.
        read_again: further readings of each member that learned the whole chain, by each proof.
    """

    # What the paper states of its model, by field; here those of section 8.1.
    paper: ClassVar[dict[str, float | None]] = {
        "steps": 3, "chains": 4, "symbol_dim": 4, "layers": 12, "heads": 1, "width": 128, "mlp_ratio": 4.0,
        "training_steps": 24_000, "batch_size": 128, "pool": 2**18, "learning_rate": 1e-3, "weight_decay": 0.1,
        "final_window": 100,
    }  # fmt: skip

    # Of fewer, half of what a zero prediction has is no lower than the plateau.
    chains: int = Field(4, ge=3, le=64)
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
        return f"D={self.steps}, {counted(self.layers, 'layer')} of {counted(self.heads, 'head')}"

    def lacks(self, evidence: "Evidence") -> str:
        """How this departs from what the paper states, in words; nothing where it is at scale."""
        found = {**self.model_dump(), "head_size": self.head_size or self.width // self.heads}
        said = self.paper["training_steps"] or 0
        changed = [f"{self.training_steps:,} of {said:,} training steps"] * (self.training_steps < said)
        for name, value in self.paper.items():
            if found[name] != value and name != "training_steps":
                changed.append(f"{name.replace('_', ' ')} {_written(found[name])}, not {_written(value)}")
        return ", ".join(changed)

    def configuration(self, label: str = "", **more: Any) -> Configuration:
        own = self.overrides(self.steps, "ic", self.layers, self.head_size)
        return Configuration(label=label or self.label, overrides={**own, **more})

    def reader(self, proof: Proof) -> "ReaderConfig":
        from hopscope.circuits.reader import ReaderConfig

        names = ("orders", "random_circuits", "searched")
        return ReaderConfig(proof=proof, **{name: getattr(self, name) for name in names})


def _written(value: float | None) -> str:
    return "without end" if value is None else f"{value:,g}" if value < 1e5 else f"{value:,.0f}"


# What claims and figures ask of the evidence.


class Place(NamedTuple):
    """A path (at a layer and head; part: what it reads), or a step of the chain (part `step_k`)."""

    member: int
    layer: int | None
    head: int | None
    part: str

    @classmethod
    def of_step(cls, member: int, step: int) -> "Place":
        return cls(member, None, None, f"step_{step}")


def rows_of(evidence: "Evidence", *metrics: str, **where: Any) -> "pd.DataFrame":
    """Rows with a value, of metrics that the run may lack."""
    import pandas as pd

    from hopscope.runs.evidence import COLUMNS

    found = [evidence.rows(each, **where).dropna(subset="value") for each in metrics if each in evidence]
    return pd.concat(found) if found else pd.DataFrame(columns=[*COLUMNS])


def of_places(evidence: "Evidence", *metrics: str) -> dict[Place, dict[str, float]]:
    """Place → metric → value; what was not measured is absent."""
    import pandas as pd

    found = defaultdict[Place, dict[str, float]](dict)
    for row in rows_of(evidence, *metrics).itertuples():
        layer, head = (None if pd.isna(each) else int(each) for each in (row.layer, row.head))
        found[Place(int(row.member), layer, head, row.part)][row.metric] = float(row.value)
    return found


def times(evidence: "Evidence", event: str) -> dict[Place, Crossing]:
    """Place → when an event happened there; what never happened is censored, what was not seen is absent."""
    ends = [f"{event}_at{end}" for end in ("", "_low", "_high")]
    found = {}
    for place, values in of_places(evidence, event, *ends).items():
        at, low, high = map(values.get, ends)
        found[place] = Crossing(at, low, high, None) if values[event] else Crossing(None, None, None, low)
    return found


def independent(evidence: "Evidence") -> list[int]:
    """Members whose weights and samples have one seed, so that they are independent of each other."""
    return evidence.where(init_seed=None).members if "init_seed" in evidence.columns else evidence.members


def learned_members(evidence: "Evidence") -> list[int]:
    """Independent members that learned the whole chain; those that diverged are among them, with missing values."""
    of_steps = evidence.rows("checkpoint_loss").dropna(subset="part")
    worst = of_steps.groupby("member")["value"].max()
    bound = of_plateau(READ_LEARNED, asked_for(evidence, "options.chains"))
    return [member for member in independent(evidence) if not worst[member] >= bound]


def last_of(evidence: "Evidence", metric: str, members: list[int], part: str | None = None) -> Any:
    """The last value of a metric, of some members, as a series; missing where a member has none."""
    import pandas as pd

    found = evidence.last(metric, part=part) if metric in evidence else pd.Series(dtype=float)
    return found.reindex(members)


def of_read(evidence: "Evidence", proof: Proof, metric: str) -> Any:
    """A metric of a proof, of members that learned the whole chain, as a series; missing where one was not read."""
    members, prefix = learned_members(evidence), PREFIX[proof]
    read, whole = (last_of(evidence, name, members) for name in (f"{prefix}was_read", "learned_all"))
    return last_of(evidence, f"{prefix}{metric}", members).where((read == 1.0) & (whole != 0.0))


# What is claimed.

LEAST_MODELS = 8
"""Models that stand for the paper's few, and that a distribution of circuits takes."""

TRUST = (
    "the reader, proven on models whose circuit is known because it was built: precision and recall 1, decoys, "
    "redundant paths and mechanisms beyond its grammar among them; held-out samples have a stream of their own"
)

WAYS: dict[str, Proof] = {
    "heads that read single tokens, circuits proven by their rules alone": "rules",
    "heads with any path, circuits that also hold recomputed": "both",
}
"""Two ways to count heads, the paper's first; a claim about heads needs both to agree."""

FALLS = {"the loss falls for good": "fell_for_good", "the loss first falls": "fell"}
"""When a loss falls, by reading of R12: the rule of `docs/protocols.md`, and one that jumps of the loss do not move."""

NONE_READ = "no member that learned the chain was read"


def ways(values: Callable[..., Mapping[str, Samples]]) -> dict[str, Any]:
    """Fields of a claim about heads, whose values take the evidence and the proof: both ways must agree."""
    readings = {words: partial(values, proof=proof) for words, proof in WAYS.items()}
    return {"readings": readings, "readings_agree": True}


def by_seed(values: "pd.Series[float] | Mapping[int, float]", why_none: str = NONE_READ) -> Samples:
    """Values of independent members, as a claim returns them; the reason where there is none."""
    import pandas as pd

    series = pd.Series(values, dtype=float)
    return Samples(series, unit="seed", note="" if len(series.dropna()) else why_none)


def of_each_read(
    evidence: "Evidence", proof: Proof, value: Callable[[int], float], why_none: str = NONE_READ
) -> Samples:
    """A function of every member that learned the whole chain; missing where one was not read."""
    read = of_read(evidence, proof, "was_read")
    return by_seed({each: value(each) if was == 1.0 else math.nan for each, was in read.items()}, why_none)


def unseen(evidence: "Evidence", proof: Proof) -> Any:
    """Loss of every member's circuit on sequences that played no part in admitting it, by its rules; read or not."""
    return last_of(evidence, f"{PREFIX[proof]}unseen_loss", learned_members(evidence), "rules")


def reads_for(evidence: "Evidence", proof: Proof) -> dict[Place, int]:
    """Each read of a single token → the step of the chain that is the first to be lost without it."""
    sharp, needed = (f"{PREFIX[proof]}{metric}" for metric in ("to_one_token", "needed_for"))
    found = of_places(evidence, sharp, needed)
    return {place: int(each[needed]) for place, each in found.items() if each.get(sharp) and needed in each}


def losses_before_reads(
    options: ChainOptions, evidence: "Evidence", falls: str = "fell_for_good", *, after: bool = False
) -> Samples:
    """Steps of the chain whose loss fell before any read for them had formed, of members that were read.

    A loss that falls within one interval between checkpoints of the first read falls with it.  With `after` the steps
    whose loss fell after it are counted instead: if that is none, which of the two comes first was never seen.
    """
    reads, formed, fell = reads_for(evidence, "both"), times(evidence, "formed"), times(evidence, falls)

    def early(member: int) -> float:
        found = []
        for step in range(1, options.steps + 1):
            loss, mine = fell.get(Place.of_step(member, step)), [at for at, of in reads.items() if of == step]
            own = [formed[at] for at in mine if at.member == member and at in formed]
            if loss is not None and loss.time is not None and own:
                first = earliest(own)
                at = first.time or first.censored_at or 0.0
                found.append((loss.time - at if after else at - loss.time) > options.checkpoint_every)
        return float(sum(found)) if found else math.nan

    return of_each_read(evidence, "both", early)


of_paper = partial(Claim, kind="existence", source_n=LEAST_MODELS, seeds_needed=LEAST_MODELS, trust=TRUST)
"""A claim of the paper about its few models."""


def loss_follows_heads(options: ChainOptions, **fields: Any) -> Claim:
    before = partial(losses_before_reads, options)
    return of_paper(
        id="R12",
        statement="A symbol's loss falls because a head for it has formed.",
        source="paper §9.2",
        protocol="of members that learned the whole chain and were read: symbols whose held-out loss fell under 0.5 "
        "by more than one interval between checkpoints before the first read for them had a mean attention of 0.5; for "
        "good (the rule of docs/protocols.md), and, as another reading, for the first time",
        readings={words: partial(before, falls=falls) for words, falls in FALLS.items()},
        kind="general",
        must=at_most(0.0),
        controls={"symbols whose loss fell after a head for them": partial(before, after=True)},
        at_scale=options.lacks,
        **fields,
    )


# What is drawn: independent members alone.

MODES = {
    "loss_without_rules": "patterns given", "loss_without_clean": "all else as it was",
    "loss_without_recomputed": "the rest follows",
}  # fmt: skip
"""Loss without a path, by how it is taken away → in words."""

LOSSES = {
    "full": "model", "rules": "circuit by its rules", "recomputed": "circuit, own attention",
    "complement": "all but the circuit", "random_circuits": "random circuits",
}  # fmt: skip
"""Part of `circuit_loss` → in words."""


def drawn(*metrics: str) -> Callable[["Evidence"], list[dict[str, Any]]]:
    """Rows of a figure, with the model in words: of metrics that the run may lack."""

    def rows(evidence: "Evidence") -> list[dict[str, Any]]:
        found = rows_of(evidence, *metrics, member=independent(evidence)).to_dict("records")
        return [{**row, "model": f"seed {row['seed']}"} for row in found]

    return rows


def read_rows(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Reads against seeds: the heads that do each, and the attention of the one with most."""
    frame = rows_of(evidence, "mean_attention", member=independent(evidence))
    for (seed, read), own in frame.groupby(["seed", "part"]):
        heads = sorted(zip(own["layer"], own["head"], strict=True))
        note = ", ".join(f"{layer}.{head}" for layer, head in heads)
        yield {"read": read, "model": f"seed {seed}", "value": own["value"].max(), "note": note}


def shared_figures(options: ChainOptions) -> list[charts.Figure]:
    plateau, losses = {"plateau": options.plateau}, [f"loss_step_{k}" for k in range(1, options.steps + 1)]
    look: Any = {"levels": {"learned": of_plateau(LEARNED, options.chains), **plateau}, "ends": (0.0, 1.1)}
    return [
        charts.curves(losses, by="metric", name="losses", where=lambda evidence: {"member": independent(evidence)},
                      title="held-out loss of each symbol", **look),
        charts.curves(losses, by="metric", panel="seed", name="timeline", title="held-out partial loss", **look),
        charts.cells("mean_attention", "model", "read", rows=read_rows, name="reads", ends=(0.0, 1.0),
                     title="mean attention on it"),
        charts.dots("circuit_loss", "model", by="part", rows=drawn("circuit_loss"), names=LOSSES, name="controls",
                    levels=plateau, title="loss over the learned symbols"),
        charts.dots("loss_without", "part", by="metric", rows=drawn(*MODES), names=MODES, name="modes", levels=plateau,
                    title="loss without the read"),
    ]  # fmt: skip
