"""Does natural text supply the curriculum (S6)?  Hops that texts ask for, and models trained on their mixture.

The models are those of the study of the curriculum, for chains of two steps: a training sample shows a chain of one or
of two steps, and asks for its last symbol alone.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

import hopscope as hs
from hopscope.claims.intervals import bootstrap_mean
from hopscope.config import Config
from hopscope.figures import Axis, Mark, Series
from hopscope.language.corpus.hops import LIMIT
from hopscope.studies.curriculum.task import Curriculum
from hopscope.studies.diagnosis import LEARNED
from hopscope.studies.natural.counting import (
    DEFINITIONS,
    USUAL,
    by_block,
    hops,
    more_often,
    samples,
    two_hop_shares,
)
from hopscope.studies.natural.figure import beyond
from hopscope.studies.natural.texts import PARTS
from hopscope.studies.quick import (
    MODEL,
    SMOKE,
    TRAINING,
    between_seeds,
    learned_at,
    smaller_scale,
    times_learned,
)
from hopscope.studies.waiting import waiting

STEPS = 2
"""Steps of the chains."""

WORDS = 60_000
"""Words of each text that are counted."""

DEEPEST, UNIFORM, ZIPF = "two hops alone", "uniform", "Zipf"
TEXT, MOST = "as in the text", "as in the text, at most"

SOONER = 20.0
"""Training steps between two evaluations: the least difference that can be seen in a model."""

ONE_IN_A_THOUSAND = 0.001
"""Share of tokens that counts as something: less is lost in the chance of shuffles."""

SOURCE = "summary of the paper, open question 1"


class Options(Config):
    """Texts, and mixtures of one and two hops.

    Attributes:
        files: text files in UTF-8, beside the texts that come with Python.
        words: most words of each text that are counted, from its beginning.
        shares: shares of samples that ask for two hops, beside those of the texts, of 1, 1/2 and Zipf's 1/3.
    """

    files: tuple[str, ...] = ()
    words: int = Field(WORDS, ge=100)
    shares: tuple[float, ...] = (0.03, 0.1, 0.9)


def dose(share: float) -> str:
    """What a mixture with a share of two hops is called."""
    return f"{share:g} two hops"


def fixed(options: Options) -> dict[str, float]:
    """Name of each mixture that no text decides → share of samples that ask for two hops."""
    return {DEEPEST: 1.0, UNIFORM: 0.5, ZIPF: 1 / 3, **{dose(share): share for share in options.shares}}


def mixtures(options: Options) -> list[str]:
    """Names of all mixtures, in the order of the configurations."""
    return [*fixed(options), TEXT, MOST]


def configurations(options: Options) -> list[hs.Configuration]:
    """One configuration for each mixture; the texts are counted for theirs."""
    found = two_hop_shares(options.files, options.words)
    every = {**fixed(options), TEXT: found[USUAL.name], MOST: max(found.values())}
    return [
        hs.Configuration(label=name, overrides={"task.shares": (1.0 - share, share)})
        for name, share in every.items()
    ]


# What is claimed.


def capped(evidence: Any, name: str) -> dict[int, float]:
    """Seed → training step at which x₂ was learned under a mixture, the last one where it was not."""
    end = float(evidence.config["training"]["steps"])
    found = times_learned(evidence, name, f"step_{STEPS}")
    return {seed: time if math.isnan(time) else min(time, end) for seed, time in found.items()}


def sooner(name: str) -> Any:
    """A function of the evidence: by seed, steps by which a mixture is sooner than two hops alone."""

    def found(evidence: Any) -> hs.Samples:
        times = [times_learned(evidence, each, f"step_{STEPS}") for each in (DEEPEST, name)]
        alone, other = capped(evidence, DEEPEST), capped(evidence, name)
        # Where neither has learned x₂, nobody knows which would have been sooner.
        return hs.Samples(
            [
                math.nan if all(math.isinf(each[seed]) for each in times) else alone[seed] - other[seed]
                for seed in alone
            ],
            unit="seed",
        )

    return found


def claims(options: Options) -> list[hs.Claim]:
    """What is claimed of the texts, and of models trained on their mixture."""
    names = [each.name for each in DEFINITIONS]
    pairs = {
        f"{name}: {fewer} over {fewer + 1}": (fewer, name) for name in names for fewer in range(1, LIMIT)
    }
    first = {part: pair for part, pair in pairs.items() if pair[0] == 1}
    seen = hs.at_least(ONE_IN_A_THOUSAND, unit="fraction")
    counted: dict[str, Any] = {
        "source": SOURCE,
        "rule": "mean",
        "seeds_needed": 8,
        "must_not": seen,
        "at_scale": fewer_words,
        "summary": by_verdict,
    }
    quickly = hs.at_least(SOONER, unit="steps")
    trained: dict[str, Any] = {
        "source": SOURCE,
        "kind": "general",
        "rule": "effect",
        "seeds_needed": 8,
        "at_scale": smaller_scale,
        "controls": {
            "two hops alone, from one seed to the next": lambda evidence: between_seeds(
                capped(evidence, DEEPEST)
            )
        },
        "must_not": quickly,
    }
    when = (
        "by seed: training steps to a held-out loss of x₂ under 0.5 (all of them where it was not learned) of models "
        "trained on two hops alone, less those of models trained on"
    )
    return [
        hs.Claim(
            id="S6a",
            statement="Natural text asks for fewer hops more often, under every definition of a hop.",
            protocol="by block of 2,000 words, texts resampled together: share of tokens that need k hops less the "
            "share that needs k + 1, both beyond chance; one hop must lead by a token in a thousand, and two hops must "
            "not fall behind three by as much; the control is the text shuffled once more, in its place",
            value=lambda evidence: {
                part: more_often("excess", *pair)(evidence) for part, pair in pairs.items()
            },
            must={
                part: seen if part in first else hs.at_least(-ONE_IN_A_THOUSAND, unit="fraction")
                for part in pairs
            },
            controls={
                "shuffled text": lambda evidence: {
                    part: more_often("control", *pair)(evidence) for part, pair in first.items()
                }
            },
            **counted,
        ),
        hs.Claim(
            id="S6c",
            statement="Natural text asks for two hops beyond chance at one word in a thousand or more, under every "
            "definition of a hop.",
            protocol="by block of 2,000 words, texts resampled together: share of tokens that need two hops, beyond "
            "chance; the control is the text shuffled once more, in its place",
            value=lambda evidence: {name: samples(by_block(evidence, "excess_2", name)) for name in names},
            must=dict.fromkeys(names, seen),
            controls={
                "shuffled text": lambda evidence: {
                    name: samples(by_block(evidence, "control_2", name)) for name in names
                }
            },
            **counted,
        ),
        hs.Claim(
            id="S6b",
            statement="Trained on the text's mixture of hops, models learn two hops sooner than from the deepest texts "
            "alone.",
            protocol=f"{when} the mixture of the texts; readings: by words, or by the definition by words that finds "
            "most two hops",
            readings={"by words": sooner(TEXT), "by the definition with most two hops": sooner(MOST)},
            must=quickly,
            **trained,
        ),
        hs.Claim(
            id="S6d",
            statement="From mixtures with as many samples of two hops as of one, or half as many (Zipf), models learn "
            "two hops sooner than from the deepest texts alone.",
            protocol=f"{when} each mixture",
            value=lambda evidence: {name: sooner(name)(evidence) for name in (UNIFORM, ZIPF)},
            must=dict.fromkeys((UNIFORM, ZIPF), quickly),
            **trained,
        ),
    ]


def by_verdict(judgements: Mapping[str, Any]) -> str:
    """Which parts of a claim hold, fail and are open, in a sentence."""
    named = {
        words: [part for part, each in judgements.items() if each.verdict in verdicts]
        for words, verdicts in (
            ("hold", ("reproduced",)), ("fail", ("refuted",)), ("are open", ("inconclusive", "not run"))
        )
    }  # fmt: skip
    told = [f"{len(parts)} of {len(judgements)} {words}" for words, parts in named.items() if parts]
    failing = f" (failing: {', '.join(named['fail'])})" if named["fail"] else ""
    return ", ".join(told) + failing


def fewer_words(evidence: Any) -> str:
    """What a run lacks of the words of each text, in words."""
    words = evidence.config["options"]["words"]
    return f"{words:,} of {WORDS:,} words of a text" if words < WORDS else ""


# What is drawn and shown.


def figures(options: Options) -> Sequence[hs.figures.Figure]:
    """Hops beyond chance, final losses of x₂, and how many seeds have learned it by each step."""
    losses = [
        Series(f"loss_step_{STEPS}", y=name, where={"configuration": name}) for name in mixtures(options)
    ]
    marks = (Mark(0.75, "plateau", axis="x"), Mark(LEARNED, "learned", axis="x"))
    return (
        beyond(),
        hs.figures.dots("losses", losses, Axis("final held-out loss of x₂", (0.0, 1.1)), marks=marks),
        waiting(
            lambda evidence: {
                "x₂": {name: times_learned(evidence, name, f"step_{STEPS}") for name in mixtures(options)}
            },
            "x₂",
        ),
    )


def page_names(page: Any, options: Options) -> dict[str, Any]:
    """Names that the template may use."""

    def excess(definition: str, hop: int, text: str | None = None) -> Any:
        """Share beyond chance: of all texts, with an interval over texts; or of one, with one over its blocks."""
        blocks: Mapping[str, list[float]] = by_block(page.evidence, f"excess_{hop}", definition)
        names = list(blocks) if text is None else [text]
        values = [value for name in names for value in blocks[name]]
        clusters = [name for name in names for _ in blocks[name]] if text is None else None
        what = f"mean of excess_{hop} over {len(values)} blocks, {definition}, {text or 'all texts'}"
        return page.number(
            sum(values) / len(values), what, unit="fraction", ends=bootstrap_mean(values, clusters=clusters),
            file="evidence.parquet",
        )  # fmt: skip

    def shares() -> dict[str, float]:
        """Name of each mixture → share of samples that ask for two hops."""
        rows = page.evidence.rows(f"loss_step_{STEPS}")[["configuration", "task.shares"]].drop_duplicates()
        return {name: json.loads(written)[-1] for name, written in rows.itertuples(index=False)}

    known = "words" in page.evidence
    sources = page.evidence.rows("words")["part"].str.split(PARTS, regex=False).tolist() if known else []
    return {
        "definitions": [each.name for each in DEFINITIONS], "usual": USUAL.name, "sources": sources,
        "excess": excess, "shares": shares(), "mixtures": mixtures(options), "text": TEXT, "most": MOST,
        "deepest": DEEPEST, "learned_below": LEARNED,
    }  # fmt: skip


study = hs.Study(
    name="natural",
    question="how often does natural text ask for one, two and three hops, and does that mixture help to learn two?",
    task=Curriculum(steps=STEPS, emphasis="one", padded=True, shares=(0.5, 0.5)),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=[learned_at, hops],
    claims=claims,
    figures=figures,
    presets={"smoke": {**SMOKE, "options.words": 4_000, "options.shares": ()}, "laptop": {}},
    costs={"smoke": "under a minute on two cores", "laptop": "about 9 min on two cores by estimate"},
    page="page.md.j2",
    page_names=page_names,
    held_out=512,
)
