"""A claim on members, and who judges it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hopscope.claims import Claim, Judgement, not_run
from hopscope.studies.chains.config import ChainsConfig
from hopscope.studies.chains.evidence import Member
from hopscope.studies.ledger import Statement
from hopscope.studies.words import counted


def _nobody(members: Sequence[Member], config: Any) -> Judgement:
    return not_run()


@dataclass(frozen=True)
class Entry(Statement):
    """A claim of the paper before it is judged.

    Attributes:
        judge: from members of independent seeds and the configuration to a judgement.
    """

    judge: Callable[[Sequence[Member], Any], Judgement] = _nobody
    trust: str = (
        "the reader, proven on models whose circuit is known because it was built: precision and recall 1, decoys, "
        "redundant paths and mechanisms beyond its grammar among them; held-out samples have a stream of their own"
    )


def judged_entries(
    entries: Sequence[Entry], members: Sequence[Member], config: Any
) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement, in the order of the ledger."""
    judgements = [(entry, entry.judge(members, config)) for entry in entries]
    return [(entry.judged(judgement), judgement) for entry, judgement in judgements]


def missing(members: Sequence[Member], config: ChainsConfig) -> str:
    """What a run lacks of the paper's protocol, in words; nothing where it is at scale."""
    frozen = sum(member.frozen for member in members)
    return ", ".join(
        [*config.departures, *([f"{counted(frozen, 'diverged run')} left out"] if frozen else [])]
    )
