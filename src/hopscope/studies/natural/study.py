"""Does natural text supply the curriculum (S6)?  Hops that texts ask for, and models trained on their mixture.

The models are those of the study of the curriculum, for chains of two steps: a training sample shows a chain of one or
of two steps, and asks for its last symbol alone.
"""

import ast
import hashlib
import platform
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from hopscope.claims import Claim, Samples, at_least
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.page import figures as charts
from hopscope.studies.chains.evidence import LEARNED, asked_for, between_seeds, times_learned
from hopscope.studies.chains.measures import learned_at
from hopscope.studies.curriculum import wide
from hopscope.studies.curriculum.study import Curriculum
from hopscope.studies.llm.study import by_verdict
from hopscope.study.measure import Context, measure
from hopscope.study.study import Configuration

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from hopscope.language.hops import By, Labels
    from hopscope.runs import Evidence

# Texts, and how often they ask for hops.

PARTS = " · "
"""What parts the names in a row of the evidence table."""

LIMIT, BLOCK = 3, 2_000
"""Most hops; words of a block, the smallest piece of a text that is counted by itself."""


class Text(NamedTuple):
    """A text: name, origin, its beginning as far as it is counted, the SHA-256 of all of it, words that are counted."""

    name: str
    origin: str
    text: str
    sha256: str
    words: int


class Definition(NamedTuple):
    """A way to count hops: its name, `by`, `window` and `any` of `hopscope.language.hops`, shuffles for chance."""

    name: str
    by: "By"
    window: int
    any: bool = False
    shuffles: int = 8


USUAL = Definition("words", "words", 512)
DEFINITIONS = (
    USUAL,
    Definition("words, window of 128", "words", 128),
    Definition("words, window of 2048", "words", 2048),
    Definition("content words", "content", 256),
    Definition("content words, any occurrence", "content", 256, any=True, shuffles=2),
    Definition("pieces of words", "pieces", 512, shuffles=4),
    Definition("letters", "letters", 512, shuffles=4),
    Definition("sentences as facts", "sentences", 256, shuffles=2),
)
"""The first four are by words: of these, mixtures for training are made."""


def labels(text: Text, definition: Definition) -> "list[Labels]":
    """Fewest hops to each token: of the text, of its shuffles, and of one further shuffle, a control."""
    from hopscope.language.hops import hops

    _, by, window, any_, shuffles = definition
    orders = (None, *range(shuffles + 1))
    return [hops(text.text, by, window=window, limit=LIMIT, any=any_, shuffle=order) for order in orders]


def by_blocks(text: Text, found: "Labels", chance: "Sequence[Labels]") -> "NDArray[np.float64]":
    """Share of the tokens of each block that need exactly so many hops, beyond chance, `[block, LIMIT]`."""
    import numpy as np

    from hopscope.language.hops import beyond_chance

    blocks = max(1, text.words // BLOCK)
    pieces = zip(*(np.array_split(each, blocks) for each in (found, *chance)), strict=True)
    return np.array([beyond_chance(own, others, LIMIT) for own, *others in pieces])


@lru_cache(maxsize=8)
def two_hop_shares(read: tuple[Text, ...]) -> dict[str, float]:
    """Definition by words → tokens that need two hops, among those that need one or two, beyond chance; to 0.0001."""
    import numpy as np

    shares = dict[str, float]()
    for definition in DEFINITIONS[:4]:
        counted = ((text, labels(text, definition)) for text in read)
        blocks = [by_blocks(text, found, chance) for text, (found, *chance, _) in counted]
        one, two = np.concatenate(blocks).mean(0).clip(min=0.0)[:2]
        shares[definition.name] = round(float(two / (one + two)), 4) if one + two else 0.0
    return shares


def texts(files: Sequence[str], most: int) -> list[Text]:
    """The texts that come with Python, then files in UTF-8; of each the first words, `most` of them, are counted.

    `UserError`: a file cannot be read, is no UTF-8, has fewer than two words, or two have one name.
    """
    from pydoc_data import topics

    from hopscope.language.hops import WORD, text_of

    python, given = f"Python {platform.python_version()}", "a file that was given"
    sources = [
        ("language reference", f"pydoc_data.topics of {python}", "\n\n".join(topics.topics.values())),
        ("documentation strings", f"modules of {python}", _docstrings()),
        *((Path(file).stem, given, text_of("files", file)) for file in files),
    ]
    found = dict[str, Text]()
    for name, origin, text in sources:
        if PARTS in name or name in found:
            wanted = f"files with different names, without {PARTS!r}"
            raise UserError(f"files: expected {wanted}, found {name}; rename one")
        words = [*islice(WORD.finditer(text), most)]
        if len(words) < 2:
            raise UserError(
                f"files: expected texts of two words or more, found {len(words)} in {name}; give another"
            )
        end = words[-1].end() if len(words) == most else len(text)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        found[name] = Text(name, origin, text[:end], digest, len(words))
    return [*found.values()]


@lru_cache(maxsize=1)  # parsing the standard library takes a second or two
def _docstrings() -> str:
    # Of the modules of the standard library that are one file, in the order of their names; not of those that begin
    # with _, such as the configuration of the machine that Python was built on.
    kinds, found = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef), list[str]()
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("[!_]*.py")):
        nodes = ast.walk(ast.parse(file.read_bytes()))
        found += [ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds)]
    return "\n\n".join(found)


# What is trained and measured.

DEEPEST, UNIFORM, ZIPF = "two hops alone", "uniform", "Zipf"
TEXT, MOST = "as in the text", "as in the text, at most"
"""Names of mixtures."""

SOONER = at_least(20.0, unit="steps")
"""Training steps between two evaluations: the least difference that can be seen in a model."""

SEEN = at_least(0.001, unit="fraction")
"""Share of tokens that counts as something: less is lost in the chance of shuffles."""

WORDS = 60_000
"""Words of each text that are counted."""


class Options(Config):
    """Texts, and mixtures of one and two hops.

    Attributes:
        files: text files in UTF-8, beside the texts that come with Python.
        words: most words of each text that are counted, from its beginning.
        shares: shares of samples that ask for two hops, beside those of the texts, of 1, 1/2 and Zipf's 1/3.
    """

    files: tuple[str, ...] = ()
    words: int = Field(WORDS, ge=100, lt=1 << 31)
    shares: tuple[float, ...] = (0.03, 0.1, 0.9)


def configurations(options: Options) -> Iterator[Configuration]:
    """One configuration for each mixture; the texts are counted for theirs."""
    if strange := [share for share in options.shares if not 0.0 <= share <= 1.0]:
        raise UserError(f"shares: expected numbers from 0 to 1, found {strange[0]:g}")
    found = two_hop_shares(tuple(texts(options.files, options.words)))
    of_texts = {TEXT: found[USUAL.name], MOST: max(found.values())}
    doses = {f"{share:g} two hops": share for share in options.shares}
    every = {DEEPEST: 1.0, UNIFORM: 0.5, ZIPF: 1 / 3, **doses, **of_texts}
    for name, share in every.items():
        yield Configuration(label=name, overrides={"task.shares": (1.0 - share, share)})


@measure(when="run")
def hops(context: Context) -> Iterator[dict[str, Any]]:
    """Counts of every text under every definition.

    Metrics `excess_K` and `control_K` (share of tokens that need K hops, beyond chance: of the text, and of a shuffle
    in its place), by definition, text and block; `share_K` and `chance_K`, of the whole text and of its shuffles, by
    definition and text; `words`, whose part says the text, its origin and its SHA-256.
    """
    import numpy as np

    for text in texts(context.options.files, context.options.words):
        context.budget.check()
        source = PARTS.join((text.name, text.origin, f"SHA-256 {text.sha256}"))
        yield {"metric": "words", "part": source, "value": float(text.words)}
        for definition in DEFINITIONS:
            own, *chance, control = labels(text, definition)
            place = PARTS.join((definition.name, text.name))
            for name, found in (("excess", own), ("control", control)):
                for (block, hop), value in np.ndenumerate(by_blocks(text, found, chance)):
                    part = f"{place}{PARTS}{block}"
                    yield {"metric": f"{name}_{hop + 1}", "part": part, "value": float(value)}
            for name, several in (("share", own), ("chance", np.concatenate(chance))):
                for hop in range(1, LIMIT + 1):
                    yield {"metric": f"{name}_{hop}", "part": place, "value": float((several == hop).mean())}


def by_block(evidence: "Evidence", metric: str, definition: str) -> "pd.Series[float]":
    """The rows of `excess_K` or `control_K` under one definition, by text; empty where nothing was counted."""
    import pandas as pd

    if metric not in evidence:
        return pd.Series(dtype=float)
    rows = evidence.rows(metric)
    parts = rows["part"].str.split(PARTS, expand=True)  # definition, text, block
    own = parts[0] == definition
    return rows["value"][own].set_axis(parts[1][own])


# What is claimed.


def needed(
    series: str, cells: Mapping[str, tuple[str, int, int | None]], evidence: "Evidence"
) -> dict[str, Samples]:
    """By part and block: share of tokens that need so many hops, less that of another number, if there is one.

    `cells`: part → definition and both numbers of hops.  A text's blocks are one cluster.
    """
    found = {}
    for part, (definition, hop, other) in cells.items():
        blocks = by_block(evidence, f"{series}_{hop}", definition)
        if other:
            blocks = blocks - by_block(evidence, f"{series}_{other}", definition).to_numpy()
        note = "" if len(blocks) else "no text was counted"
        found[part] = Samples(blocks.tolist(), unit="case", cluster=[*blocks.index], note=note)
    return found


def sooner(name: str, evidence: "Evidence") -> Samples:
    """By seed: steps by which a mixture is sooner than two hops alone; unknown where neither has learned x₂."""
    alone, other = (times_learned(evidence, each, "step_2") for each in (DEEPEST, name))
    return wide.saved(alone, other, float(asked_for(evidence, "training.steps")), SOONER.low)


def claims(options: Options) -> Iterator[Claim]:
    def apart(evidence: "Evidence") -> Samples:
        return between_seeds(times_learned(evidence, DEEPEST, "step_2"))

    names, below = [each.name for each in DEFINITIONS], at_least(-SEEN.low, unit="fraction")
    orders = {
        f"{name}: {hop} over {hop + 1}": (name, hop, hop + 1) for name in names for hop in range(1, LIMIT)
    }
    first = {part: cell for part, cell in orders.items() if cell[1] == 1}
    twos = {name: (name, 2, None) for name in names}
    few = f"{options.words:,} of {WORDS:,} words of a text" if options.words < WORDS else ""
    source = "summary of the paper, open question 1"
    counted = partial(
        Claim, source=source, seeds_needed=8, rule="mean", at_scale=lambda _: few, summary=by_verdict, must_not=SEEN
    )  # fmt: skip
    between = {"two hops alone, from one seed to the next": apart}
    trained = partial(wide.open_claim, source=source, rule="effect", controls=between)
    when = (
        "by seed: training steps to a held-out loss of x₂ under 0.5 (where it was not learned, more than all of them) "
        "of models trained on two hops alone, less those of models trained on"
    )
    yield counted(
        id="S6a",
        statement="Natural text asks more often for fewer hops, under every definition of a hop.",
        protocol="by block of 2,000 words, texts resampled together: share of tokens that need k hops less the "
        "share that needs k + 1, both beyond chance; one hop must lead by a token in a thousand, and two hops must "
        "not fall behind three by as much; the control is the text shuffled once more, in its place",
        value=partial(needed, "excess", orders),
        must={part: SEEN if part in first else below for part in orders},
        controls={"shuffled text": partial(needed, "control", first)},
    )
    yield counted(
        id="S6c",
        statement="Natural text asks for two hops beyond chance at one word in a thousand or more, under every "
        "definition of a hop.",
        protocol="by block of 2,000 words, texts resampled together: share of tokens that need two hops, beyond "
        "chance; the control is the text shuffled once more, in its place",
        value=partial(needed, "excess", twos),
        must=dict.fromkeys(names, SEEN),
        controls={"shuffled text": partial(needed, "control", twos)},
    )
    yield trained(
        id="S6b",
        statement="Trained on the text's mixture of hops, models learn two hops sooner than from two hops alone.",
        protocol=f"{when} the mixture of the texts; readings: by words, or by the definition by words that finds "
        "most two hops",
        readings={
            "by words": partial(sooner, TEXT),
            "by the definition with most two hops": partial(sooner, MOST),
        },
        must=SOONER,
    )
    yield trained(
        id="S6d",
        statement="From mixtures with as many samples of two hops as of one, or half as many (Zipf), models learn "
        "two hops sooner than from two hops alone.",
        protocol=f"{when} each mixture",
        value=lambda evidence: {name: sooner(name, evidence) for name in (UNIFORM, ZIPF)},
        must=dict.fromkeys((UNIFORM, ZIPF), SOONER),
    )


# What is drawn.


def beyond(evidence: "Evidence") -> Iterator[dict[str, Any]]:
    """Share of tokens beyond chance by definition, text and number of hops; and of all texts, with an interval."""
    from hopscope.claims.intervals import estimate

    for name, hop in ((each.name, hop) for each in DEFINITIONS for hop in range(1, LIMIT + 1)):
        blocks, row = by_block(evidence, f"excess_{hop}", name), {"definition": name, "hops": hop}
        for text, mean in blocks.groupby(level=0, sort=False).mean().items():
            yield {**row, "text": text, "value": mean}
        if len(blocks):
            mean, interval = estimate(blocks, [*blocks.index])
            low, high = interval or (None, None)
            yield {**row, "text": "all texts", "value": mean, "low": low, "high": high}


def figures(options: Options) -> Iterator[charts.Figure]:
    yield charts.sweep("share", "hops", by="text", panel="definition", rows=beyond, name="beyond",
                       title="share beyond chance", levels={"chance": 0.0})  # fmt: skip
    yield charts.dots("loss_step_2", "configuration", name="losses", title="final held-out loss of x₂",
                      levels={"plateau": 0.75, "learned": LEARNED}, ends=(0.0, 1.1))  # fmt: skip


study = wide.open_study(
    name="natural",
    question="how often does natural text ask for one, two and three hops, and does that mixture help to learn two?",
    task=Curriculum(steps=2, position="pair", emphasis="one", padded=True, shares=(0.5, 0.5)),
    options=Options(),
    fixed=(*wide.FIXED, "task.padded"),
    configurations=configurations,
    measures=(learned_at, hops),
    claims=claims,
    figures=figures,
    presets={"smoke": {**wide.SMOKE, "words": 4_000, "shares": ()}, "laptop": {}},
    costs={"smoke": "under a minute on two cores", "laptop": "about 9 min on two cores by estimate"},
)
