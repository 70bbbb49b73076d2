"""Plans are carried out on sets of named pieces; that nothing shorter works is tried out exhaustively."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.information_flow import (
    Flow,
    as_runs,
    carried_out,
    closed_form_layers,
    joint_states,
    single_target_plan,
    single_target_succeeds,
)

from hopscope.errors import UserError
from hopscope.theory.information_flow import exact_layers_single_target, held_pieces, two_target_plan

MASKS = ["causal", "none"]
ORDERS = st.integers(1, 67).flatmap(lambda steps: st.permutations(range(1, steps + 1)))


def reach(plan, order):
    """Deepest piece that the query holds after each layer of a plan carried out under the causal mask."""
    return [as_runs(held)[0][1] for held in carried_out(plan, order, "causal")]


# One target.


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_least_layers_of_all_joint_choices(steps, mask):
    """All joint choices of targets are tried, in every order: one layer less never works, that many do."""
    layers = exact_layers_single_target(steps)
    orders = itertools.permutations(range(1, steps + 1))
    # Without a mask, the order is not part of the model.
    for order in orders if mask == "causal" else [next(orders)]:
        assert not single_target_succeeds(order, mask, layers - 1), order
        if steps < 4:
            assert single_target_succeeds(order, mask, layers), order


def test_the_exhaustive_search_counts_as_by_hand():
    """D = 1, one layer, two tokens: the second may read the first (three pieces) or not."""
    flow = Flow((1,), "causal")
    both = joint_states(flow, [("first", 1), ("second", 1)], 1)
    assert {tuple(len(pieces) for pieces in held) for held in both} == {(2, 2), (2, 3)}
    assert single_target_succeeds((1,), "causal", 2)
    assert not single_target_succeeds((1,), "none", 1)


@pytest.mark.parametrize("steps", range(1, 7))
def test_single_target_plan_in_every_order(steps):
    for order in itertools.permutations(range(1, steps + 1)):
        plan = single_target_plan(order)
        assert len(plan) == exact_layers_single_target(steps)
        assert all(len(targets) <= 1 for layer in plan for targets in layer)
        assert reach(plan, order)[-1] == 2 * steps


@given(ORDERS)
def test_single_target_plan_of_long_chains(order):
    """It brings every step to the query as early as a chain of that many steps allows."""
    plan = single_target_plan(order)
    assert max(len(targets) for layer in plan for targets in layer) == 1
    reached = reach(plan, order)
    for k in range(1, len(order) + 1):
        earliest = next(t for t, last in enumerate(reached) if last >= 2 * k)
        assert earliest == exact_layers_single_target(k)


@pytest.mark.parametrize("steps", [1, 3, 7, 15, 31, 63, 127])
def test_one_more_step_than_a_power_of_two_needs_another_layer(steps):
    layers = (steps + 1).bit_length()
    assert exact_layers_single_target(steps) == layers
    assert exact_layers_single_target(steps + 1) == layers + 1


def test_three_steps_take_the_papers_three_heads():
    """Section 8.2: every second token its first, second tokens the next pair and the query its own, the query again."""
    assert single_target_plan((3, 2, 1)) == [
        [(), (), (1,), (), (3,), (), (5,)],
        [(2,), (), (), (), (6,), (), ()],
        [(4,), (), (), (), (), (), ()],
    ]
    assert single_target_plan((1, 2, 3))[1:] == [
        [(2,), (), (), (), (), (), (4,)],
        [(6,), (), (), (), (), (), ()],
    ]


# Two targets.


@pytest.mark.parametrize("mask", MASKS)
def test_two_targets_get_all_there_is(mask):
    for steps in range(1, 6):
        for order in itertools.permutations(range(1, steps + 1)):
            plan = two_target_plan(steps, mask, order)
            assert max(len(targets) for layer in plan for targets in layer) <= 2
            held = [as_runs(layer) for layer in carried_out(plan, order, mask)]
            assert held == held_pieces(steps, mask, order)


def test_two_targets_are_needed_to_gain_on_both_sides():
    plan = two_target_plan(4, "none", "deepest-first")
    assert plan[0] == [(1,), (2,), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 8), (7,)]
    assert closed_form_layers(4, "none", "deepest-first") < exact_layers_single_target(4)


def test_refused():
    with pytest.raises(UserError, match="steps: expected at least 1, found 0"):
        exact_layers_single_target(0)
    with pytest.raises(UserError, match="order: expected each of 1 to 2 once, found 2,2"):
        two_target_plan(2, "causal", (2, 2))
    with pytest.raises(UserError, match="mask: expected causal or none, found 'full'"):
        two_target_plan(2, "full", "deepest-first")
