"""Is retrieval that branches learned, and by the heads that follow a chain (S5)?"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from hopscope.claims import Claim, Samples, as_large_as, at_least
from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, SHARE_SEEDS, asked_for, times_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.chains.recipe import check_names
from hopscope.studies.curriculum import wide
from hopscope.study import measures
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration
from hopscope.tasks import Floors, Node, Retrieval, Shape, Task

if TYPE_CHECKING:
    from torch import Tensor

    from hopscope.runs import Evidence
    from hopscope.tasks import Batch, Draws

Graph = Literal["chain", "two parents", "root and parent"]

PARENTS = {"chain": ("x",), "two parents": ("x", "y"), "root and parent": ("a", "x")}
"""Graph → the keys of z."""


class Branching(Task):
    """A query a has an x and a y; z is found by x alone, or by two keys together.

    Attributes:
        graph: what z is found by.
        chains: number of queries N.
        symbol_dim: dimensions K of a symbol, and of its position code.
        targets: `"ic"`: x, y and z are asked for; `"last"`: z alone.
        chain_share: share of the samples that show the chain instead of the graph, in training and held out.
        chain_until: training step before which all samples show the chain.
        easier_first: whether x and y count before that step.
    """

    standard_loss: ClassVar[bool] = True
    row_roles: ClassVar[tuple[str, ...]] = ("kind", "node", "slot")

    graph: Graph = "two parents"
    chains: int = 3
    symbol_dim: int = 4
    targets: Literal["ic", "last"] = "ic"
    chain_share: float = Field(0.0, ge=0.0, lt=1.0)
    chain_until: int = Field(0, ge=0)
    easier_first: bool = True

    def retrieval(self, graph: Graph) -> Retrieval:
        parents = {"a": (), "x": ("a",), "y": ("a",), "z": PARENTS[graph]}
        nodes = tuple(Node(name=name, parents=keys) for name, keys in parents.items())
        fields = self.model_dump(include={"chains", "symbol_dim", "targets"})
        return Retrieval(nodes=nodes, position="pair", **fields)

    @property
    def words(self) -> Mapping[str, object]:
        return self.retrieval(self.graph).words

    def shape(self) -> Shape:
        return self.retrieval(self.graph).shape()

    def sample(self, draws: "Draws") -> "Batch":
        """Samples of the graph, of the chain in as many positions, or of both."""
        batch = self.retrieval(self.graph).sample(draws)
        return self._with_chains(draws, batch) if self.chain_share or self.chain_until else batch

    def _with_chains(self, draws: "Draws", batch: "Batch") -> "Batch":
        import torch
        from torch.nn.functional import pad

        from hopscope.tasks import Batch

        chain = self.retrieval("chain").sample(draws)
        before = batch.inputs.shape[2] - chain.inputs.shape[2]
        first = (draws.step < self.chain_until) & (draws.use == "train")
        shows_chain = (draws.uniform("graph") < self.chain_share) | first
        here, weights = shows_chain[..., None, None], None
        if self.chain_until and not self.easier_first and self.targets == "ic":
            # The loss is a mean over three symbols, of which z alone counts at first.
            z_alone = torch.tensor([0.0, 0.0, 3.0], device=draws.device).repeat_interleave(self.symbol_dim)
            weights = torch.where(first[:, None], z_alone, 1.0)[None, :, None]
        return Batch(
            # What stands before a chain, which is shorter than the branching graph, is 0.
            torch.where(here, pad(chain.inputs, (0, 0, before, 0)), batch.inputs),
            torch.where(here, chain.targets, batch.targets),
            weights=weights,
            groups={"chain": shows_chain, "branching": ~shows_chain} if self.chain_share else {},
        )

    def parts(self, predictions: "Tensor", batch: "Batch") -> "Mapping[str, Tensor]":
        return self.retrieval(self.graph).parts(predictions, batch)

    def floors(self) -> Floors:
        found = self.retrieval(self.graph).floors()
        return {name: floor for name, floor in found.items() if not name.startswith("accuracy")}


STEPS, SWITCH = 900, 300
"""Training steps, and how many of them come before branching samples where chains come first."""

SOONER = at_least(50.0)
"""Steps that a first phase must save."""

USED = 0.05
"""A head is used if without it the loss of z rises by this much."""

CHAIN, TWO, ROOT, MIXED = "chain", "two parents", "root and parent", "chain and two parents mixed"
CHAIN_FIRST, NOTHING_FIRST = "chain first", "chain first, asked for z alone"

VARIANTS: dict[str, dict[str, Any]] = {
    TWO: {},
    f"{TWO}, z alone": {"task.targets": "last"},
    MIXED: {"task.chain_share": 0.5},
    CHAIN_FIRST: {"task.chain_until": SWITCH},
    NOTHING_FIRST: {"task.chain_until": SWITCH, "task.easier_first": False},
    CHAIN: {"task.graph": "chain"},
    f"{CHAIN}, z alone": {"task.graph": "chain", "task.targets": "last"},
    ROOT: {"task.graph": "root and parent"},
    f"{ROOT}, z alone": {"task.graph": "root and parent", "task.targets": "last"},
}
"""What is trained → fields that differ."""


class Options(Config):
    """What is trained.

    Attributes:
        variants: what is trained, each in quotes, such as "two parents" "two parents, z alone".
    """

    variants: tuple[str, ...] = tuple(VARIANTS)

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        check_names("variants", self.variants, VARIANTS)
        return self


def configurations(options: Options) -> list[Configuration]:
    return [Configuration(label=name, overrides=VARIANTS[name]) for name in options.variants]


@measure
def rises(context: Context) -> Iterator[dict[str, Any]]:
    """How much the loss of z rises without each head, on chains and on branching samples.

    Measured where both were mixed.  Metric `rise`, by layer and head; the part is `chain` or `branching`.
    """
    from hopscope.tasks import losses

    if "chain" not in context.held_out.groups:
        return
    whole = losses(context.task, context.ensemble(context.held_out.inputs), context.held_out)
    for row in measures.head_ablation(context):
        name, _, group = row["metric"].partition("@")
        if name == "loss_z_without_head" and group:
            yield {**row, "metric": "rise", "part": group, "value": row["value"] - whole[f"loss_z@{group}"]}


# What is claimed.


def used(evidence: "Evidence") -> dict[int, dict[str, set[tuple[int, int]]]]:
    """Seed → `chain` or `branching` → layer and head of those that are used, of models that learned z of both."""
    found: dict[int, dict[str, set[tuple[int, int]]]] = {}
    if "rise" not in evidence:
        return found
    losses = [evidence.last("loss_z", configuration=MIXED, part=part) for part in ("chain", "branching")]
    for row in evidence.rows("rise", configuration=MIXED).itertuples():
        if all(loss[row.member] < LEARNED for loss in losses):
            own = found.setdefault(evidence.seeds[row.member], {"chain": set(), "branching": set()})
            if row.value >= USED:
                own[row.part].add((int(row.layer), int(row.head)))
    return found


def reused(shift: int, evidence: "Evidence") -> Samples:
    """By seed, share of the heads used for chains that branching samples use too, of the model so many seeds on."""
    heads = used(evidence)
    seeds, shares = [*heads], []
    for place, seed in enumerate(seeds):
        chain, other = heads[seed]["chain"], heads[seeds[(place + shift) % len(seeds)]]["branching"]
        alone = shift and len(seeds) < 2
        shares.append(math.nan if alone or not chain else len(chain & other) / len(chain))
    return Samples(shares, unit="seed", note="" if shares else "no model learned z of both")


def steps_saved(name: str, evidence: "Evidence") -> Samples:
    """By seed, training steps with branching samples that a first phase saves."""
    plain, later = (times_learned(evidence, each, "z") for each in (TWO, name))
    found = wide.saved(plain, later, asked_for(evidence, "training.steps"), SOONER.low - SWITCH)
    return replace(found, values=found.values + SWITCH)  # of the later one, which had chains at first


def claims(options: Options) -> Iterator[Claim]:
    known = {name: (name, "z") for name in options.variants}
    whole = {name: known[name] for name in (TWO, ROOT) if name in known}
    alone = {name: known[name] for name in (f"{TWO}, z alone", f"{ROOT}, z alone") if name in known}
    scale = as_large_as({"training.steps": STEPS, "model.width": wide.MODEL.width})
    source = "summary of the paper, open question 3"
    claim = partial(wide.open_claim, source=source, rule="mean", at_scale=scale)
    if whole and alone:
        yield claim(
            id="S5a",
            statement="Branching retrieval is learned with the implicit curriculum, and not without.",
            protocol="share of seeds with a final held-out loss of z under 0.5; asked for x, y and z, or z alone",
            **wide.shares((whole, wide.MOST), (alone, wide.FEW), controls=alone, settled=4 * STEPS),
            rule="share",
            seeds_needed=SHARE_SEEDS,
        )
    if MIXED in known:
        yield claim(
            id="S5b",
            statement="Branching retrieval re-uses the heads that follow a chain.",
            protocol="models that learned both: share of the heads without which the loss of z rises by 0.05 on "
            "chains that are used so on branching samples too; the control takes the latter from the next "
            "seed's model",
            value=partial(reused, 0),
            must=wide.MOST,
            controls={"heads of another seed's model": partial(reused, 1)},
        )
    if {TWO, CHAIN_FIRST, NOTHING_FIRST} <= {*known}:
        yield claim(
            id="S5c",
            statement="Training on the chain first makes branching retrieval quicker.",
            protocol="by seed: training steps until z was learned without a first phase, less those after "
            f"{SWITCH} steps of chains; what was never learned took all steps at least; the control asks for "
            "z alone in the first phase, by which nothing is learned",
            value=partial(steps_saved, CHAIN_FIRST),
            must=SOONER,
            controls={"nothing learned first": partial(steps_saved, NOTHING_FIRST)},
        )


def figures(options: Options) -> Iterator[charts.Figure]:
    def curves(evidence: "Evidence") -> Iterator[dict[str, Any]]:
        for name in options.variants:
            for part in ("chain", "branching") if name == MIXED else (None,):
                found = evidence.curve("loss_z", configuration=name, part=part).stack(future_stack=True)
                for (at, member), value in found.items():
                    who = {"member": member, "seed": evidence.seeds[member], "at": at}
                    yield {"variant": name, "samples shown": part or "all", **who, "value": value}

    yield charts.curves("loss_z", by="samples shown", panel="variant", rows=curves, name="losses", ends=(0.0, 1.2),
                        levels={"learned": LEARNED}, title="held-out loss of z")  # fmt: skip


study = wide.open_study(
    name="conditional",
    question="is retrieval that branches learned, and by the heads that follow a chain?",
    task=Branching(),
    model=wide.MODEL.model_copy(update={"layers": 6}),
    training=wide.TRAINING.model_copy(update={"steps": STEPS}),
    options=Options(),
    fixed=("task.graph", "task.chains", "task.targets", "task.chain_share"),
    configurations=configurations,
    measures=(rises, learned_at),
    claims=claims,
    figures=figures,
    presets={
        "smoke": {**wide.SMOKE, "variants": (TWO, f"{TWO}, z alone", MIXED)},
        # Fewer steps than as written, so that it ends within ten minutes.
        "laptop": {"seeds": 4, "training.steps": 700, "variants": (TWO, f"{TWO}, z alone", MIXED)},
        # The mixture is left to the preset heads, and the chain to the studies of chains.
        "workstation": {
            "variants": (TWO, f"{TWO}, z alone", CHAIN_FIRST, NOTHING_FIRST, ROOT, f"{ROOT}, z alone")
        },
        # From the old start one model of eight learned both in 900 steps, and seven of eight in twice as many.
        "heads": {"seeds": 12, "training.steps": 2 * STEPS, "variants": (MIXED,)},
    },
    costs={
        "smoke": "under a minute on two cores",
        "laptop": "about 10 min on two cores",
        "workstation": "about half an hour on two cores: 48 models",
        "heads": "about 15 min on two cores: 12 models, trained twice as long",
    },
)
