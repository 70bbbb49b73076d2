"""Claims S6a to S6d: what texts ask for, and what models learn from their mixture."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hopscope.claims import Claim, Samples, at_least
from hopscope.studies.chains.evidence import asked_for, between_seeds, times_learned
from hopscope.studies.curriculum.wide import smaller_scale
from hopscope.studies.natural.texts import DEFINITIONS, LIMIT, PARTS

if TYPE_CHECKING:
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

Blocks = dict[str, list[float]]
"""Text → a number for each of its blocks."""


def by_block(evidence: "Evidence", metric: str, definition: str) -> Blocks:
    """The rows of `excess_K` or `control_K` under one definition; empty where nothing was counted."""
    found: Blocks = {}
    rows = evidence.rows(metric) if metric in evidence else {"part": (), "value": ()}
    for part, value in zip(rows["part"], rows["value"], strict=True):
        name, text, _ = part.split(PARTS)
        if name == definition:
            found.setdefault(text, []).append(float(value))
    return found


def samples(blocks: Blocks) -> Samples:
    """One number for each block; those of a text are resampled together."""
    values = [value for each in blocks.values() for value in each]
    names = [text for text, each in blocks.items() for _ in each]
    return Samples(values, unit="case", cluster=names, note="" if values else "no text was counted")


def two_hops(series: str, evidence: "Evidence") -> dict[str, Samples]:
    """By definition and block: share of tokens that need two hops, beyond chance."""
    return {each.name: samples(by_block(evidence, f"{series}_2", each.name)) for each in DEFINITIONS}


def more_often(series: str, pairs: Mapping[str, tuple[int, str]], evidence: "Evidence") -> dict[str, Samples]:
    """By part and block: share that needs so many hops less the share that needs one more."""
    found = {}
    for part, (fewer, definition) in pairs.items():
        one, other = (by_block(evidence, f"{series}_{hop}", definition) for hop in (fewer, fewer + 1))
        found[part] = samples(
            {text: [a - b for a, b in zip(one[text], other[text], strict=True)] for text in one}
        )
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


def each_sooner(evidence: "Evidence") -> dict[str, Samples]:
    """The same of the mixtures that no text decides."""
    return {name: sooner(name, evidence) for name in (UNIFORM, ZIPF)}


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
        "rule": "mean", "at_scale": partial(_lacks, few), "summary": by_verdict, "controls": {"shuffled text": control},
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
            value=each_sooner,
            must=dict.fromkeys((UNIFORM, ZIPF), SOONER),
            **trained,
        ),
    ]


def by_verdict(judgements: Mapping[str, Any]) -> str:
    """Which parts of a claim hold, fail and are open, in a sentence."""
    kinds = {"hold": ("reproduced",), "fail": ("refuted",), "are open": ("inconclusive", "not run")}
    named = {
        words: [part for part, each in judgements.items() if each.verdict in of]
        for words, of in kinds.items()
    }
    told = [f"{len(parts)} of {len(judgements)} {words}" for words, parts in named.items() if parts]
    return ", ".join(told) + (f" (failing: {', '.join(named['fail'])})" if named["fail"] else "")


def _lacks(words: str, evidence: "Evidence") -> str:
    return words
