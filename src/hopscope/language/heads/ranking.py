"""Which heads are taken out: those that pay the most attention to structural targets, and others to compare with."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from math import comb, prod

import numpy as np
import torch
from numpy.typing import NDArray

from hopscope.errors import UserError
from hopscope.language.heads.answers import Head
from hopscope.language.heads.attention import Scores
from hopscope.rng import bits

ANY_TARGET = "any"
"""Rank by the best of all targets."""

LARGEST = 8
"""Heads that are taken out at once, at most."""

SHARE = 8
"""… and at most one of so many."""

_ATTEMPTS = 1000


def ranked(scores: Mapping[str, Scores], target: str = ANY_TARGET) -> list[Head]:
    """Heads by how much more they pay than a uniform head: (mean - floor) / (1 - floor), largest first.

    Args:
        scores: of every target.
        target: one of them, or `ANY_TARGET` for the largest lift over all targets but the `previous` tokens, whatever
            they are called: reading the token before is what many heads do whatever the text says.

    Raises:
        UserError: there is no such target.
    """
    best = np.max([lift(scores[name]) for name in compared(scores, target)], axis=0)
    order = sorted(np.ndindex(best.shape), key=lambda head: (-float(best[head]), head))
    return [(int(layer), int(head)) for layer, head in order]


def compared(scores: Mapping[str, Scores], target: str = ANY_TARGET) -> list[str]:
    """Targets by which heads are ranked; arguments and errors as in `ranked`."""
    several = [name for name, one in scores.items() if one.floor < 1 and not _before(scores, name)]
    names = several if target == ANY_TARGET else [target]
    if not names or any(name not in scores for name in names):
        raise UserError(
            f"rank: expected {ANY_TARGET} or one of {', '.join(scores)}, found {target!r}; take one of them"
        )
    return names


def _before(scores: Mapping[str, Scores], name: str) -> bool:
    """Whether a target is the token before its row; of "b =" the name that is asked for is that too."""
    previous = scores.get(f"{name.partition(':')[0]}:previous")
    return previous is not None and np.array_equal(scores[name].mean, previous.mean)


def lift(scores: Scores) -> NDArray[np.float64]:
    """How far each head is from uniform (0) to reading nothing but the target (1), [layer, head]."""
    return (scores.mean - scores.floor) / (1 - scores.floor)


def sizes(heads: int, asked: Sequence[int] = ()) -> list[int]:
    """How many heads are taken out: 1, 2, 4, 8 up to one of eight heads, or what is asked for.

    Raises:
        UserError: a size leaves no other heads to compare with.
    """
    if asked:
        if min(asked) < 1 or 2 * max(asked) > heads:
            raise UserError(
                f"top: expected numbers from 1 to {heads // 2}, half of the model's {heads} heads, found {list(asked)}"
            )
        return sorted(set(asked))
    most = max(1, min(LARGEST, heads // SHARE))
    return [size for size in (1, 2, 4, 8) if size <= most]


def matched(top: Sequence[Head], shape: tuple[int, int], draws: int, seed: int) -> list[frozenset[Head]]:
    """Sets of other heads, as many in each layer as the top heads have there; all different.

    Where a layer has not enough others, the missing ones come from the layers nearest to it.  If there are no more than
    `draws` such sets, all of them are returned.

    Args:
        top: heads that the others are compared with.
        shape: layers and heads per layer.
        draws: how many sets.
        seed: of the draws.
    """
    wanted = _wanted(top, shape)
    rest = {layer: [(layer, h) for h in range(shape[1]) if (layer, h) not in top] for layer in wanted}
    if prod(comb(len(rest[layer]), n) for layer, n in wanted.items()) <= draws:
        every = product(*(combinations(rest[layer], n) for layer, n in wanted.items()))
        return [frozenset(head for part in parts for head in part) for parts in every]
    found: dict[frozenset[Head], None] = {}
    for attempt in range(_ATTEMPTS * draws):
        drawn = []
        for layer, n in wanted.items():
            words = bits(seed, "intervene", attempt, torch.arange(len(rest[layer])), block=layer)[:, 0]
            drawn += [rest[layer][place] for place in words.argsort(stable=True)[:n].tolist()]
        found.setdefault(frozenset(drawn))
        if len(found) == draws:
            break
    return list(found)


def _wanted(top: Sequence[Head], shape: tuple[int, int]) -> dict[int, int]:
    """How many others are taken from each layer."""
    taken = Counter(layer for layer, _ in top)
    free = {layer: shape[1] - taken[layer] for layer in range(shape[0])}
    wanted: Counter[int] = Counter()
    for layer in sorted(taken):
        for near in sorted(free, key=lambda other: (abs(other - layer), other)):
            n = min(free[near] - wanted[near], taken[layer])
            wanted[near] += n
            taken[layer] -= n
    return {layer: n for layer, n in wanted.items() if n}
