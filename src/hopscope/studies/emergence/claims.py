"""Claim R8 of the paper (section 9), judged from the evidence table alone."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from hopscope.circuits.places import FORMED, Place, of_places, times
from hopscope.claims import Claim, Samples, at_most, between
from hopscope.claims.crossings import Crossing, Order, order
from hopscope.claims.verdicts import LEAST_SEEDS
from hopscope.studies.circuit_study.claims import (
    LEAST_MODELS,
    TRUST,
    by_seed,
    independent,
    last_of,
    read_members,
)
from hopscope.studies.emergence.config import EmergenceConfig

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

R8 = {
    "loss": between(0.015, 0.06),
    "loss under the rules": between(0.015, 0.06),
    "hops out of order": at_most(0.0),
    "reads before the induction head": at_most(0.0),
}


def lacks(evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return ", ".join(EmergenceConfig.model_validate(dict(evidence.config)).departures)


def reached_in_order(evidence: "Evidence") -> dict[str, Samples]:
    """What the models and their circuits reach, and the order in which their heads form."""
    read, formed = read_members(evidence), times(evidence, FORMED)
    later, rules = reads_of_later_steps(evidence), last_of(evidence, "circuit_loss", read, part="rules")
    orders = {member: out_of_order(formed, member, evidence.config["steps"]) for member in read}
    early = {member: before_induction(formed, member, later) for member in read}
    values = [
        by_seed(last_of(evidence, "final_loss", independent(evidence)), "no member was trained to its end"),
        by_seed(rules, "no member that learned the chain was read"),
        by_seed(_known(orders, rules), "of no member that was read is an order known"),
        by_seed(_known(early, rules), "of no member that was read is an order known"),
    ]
    return dict(zip(R8, values, strict=True))


def out_of_order(formed: Mapping[Place, Crossing], member: int, steps: int) -> int | None:
    """In how many neighbouring steps the reads of the later one had formed first; ties are no disorder.

    Returns:
        None where no order is known.
    """
    found = (formed.get(Place(member, None, None, f"step_{step}")) for step in range(1, steps + 1))
    # A step without reads of its own has no time.
    orders = [order(one, other) for one, other in pairwise(time for time in found if time is not None)]
    known = [each for each in orders if each is not Order.UNKNOWN]
    return sum(each is Order.AFTER for each in known) if known else None


def reads_of_later_steps(evidence: "Evidence") -> list[Place]:
    """Reads of single tokens without which a step after the first is the first that is lost."""
    paths = of_places(evidence, "circuit", ("to_one_token", "needed_for"))
    return [
        place
        for place, found in paths.items()
        if found["to_one_token"] and found.get("needed_for", 0.0) > 1.0
    ]


def before_induction(formed: Mapping[Place, Crossing], member: int, later: Iterable[Place]) -> int | None:
    """How many reads of later steps had formed before all reads for the first step had.

    Returns:
        None where no such order is known.
    """
    first = formed.get(Place(member, None, None, "step_1"))
    if first is None:
        return None
    orders = [order(formed[path], first) for path in later if path.member == member]
    known = [each for each in orders if each is not Order.UNKNOWN]
    return sum(each is Order.BEFORE for each in known) if known else None


def _known(counts: Mapping[int, int | None], rules: "pd.Series[float]") -> dict[int, float]:
    """Counts of the members of which an order is known; missing for those of which nothing is, as they diverged."""
    found = {member: math.nan if count is None else float(count) for member, count in counts.items()}
    return {
        member: count for member, count in found.items() if not math.isnan(count) or math.isnan(rules[member])
    }


def claims(config: EmergenceConfig) -> tuple[Claim, ...]:
    """The ledger of the study."""
    return (
        Claim(
            id="R8",
            statement="A model of 24 layers without MLPs reaches an error of 0.031, 0.045 by its circuit alone, and "
            "its heads form in the order of the chain, the induction head first.",
            source="paper §9",
            protocol="independent seeds: final held-out loss; of those that learned the whole chain and were read, "
            "loss with every attention matrix replaced by its rule, neighbouring steps of the chain of which the "
            "later one's reads (of single tokens, without which it is the first target lost) had reached a mean "
            "attention of 0.5 first, and such reads of later steps that had before those of the first step had; ties "
            "within one interval between checkpoints count for the claim",
            value=reached_in_order,
            must=R8,
            rule=dict(zip(R8, ("mean", "mean", "always", "always"), strict=True)),
            source_n=LEAST_SEEDS,
            seeds_needed=LEAST_MODELS,
            at_scale=lacks,
            trust=TRUST,
        ),
    )
