"""From members to judgements: claims R4 to R7 (paper, section 8 and appendix E)."""

from collections.abc import Callable, Sequence

import numpy as np

from hopscope.claims import (
    Criterion,
    Judgement,
    combine_parts,
    judge_always,
    judge_interval,
    judge_mean,
    not_run,
)
from hopscope.claims.intervals import Interval, mean
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.chains.ledger import missing
from hopscope.studies.followed import FollowedPath
from hopscope.studies.theory import exact_of

Judge = Callable[[Sequence[Member], ChainsConfig], Judgement]

PAPER_MODELS = 3
"""Transformers A, B and C."""

LEAST_MODELS = 8
"""Models that a distribution of circuits takes."""

R4 = Criterion(at_most=0.01)
R5 = {"heads that read": Criterion(at_most=6.0), "first one links a pair": Criterion(at_least=1.0)}
R6 = {
    "share of other seeds with another circuit": Criterion(at_least=0.5, unit="fraction"),
    "heads beyond the minimum": Criterion(at_least=1.0),
}
R7 = {
    "loss under the rules": Criterion(at_most=0.05),
    "least loss without a path of a later layer": Criterion(at_least=0.17),
    "largest loss without a path of a later layer": Criterion(at_most=0.89),
    "loss without the first head": Criterion(between=(0.05, 0.1)),
}


def read_members(members: Sequence[Member]) -> list[Member]:
    """Members that have learned the whole chain and were read."""
    return [member for member in members if member.learned_all and member.was_read]


def r4(members: Sequence[Member], config: ChainsConfig) -> Judgement:
    """What the models reach."""
    lack = missing(members, config)
    losses = [member.loss for member in members if member.loss is not None]
    return judge_mean(losses, R4, min_seeds=LEAST_MODELS, at_scale=not lack, missing=lack)


def links_a_pair(path: FollowedPath) -> bool:
    """Whether a path joins the two tokens of a pair: the second reads the first, or the other way round."""
    query, target = path.query.split(), path.target.split()
    return (
        len(query) == len(target) == 2
        and {query[0], target[0]} == {"first", "second"}
        and query[1] == target[1]
    )


def r5(members: Sequence[Member], config: ChainsConfig) -> Judgement:
    """Few heads matter, and the first that reads a single token links the tokens of a pair."""
    found = read_members(members)
    if not found:
        return not_run("no member that learned the chain was read")
    lack = missing(members, config)
    names = list(R5)
    links = [float(any(map(links_a_pair, member.first_reads))) for member in found]
    return combine_parts(
        {
            names[0]: judge_mean(
                [float(len(member.heads)) for member in found], R5[names[0]], min_seeds=LEAST_MODELS,
                at_scale=not lack, missing=lack,
            ),
            names[1]: judge_always(links, R5[names[1]], source_n=PAPER_MODELS, at_scale=not lack),
        }
    )  # fmt: skip


def others_differ(members: Sequence[Member]) -> list[float]:
    """For each member, the share of the others whose circuit does other reads."""
    return [
        sum(member.circuit != other.circuit for other in members if other is not member) / (len(members) - 1)
        for member in members
    ]


def share_that_differs(members: Sequence[Member], resamples: int = 2_000) -> tuple[float, Interval]:
    """Share of pairs of members whose circuits differ, with a 95 % interval.

    Pairs share members, so members are resampled, not pairs; two copies of one member are no pair.
    """
    circuits = [member.circuit for member in members]
    differs = np.array([[one != other for other in circuits] for one in circuits], dtype=np.float64)
    generator = np.random.Generator(np.random.Philox(key=0))
    shares = []
    for drawn in generator.integers(len(members), size=(resamples, len(members))):
        pairs = drawn[:, None] != drawn[None, :]
        if pairs.any():
            shares.append(differs[np.ix_(drawn, drawn)][pairs].mean())
    low, high = np.quantile(shares, [0.025, 0.975])
    return mean(others_differ(members)), (float(low), float(high))


def heads_needed(member: Member) -> int:
    """Heads of a member's circuit, less one if two of them could be one (paper, section 8.2, ii)."""
    return len(member.heads) - min(1, len(member.reading["merges"]))


def r6(members: Sequence[Member], config: ChainsConfig) -> Judgement:
    """Circuits differ between seeds, and none makes do with the least number of heads."""
    found = read_members(members)
    if len(found) < 2:
        return not_run("fewer than two members that learned the chain were read")
    lack = missing(members, config)
    # A layer has one head in the paper, so the least number of layers is that of heads.
    names, least = list(R6), exact_of(config, config.steps)
    beyond = [float(heads_needed(member) - least) for member in found]
    enough = len(found) >= LEAST_MODELS
    return combine_parts(
        {
            names[0]: judge_interval(
                *share_that_differs(found), R6[names[0]], n=len(found), at_scale=not lack and enough,
                missing=lack or f"{len(found)} of {LEAST_MODELS} read models",
            ),
            names[1]: judge_always(beyond, R6[names[1]], source_n=PAPER_MODELS, at_scale=not lack),
        }
    )  # fmt: skip


def removals(member: Member) -> tuple[list[float], list[float]]:
    """Loss under the rules without each read of a single token: by the first head that does any, by later layers."""
    first = member.first_reads
    later = [path for path in member.paths if path.to_one_token and first and path.layer > first[0].layer]
    return [path.removed["rules"] for path in first], [path.removed["rules"] for path in later]


def r7(members: Sequence[Member], config: ChainsConfig) -> Judgement:
    """What the circuit alone reaches, and what taking one path away costs, in the paper's mode."""
    found = [member for member in read_members(members) if removals(member)[1]]
    if not found:
        return not_run(
            "no member that learned the chain was read, with two reads of single tokens in different layers"
        )
    lack = missing(members, config)
    values = {
        "loss under the rules": [member.reading["loss"]["rules"] for member in found],
        "least loss without a path of a later layer": [min(removals(member)[1]) for member in found],
        "largest loss without a path of a later layer": [max(removals(member)[1]) for member in found],
        "loss without the first head": [max(removals(member)[0]) for member in found],
    }
    return combine_parts(
        {
            name: judge_mean(
                values[name], criterion, min_seeds=LEAST_MODELS, at_scale=not lack,
                missing=lack if number == 0 else "",
            )
            for number, (name, criterion) in enumerate(R7.items())
        }
    )  # fmt: skip
