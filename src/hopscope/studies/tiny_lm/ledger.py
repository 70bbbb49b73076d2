"""Claim S6: statement, protocol, threshold, and who judges."""

from collections.abc import Sequence

from hopscope.claims import Claim, Criterion, Judgement, combine_parts, judge_always
from hopscope.studies.ledger import Statement
from hopscope.studies.tiny_lm.config import TinyLmConfig
from hopscope.studies.tiny_lm.evidence import LEARNED, Member

PAPER_STEPS = 30_000
"""Training steps from which on a depth that was not learned counts against a mixture."""

S6 = Statement(
    "S6",
    "A mixture of depths in which deep questions are rare, in proportion to 1 / D as frequencies in natural text are, "
    "supplies the curriculum for the deepest ones.",
    "summary, open question 1",
    "every independent member: share of held-out questions of the largest depth that it answers rightly at once, asked "
    "through Inspect, by mixture",
    {
        "zipf": Criterion(at_least=LEARNED, unit="fraction"),
        "uniform": Criterion(at_least=LEARNED, unit="fraction"),
    },
    trust="held-out questions ask a mapping of names to values that no training text has; the questions are those of "
    "any language model, asked through Inspect",
)


def judge(members: Sequence[Member], config: TinyLmConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement."""
    deepest = config.depths[-1]
    lack = (
        "" if config.training_steps >= PAPER_STEPS else f"{config.training_steps:,} of {PAPER_STEPS:,} steps"
    )
    parts = {}
    for mixture, criterion in S6.thresholds.items():  # type: ignore[union-attr]
        scores = [each.score(deepest) for each in members if each.mixture == mixture and not each.frozen]
        known = [score for score in scores if score is not None]
        parts[mixture] = judge_always(known, criterion, source_n=1, at_scale=not lack, missing=lack)
    judgement = combine_parts(parts)
    return [(S6.judged(judgement), judgement)]
