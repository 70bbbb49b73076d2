"""Claims R4 to R7 and R12 of the paper, and N10, N14, N17 and N23 of `docs/protocols.md` (Revision 3)."""

import math
import re
from functools import partial
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Samples, at_least, at_most
from hopscope.studies.chains import circuits as chains
from hopscope.studies.chains.circuits import ChainOptions, Place, Proof
from hopscope.studies.chains.evidence import of_plateau
from hopscope.studies.chains.readings import farther
from hopscope.studies.circuits.families import ahead_and_rest
from hopscope.study.study import Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence

REACHED = 0.01
"""Squared error that the paper's models of 12 layers stay under (section 8.2)."""

STEPS, DOUBLING_CIRCUITS, SEEDS = 3, 32, 16
"""Of the chains that N14 speaks of; read circuits that it takes; seeds that N17 takes."""

R4 = {f"seeds at {REACHED:g} or below": at_least(0.5, "fraction"), "mean loss": at_most(REACHED)}
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
N10 = {"torch-schedule": at_most(0.01), "gpt2-schedule": at_least(0.5)}
N14 = {"share that doubles": at_least(0.75, "fraction"), "more than a quarter": at_least(0.25, "fraction")}
"""Reproduced at three quarters or more, refuted at one quarter or less; nothing is decided in between."""

# R4.


def final_loss(evidence: "Evidence") -> dict[str, Samples]:
    """The final loss of every model, by seed, and whether it is as low as the paper's."""
    losses = evidence.last("final_loss").reindex(chains.independent(evidence))
    # At least half of the seeds at a loss or below is the same as a median at it or below.
    reached = (losses <= REACHED).astype(float).where(losses.notna())
    note = f"median {losses.median():.4g}" if losses.notna().any() else ""
    return dict(zip(R4, (Samples(reached, "seed", note=note), chains.by_seed(losses)), strict=True))


def untrained_loss(evidence: "Evidence") -> dict[str, Samples]:
    """Held-out loss of every model before its first step, which must not be small."""
    curves = evidence.rows("loss", measure="training", step=0).set_index("member")["value"]
    return {"mean loss": chains.by_seed(curves.reindex(chains.independent(evidence)), "not measured")}


# R5 to R7.


def random_circuits(evidence: "Evidence") -> Samples:
    """Loss under the rules of random circuits of the same size: were it as low, a model's own would say nothing."""
    members = chains.learned_members(evidence)
    return chains.by_seed(chains.last_of(evidence, "rules_circuit_loss", members, "random_circuits"))


def few_heads(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """How many heads the circuit has, and whether the first that reads a single token links the tokens of a pair."""
    metrics = "reading_heads" if proof == "rules" else "heads", "first_read_links_pair"
    found = (chains.by_seed(chains.of_read(evidence, proof, metric)) for metric in metrics)
    return dict(zip(R5, found, strict=True))


def own_distance(evidence: "Evidence") -> Samples:
    """Distance of the circuits of two readings of one model: were it large, the reader would tell nothing of seeds."""
    return chains.by_seed(chains.of_read(evidence, "rules", "reread_graph_distance"))


def distinct_circuits(options: ChainOptions, evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """How much farther the circuits of two seeds are apart than two readings, and heads beyond the least number."""
    # A layer has one head in the paper, so the least number of layers is that of heads.
    least = options.exact(options.steps)[options.steps]
    needed = chains.of_read(evidence, proof, "heads_needed") - least
    return dict(zip(R6, (_apart(evidence, proof), chains.by_seed(needed)), strict=True))


def _apart(evidence: "Evidence", proof: Proof) -> Samples:
    rows = chains.rows_of(evidence, f"{chains.PREFIX[proof]}circuit_graph_distance")
    other = rows["part"].str.removeprefix("member ").astype(int)
    between = rows.assign(other=other).set_index(["member", "other"])["value"].unstack()
    within = chains.of_read(evidence, proof, "reread_graph_distance")
    return farther(between, within, 2, "fewer than two members that learned the chain were read twice")


def removals(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """What the circuit reaches by its rules on unseen sequences, and what taking reads of single tokens away costs."""
    rows = chains.rows_of(evidence, f"{chains.PREFIX[proof]}unseen_loss_without")
    rows = rows[rows["part"].str.startswith("rules: ")]
    first, reads = rows[rows["layer"].isna()].set_index("member")["value"], rows.dropna(subset="layer")
    lowest, members = reads.groupby("member")["layer"].transform("min"), chains.learned_members(evidence)
    later = reads[reads["layer"] > lowest].groupby("member")["value"]
    values = (chains.unseen(evidence, proof), later.min(), later.max(), first)
    none = "no member that learned the chain has two reads of single tokens in different layers"
    return {name: chains.by_seed(each.reindex(members), none) for name, each in zip(R7, values, strict=True)}


# N10, N14, N17 and N23, which no source makes.


def of_completion(own: str, evidence: "Evidence") -> dict[str, Samples]:
    """The final loss of every model, in the part of the completion that the run was trained by."""
    none = {name: Samples([], unit="seed", note=f"{name} was not run") for name in N10}
    losses = chains.by_seed(evidence.last("final_loss").reindex(chains.independent(evidence)))
    return none | ({own: losses} if own in N10 else {})


_PAIR = re.compile(r"(?:first|second) (\d+)")


def ahead(read: str) -> bool:
    """Whether a path lets a row of one pair read a row of a later pair: `second 2 → second 3`."""
    query, _, target = read.partition(" → ")
    row, targets = _PAIR.fullmatch(query), _PAIR.findall(target)
    return row is not None and any(int(pair) > int(row[1]) for pair in targets)


def doubling(evidence: "Evidence") -> dict[str, Samples]:
    """1 for each read circuit that doubles, else 0, of members that learned the chain (N14).

    In one that does, a pair looks ahead, and a step is lost without that.
    """
    looking = {place.member for place in chains.of_places(evidence, "needed_for") if ahead(place.part)}
    return dict.fromkeys(N14, chains.of_each_read(evidence, "both", lambda member: float(member in looking)))


def first_and_rest(options: ChainOptions, evidence: "Evidence") -> Samples:
    """By seed: the step at which the first loss fell, and the time from there to the last (N17).

    A seed of which one of the two never fell is missing: how long it was watched for says nothing of its rank.
    """
    fell, members = chains.times(evidence, "fell"), chains.independent(evidence)
    pairs = list[tuple[float, float]]()
    for member in members:
        first, last = (fell.get(Place.of_step(member, step)) for step in (1, options.steps))
        if first is not None and last is not None and first.time is not None and last.time is not None:
            pairs.append((first.time, last.time - first.time))
    missing = [(math.nan, math.nan)] * (len(members) - len(pairs)) if pairs else []
    note = "" if pairs else "no first and last loss fell"
    return Samples([*pairs, *missing], unit="seed", note=note, ranks=True)


def claims(options: ChainOptions, study: Study) -> list[Claim]:
    D, random = options.steps, {"loss of random circuits of the same size": random_circuits}
    paper = partial(chains.of_paper, at_scale=options.lacks)
    own = partial(Claim, source="docs/protocols.md, Revision 3", trust=chains.TRUST)
    # A causal mask shows a pair later ones in this order alone.
    other_way = f"order {options.order}, not deepest-first" * (options.order != "deepest-first")
    others = f"D {D}, not {STEPS}" * (D != STEPS)
    few = f"D {D}, not more than {STEPS}: most circuits have one look ahead alone" * (D <= STEPS)
    # A completion of which some detail was given is another one.
    trained_by = "" if options.departs else study.completion
    return [
        paper(
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
            must_not={"mean loss": R4["mean loss"]},
            rule=dict(zip(R4, ("share", "mean"), strict=True)),
        ),
        paper(
            id="R5",
            statement="Only a few heads do anything useful, and the first of them links the two tokens of a pair.",
            source="paper §8.2",
            protocol="of members that learned the whole chain (every loss under 0.25): heads (of 12 in the paper), "
            "and whether the first of them that reads a single token joins the tokens of a pair; both ways to count "
            "heads must agree; a member that was not read is missing",
            **chains.ways(few_heads),
            must=R5,
            controls=random,
            must_not=at_most(of_plateau(chains.READ_LEARNED, options.chains)),
            rule=dict(zip(R5, ("mean", "always"), strict=True)),
        ),
        paper(
            id="R6",
            statement="Seeds learn different circuits, and none uses the least number of heads.",
            source="paper §8.2",
            protocol="of the same members: mean distance between the sets of minimal circuits of two seeds, as graphs "
            "of reads without layers, minus that between two readings of one member (members resampled); and the heads "
            "of its circuit minus the exact minimum (3 for D = 3), two heads that could be merged counted as one; both "
            "ways to count heads must agree",
            **chains.ways(partial(distinct_circuits, options)),
            must=R6,
            controls={"distance of two readings of one model": own_distance},
            must_not=at_least(0.5),
            rule=dict(zip(R6, ("mean", "always"), strict=True)),
        ),
        paper(
            id="R7",
            statement="The circuit alone keeps the error under 0.05; without one of its paths it is 0.17 to 0.89, and "
            "at least 0.05 without the first head.",
            source="paper, appendix E",
            protocol="of members that learned the whole chain, read or not, on 256 sequences that played no part in "
            "admitting the circuit, every attention matrix replaced by its rule (the paper's mode): loss of the whole "
            "circuit, with one read of a single token of a later layer made uniform, and with those of the first head "
            "that does any; both proofs of a circuit must agree",
            **chains.ways(removals),
            must=R7,
            controls=random,
            must_not=R7["loss under the rules"],
            rule="mean",
        ),
        chains.loss_follows_heads(options),
        own(
            id="N10",
            statement="With torch-schedule, models of 12 layers with one head learn three steps in every seed; with "
            "gpt2-schedule in none.",
            protocol="final held-out loss (mean over the last 100 steps) of every member: at most 0.01 under "
            "torch-schedule, at least 0.5 under gpt2-schedule",
            value=partial(of_completion, trained_by),
            must=N10,
            seeds_needed=8,
            source_n=8,
            at_scale=options.lacks,
        ),
        own(
            id="N14",
            statement="Models of three steps take fewer layers than hops by doubling: pairs look ahead.",
            protocol="of read circuits of members that learned three steps: share in which a row of one pair reads a "
            "row of a later pair, and a step of the chain is lost without that read (half way to guessing, or "
            "beyond); exact interval at 75 % or above, or at 25 % or below",
            value=doubling,
            must=N14,
            need="agreement",
            rule="share",
            seeds_needed=DOUBLING_CIRCUITS,
            at_scale=lambda evidence: ", ".join(filter(None, [others, other_way])),
        ),
        own(
            id="N17",
            statement="A seed that is early with its first step is quick with the rest.",
            protocol="rank correlation, over seeds of one completion and shape, of the training step at which the "
            "first loss fell under 0.5 and the time from there until the last did; a seed of which one never fell is "
            "missing",
            value=partial(first_and_rest, options),
            must=at_least(0.0),
            rule="effect",
            seeds_needed=SEEDS,
            at_scale=lambda evidence: "" if D > 1 else "a chain of one step, whose first loss is its last",
        ),
        own(
            id="N23",
            statement="The more looks ahead a circuit has, the sooner its model is done with the later steps.",
            protocol="rank correlation, over members that learned the whole chain and were read, of the number of "
            "different looks ahead of the circuit (2→3 is one, 2→4 another) and the training steps from the first loss "
            "that fell under 0.5 to the last",
            value=partial(ahead_and_rest, options),
            must=at_most(0.0),
            rule="effect",
            seeds_needed=SEEDS,
            at_scale=lambda evidence: ", ".join(filter(None, [few, other_way])),
        ),
    ]
