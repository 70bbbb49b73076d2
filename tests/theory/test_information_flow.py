"""Spans against sets of pieces, plans carried out on sets, and one target tried out exhaustively."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import UserError
from hopscope.theory import (
    bound_layers,
    exact_layers,
    exact_layers_single_target,
    held_pieces,
    layers_per_step,
    pair_order,
    theorem_bound,
)

MASKS = ["causal", "none"]
ORDERS = st.integers(1, 23).flatmap(lambda steps: st.permutations(range(1, steps + 1)))


def start_of(order):
    return {0: {0}} | {i: {i - 1, i} for i in range(1, 2 * len(order) + 1)}


def seen_in(order, mask):
    in_time = [token for pair in order for token in (2 * pair - 1, 2 * pair)] + [0]
    return {i: in_time if mask == "none" else in_time[: at + 1] for at, i in enumerate(in_time)}


def carried_out(order, mask, targets_of, layers):
    """Pieces of every position after each layer, as spans; no piece is missing in between."""
    held, seen, found = start_of(order), seen_in(order, mask), []
    for layer in range(layers + 1):
        found.append([(min(held[i]), max(held[i])) for i in range(len(held))])
        assert all(len(held[i]) == last - first + 1 for i, (first, last) in enumerate(found[-1]))
        held = {
            i: held[i].union(*(held[j] for j in targets_of(layer, i, seen) if held[j] & held[i]))
            for i in held
        }
    return found


@given(ORDERS, st.sampled_from(MASKS))
def test_the_closure_is_that_of_sets_in_which_everything_is_read(order, mask):
    layers = held_pieces(len(order), mask, order)
    assert carried_out(order, mask, lambda _, i, seen: seen[i], len(layers) - 1) == layers
    per_step = layers_per_step(len(order), mask, order)
    assert per_step == {k: next(t for t, held in enumerate(layers) if held[0][1] >= 2 * k) for k in per_step}
    assert per_step[len(order)] == exact_layers(len(order), mask, order)


def two_target_plan(order, mask):
    """Targets with which every position gets all of `held_pieces`: one to get further left, one further right."""
    seen, plan = seen_in(order, mask), []
    for before, after in itertools.pairwise(held_pieces(len(order), mask, order)):
        targets = []
        for i, ((first, last), (left, right)) in enumerate(zip(before, after, strict=True)):
            near = sorted(seen[i], key=lambda j: abs(j - i))
            to_left = [j for j in near if before[j][0] == left < first <= before[j][1]]
            to_right = [j for j in near if before[j][0] <= last < right == before[j][1]]
            targets.append({*to_left[:1], *to_right[:1]})
        plan.append(targets)
    return plan


@given(ORDERS, st.sampled_from(MASKS))
def test_two_targets_get_all_there_is(order, mask):
    plan = two_target_plan(order, mask)
    assert max(len(targets) for layer in plan for targets in layer) <= 2
    seen = seen_in(order, mask)
    assert all(set(targets) <= set(seen[i]) for layer in plan for i, targets in enumerate(layer))
    held = carried_out(
        order, mask, lambda layer, i, _: plan[layer][i] if layer < len(plan) else (), len(plan)
    )
    assert held == held_pieces(len(order), mask, order)


@given(ORDERS)
def test_every_order_lies_between_the_bound_no_mask_and_one_target(order):
    steps = len(order)
    least, most = exact_layers(steps, "none", order), exact_layers_single_target(steps)
    assert (
        theorem_bound(steps) <= bound_layers(steps) <= least <= exact_layers(steps, "causal", order) <= most
    )
    assert held_pieces(steps, "none", order) == held_pieces(steps, "none", "deepest-first")


@pytest.mark.parametrize("steps", [*range(1, 41), 127, 128, 1023, 1024])
def test_closed_forms(steps):
    assert exact_layers(steps, "none", "deepest-first") == math.ceil(math.log(4 * steps + 1, 3) - 1e-9)
    for order in ("deepest-first", "shallowest-first"):
        assert exact_layers(steps, "causal", order) == exact_layers_single_target(steps)
    assert exact_layers_single_target(steps) == 1 + math.ceil(math.log2(steps + 1) - 1e-9)
    assert 3 ** (bound_layers(steps) - 1) < 2 * steps <= 3 ** bound_layers(steps)


def holdable(order, mask, layers):
    """Whether the query can hold x_D if each position reads one other, or itself, in a layer: all joint choices."""
    start, seen = start_of(order), seen_in(order, mask)

    @functools.cache
    def states(wanted, layers):
        if layers == 0:
            return {tuple(frozenset(start[i]) for i in wanted)}
        found = set()
        for targets in itertools.product(*(seen[i] for i in wanted)):
            before = tuple(sorted({*wanted, *targets}))
            for state in states(before, layers - 1):
                pairs = [
                    (state[before.index(i)], state[before.index(j)])
                    for i, j in zip(wanted, targets, strict=True)
                ]
                if all(one & other for one, other in pairs):
                    found.add(tuple(one | other for one, other in pairs))
        return found

    return any(2 * len(order) in held for (held,) in states((0,), layers))


@pytest.mark.parametrize("order", [(1,), (1, 2), (2, 1), (3, 2, 1), (2, 3, 1)])
@pytest.mark.parametrize("mask", MASKS)
def test_one_target_needs_exactly_its_layers(order, mask):
    layers = exact_layers_single_target(len(order))
    assert holdable(order, mask, layers) and not holdable(order, mask, layers - 1)


def test_by_hand():
    """One step is the induction head: the second token reads the first one of its pair, the query the second one."""
    assert held_pieces(1, "causal", "deepest-first")[1:] == [
        [(0, 1), (0, 1), (0, 2)],
        [(0, 2), (0, 1), (0, 2)],
    ]
    assert pair_order(3, "deepest-first") == (3, 2, 1) and pair_order(3, "shallowest-first") == (1, 2, 3)
    counts = [exact_layers(4, "causal", order) for order in itertools.permutations(range(1, 5))]
    assert (counts.count(3), counts.count(4)) == (8, 16)
    assert (theorem_bound(5), bound_layers(5)) == (pytest.approx(2.09590, abs=1e-5), 3)


@pytest.mark.parametrize(
    ("steps", "mask", "order", "words"),
    [
        (0, "causal", "deepest-first", "steps: expected a whole number from 1 to 1024, found 0"),
        (1025, "none", "deepest-first", "found 1025"),
        (2.5, "none", "deepest-first", "found 2.5"),
        (3, "full", "deepest-first", "mask: expected causal or none, found 'full'"),
        (3, "causal", "upwards", "order: expected deepest-first, .* 1 to 3 once.*found 'upwards';"),
        (3, "causal", (1, 2, 2), r"found \(1, 2, 2\);"),
        (3, "causal", (1.0, 2.0, 3.0), "found"),
        (3, "causal", None, "found None;"),
    ],
)
def test_what_is_no_chain_is_one_line(steps, mask, order, words):
    for call in (held_pieces, exact_layers, layers_per_step):
        with pytest.raises(UserError, match=words):
            call(steps, mask, order)


@pytest.mark.parametrize("count", [theorem_bound, bound_layers, exact_layers_single_target])
def test_steps_are_whole_numbers(count):
    assert count(np.int64(5)) == count(5)
    for steps in (0, 1025, 2.5, "3"):
        with pytest.raises(UserError, match=f"steps: expected a whole number .* found {steps!r}"):
            count(steps)
