"""What the claims of the studies of circuits and of emergence share, by the rules of `docs/protocols.md`.

Values are those of independent members, or of those among them that learned the chain; of circuits by both proofs.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.circuits.config import LEARNED, Proof
from hopscope.circuits.places import Place, of_places, times
from hopscope.claims import Claim, Samples, at_most
from hopscope.claims.crossings import Crossing, earliest
from hopscope.studies.circuit_study.proof import PREFIX

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

TRUST = (
    "the reader, proven on models whose circuit is known because it was built: precision and recall 1, decoys, "
    "redundant paths and mechanisms beyond its grammar among them; held-out samples have a stream of their own"
)
"""What a reader must trust to believe a verdict on a circuit."""

LEAST_MODELS = 8
"""Models that stand for the paper's few, and that a distribution of circuits takes."""


def independent(evidence: "Evidence") -> list[int]:
    """Members whose weights and data have the seed of the member, so that they are independent of each other."""
    return evidence.where(init_seed=None).members if "init_seed" in evidence.columns else evidence.members


def last_of(
    evidence: "Evidence", metric: str, members: list[int], part: str | None = None
) -> "pd.Series[float]":
    """The last value of a metric, of some members; missing where a member has none."""
    import pandas as pd

    if metric not in evidence:  # no member has a circuit
        return pd.Series(float("nan"), index=members, dtype=float)
    return evidence.last(metric, part=part).reindex(members)


def by_seed(values: "pd.Series[float] | Mapping[int, float]", why_none: str = "") -> Samples:
    """Values of independent members, as a claim returns them; the reason where there is none."""
    import pandas as pd

    series = pd.Series(values, dtype=float)
    return Samples(series, unit="seed", note="" if len(series.dropna()) else why_none)


WAYS: dict[Proof, str] = {
    "rules": "heads that read single tokens, circuits proven by their rules alone",
    "both": "heads with any path, circuits that also hold recomputed",
}
"""Two ways to count heads, the paper's first; a claim about heads needs both to agree."""

NONE_READ = "no member that learned the chain was read"


def ways(values: "Callable[[Evidence, Proof], Mapping[str, Samples]]") -> dict[str, Callable[[Any], Any]]:
    """The readings of a claim about heads: its values under both ways to count them."""
    return {words: partial(_of_proof, values, proof) for proof, words in WAYS.items()}


def _of_proof(values: Callable[..., Any], proof: Proof, evidence: "Evidence") -> Any:
    return values(evidence, proof)


def learned_members(evidence: "Evidence") -> list[int]:
    """Independent members that learned the whole chain.

    Those that diverged are among them: nothing is known of them, and their values are missing.
    """
    losses = [
        evidence.last("checkpoint_loss", part=f"step_{step}")
        for step in range(1, int(evidence.config["steps"]) + 1)
    ]
    diverged = evidence.last("final_loss").isna()
    return [
        member
        for member in independent(evidence)
        if diverged[member] or all(loss[member] < LEARNED for loss in losses)
    ]


def of_read(evidence: "Evidence", metric: str, proof: Proof) -> "pd.Series[float]":
    """The last value of a metric, of members that learned the whole chain; missing where one was not read."""
    members = learned_members(evidence)
    read = last_of(evidence, f"{PREFIX[proof]}was_read", members)
    return last_of(evidence, metric, members).where(read == 1.0)


def unseen(evidence: "Evidence", proof: Proof, part: str) -> "pd.Series[float]":
    """Loss of every member's circuit on sequences that played no part in admitting it; read or not."""
    return last_of(evidence, f"{PREFIX[proof]}unseen_loss", learned_members(evidence), part)


def formed_at(evidence: "Evidence", proof: Proof) -> dict[Place, Crossing]:
    """Place → when a read of a circuit had formed; of a step of the chain (part `step_k`), all its reads."""
    return times(evidence, f"{PREFIX[proof]}formed", "formation" if proof == "both" else "proof")


def reads_for(evidence: "Evidence", proof: Proof) -> dict[Place, int]:
    """Each read of a single token → the step of the chain that is the first to be lost without it."""
    sharp, needed = (f"{PREFIX[proof]}{metric}" for metric in ("to_one_token", "needed_for"))
    found = of_places(evidence, "circuit" if proof == "both" else "proof", [sharp, needed])
    return {
        place: int(values[needed])
        for place, values in found.items()
        if values.get(sharp) and needed in values
    }


def random_circuits(evidence: "Evidence") -> Samples:
    """Loss under the rules of circuits of the same size that are drawn at random, a control of claims about circuits.

    If they did as well, that a model's own circuit is small, or enough, says nothing.
    """
    members = learned_members(evidence)
    return by_seed(last_of(evidence, "rules_circuit_loss", members, "random_circuits"), NONE_READ)


FALLS = {"the loss falls for good": ("fell_for_good", "proof"), "the loss first falls": ("fell", "formation")}
"""When a loss falls, by reading of R12: the rule of `docs/protocols.md`, and one that jumps of the loss do not move."""


def losses_before_reads(
    evidence: "Evidence", falls: str = "the loss falls for good", *, after: bool = False
) -> Samples:
    """Steps of the chain whose loss fell before any read for them had formed, of members that were read (R12).

    A loss that falls within one interval between checkpoints of the first read falls with it.

    Args:
        evidence: of the run.
        falls: one of `FALLS`.
        after: whether to count the steps whose loss fell after it instead.  If that is none, every loss fell with its
            head, and which of the two comes first was never seen.
    """
    reads, formed = reads_for(evidence, "both"), formed_at(evidence, "both")
    fell, interval = times(evidence, *FALLS[falls]), float(evidence.config["checkpoint_every"])
    read = of_read(evidence, "was_read", "both")
    found: dict[int, float] = dict.fromkeys(map(int, read.index), float("nan"))
    for member in map(int, read.dropna().index):
        early = []
        for step in range(1, int(evidence.config["steps"]) + 1):
            loss = fell.get(Place(member, None, None, f"step_{step}"))
            own = [
                formed[place]
                for place, of in reads.items()
                if place.member == member and of == step and place in formed
            ]
            if loss is not None and loss.time is not None and own:
                first = earliest(own)
                at = first.censored_at if first.time is None else first.time
                apart = math.nan if at is None else (loss.time - at if after else at - loss.time)
                early.append(apart > interval)
        if early:
            found[member] = float(sum(early))
    return by_seed(found, NONE_READ)


def loss_follows_heads(
    at_scale: "Callable[[Evidence], str]", untried: "Callable[[Evidence], str] | None" = None
) -> Claim:
    """Claim R12 of the paper (section 9.2).

    Args:
        at_scale: what a run lacks of the protocol's scale.
        untried: readings of the recipe that it did not train by.
    """
    return Claim(
        id="R12",
        statement="A symbol's loss falls because a head for it has formed.",
        source="paper §9.2",
        protocol="of members that learned the whole chain and were read: symbols whose held-out loss fell under 0.5 "
        "by more than one interval between checkpoints before the first read for them had a mean attention of 0.5; for "
        "good (the rule of docs/protocols.md), and, as another reading, for the first time",
        readings={falls: partial(losses_before_reads, falls=falls) for falls in FALLS},
        untried=untried,
        kind="general",
        must=at_most(0.0),
        controls={"symbols whose loss fell after a head for them": partial(losses_before_reads, after=True)},
        must_not=at_most(0.0),
        rule="always",
        source_n=LEAST_MODELS,
        seeds_needed=LEAST_MODELS,
        at_scale=at_scale,
        trust=TRUST,
    )
