"""How far the symbols of a retrieval chain can travel in t layers of attention (paper, section 5 and appendix B).

The model.  A chain x₀ … x_D is shown as D pairs (x_{k-1}, x_k) and a query x₀.  *Position* s₀ is the query, s_{2k-1}
and s_{2k} are the first and second token of pair k.  *Piece* e_{2k} is the symbol x_k, e_{2k-1} the position code that
both tokens of pair k have.  So s_i begins with e_{i-1} and e_i, and s₀ with e₀ alone: nobody shares the query's code.
In a layer, a position may read any positions that it sees and that hold a piece it holds; it keeps what it has and
gets all they had before the layer.  One chain is enough, because chains share nothing.

What a position holds is always a run of consecutive pieces (appendix B, lemma 2): here a pair (first, last).

`held_pieces` and what counts its layers are a plain closure, exact for every mask and order; docs/theory.md has the
formulas and their proofs, and the tests compare the two.  The numbers bound this model, not every network.

One target per position and layer is what one attention head with a one-hot pattern can do.  Two are always enough to
get whatever can be got: `two_target_plan` says which.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from hopscope.errors import UserError

Mask = Literal["causal", "none"]
"""Which positions a position sees: itself and earlier ones, or all."""

Order = Literal["deepest-first", "shallowest-first"] | Sequence[int]
"""In which order the pairs come: from pair D to pair 1, from pair 1 to pair D, or their numbers in time order."""

Run = tuple[int, int]
"""Consecutive pieces e_first … e_last."""

Plan = list[list[tuple[int, ...]]]
"""[layer][position]: the positions read; layer 0 of the plan is the first attention layer, position 0 the query."""

MAX_STEPS = 1024
"""Longest chain that is counted through (under half a second); the formulas have no need of a limit."""


def theorem_bound(steps: int) -> float:
    """Return log₃(2D): with fewer layers the query cannot hold x_D (paper, theorem 1).

    Raises:
        UserError: `steps` is below 1.
    """
    check_steps(steps)
    return math.log(2 * steps) / math.log(3)


def bound_layers(steps: int) -> int:
    """Return the least number of layers that theorem 1 allows: the least t with 3^t ≥ 2D.

    Raises:
        UserError: `steps` is below 1.
    """
    check_steps(steps)
    return _least_exponent(3, 2 * steps)


def exact_layers(steps: int, mask: Mask, order: Order) -> int:
    """Return the least number of layers after which the query can hold x_D, whatever each position reads.

    Raises:
        UserError: as `held_pieces`.
    """
    return len(held_pieces(steps, mask, order)) - 1


def exact_layers_single_target(steps: int) -> int:
    """Return the least number of layers after which the query can hold x_D if each position reads at most one a layer.

    It does not depend on mask or order: 1 + ⌈log₂(D + 1)⌉ (docs/theory.md has the proof), equal to the ⌊log₂ k⌋ + 2
    layers of one head with which Sanford, Hsu and Telgarsky (2024, "Transformers, Parallel Computation, and Logarithmic
    Depth") solve k hops.

    Raises:
        UserError: `steps` is below 1.
    """
    check_steps(steps)
    return 1 + steps.bit_length()


def layers_per_step(steps: int, mask: Mask, order: Order) -> dict[int, int]:
    """Return, for k = 1 … D, the least number of layers after which the query can hold x_k.

    Raises:
        UserError: as `held_pieces`.
    """
    reached = [held[0][1] for held in held_pieces(steps, mask, order)]
    return {k: next(t for t, last in enumerate(reached) if last >= 2 * k) for k in range(1, steps + 1)}


def held_pieces(steps: int, mask: Mask, order: Order) -> list[list[Run]]:
    """Return the most that every position can hold after each layer, until the query holds x_D.

    Holding more never hinders, so all positions reach their most at once: by reading whatever they may.

    Returns:
        [layer][position]: runs of pieces; layer 0 is the input, position 0 the query.

    Raises:
        UserError: `steps` is not between 1 and `MAX_STEPS`, the mask is unknown, or the order is neither a name nor
            a permutation of 1 … D.
    """
    check_mask(mask)
    in_time = time_order(steps, order)
    layers: list[list[Run]] = [[(max(0, i - 1), i) for i in range(2 * steps + 1)]]
    while layers[-1][0][1] < 2 * steps:
        layers.append(_after_one_layer(layers[-1], in_time, mask))
    return layers


def two_target_plan(steps: int, mask: Mask, order: Order) -> Plan:
    """Return a plan of `exact_layers` layers with at most two targets: one to get further left, one further right.

    Carried out, it gives every position all of `held_pieces`.  A position that gains nothing reads nothing.

    Raises:
        UserError: as `held_pieces`.
    """
    layers = held_pieces(steps, mask, order)
    in_time = time_order(steps, order)
    moment = {position: time for time, position in enumerate(in_time)}
    plan: Plan = []
    for before, after in pairwise(layers):
        targets = []
        for position in range(2 * steps + 1):
            seen = [j for j in range(2 * steps + 1) if mask == "none" or moment[j] <= moment[position]]
            targets.append(_two_targets(position, before, after[position], seen))
        plan.append(targets)
    return plan


def pair_order(steps: int, order: Order) -> tuple[int, ...]:
    """Return the numbers of the pairs in time order.

    Raises:
        UserError: `steps` is not between 1 and `MAX_STEPS`, or the order is neither a name nor a permutation of 1 … D.
    """
    check_steps(steps, MAX_STEPS)
    pairs = range(1, steps + 1)
    if order == "deepest-first":
        return tuple(reversed(pairs))
    if order == "shallowest-first":
        return tuple(pairs)
    if isinstance(order, str):
        raise UserError(
            f"order: expected deepest-first, shallowest-first or pair numbers in time order, found {order!r}; "
            f"write {','.join(map(str, pair_order(min(steps, 3), 'deepest-first')))} for pair numbers"
        )
    if sorted(order) != list(pairs):
        expected = "1" if steps == 1 else f"each of 1 to {steps} once"
        raise UserError(
            f"order: expected {expected}, found {','.join(map(str, order)) or 'nothing'}; "
            "give the number of every pair, the earliest first"
        )
    return tuple(order)


def time_order(steps: int, order: Order) -> list[int]:
    """Return the positions from the first in time to the last: pair by pair, first token then second; then the query.

    Raises:
        UserError: as `pair_order`.
    """
    return [token for pair in pair_order(steps, order) for token in (2 * pair - 1, 2 * pair)] + [0]


def check_steps(steps: int, most: int | None = None) -> None:
    """Raise `UserError` unless 1 ≤ D ≤ `most`; without `most`, there is no upper limit."""
    if steps < 1:
        raise UserError(f"steps: expected at least 1, found {steps}")
    if most is not None and steps > most:
        raise UserError(f"steps: expected at most {most}, found {steps}; docs/theory.md has the formulas")


def check_mask(mask: str) -> None:
    """Raise `UserError` unless the mask is one of `Mask`."""
    if mask not in ("causal", "none"):
        raise UserError(f"mask: expected causal or none, found {mask!r}")


def _two_targets(position: int, before: list[Run], after: Run, seen: list[int]) -> tuple[int, ...]:
    first, last = before[position]
    left = [j for j in seen if before[j][0] == after[0] and before[j][1] >= first] if after[0] < first else []
    right = [j for j in seen if before[j][1] == after[1] and before[j][0] <= last] if after[1] > last else []
    # The nearest of those that serve equally well.
    return tuple(
        dict.fromkeys(min(found, key=lambda j: abs(j - position)) for found in (left, right) if found)
    )


def _after_one_layer(held: list[Run], in_time: list[int], mask: Mask) -> list[Run]:
    # first[p] and last[p]: how far the runs seen so far that hold p reach; both rise with p.
    first, last = list(range(len(held))), list(range(len(held)))

    def see(run: Run) -> None:
        piece = run[0]
        while piece < run[1] and last[piece] < run[1]:
            last[piece] = run[1]
            piece += 1
        piece = run[1]
        while piece > run[0] and first[piece] > run[0]:
            first[piece] = run[0]
            piece -= 1

    after = list(held)
    if mask == "none":
        for run in held:
            see(run)
    for position in in_time:
        see(held[position])
        # A run that shares a piece with this one and reaches further left holds its first piece too; so on the right.
        after[position] = (first[held[position][0]], last[held[position][1]])
    return after


def _least_exponent(base: int, value: int) -> int:
    exponent = 0
    while base**exponent < value:
        exponent += 1
    return exponent
