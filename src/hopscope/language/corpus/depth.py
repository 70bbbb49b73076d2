"""The retrieval depth of a text: how often its words are how many steps away, against chance and against Zipf's law."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, Final

from hopscope.errors import UserError
from hopscope.language.corpus.steps import LIMIT, Form, Sentence, histogram, names, sentences, steps
from hopscope.tasks.text.draws import Draws, words_of

WINDOW: Final = 256
"""Content words that are looked back over: about 512 words of running English."""

DEFINITION: Final = (
    "sentences are facts that tie their content words together; a word that was seen before is h steps from its "
    "context (the current sentence so far, or the nearest one before it with a word seen before) if the shortest "
    "chain of sentences that leads to it has h of them"
)

_ENOUGH = 100_000
_MOST_SHUFFLES = 16
_BLOCKS = 400
_RESAMPLES = 1000
_STEEPEST = 30.0


def measure(
    text: str, *, window: int = WINDOW, limit: int = LIMIT, seed: int = 0, form: Form = "prose"
) -> dict[str, Any]:
    """The histogram of retrieval steps of a text.

    Args:
        text: plain text.
        window: content words that are looked back over, in whole sentences; at least 2.
        limit: longest chain that is looked for, at least 1.
        seed: of the shuffles and of the bootstrap.
        form: `prose`, one text of sentences; or `lines`, each line a sentence, and blank lines between texts that have
            nothing to do with each other, as `hopscope questions` prints them.

    Returns:
        The JSON object of `hopscope corpus --json` but for `file`, see docs/heads.md.

    Raises:
        UserError: a number is out of range, or the text has no two content words.
    """
    for name, given, least in (("window", window, 2), ("limit", limit, 1), ("seed", seed, 0)):
        if given < least:
            raise UserError(f"{name}: expected at least {least}, found {given}; take a larger number")
    texts, labels = labelled(text, window, limit, form)
    tokens, counts = len(labels), histogram(labels, limit)
    shuffles = max(1, min(_MOST_SHUFFLES, _ENOUGH // tokens))
    chance = _chance(texts, window, limit, seed, shuffles)
    return {
        "tokens": tokens,
        "sentences": sum(map(len, texts)),
        "texts": len(texts),
        "form": form,
        "definition": DEFINITION,
        "window": window,
        "limit": limit,
        "seed": seed,
        "histogram": counts,
        "shuffled": chance,
        "shuffles": shuffles,
        "excess": {name: (counts[name] - chance[name]) / tokens for name in counts},
        "zipf": _zipf(labels, limit, window, seed),
        "shuffled_exponent": exponent(chance, limit),
    }


def labelled(
    text: str, window: int = WINDOW, limit: int = LIMIT, form: Form = "prose"
) -> tuple[list[list[Sentence]], list[str]]:
    """The sentences of each text, and how many steps every content word but the first of a text needs.

    Args:
        text, window, limit, form: as in `measure`.

    Raises:
        UserError: the text has no two content words.
    """
    parts = text.split("\n\n") if form == "lines" else [text]
    texts = [found for part in parts if (found := sentences(part, form))]
    labels = [label for one in texts for label in steps(one, window, limit)]
    if not labels:
        raise UserError("text: expected at least two content words, found fewer; give a longer text")
    return texts, labels


def _chance(
    texts: Sequence[Sequence[Sentence]], window: int, limit: int, seed: int, shuffles: int
) -> dict[str, float]:
    """Mean counts after words have changed places within pieces of about a window: what is near stays near."""
    total = dict.fromkeys(names(limit), 0)
    for shuffle in range(shuffles):
        for number, text in enumerate(texts):
            mixed = shuffled(text, window, f"hopscope/corpus/{seed}/{shuffle}/{number}")
            for name, count in histogram(steps(mixed, window, limit), limit).items():
                total[name] += count
    return {name: count / shuffles for name, count in total.items()}


def shuffled(text: Sequence[Sentence], window: int, address: str) -> Iterator[Sentence]:
    """The text with words of the same piece (sentences of about `window` words in all) in random order.

    Args:
        text: sentences, whose lengths stay.
        window: content words of a piece.
        address: of the draws.
    """
    for number, piece in enumerate(_pieces(text, window)):
        words = [word for sentence in piece for word in sentence]
        draws = Draws(f"{address}/{number}", words_of(numbers=1, permutations=(len(words),)))
        mixed = (words[place] for place in draws.permutation(len(words)))
        yield from (tuple(islice(mixed, len(sentence))) for sentence in piece)


def _pieces(text: Sequence[Sentence], window: int) -> Iterator[list[Sentence]]:
    piece: list[Sentence] = []
    size = 0
    for sentence in text:
        if piece and size + len(sentence) > window:
            yield piece
            piece, size = [], 0
        piece.append(sentence)
        size += len(sentence)
    if piece:
        yield piece


def exponent(counts: Mapping[str, float], limit: int) -> float | None:
    """The s of Zipf's law P(h) ∝ h^-s, h = 1 … limit, under which the counts are likeliest (it may be negative).

    The likeliest law has the mean of log h that was counted (an exponential family); it is found by bisection.

    Args:
        counts: of "1" … str(limit); other labels are ignored.
        limit: longest chain.

    Returns:
        s, or None where fewer than two different h were counted.
    """
    found = [counts[str(step)] for step in range(1, limit + 1)]
    if sum(count > 0 for count in found) < 2:
        return None
    logs = [math.log(step) for step in range(1, limit + 1)]
    wanted = sum(count * log for count, log in zip(found, logs, strict=True)) / sum(found)
    low, high = -_STEEPEST, _STEEPEST
    while high - low > 1e-9:
        middle = (low + high) / 2
        weights = [math.exp(-middle * log) for log in logs]
        mean = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights)
        low, high = (middle, high) if mean > wanted else (low, middle)
    return (low + high) / 2


def zipf_shares(s: float, limit: int) -> list[float]:
    """P(h) ∝ h^-s for h = 1 … limit."""
    weights = [step**-s for step in range(1, limit + 1)]
    return [weight / sum(weights) for weight in weights]


def _zipf(labels: Sequence[str], limit: int, window: int, seed: int) -> dict[str, Any]:
    counts = histogram(labels, limit)
    fitted = exponent(counts, limit)
    found = [counts[str(step)] for step in range(1, limit + 1)]
    if fitted is None:
        return {"exponent": None, "interval": None, "distance": None}
    shares = zip(zipf_shares(fitted, limit), found, strict=True)
    # Total variation: the share of words whose number of steps Zipf's law gets wrong.
    distance = sum(abs(share - count / sum(found)) for share, count in shares) / 2
    interval = _bootstrap(labels, limit, window, seed)
    return {"exponent": fitted, "interval": interval and list(interval), "distance": distance}


def _bootstrap(labels: Sequence[str], limit: int, window: int, seed: int) -> tuple[float, float] | None:
    """95 % percentile interval of the exponent over pieces of the text, because near words are not independent."""
    count = min(_BLOCKS, len(labels) // window)
    if count < 2:
        return None
    ends = list(accumulate([len(labels) // count] * (count - 1), initial=0))
    pieces = [
        [histogram(labels[start:end], limit)[str(h)] for h in range(1, limit + 1)]
        for start, end in pairwise([*ends, len(labels)])
    ]
    drawn = []
    for resample in range(_RESAMPLES):
        draws = Draws(f"hopscope/corpus/bootstrap/{seed}/{resample}", count)
        chosen = [pieces[draws.below(count)] for _ in range(count)]
        sums = {str(h): sum(column) for h, column in enumerate(zip(*chosen, strict=True), start=1)}
        if (found := exponent(sums, limit)) is not None:
            drawn.append(found)
    if len(drawn) < _RESAMPLES:
        return None
    drawn.sort()
    return drawn[round(0.025 * (_RESAMPLES - 1))], drawn[round(0.975 * (_RESAMPLES - 1))]
