"""How often a text asks for one, two and three hops, beyond what the same words in random order do."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hopscope as hs
from hopscope.language.corpus.depth import WINDOW, labelled, shuffled
from hopscope.language.corpus.hops import LIMIT, Labels, by_any, by_last, numbered
from hopscope.language.corpus.steps import FUNCTION_WORDS, NEW, REPEATED, stem, steps
from hopscope.studies.natural.texts import PARTS, Text, texts
from hopscope.tasks.text.draws import Draws, words_of

if TYPE_CHECKING:
    from hopscope.runs.evidence import Evidence

BLOCK = 2_000
"""Words of a block, the smallest piece of a text that is counted by itself."""

PIECE = 4
"""Letters of a piece of a word."""

Counts = NDArray[np.float64]
"""`[block, 2 + LIMIT]`: tokens, those that could need a hop, and those that need 1, 2, … hops."""


class Definition(NamedTuple):
    """A way to count hops.

    Attributes:
        name: what it is called.
        tokens: `"words"`, `"content"` (without function words), `"pieces"` (of four letters), `"letters"` or
            `"sentences"` (chains of sentences that share a content word, as `hopscope corpus` counts them).
        window: tokens that are looked back over.
        any: whether a hop may go to any earlier occurrence, not to the last alone.
        shuffles: how often the text is shuffled for its chance.
    """

    name: str
    tokens: str
    window: int
    any: bool = False
    shuffles: int = 8


USUAL = Definition("words", "words", 512)
WORDS = (
    USUAL,
    Definition("words, window of 128", "words", 128),
    Definition("words, window of 2048", "words", 2048),
    Definition("content words", "content", 256),
)
"""Definitions by words, of which mixtures for training are made."""

DEFINITIONS = (
    *WORDS,
    Definition("content words, any occurrence", "content", 256, any=True, shuffles=2),
    Definition("pieces of words", "pieces", 512, shuffles=4),
    Definition("letters", "letters", 512, shuffles=4),
    Definition("sentences as facts", "sentences", WINDOW, shuffles=2),
)


def count(text: Text, definition: Definition) -> tuple[Counts, Counts, Counts]:
    """Counts of a text by blocks: as it is, the mean of its shuffles, and of one further shuffle, a control.

    Words change places within pieces of a window, or of 512 for pieces of words and letters: the same words stay near.
    """
    blocks = max(1, len(text.words) // BLOCK)
    orders = range(-1, definition.shuffles + 1)
    found = [_counted(labels, blocks) for labels in (_labels(text, definition, order) for order in orders)]
    return found[0], np.mean(found[1:-1], axis=0), found[-1]


def _labels(text: Text, definition: Definition, order: int) -> Labels:
    """Fewest hops to each token; -1 where none can be needed.  Order -1 is the text's own, others are shuffles."""
    address = f"hopscope/natural/{definition.tokens}/{definition.window}/{order}"
    if definition.tokens == "sentences":
        found, _ = labelled(text.text, definition.window, LIMIT)
        told = found[0] if order < 0 else shuffled(found[0], definition.window, address)
        known = {NEW: -1, REPEATED: -1, **{str(hop): hop for hop in range(1, LIMIT + 1)}}
        return np.array([known.get(label, 0) for label in steps(told, definition.window, LIMIT)])
    words: Sequence[str] = text.words
    if definition.tokens == "content":
        words = [stem(word.removesuffix("'s")) for word in words if word not in FUNCTION_WORDS]
    if order >= 0:
        size = definition.window if definition.tokens in ("words", "content") else USUAL.window
        words = [word for start in range(0, len(words), size) for word in _mixed(words, start, size, address)]
    if definition.tokens == "pieces":
        # A word's last piece is told from a piece within a word, as tokenisers do.
        words = [f"{word} "[at : at + PIECE] for word in words for at in range(0, len(word), PIECE)]
    tokens = list(" ".join(words)) if definition.tokens == "letters" else words
    return (by_any if definition.any else by_last)(numbered(tokens), definition.window, LIMIT)


def _mixed(words: Sequence[str], start: int, size: int, address: str) -> list[str]:
    piece = words[start : start + size]
    draws = Draws(f"{address}/{start}", words_of(numbers=0, permutations=(len(piece),)))
    return [piece[place] for place in draws.permutation(len(piece))]


def _counted(labels: Labels, blocks: int) -> Counts:
    """Counts of equal parts of a text."""
    return np.array(
        [
            [len(part), (part >= 0).sum(), *((part == hop).sum() for hop in range(1, LIMIT + 1))]
            for part in np.array_split(labels, blocks)
        ],
        dtype=np.float64,
    )


def beyond_chance(found: Counts, chance: Counts) -> NDArray[np.float64]:
    """Share of a block's tokens that need exactly so many hops, beyond chance, `[block, LIMIT]`.

    Of the tokens that fewer hops do not predict, as many are right by chance as of those of the shuffled text.  So what
    one hop predicts is not missing from two hops.
    """
    left, left_by_chance = found[:, 1].copy(), chance[:, 1].copy()
    excess = np.zeros((len(found), LIMIT))
    for hop in range(LIMIT):
        rate = np.divide(
            chance[:, 2 + hop], left_by_chance, out=np.zeros(len(found)), where=left_by_chance > 0
        )
        excess[:, hop] = found[:, 2 + hop] - left * rate
        left -= found[:, 2 + hop]
        left_by_chance -= chance[:, 2 + hop]
    return np.divide(excess, found[:, :1], out=np.zeros_like(excess), where=found[:, :1] > 0)


@lru_cache(maxsize=8)
def two_hop_shares(files: tuple[str, ...], most: int) -> dict[str, float]:
    """Definition by words → tokens that need two hops, among those that need one or two, beyond chance; to 0.0001.

    Args:
        files, most: as in `texts`.
    """
    read, found = texts(files, most), {}
    for definition in WORDS:
        blocks = [beyond_chance(*count(text, definition)[:2]) for text in read]
        one, two = np.concatenate(blocks).mean(0).clip(min=0.0)[:2]
        found[definition.name] = round(float(two / (one + two)), 4) if one + two else 0.0
    return found


@hs.measure(when="run")
def hops(context: hs.Context) -> Iterator[dict[str, Any]]:
    """Counts of every text under every definition.

    Metrics `excess_K` and `control_K` (share of tokens that need K hops, beyond chance: of the text, and of a shuffle
    in its place), by definition, text and block; `share_K` and `chance_K`, of the whole text and of its shuffles, by
    definition and text; `words`, whose part says the text, its origin and its SHA-256.
    """
    options = context.run.config["options"]
    for text in texts(tuple(options["files"]), options["words"]):
        context.budget.check()
        source = PARTS.join((text.name, text.origin, f"SHA-256 {text.sha256}"))
        yield {"metric": "words", "part": source, "value": float(len(text.words))}
        for definition in DEFINITIONS:
            own, chance, control = count(text, definition)
            parts = {"excess": beyond_chance(own, chance), "control": beyond_chance(control, chance)}
            whole = {"share": own, "chance": chance}
            for hop in range(LIMIT):
                for name, by_block in parts.items():
                    for block, value in enumerate(by_block[:, hop]):
                        part = PARTS.join((definition.name, text.name, str(block)))
                        yield {"metric": f"{name}_{hop + 1}", "part": part, "value": float(value)}
                for name, counts in whole.items():
                    value = counts[:, 2 + hop].sum() / counts[:, 0].sum()
                    part = PARTS.join((definition.name, text.name))
                    yield {"metric": f"{name}_{hop + 1}", "part": part, "value": float(value)}


# What claims, figures and the page read of these rows.

Blocks = dict[str, list[float]]
"""Text → a number for each of its blocks."""


def by_block(evidence: "Evidence", metric: str, definition: str) -> Blocks:
    """The rows of `excess_K` or `control_K` under one definition; empty where nothing was counted."""
    found: Blocks = {}
    if metric in evidence:
        rows = evidence.rows(metric)
        for part, value in zip(rows["part"], rows["value"], strict=True):
            name, text, _ = part.split(PARTS)
            if name == definition:
                found.setdefault(text, []).append(float(value))
    return found


def samples(blocks: Blocks) -> hs.Samples:
    """One number for each block; those of a text are resampled together."""
    values = [value for each in blocks.values() for value in each]
    names = [text for text, each in blocks.items() for _ in each]
    return hs.Samples(values, unit="case", cluster=names, note="" if values else "no text was counted")


def more_often(series: str, fewer: int, definition: str) -> Callable[["Evidence"], hs.Samples]:
    """A function of the evidence: by block, share that needs `fewer` hops less the share that needs one more."""

    def found(evidence: "Evidence") -> hs.Samples:
        one, other = (by_block(evidence, f"{series}_{hop}", definition) for hop in (fewer, fewer + 1))
        return samples({text: [a - b for a, b in zip(one[text], other[text], strict=True)] for text in one})

    return found
