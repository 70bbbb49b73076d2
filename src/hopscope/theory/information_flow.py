"""How far the symbols of a retrieval chain can travel in t layers of attention (paper, section 5 and appendix B).

The model.  A chain x₀ … x_D is shown as D pairs (x_{k-1}, x_k) and a query x₀.  *Position* 0 is the query, 2k − 1 and
2k are the first and second token of pair k.  *Piece* 2k is the symbol x_k, 2k − 1 the position code that both tokens of
pair k have.  So position i begins with the pieces i − 1 and i, the query with piece 0 alone.  In a layer, a position
may read any positions that it sees and that hold a piece it holds; it keeps what it has and gets all they had before.
What it holds is always a span of consecutive pieces (appendix B, lemma 2).  The numbers bound this model, not every
network; docs/theory.md has the formulas and their proofs.  All functions raise `UserError` for what is no chain.
"""

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from numbers import Integral
from typing import Literal

from hopscope.errors import UserError

Mask = Literal["causal", "none"]
"""Which positions a position sees: itself and earlier ones, or all."""

Order = Literal["deepest-first", "shallowest-first"] | Sequence[int]
"""In which order the pairs come: from pair D to pair 1, from pair 1 to pair D, or their numbers in time order."""

Span = tuple[int, int]
"""The first and the last of consecutive pieces."""


def theorem_bound(steps: int) -> float:
    """Return log₃(2D): with fewer layers the query cannot hold x_D (paper, theorem 1)."""
    return math.log(2 * whole("steps", steps)) / math.log(3)


def bound_layers(steps: int) -> int:
    """Return the least number of layers that theorem 1 allows: the least t with 3^t ≥ 2D."""
    return next(layers for layers in range(whole("steps", steps) + 1) if 3**layers >= 2 * steps)


def exact_layers(steps: int, mask: Mask, order: Order) -> int:
    """Return the least number of layers after which the query can hold x_D, whatever each position reads."""
    return len(held_pieces(steps, mask, order)) - 1


def exact_layers_single_target(steps: int) -> int:
    """Return the same if a position reads at most one other in a layer: 1 + ⌈log₂(D + 1)⌉ for every mask and order.

    So many layers of one head solve k hops in Sanford, Hsu and Telgarsky (2024, arXiv:2402.09268): ⌊log₂ k⌋ + 2.
    """
    return 1 + whole("steps", steps).bit_length()


def layers_per_step(steps: int, mask: Mask, order: Order) -> dict[int, int]:
    """Return, for k = 1 … D, the least number of layers after which the query can hold x_k."""
    reached = [held[0][1] for held in held_pieces(steps, mask, order)]
    return {k: bisect_left(reached, 2 * k) for k in range(1, steps + 1)}


def held_pieces(steps: int, mask: Mask, order: Order) -> list[list[Span]]:
    """Return the most that every position can hold after each layer, until the query holds x_D: [layer][position].

    Layer 0 is the input.  Holding more never hinders, so all reach their most at once, by reading whatever they may.
    """
    if mask not in ("causal", "none"):
        raise UserError(f"mask: expected causal or none, found {mask!r}; write one of them")
    in_time = [token for pair in pair_order(steps, order) for token in (2 * pair - 1, 2 * pair)] + [0]
    layers: list[list[Span]] = [[(max(0, i - 1), i) for i in range(2 * steps + 1)]]
    while layers[-1][0][1] < 2 * steps:
        layers.append(_after_one_layer(layers[-1], in_time, mask))
    return layers


def pair_order(steps: int, order: Order) -> tuple[int, ...]:
    """Return the numbers of the pairs in time order."""
    pairs = tuple(range(1, whole("steps", steps) + 1))
    named = {"deepest-first": pairs[::-1], "shallowest-first": pairs}
    try:
        found = named.get(order, ()) if isinstance(order, str) else tuple(map(operator.index, order))
    except TypeError:
        found = ()
    if tuple(sorted(found)) != pairs:
        wanted = f"{', '.join(named)} or each of the pair numbers 1 to {steps} once, in time order"
        raise UserError(f"order: expected {wanted}, found {order!r}; write deepest-first")
    return found


def whole(name: str, number: object, least: int = 1, most: int = 1024) -> int:
    """Return a count of steps, values and the like; a `UserError` if it is no whole number from `least` to `most`."""
    if not (isinstance(number, Integral) and least <= int(number) <= most):
        raise UserError(f"{name}: expected a whole number from {least} to {most}, found {number!r}")
    return int(number)


def _after_one_layer(held: list[Span], in_time: list[int], mask: Mask) -> list[Span]:
    # first[p] and last[p]: how far the spans seen so far that hold p reach; both rise with p.
    first, last = list(range(len(held))), list(range(len(held)))

    def see(span: Span) -> None:
        a, b = span
        end, start = bisect_left(last, b, a, b), bisect_right(first, a, a, b + 1)
        last[a:end] = [b] * (end - a)
        first[start : b + 1] = [a] * (b + 1 - start)

    for span in held if mask == "none" else ():
        see(span)
    after = list(held)
    for position in in_time:
        see(held[position])
        # A span that shares a piece with this one and reaches further left holds its first piece too; so on the right.
        after[position] = (first[held[position][0]], last[held[position][1]])
    return after
