"""Claims R4 to R7 and R12 of the paper (sections 8 and 9, appendix E), by the rules of `docs/protocols.md`."""

import math
from functools import partial
from typing import TYPE_CHECKING

from hopscope.circuits.config import LEARNED, Proof
from hopscope.circuits.places import of_places
from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.claims.intervals import excess_interval
from hopscope.studies.circuit_study.claims import (
    LEAST_MODELS,
    NONE_READ,
    TRUST,
    by_seed,
    independent,
    learned_members,
    loss_follows_heads,
    of_read,
    random_circuits,
    unseen,
    ways,
)
from hopscope.studies.circuit_study.proof import PREFIX
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.circuits.own_claims import OWN
from hopscope.studies.recipe import exact_of

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

REACHED = 0.01
"""Squared error that the paper's models of 12 layers stay under (section 8.2)."""

R4 = {
    f"seeds at {REACHED:g} or below": at_least(0.5, "fraction"),
    "mean loss": at_most(REACHED),
}
R5 = {"heads that read": at_most(6.0), "first one links a pair": at_least(1.0)}
R6 = {
    "distance between seeds beyond that between readings": at_least(0.25),
    "heads beyond the minimum": at_least(1.0),
}
R7 = {
    "loss under the rules": at_most(0.05),
    "least loss without a read of a later layer": at_least(0.17),
    "largest loss without a read of a later layer": at_most(0.89),
    "loss without the first head": at_least(0.05),
}

RANDOM = "loss of random circuits of the same size"

WHOLE = "no distance of read graphs without layers: whole circuits differ as much between two readings of one model"
"""What a run lacks for R6 that compared whole circuits alone."""


def lacks(evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return ", ".join(CircuitsConfig.model_validate(dict(evidence.config)).protocol_deviations)


def final_loss(evidence: "Evidence") -> dict[str, Samples]:
    """The final loss of every model, by seed, and whether it is as low as the paper's."""
    losses = evidence.last("final_loss").reindex(independent(evidence))
    # At least half of the seeds at a loss or below is the same as a median at it or below.
    reached = (losses <= REACHED).astype(float).where(losses.notna())
    known = losses.dropna()
    note = f"median {known.median():.4g}" if len(known) else ""
    return dict(zip(R4, (Samples(reached, "seed", note=note), by_seed(losses)), strict=True))


def untrained_loss(evidence: "Evidence") -> Samples:
    """Held-out loss of every model before its first step, which must not be small."""
    curves = evidence.rows("loss", measure="training", step=0) if "loss" in evidence else None
    members = independent(evidence)
    if curves is None:
        return by_seed({}, "not measured")
    return by_seed(curves.set_index("member")["value"].reindex(members), "not measured")


def own_distance(evidence: "Evidence") -> Samples:
    """Distance of the circuits of two readings of one model.

    If it were as large as between models without anything in common, the reader would tell nothing of seeds.
    """
    return by_seed(of_read(evidence, f"rules_reread{_by(evidence)}_distance", "rules"), NONE_READ)


def _by(evidence: "Evidence") -> str:
    """What circuits are compared by: graphs of reads without layers, or whole circuits in runs that lack those."""
    return "_graph" if "reread_graph_distance" in evidence else ""


def few_heads(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """How many heads the circuit has, and whether the first that reads a single token links the tokens of a pair."""
    metrics = {
        "rules": ("rules_reading_heads", "rules_first_read_links_pair"),
        "both": ("heads", "first_read_links_pair"),
    }[proof]
    return {
        name: by_seed(of_read(evidence, metric, proof), NONE_READ)
        for name, metric in zip(R5, metrics, strict=True)
    }


def distinct_circuits(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """How much farther the circuits of two seeds are apart than two readings, and heads beyond the least number."""
    config = CircuitsConfig.model_validate(dict(evidence.config))
    apart, beyond = R6
    # A layer has one head in the paper, so the least number of layers is that of heads.
    needed = of_read(evidence, f"{PREFIX[proof]}heads_needed", proof) - exact_of(config, config.steps)
    return {apart: _apart(evidence, proof), beyond: by_seed(needed, NONE_READ)}


def _apart(evidence: "Evidence", proof: Proof) -> Samples:
    """Mean distance of each member to the others, minus the distance of its own two readings."""
    by = _by(evidence)
    within = of_read(evidence, f"{PREFIX[proof]}reread{by}_distance", proof)
    known = [int(member) for member in within.dropna().index]
    if len(known) < 2:
        return by_seed({}, "fewer than two members that learned the chain were read twice")
    between_ = _distances(evidence, f"{PREFIX[proof]}circuit{by}_distance", known)
    others = between_.sum(axis=1) / (len(known) - 1)
    interval = excess_interval(between_.to_numpy(), list(within[known]))
    values = (others - within[known]).reindex(within.index)
    return Samples(values, unit="seed", interval=interval, missing="" if by else WHOLE)


def _distances(evidence: "Evidence", metric: str, members: list[int]) -> "pd.DataFrame":
    """Distance of every two members, 0 of one from itself."""
    rows = evidence.rows(metric, measure="reread")
    table = rows.assign(other=rows["part"].str.removeprefix("member ").astype(int))
    wide = table.pivot_table(index="member", columns="other", values="value")
    return wide.reindex(index=members, columns=members).fillna(0.0)


def removals(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """What the circuit reaches by its rules on unseen sequences, and what taking reads of single tokens away costs."""
    metric, members = f"{PREFIX[proof]}unseen_loss_without", learned_members(evidence)
    first: dict[int, float] = {}
    reads: dict[int, list[tuple[int, float]]] = {}
    for place, found in of_places(evidence, "unseen", [metric]).items():
        if not place.part.startswith("rules: "):
            continue
        if place.layer is None:
            first[place.member] = found[metric]
        else:
            reads.setdefault(place.member, []).append((place.layer, found[metric]))
    later = {
        member: [loss for layer, loss in reads[member] if layer > min(reads[member])[0]]
        for member in members
        if member in reads
    }
    values = (
        unseen(evidence, proof, "rules"),
        {member: min(later.get(member, []), default=math.nan) for member in members},
        {member: max(later.get(member, []), default=math.nan) for member in members},
        {member: first.get(member, math.nan) for member in members},
    )
    none = "no member that learned the chain has two reads of single tokens in different layers"
    return {name: by_seed(each, none) for name, each in zip(R7, values, strict=True)}


def claims() -> tuple[Claim, ...]:
    """The ledger of the study."""
    claim = partial(
        Claim, seeds_needed=LEAST_MODELS, source_n=LEAST_MODELS, at_scale=lacks, trust=TRUST, kind="existence"
    )
    return (
        claim(
            id="R4",
            statement="Models of 12 layers with one head each follow a chain of three steps with a squared error "
            "under 0.01.",
            source="paper §8.2",
            protocol="final held-out loss (mean over the last 100 steps) of every member, whether it learned or not: "
            "share of seeds at 0.01 or below, of which one half is the same as a median there, and mean; both must "
            "give the same verdict, since a mean of some seeds that learned and some that did not decides nothing",
            value=final_loss,
            must=R4,
            need="agreement",
            controls={"before the first step": untrained_loss},
            must_not=R4["mean loss"],
            rule="mean",
        ),
        claim(
            id="R5",
            statement="Only a few heads do anything useful, and the first of them links the two tokens of a pair.",
            source="paper §8.2",
            protocol="of members that learned the whole chain (every loss under 0.25): heads (of 12 in the paper), "
            "and whether the first of them that reads a single token joins the tokens of a pair; both ways to count "
            "heads must agree; a member that was not read is missing",
            readings=ways(few_heads),
            readings_agree=True,
            must=R5,
            controls={RANDOM: random_circuits},
            must_not=at_most(LEARNED),
            rule=dict(zip(R5, ("mean", "always"), strict=True)),
        ),
        claim(
            id="R6",
            statement="Seeds learn different circuits, and none uses the least number of heads.",
            source="paper §8.2",
            protocol="of the same members: mean distance between the sets of minimal circuits of two seeds, as graphs "
            "of reads without layers, minus that between two readings of one member (members resampled); and the heads "
            "of its circuit minus the exact minimum (3 for D = 3), two heads that could be merged counted as one; both "
            "ways to count heads must agree",
            readings=ways(distinct_circuits),
            readings_agree=True,
            must=R6,
            controls={"distance of two readings of one model": own_distance},
            must_not=at_least(0.5),
            rule=dict(zip(R6, ("mean", "always"), strict=True)),
        ),
        claim(
            id="R7",
            statement="The circuit alone keeps the error under 0.05; without one of its paths it is 0.17 to 0.89, and "
            "at least 0.05 without the first head.",
            source="paper, appendix E",
            protocol="of members that learned the whole chain, read or not, on 256 sequences that played no part in "
            "admitting the circuit, every attention matrix replaced by its rule (the paper's mode): loss of the whole "
            "circuit, with one read of a single token of a later layer made uniform, and with those of the first head "
            "that does any; both proofs of a circuit must agree",
            readings=ways(removals),
            readings_agree=True,
            must=R7,
            controls={RANDOM: random_circuits},
            must_not=R7["loss under the rules"],
            rule="mean",
        ),
        loss_follows_heads(lacks),
        *OWN,
    )
