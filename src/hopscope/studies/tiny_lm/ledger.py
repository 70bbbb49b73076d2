"""Claim S6: statement, protocol, threshold, and who judges."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from hopscope.claims import Claim, Criterion, Judgement, combine_parts, judge_always
from hopscope.studies.ledger import Statement
from hopscope.studies.tiny_lm.config import CORPUS, DEEPEST, TinyLmConfig
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


def statement(config: TinyLmConfig) -> Statement:
    """The claim with a threshold for the mixture of a text, where the run has one."""
    asked = cast(dict[str, Criterion], S6.thresholds)
    return S6 if config.corpus is None else replace(S6, thresholds={**asked, CORPUS: asked["zipf"]})


def judge(members: Sequence[Member], config: TinyLmConfig) -> list[tuple[Claim, Judgement]]:
    """Every claim with its judgement; the control is told beside it, and decides nothing."""
    lack = (
        "" if config.training_steps >= PAPER_STEPS else f"{config.training_steps:,} of {PAPER_STEPS:,} steps"
    )
    claimed = statement(config)
    thresholds = cast(dict[str, Criterion], claimed.thresholds)
    judgement = combine_parts(
        {
            mixture: judge_always(
                scores(members, mixture, config), criterion, source_n=1, at_scale=not lack, missing=lack
            )
            for mixture, criterion in thresholds.items()
        }
    )
    if config.control:
        judgement = _beside(judgement, scores(members, DEEPEST, config), thresholds["zipf"], config)
    return [(claimed.judged(judgement), judgement)]


def scores(members: Sequence[Member], mixture: str, config: TinyLmConfig) -> list[float]:
    """What each model of a mixture answers rightly at once at the largest depth; one that diverged has no score."""
    deepest = config.depths[-1]
    found = [each.score(deepest) for each in members if each.mixture == mixture and not each.frozen]
    return [score for score in found if score is not None]


def _beside(
    judgement: Judgement, control: Sequence[float], criterion: Criterion, config: TinyLmConfig
) -> Judgement:
    """The judgement with the control's numbers in its words."""
    shown = ", ".join(map(criterion.show, control)) or "no number"
    words = (
        f"{judgement.words}; beside it, not judged: the control, trained on texts of depth {config.depths[-1]} alone, "
        f"is at {shown}"
    )
    per_seed = {**judgement.per_seed, **({DEEPEST: tuple(control)} if control else {})}
    return judgement.model_copy(update={"words": words, "per_seed": per_seed})
