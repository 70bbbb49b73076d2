"""Who reads whom: plans of attention that reach the fewest layers of `theory.information_flow`.

A plan lists, for every layer and position, the positions that are read.  One target per position and layer is what one
attention head with a one-hot pattern can do; two are always enough to get whatever can be got.

*One target.*  For every mask and every order of the pairs the fewest layers are 1 + ⌈log₂(D + 1)⌉.

- Not fewer: a run joins at most one other in a layer, and the two overlap; so a run of last − first = n becomes one of
  at most 2n.  Other positions begin with 1 and have at most 2^t after t layers; the query begins with 0 and has at most
  1 + 2 + … + 2^{t-1} = 2^t − 1, which must be 2D.
- Not more: `single_target_plan` is a plan of that many layers, under the causal mask (and so without it).

Both halves are proofs (docs/theory.md has them in full), so there is no search and no limit on D.
"""

from itertools import pairwise

from hopscope.theory.information_flow import (
    Mask,
    Order,
    Run,
    check_steps,
    held_pieces,
    pair_order,
    time_order,
)

Plan = list[list[tuple[int, ...]]]
"""[layer][position]: the positions read; layer 0 of the plan is the first attention layer, position 0 the query."""


def exact_layers_single_target(steps: int) -> int:
    """Return the least number of layers after which the query can hold x_D if each position reads at most one a layer.

    It does not depend on mask or order: 1 + ⌈log₂(D + 1)⌉, equal to the ⌊log₂ k⌋ + 2 layers of one head with which
    Sanford, Hsu and Telgarsky (2024, "Transformers, Parallel Computation, and Logarithmic Depth") solve k hops.

    Raises:
        UserError: `steps` is below 1.
    """
    check_steps(steps)
    return 1 + steps.bit_length()


def single_target_plan(steps: int, order: Order) -> Plan:
    """Return a plan of `exact_layers_single_target` layers with at most one target per position, causal in any order.

    In the first layer every second token reads the first token of its pair, so that it has a whole pair.  After that,
    number the pairs in binary: after layer t, the latest position of a block of 2^{t-1} pairs (2^{t-1}·b and on) has
    the whole block.  Of two neighbouring blocks 2b and 2b + 1 the later one reads the other; block 1 is read by the
    query, which so doubles its reach in every layer.

    Raises:
        UserError: as `pair_order`.
    """
    moment = {pair: time for time, pair in enumerate(pair_order(steps, order))}
    plan: Plan = [[(i - 1,) if i and i % 2 == 0 else () for i in range(2 * steps + 1)]]
    latest = {pair: pair for pair in moment}
    while latest:
        targets: list[tuple[int, ...]] = [()] * (2 * steps + 1)
        targets[0] = (2 * latest.pop(1),)
        joined = {}
        for block in {half // 2 for half in latest}:
            halves = (latest[half] for half in (2 * block, 2 * block + 1) if half in latest)
            *earlier, joined[block] = sorted(halves, key=moment.__getitem__)
            targets[2 * joined[block]] = tuple(2 * pair for pair in earlier)
        plan.append(targets)
        latest = joined
    return plan


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


def _two_targets(position: int, before: list[Run], after: Run, seen: list[int]) -> tuple[int, ...]:
    first, last = before[position]
    left = [j for j in seen if before[j][0] == after[0] and before[j][1] >= first] if after[0] < first else []
    right = [j for j in seen if before[j][1] == after[1] and before[j][0] <= last] if after[1] > last else []
    # The nearest of those that serve equally well.
    return tuple(
        dict.fromkeys(min(found, key=lambda j: abs(j - position)) for found in (left, right) if found)
    )
