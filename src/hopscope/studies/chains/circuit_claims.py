"""What the claims of the studies of circuits and of emergence share: both proofs of a circuit, and claim R12."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_most
from hopscope.claims.crossings import Crossing, earliest
from hopscope.studies.chains.circuits import (
    PREFIX,
    ChainOptions,
    Place,
    Proof,
    by_seed,
    last_of,
    learned_members,
    of_places,
    of_read,
    times,
)

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

TRUST = (
    "the reader, proven on models whose circuit is known because it was built: precision and recall 1, decoys, "
    "redundant paths and mechanisms beyond its grammar among them; held-out samples have a stream of their own"
)

LEAST_MODELS = 8
"""Models that stand for the paper's few, and that a distribution of circuits takes."""

WAYS: dict[Proof, str] = {
    "rules": "heads that read single tokens, circuits proven by their rules alone",
    "both": "heads with any path, circuits that also hold recomputed",
}
"""Two ways to count heads, the paper's first; a claim about heads needs both to agree."""

NONE_READ = "no member that learned the chain was read"
Values = Callable[[ChainOptions, "Evidence", Proof], Mapping[str, Samples]]


def ways(options: ChainOptions, values: Values) -> dict[str, Callable[[Any], Any]]:
    """The readings of a claim about heads: its values under both ways to count them."""
    return {words: partial(_by_proof, values, options, proof) for proof, words in WAYS.items()}


def _by_proof(values: Values, options: ChainOptions, proof: Proof, evidence: "Evidence") -> Any:
    return values(options, evidence, proof)


def unseen(options: ChainOptions, evidence: "Evidence", proof: Proof, part: str) -> "pd.Series[float]":
    """Loss of every member's circuit on sequences that played no part in admitting it; read or not."""
    return last_of(evidence, f"{PREFIX[proof]}unseen_loss", learned_members(options, evidence), part)


def reads_for(evidence: "Evidence", proof: Proof) -> dict[Place, int]:
    """Each read of a single token → the step of the chain that is the first to be lost without it."""
    sharp, needed = (f"{PREFIX[proof]}{metric}" for metric in ("to_one_token", "needed_for"))
    found = of_places(evidence, [sharp, needed])
    return {place: int(each[needed]) for place, each in found.items() if each.get(sharp) and needed in each}


FALLS = {"the loss falls for good": "fell_for_good", "the loss first falls": "fell"}
"""When a loss falls, by reading of R12: the rule of `docs/protocols.md`, and one that jumps of the loss do not move."""


def losses_before_reads(
    options: ChainOptions,
    evidence: "Evidence",
    falls: str = "the loss falls for good",
    *,
    after: bool = False,
) -> Samples:
    """Steps of the chain whose loss fell before any read for them had formed, of members that were read.

    A loss that falls within one interval between checkpoints of the first read falls with it.  With `after` the steps
    whose loss fell after it are counted instead: if that is none, which of the two comes first was never seen.
    """
    reads, formed, fell = (
        reads_for(evidence, "both"),
        times(evidence, "formed"),
        times(evidence, FALLS[falls]),
    )
    read = of_read(options, evidence, "was_read", "both")
    found: dict[int, float] = dict.fromkeys(map(int, read.index), math.nan)
    for member in map(int, read.dropna().index):
        early = []
        for step in range(1, options.steps + 1):
            loss = fell.get(Place(member, None, None, f"step_{step}"))
            mine = [each for each, of in reads.items() if each.member == member and of == step]
            own: list[Crossing] = [formed[each] for each in mine if each in formed]
            if loss is not None and loss.time is not None and own:
                first = earliest(own)
                at = first.censored_at if first.time is None else first.time
                apart = math.nan if at is None else (loss.time - at if after else at - loss.time)
                early.append(apart > options.checkpoint_every)
        if early:
            found[member] = float(sum(early))
    return by_seed(found, NONE_READ)


def lacks(options: ChainOptions, evidence: "Evidence") -> str:
    """What the run lacks of the paper's protocol, in words; nothing where it is at scale."""
    return options.lacks


def loss_follows_heads(options: ChainOptions, untried: Callable[["Evidence"], str] | None = None) -> Claim:
    """Claim R12 of the paper (section 9.2); `untried`: readings of the recipe that the run did not train by."""
    return Claim(
        id="R12",
        statement="A symbol's loss falls because a head for it has formed.",
        source="paper §9.2",
        protocol="of members that learned the whole chain and were read: symbols whose held-out loss fell under 0.5 "
        "by more than one interval between checkpoints before the first read for them had a mean attention of 0.5; for "
        "good (the rule of docs/protocols.md), and, as another reading, for the first time",
        readings={falls: partial(losses_before_reads, options, falls=falls) for falls in FALLS},
        untried=untried,
        kind="general",
        must=at_most(0.0),
        controls={
            "symbols whose loss fell after a head for them": partial(losses_before_reads, options, after=True)
        },
        must_not=at_most(0.0),
        rule="always",
        source_n=LEAST_MODELS,
        seeds_needed=LEAST_MODELS,
        at_scale=partial(lacks, options),
        trust=TRUST,
    )
