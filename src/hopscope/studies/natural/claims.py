"""Claims S6a to S6d: what texts ask for, and what models learn from their mixture."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least
from hopscope.studies.chains.evidence import asked_for, between_seeds, times_learned
from hopscope.studies.curriculum.wide import smaller_scale
from hopscope.studies.llm.claims import by_verdict
from hopscope.studies.natural.texts import DEFINITIONS, LIMIT, PARTS

if TYPE_CHECKING:
    import pandas as pd

    from hopscope.runs import Evidence

DEEPEST, UNIFORM, ZIPF = "two hops alone", "uniform", "Zipf"
TEXT, MOST = "as in the text", "as in the text, at most"
"""Names of mixtures."""

SOONER = at_least(20.0, unit="steps")
"""Training steps between two evaluations: the least difference that can be seen in a model."""

SEEN = at_least(0.001, unit="fraction")
"""Share of tokens that counts as something: less is lost in the chance of shuffles."""

WORDS = 60_000
"""Words of each text that are counted."""


def by_block(evidence: "Evidence", metric: str, definition: str) -> "pd.Series[float]":
    """The rows of `excess_K` or `control_K` under one definition, by text; empty where nothing was counted."""
    import pandas as pd

    if metric not in evidence:
        return pd.Series(dtype=float)
    rows = evidence.rows(metric)
    parts = rows["part"].str.split(PARTS, expand=True)  # definition, text, block
    own = parts[0] == definition
    return rows["value"][own].set_axis(parts[1][own])


def samples(blocks: "pd.Series[float]") -> Samples:
    """One number for each block; those of a text are resampled together."""
    note = "" if len(blocks) else "no text was counted"
    return Samples(blocks.tolist(), unit="case", cluster=[*blocks.index], note=note)


def two_hops(series: str, evidence: "Evidence") -> dict[str, Samples]:
    """By definition and block: share of tokens that need two hops, beyond chance."""
    return {each.name: samples(by_block(evidence, f"{series}_2", each.name)) for each in DEFINITIONS}


def more_often(series: str, pairs: Mapping[str, tuple[int, str]], evidence: "Evidence") -> dict[str, Samples]:
    """By part and block: share that needs so many hops less the share that needs one more."""
    found = {}
    for part, (fewer, definition) in pairs.items():
        one, other = (by_block(evidence, f"{series}_{hop}", definition) for hop in (fewer, fewer + 1))
        found[part] = samples(one - other.to_numpy())
    return found


def capped(evidence: "Evidence", name: str) -> dict[int, float]:
    """Seed → training step at which x₂ was learned under a mixture, the last one where it was not."""
    end = float(asked_for(evidence, "training.steps"))
    found = times_learned(evidence, name, "step_2")
    return {seed: time if math.isnan(time) else min(time, end) for seed, time in found.items()}


def sooner(name: str, evidence: "Evidence") -> Samples:
    """By seed: steps by which a mixture is sooner than two hops alone; unknown where neither has learned x₂."""
    times = [times_learned(evidence, each, "step_2") for each in (DEEPEST, name)]
    alone, other = capped(evidence, DEEPEST), capped(evidence, name)
    values = [
        math.nan if all(math.isinf(each[seed]) for each in times) else alone[seed] - other[seed]
        for seed in alone
    ]
    return Samples(values, unit="seed")


def apart(evidence: "Evidence") -> Samples:
    """How far two seeds are apart that learn from two hops alone."""
    return between_seeds(capped(evidence, DEEPEST))


def claims(options: Any) -> list[Claim]:
    """What is claimed of the texts, and of models trained on their mixture."""
    names, below = [each.name for each in DEFINITIONS], -SEEN.low
    pairs = {f"{name}: {hop} over {hop + 1}": (hop, name) for name in names for hop in range(1, LIMIT)}
    first = {part: pair for part, pair in pairs.items() if pair[0] == 1}
    few = f"{options.words:,} of {WORDS:,} words of a text" if options.words < WORDS else ""
    common: dict[str, Any] = {"source": "summary of the paper, open question 1", "seeds_needed": 8}
    shown: Callable[..., dict[str, Any]] = lambda control: {  # noqa: E731
        "rule": "mean", "at_scale": lambda evidence: few, "summary": by_verdict, "controls": {"shuffled text": control},
        "must_not": SEEN, **common,
    }  # fmt: skip
    trained: dict[str, Any] = {
        "kind": "general", "rule": "effect", "at_scale": smaller_scale, "must_not": SOONER,
        "controls": {"two hops alone, from one seed to the next": apart}, **common,
    }  # fmt: skip
    when = (
        "by seed: training steps to a held-out loss of x₂ under 0.5 (all of them where it was not learned) of models "
        "trained on two hops alone, less those of models trained on"
    )
    return [
        Claim(
            id="S6a",
            statement="Natural text asks for fewer hops more often, under every definition of a hop.",
            protocol="by block of 2,000 words, texts resampled together: share of tokens that need k hops less the "
            "share that needs k + 1, both beyond chance; one hop must lead by a token in a thousand, and two hops must "
            "not fall behind three by as much; the control is the text shuffled once more, in its place",
            value=partial(more_often, "excess", pairs),
            must={part: SEEN if part in first else at_least(below, unit="fraction") for part in pairs},
            **shown(partial(more_often, "control", first)),
        ),
        Claim(
            id="S6c",
            statement="Natural text asks for two hops beyond chance at one word in a thousand or more, under every "
            "definition of a hop.",
            protocol="by block of 2,000 words, texts resampled together: share of tokens that need two hops, beyond "
            "chance; the control is the text shuffled once more, in its place",
            value=partial(two_hops, "excess"),
            must=dict.fromkeys(names, SEEN),
            **shown(partial(two_hops, "control")),
        ),
        Claim(
            id="S6b",
            statement="Trained on the text's mixture of hops, models learn two hops sooner than from the deepest texts "
            "alone.",
            protocol=f"{when} the mixture of the texts; readings: by words, or by the definition by words that finds "
            "most two hops",
            readings={
                "by words": partial(sooner, TEXT),
                "by the definition with most two hops": partial(sooner, MOST),
            },
            must=SOONER,
            **trained,
        ),
        Claim(
            id="S6d",
            statement="From mixtures with as many samples of two hops as of one, or half as many (Zipf), models learn "
            "two hops sooner than from the deepest texts alone.",
            protocol=f"{when} each mixture",
            value=lambda evidence: {name: sooner(name, evidence) for name in (UNIFORM, ZIPF)},
            must=dict.fromkeys((UNIFORM, ZIPF), SOONER),
            **trained,
        ),
    ]
