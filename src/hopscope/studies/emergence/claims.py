"""Claims R8 and R12 of the paper (section 9), by the rules of `docs/protocols.md`."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from hopscope.claims import Claim, Samples, at_most
from hopscope.claims.crossings import Crossing, order
from hopscope.studies.chains.circuit_claims import (
    LEAST_MODELS,
    NONE_READ,
    TRUST,
    lacks,
    loss_follows_heads,
    reads_for,
    unseen,
    ways,
)
from hopscope.studies.chains.circuits import (
    PREFIX,
    ChainOptions,
    Place,
    Proof,
    by_seed,
    independent,
    last_of,
    of_read,
    times,
)

if TYPE_CHECKING:
    from hopscope.runs import Evidence

R8 = {
    "loss": at_most(0.06),
    "loss under the rules": at_most(0.06),
    "hops out of order": at_most(0.0),
    "reads before the induction head": at_most(0.0),
}
UNKNOWN = f"{NONE_READ}, with an order that is known"


def untried(options: ChainOptions, evidence: "Evidence") -> str:
    """Readings of the paper's recipe that the run did not train by, in words."""
    return "" if options.batch_size == 32_768 else "a batch of 32,768 (docs/protocols.md)"


def reached_in_order(options: ChainOptions, evidence: "Evidence", proof: Proof) -> dict[str, Samples]:
    """What the models and their circuits reach, and the order in which their heads form."""
    formed, reads = times(evidence, f"{PREFIX[proof]}formed"), reads_for(evidence, proof)
    later = [place for place, step in reads.items() if step > 1]
    read = of_read(options, evidence, f"{PREFIX[proof]}was_read", proof)
    orders, early = dict.fromkeys(read.index, math.nan), dict.fromkeys(read.index, math.nan)
    for member in read.dropna().index:
        orders[member] = out_of_order(formed, member, options.steps)
        early[member] = before_induction(formed, member, later)
    values = [
        by_seed(last_of(evidence, "final_loss", independent(evidence)), "no member was trained to its end"),
        by_seed(unseen(options, evidence, proof, "rules"), "no member learned the chain"),
        by_seed(orders, UNKNOWN),
        by_seed(early, UNKNOWN),
    ]
    return dict(zip(R8, values, strict=True))


def steps_in_order(options: ChainOptions, evidence: "Evidence") -> Samples:
    """In how many neighbouring steps the reads of the *earlier* one had formed first, by more than a tie (R8).

    If it is none, all heads formed within one interval between checkpoints, and the order was never seen.
    """
    formed, read = times(evidence, "formed"), of_read(options, evidence, "was_read", "both")
    known = {
        member: out_of_order(formed, int(member), options.steps, "before") for member in read.dropna().index
    }
    return by_seed(dict.fromkeys(read.index, math.nan) | known, UNKNOWN)


def out_of_order(formed: Mapping[Place, Crossing], member: int, steps: int, wanted: str = "after") -> float:
    """In how many neighbouring steps the earlier one's reads stood so to the later one's; NaN: none is known."""
    found = (formed.get(Place(member, None, None, f"step_{step}")) for step in range(1, steps + 1))
    # A step without reads of its own has no time.
    orders = [order(one, other) for one, other in pairwise(time for time in found if time is not None)]
    known = [each for each in orders if each != "unknown"]
    return float(known.count(wanted)) if known else math.nan  # type: ignore[arg-type]


def before_induction(formed: Mapping[Place, Crossing], member: int, later: Iterable[Place]) -> float:
    """How many reads of later steps had formed before all reads for the first step had; NaN where that is unknown."""
    first = formed.get(Place(member, None, None, "step_1"))
    if first is None:
        return math.nan
    orders = [order(formed[path], first) for path in later if path.member == member and path in formed]
    known = [each for each in orders if each != "unknown"]
    return float(known.count("before")) if known else math.nan


def claims(options: ChainOptions) -> list[Claim]:
    """The ledger of the study."""
    not_tried = partial(untried, options)
    return [
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
            readings=ways(options, reached_in_order),
            readings_agree=True,
            untried=not_tried,
            kind="existence",
            must=R8,
            controls={"hops in order, by more than a tie": partial(steps_in_order, options)},
            must_not=at_most(0.0),
            rule=dict(zip(R8, ("mean", "mean", "always", "always"), strict=True)),
            source_n=LEAST_MODELS,
            seeds_needed=LEAST_MODELS,
            at_scale=partial(lacks, options),
            trust=TRUST,
        ),
        loss_follows_heads(options, not_tried),
    ]
