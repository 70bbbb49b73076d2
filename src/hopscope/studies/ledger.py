"""A claim before it is judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hopscope.claims import Claim, Criterion, Judgement


@dataclass(frozen=True)
class Statement:
    """What a source says, and what is demanded of it.

    Attributes:
        id, statement, source, protocol, trust: as in `Claim`.
        thresholds: one criterion, or several named ones, or words.
    """

    id: str
    statement: str
    source: str
    protocol: str
    thresholds: Criterion | dict[str, Criterion] | str
    trust: str = ""

    def judged(self, judgement: Judgement) -> Claim:
        """The claim with its verdict."""
        return Claim.judged(
            judgement,
            id=self.id,
            statement=self.statement,
            source=self.source,
            protocol=self.protocol,
            threshold=self.thresholds,
            trust=self.trust,
        )


def told(judged: Sequence[tuple[Claim, Judgement]]) -> dict[str, dict[str, Any]]:
    """What a story says of each claim: the words, and the values seed by seed."""
    return {
        claim.id: {
            "words": judgement.words,
            "per_seed": {name: list(values) for name, values in judgement.per_seed.items()},
        }
        for claim, judgement in judged
    }
