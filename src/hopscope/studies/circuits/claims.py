"""Claims R4 to R7 of the paper (section 8 and appendix E), judged from the evidence table alone."""

import math
from functools import partial
from typing import TYPE_CHECKING

from hopscope.circuits.places import of_places
from hopscope.claims import Claim, Samples, at_least, at_most, between
from hopscope.claims.intervals import interval_of_pairs
from hopscope.claims.verdicts import LEAST_SEEDS
from hopscope.studies.circuit_study.claims import LEAST_MODELS, TRUST, by_seed, last_of, read_members
from hopscope.studies.circuits.config import CircuitsConfig
from hopscope.studies.recipe import exact_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.runs.evidence import Evidence

PAPER_MODELS = 3
"""Transformers A, B and C."""

ALWAYS = max(LEAST_SEEDS, PAPER_MODELS)
"""Models that a statement about every one of them takes; a mean takes fewer, `LEAST_MODELS`."""

R4 = at_most(0.01)
R5 = {"heads that read": at_most(6.0), "first one links a pair": at_least(1.0)}
R6 = {
    "share of other seeds with another circuit": at_least(0.5, "fraction"),
    "heads beyond the minimum": at_least(1.0),
}
R7 = {
    "loss under the rules": at_most(0.05),
    "least loss without a path of a later layer": at_least(0.17),
    "largest loss without a path of a later layer": at_most(0.89),
    "loss without the first head": between(0.05, 0.1),
}


def lacks(evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return ", ".join(CircuitsConfig.model_validate(dict(evidence.config)).departures)


def final_loss(evidence: "Evidence") -> Samples:
    """The final loss of every model, by seed."""
    return by_seed(evidence.last("final_loss"))


def few_heads(evidence: "Evidence") -> dict[str, Samples]:
    """How many heads the circuit has, and whether the first that reads a single token links the tokens of a pair."""
    members = read_members(evidence)
    return {
        name: by_seed(last_of(evidence, metric, members), "no member that learned the chain was read")
        for name, metric in zip(R5, ("heads", "first_read_links_pair"), strict=True)
    }


def distinct_circuits(evidence: "Evidence") -> dict[str, Samples]:
    """How often circuits of two seeds differ, and how many heads they have beyond the least number."""
    members = read_members(evidence)
    classes = last_of(evidence, "circuit_class", members).dropna()
    names, config = list(R6), CircuitsConfig.model_validate(dict(evidence.config))
    if len(classes) < 2:
        few = "fewer than two members that learned the chain were read"
        return {name: by_seed({}, few) for name in names}
    # A layer has one head in the paper, so the least number of layers is that of heads.
    beyond = last_of(evidence, "heads_needed", members) - exact_of(config, config.steps)
    differ = last_of(evidence, "others_differ", members)
    return {
        names[0]: Samples(differ, unit="seed", interval=interval_of_pairs(list(classes))),
        names[1]: by_seed(beyond),
    }


def removals(evidence: "Evidence") -> dict[str, Samples]:
    """What the circuit alone reaches by its rules, and what taking one read of a single token away costs."""
    reads = reads_by_rules(evidence)
    values: dict[str, dict[int, float]] = {name: {} for name in R7}
    for member, whole in last_of(evidence, "circuit_loss", read_members(evidence), part="rules").items():
        first, later = first_and_later(reads.get(int(member), []))
        if math.isnan(whole):
            found = [whole] * len(R7)
        elif later:
            found = [whole, min(later), max(later), max(first)]
        else:
            continue
        for each, value in zip(values.values(), found, strict=True):
            each[int(member)] = value
    none = "no member that learned the chain was read, with two reads of single tokens in different layers"
    return {name: by_seed(each, none) for name, each in values.items()}


Read = tuple[tuple[int, int], float]
"""Layer and head of a read of a single token, and the loss under the rules without it."""


def reads_by_rules(evidence: "Evidence") -> dict[int, list[Read]]:
    """Member → its reads of single tokens."""
    found: dict[int, list[Read]] = {}
    for place, values in of_places(evidence, "circuit", ("to_one_token", "loss_without_rules")).items():
        if values["to_one_token"]:
            found.setdefault(place.member, []).append((place.where, values["loss_without_rules"]))
    return found


def first_and_later(reads: "Sequence[Read]") -> tuple[list[float], list[float]]:
    """Losses without each read: of the first head that does any, and of the layers above it."""
    if not reads:
        return [], []
    head = min(where for where, _ in reads)
    first = [loss for where, loss in reads if where == head]
    return first, [loss for (layer, _), loss in reads if layer > head[0]]


def claims(config: CircuitsConfig) -> tuple[Claim, ...]:
    """The ledger of the study."""
    claim = partial(Claim, seeds_needed=LEAST_MODELS, at_scale=lacks, trust=TRUST)
    return (
        claim(
            id="R4",
            statement="Models of 12 layers with one head each follow a chain of three steps with a squared error "
            "under 0.01.",
            source="paper §8.2",
            protocol="final held-out loss (mean over the last 100 steps) of every member",
            value=final_loss,
            must=R4,
            rule="mean",
        ),
        claim(
            id="R5",
            statement="Only a few heads do anything useful, and the first of them links the two tokens of a pair.",
            source="paper §8.2",
            protocol="of members that learned the whole chain and were read: heads with a path in the smallest "
            "circuit, also one that only a mean map describes (of 12 in the paper), and whether the first of them "
            "that reads a single token joins the tokens of a pair",
            value=few_heads,
            must=R5,
            rule=dict(zip(R5, ("mean", "always"), strict=True)),
            source_n=ALWAYS,
        ),
        claim(
            id="R6",
            statement="Seeds learn different circuits, and none uses the least number of heads.",
            source="paper §8.2",
            protocol="of the same members: share of pairs whose smallest circuits do different reads (members "
            "resampled), and the heads of its circuit minus the exact minimum (3 for D = 3), two heads that could be "
            "merged counted as one",
            value=distinct_circuits,
            must=R6,
            rule=dict(zip(R6, ("mean", "always"), strict=True)),
            source_n=ALWAYS,
        ),
        claim(
            id="R7",
            statement="The circuit alone keeps the error under 0.05; without one of its paths it is 0.17 to 0.89, or "
            "0.05 to 0.1 without the first head.",
            source="paper, appendix E",
            protocol="of the same members, on 256 fresh sequences, every attention matrix replaced by its rule (the "
            "paper's mode): loss of the whole circuit, and with one read of a single token made uniform; of the "
            "first head that does such a read, the costliest",
            value=removals,
            must=R7,
            rule="mean",
        ),
    )
