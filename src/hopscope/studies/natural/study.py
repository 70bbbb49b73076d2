"""Does natural text supply the curriculum (S6)?  Hops that texts ask for, and models trained on their mixture.

The models are those of the study of the curriculum, for chains of two steps: a training sample shows a chain of one or
of two steps, and asks for its last symbol alone.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hopscope.config import Config
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, times_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.curriculum.task import Curriculum
from hopscope.studies.curriculum.wide import MODEL, SMOKE, TRAINING, waiting
from hopscope.studies.natural import texts as read
from hopscope.studies.natural.claims import DEEPEST, MOST, TEXT, UNIFORM, WORDS, ZIPF, by_block, claims
from hopscope.studies.natural.texts import DEFINITIONS, LIMIT, PARTS, USUAL
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration, Study

if TYPE_CHECKING:
    from hopscope.runs import Evidence


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


def fixed(options: Options) -> dict[str, float]:
    """Name of each mixture that no text decides → share of samples that ask for two hops."""
    doses = {f"{share:g} two hops": share for share in options.shares}
    return {DEEPEST: 1.0, UNIFORM: 0.5, ZIPF: 1 / 3, **doses}


def configurations(options: Options) -> list[Configuration]:
    """One configuration for each mixture; the texts are counted for theirs."""
    found = read.two_hop_shares(options.files, options.words)
    every = {**fixed(options), TEXT: found[USUAL.name], MOST: max(found.values())}
    return [
        Configuration(label=name, overrides={"task.shares": (1.0 - share, share)})
        for name, share in every.items()
    ]


@measure(when="run")
def hops(context: Context) -> Iterator[dict[str, Any]]:
    """Counts of every text under every definition.

    Metrics `excess_K` and `control_K` (share of tokens that need K hops, beyond chance: of the text, and of a shuffle
    in its place), by definition, text and block; `share_K` and `chance_K`, of the whole text and of its shuffles, by
    definition and text; `words`, whose part says the text, its origin and its SHA-256.
    """
    import numpy as np

    for text in read.texts(context.options.files, context.options.words):
        context.budget.check()
        source = PARTS.join((text.name, text.origin, f"SHA-256 {text.sha256}"))
        yield {"metric": "words", "part": source, "value": float(text.words)}
        for definition in DEFINITIONS:
            own, *chance, control = read.labels(text, definition)
            place = PARTS.join((definition.name, text.name))
            for name, found in (("excess", own), ("control", control)):
                for (block, hop), value in np.ndenumerate(read.by_blocks(text, found, chance)):
                    part = f"{place}{PARTS}{block}"
                    yield {"metric": f"{name}_{hop + 1}", "part": part, "value": float(value)}
            for name, several in (("share", [own]), ("chance", chance)):
                every = np.concatenate(several)
                for hop in range(1, LIMIT + 1):
                    yield {"metric": f"{name}_{hop}", "part": place, "value": float((every == hop).mean())}


# What is drawn.


def beyond(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Share of tokens beyond chance by definition, text and number of hops; and of all texts, with an interval."""
    from hopscope.claims.intervals import estimate

    for definition in DEFINITIONS:
        for hop in range(1, LIMIT + 1):
            blocks = by_block(evidence, f"excess_{hop}", definition.name)
            row: dict[str, Any] = {"definition": definition.name, "hops": hop}
            for text, mean in blocks.groupby(level=0, sort=False).mean().items():
                yield {**row, "text": text, "value": mean}
            if len(blocks):
                mean, interval = estimate(blocks, [*blocks.index])
                low, high = interval or (None, None)
                yield {**row, "text": "all texts", "value": mean, "low": low, "high": high}


def figures(options: Options) -> list[charts.Figure]:
    """Hops beyond chance, final losses of x₂, and how many seeds have learned it by each step."""
    names = [*fixed(options), TEXT, MOST]
    return [
        charts.sweep("share", "hops", by="text", panel="definition", rows=beyond, name="beyond",
                     title="share beyond chance", levels={"chance": 0.0}),
        charts.dots("loss_step_2", "configuration", name="losses", title="final held-out loss of x₂", ends=(0.0, 1.1),
                    levels={"plateau": 0.75, "learned": LEARNED}),
        waiting(lambda evidence: {"x₂": {name: times_learned(evidence, name, "step_2") for name in names}}, "x₂"),
    ]  # fmt: skip


study = Study(
    name="natural",
    question="how often does natural text ask for one, two and three hops, and does that mixture help to learn two?",
    task=Curriculum(steps=2, position="pair", emphasis="one", padded=True, shares=(0.5, 0.5)),
    completion="gpt2-base",
    model=MODEL,
    training=TRAINING,
    options=Options(),
    configurations=configurations,
    seeds=8,
    measures=(learned_at, hops),
    claims=claims,
    figures=figures,
    presets={"smoke": {**SMOKE, "words": 4_000, "shares": ()}, "laptop": {}},
    costs={"smoke": "under a minute on two cores", "laptop": "about 9 min on two cores by estimate"},
    page="page.md.j2",
    held_out=512,
)
