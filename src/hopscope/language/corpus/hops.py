"""k-hop induction in a text: how many look-ups, one after another, lead from a word to the one that follows it.

One hop is what an induction head does: go to an earlier occurrence of the current token, and take what followed it.
Two hops do the same again from there.  With the *last* earlier occurrence this is the k-hop induction task of Sanford,
Hsu and Telgarsky (arXiv 2402.09268).
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

LIMIT: Final = 3
"""Most hops that are counted."""

Labels = NDArray[np.int64]
"""Of each token that has a successor: the fewest hops that predict it, 0 where none of 1 … `limit` does."""


def numbered(tokens: Sequence[str]) -> Labels:
    """Each token as a number, the same for equal tokens, `[token]`."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(token, len(known)) for token in tokens], dtype=np.int64)


def by_last(tokens: Labels, window: int, limit: int = LIMIT) -> Labels:
    """Fewest hops to the next token, each to the last earlier occurrence, `[token - 1]`.

    Args:
        tokens: numbers of the tokens, `[token]`.
        window: how many tokens before the current one may be looked at.
        limit: most hops.
    """
    here = np.arange(max(len(tokens) - 1, 0))
    order = np.argsort(tokens, kind="stable")
    before = np.full(len(tokens), -1)
    same = tokens[order][1:] == tokens[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    labels, place, seen = np.zeros_like(here), here, np.ones_like(here, dtype=bool)
    for hop in range(1, limit + 1):
        found = before[place]
        seen = seen & (found >= 0) & (found >= here - window)
        place = np.where(seen, found + 1, 0)
        labels[(labels == 0) & seen & (tokens[place] == tokens[1:])] = hop
    return labels


def by_any(tokens: Labels, window: int, limit: int = LIMIT) -> Labels:
    """Fewest hops to the next token, each to whichever earlier occurrence leads there, `[token - 1]`.

    Arguments as in `by_last`.
    """
    text = tokens.tolist()
    where: dict[int, deque[int]] = defaultdict(deque)
    labels = []
    for here, (token, wanted) in enumerate(pairwise(text)):
        reached, known, label = {token}, set[int](), 0
        for hop in range(1, limit + 1):
            fresh = {text[place + 1] for each in reached for place in _recent(where[each], here - window)}
            if wanted in fresh:
                label = hop
                break
            reached = fresh - known
            known |= fresh
        labels.append(label)
        where[token].append(here)
    return np.array(labels, dtype=np.int64)


def _recent(places: deque[int], first: int) -> deque[int]:
    """Places from `first` on; earlier ones are dropped for good."""
    while places and places[0] < first:
        places.popleft()
    return places
