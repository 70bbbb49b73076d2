"""Claims R8 and R12 about models of the paper's size, by the rules of `docs/protocols.md`."""

import math
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Samples
from hopscope.studies.circuit_study.claims import LEAST_MODELS, TRUST, by_seed, independent, last_of
from hopscope.studies.circuit_study.learned import (
    NONE_READ,
    formed_at,
    loss_follows_heads,
    of_read,
    reads_for,
    unseen,
    ways,
)
from hopscope.studies.circuit_study.proof import PREFIX, Proof
from hopscope.studies.emergence.claims import R8, before_induction, lacks, out_of_order

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence


def untried(evidence: "Evidence") -> str:
    """Readings of the paper's recipe that the run did not train by, in words."""
    return "" if evidence.config["batch_size"] == 32_768 else "a batch of 32,768 (docs/protocols.md)"


def reached_in_order(evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """What the models and their circuits reach, and the order in which their heads form."""
    formed, reads = formed_at(evidence, proof), reads_for(evidence, proof)
    later = [place for place, step in reads.items() if step > 1]
    read = of_read(evidence, f"{PREFIX[proof]}was_read", proof)
    orders, early = dict.fromkeys(read.index, math.nan), dict.fromkeys(read.index, math.nan)
    for member in read.dropna().index:
        orders[member] = _number(out_of_order(formed, member, evidence.config["steps"]))
        early[member] = _number(before_induction(formed, member, later))
    values = [
        by_seed(last_of(evidence, "final_loss", independent(evidence)), "no member was trained to its end"),
        by_seed(unseen(evidence, proof, "rules"), "no member learned the chain"),
        by_seed(orders, f"{NONE_READ}, with an order that is known"),
        by_seed(early, f"{NONE_READ}, with an order that is known"),
    ]
    return dict(zip(R8, values, strict=True))


def _number(count: int | None) -> float:
    return math.nan if count is None else float(count)


def paper_claims() -> tuple[Claim, ...]:
    """The ledger of a run of models of the paper's size."""
    return (
        Claim(
            id="R8",
            statement="A model of 24 layers without MLPs reaches an error of 0.031, 0.045 by its circuit alone, and "
            "its heads form in the order of the chain, the induction head first.",
            source="paper §9",
            protocol="independent seeds: final held-out loss; of those that learned the whole chain, read or not, loss "
            "on 256 sequences that played no part in admitting the circuit, with every attention matrix "
            "replaced by its rule; of those that were read, neighbouring steps of the chain of which the later "
            "one's reads (of single tokens, without which it is the first target lost) had reached a mean "
            "attention of 0.5 first, and such reads of later steps that had before those of the first step had; "
            "ties within one interval between checkpoints count for the claim; both ways to count heads must "
            "agree",
            readings=ways(reached_in_order),
            readings_agree=True,
            untried=untried,
            must=R8,
            rule=dict(zip(R8, ("mean", "mean", "always", "always"), strict=True)),
            source_n=LEAST_MODELS,
            seeds_needed=LEAST_MODELS,
            at_scale=lacks,
            trust=TRUST,
        ),
        loss_follows_heads(lacks),
    )
