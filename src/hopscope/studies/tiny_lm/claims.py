"""Claim S6 as a value; it reads the evidence table alone."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from hopscope.claims import Claim, at_least
from hopscope.studies.tiny_lm.config import CORPUS, DEEPEST, EXAM, LEARNED, TinyLmConfig, part_of

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs.evidence import Evidence

PAPER_STEPS = 30_000
"""Training steps from which on a depth that was not learned counts against a mixture."""

S6 = at_least(LEARNED, "fraction")


def right_at_once(mixture: str, evidence: "Evidence") -> "pd.Series[float]":
    """What each model of a mixture answers rightly at once at the largest depth; one that diverged has no number."""
    deepest = part_of(evidence.config["depths"][-1])
    return evidence.last("first_accuracy", measure=EXAM, part=deepest, configuration=mixture)


def by_mixture(mixtures: Sequence[str], evidence: "Evidence") -> "dict[str, pd.Series[float]]":
    """The same for several mixtures; a mixture that the run does not have has no models."""
    return {mixture: right_at_once(mixture, evidence) for mixture in mixtures}


def lacks(evidence: "Evidence") -> str:
    """What the run lacks of the protocol's scale, in words; nothing where it is at scale."""
    steps, control = evidence.config["training_steps"], evidence.config.get("control")
    lacking = [f"{steps:,} of {PAPER_STEPS:,} steps"] if steps < PAPER_STEPS else []
    return ", ".join(lacking if control else [*lacking, "no control (texts of the largest depth alone)"])


def claims(config: TinyLmConfig) -> tuple[Claim, ...]:
    """The ledger of the study: a part for each mixture.

    Where texts of the largest depth alone are enough, a mixture is no curriculum: such a control takes a verdict
    back, and without one there is none.
    """
    mixtures = ("zipf", "uniform") if config.corpus is None else ("zipf", "uniform", CORPUS)
    control = f"{DEEPEST}, texts of depth {config.depths[-1]} alone"
    return (
        Claim(
            id="S6",
            statement="A mixture of depths in which deep questions are rare, in proportion to 1 / D as frequencies in "
            "natural text are, supplies the curriculum for the deepest ones.",
            source="summary, open question 1",
            protocol="every independent member: share of held-out questions of the largest depth that it answers "
            "rightly at once, asked through Inspect, by mixture",
            value=partial(by_mixture, mixtures),
            must=dict.fromkeys(mixtures, S6),
            at_scale=lacks,
            controls={control: partial(right_at_once, DEEPEST)} if config.control else None,
            must_not=S6 if config.control else None,
            trust="held-out questions ask a mapping of names to values that no training text has; the questions are "
            "those of any language model, asked through Inspect",
        ),
    )
