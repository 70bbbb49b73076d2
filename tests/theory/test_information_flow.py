"""The closure against sets of named pieces, the formulas against the closure, and the published bound."""

import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.information_flow import QUERY, as_runs, closed_form_layers, most_held

from hopscope.errors import UserError
from hopscope.theory.information_flow import (
    MAX_STEPS,
    bound_layers,
    exact_layers,
    exact_layers_single_target,
    held_pieces,
    layers_per_step,
    pair_order,
    theorem_bound,
    time_order,
)

MASKS = ["causal", "none"]
NAMED = ["deepest-first", "shallowest-first"]
ORDERS = st.integers(1, 29).flatmap(lambda steps: st.permutations(range(1, steps + 1)))


def all_orders(most):
    return [order for steps in range(1, most + 1) for order in itertools.permutations(range(1, steps + 1))]


def in_chain_order(held, steps):
    return [
        held[QUERY],
        *(held[token, pair] for pair in range(1, steps + 1) for token in ("first", "second")),
    ]


# The model.


def test_the_papers_figure_3():
    """D = 5: neighbours share a symbol or a position code, and the query only x₀."""
    start = held_pieces(5, "causal", "deepest-first")[0]
    assert start == [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10)]


def test_one_step_is_the_induction_head():
    """The second token reads the first one of its pair, then the query reads the second one."""
    assert held_pieces(1, "causal", "deepest-first") == [
        [(0, 0), (0, 1), (1, 2)],
        [(0, 1), (0, 1), (0, 2)],
        [(0, 2), (0, 1), (0, 2)],
    ]


def test_three_steps_by_hand():
    """Deepest-first and causal: first tokens stay as they are, second tokens grow towards the end of the chain only."""
    assert held_pieces(3, "causal", "deepest-first")[1:] == [
        [(0, 1), (0, 1), (0, 3), (2, 3), (2, 5), (4, 5), (4, 6)],
        [(0, 3), (0, 1), (0, 5), (2, 3), (2, 6), (4, 5), (4, 6)],
        [(0, 6), (0, 1), (0, 6), (2, 3), (2, 6), (4, 5), (4, 6)],
    ]


def test_time_order():
    assert time_order(3, "deepest-first") == [5, 6, 3, 4, 1, 2, 0]
    assert time_order(3, "shallowest-first") == [1, 2, 3, 4, 5, 6, 0]
    assert time_order(3, (2, 3, 1)) == [3, 4, 5, 6, 1, 2, 0]


@pytest.mark.parametrize("mask", MASKS)
def test_closure_is_that_of_the_sets_in_every_order(mask):
    for order in all_orders(6):
        expected = [as_runs(in_chain_order(held, len(order))) for held in most_held(order, mask)]
        assert held_pieces(len(order), mask, order) == expected, order


@given(ORDERS)
def test_closure_is_that_of_the_sets_in_long_chains(order):
    expected = [as_runs(in_chain_order(held, len(order))) for held in most_held(order, "causal")]
    assert held_pieces(len(order), "causal", order) == expected


@given(ORDERS)
def test_without_a_mask_the_order_is_nothing(order):
    assert held_pieces(len(order), "none", order) == held_pieces(len(order), "none", "deepest-first")


@pytest.mark.parametrize("mask", MASKS)
def test_per_step_counts_the_same_layers(mask):
    for order in all_orders(5):
        steps = len(order)
        reached = [held[QUERY] for held in most_held(order, mask)]
        expected = {
            k: min(t for t, pieces in enumerate(reached) if ("symbol", k) in pieces)
            for k in range(1, steps + 1)
        }
        assert layers_per_step(steps, mask, order) == expected
        assert exact_layers(steps, mask, order) == expected[steps]


# The formulas.


@pytest.mark.parametrize("order", NAMED)
@pytest.mark.parametrize("mask", MASKS)
def test_closed_form(mask, order):
    for steps in range(1, 65):
        assert closed_form_layers(steps, mask, order) == exact_layers(steps, mask, order)
        assert layers_per_step(steps, mask, order) == {
            k: closed_form_layers(k, mask, order) for k in range(1, steps + 1)
        }


@pytest.mark.parametrize("steps", [127, 128, 1022, 1023, 1024])
def test_closed_form_of_the_longest_chains(steps):
    for mask, order in itertools.product(MASKS, NAMED):
        assert closed_form_layers(steps, mask, order) == exact_layers(steps, mask, order)


def test_closed_form_is_the_logarithm_it_is_said_to_be():
    for steps in range(1, 2000):
        assert closed_form_layers(steps, "causal", "deepest-first") == 1 + math.ceil(
            math.log2(steps + 1) - 1e-9
        )
        assert closed_form_layers(steps, "none", "deepest-first") == math.ceil(
            math.log(4 * steps + 1, 3) - 1e-9
        )


def test_closed_form_of_an_explicit_order():
    assert closed_form_layers(5, "none", (2, 3, 1, 5, 4)) == 3


@given(ORDERS)
def test_every_order_lies_between_the_formulas(order):
    """No order beats having no mask; none is worse than the named ones, which need no second target."""
    steps = len(order)
    least, most = (
        closed_form_layers(steps, "none", order),
        closed_form_layers(steps, "causal", "deepest-first"),
    )
    assert least <= exact_layers(steps, "causal", order) <= most == exact_layers_single_target(steps)


def test_an_order_can_save_a_layer():
    """Four steps: 8 of the 24 orders need three layers, the named ones four."""
    counts = [exact_layers(4, "causal", order) for order in itertools.permutations(range(1, 5))]
    assert (counts.count(3), counts.count(4)) == (8, 16)
    assert exact_layers(4, "causal", (1, 2, 4, 3)) == 3
    assert exact_layers(4, "causal", "deepest-first") == exact_layers(4, "causal", "shallowest-first") == 4


# The published bound.


def test_bound():
    assert theorem_bound(1) == pytest.approx(0.63093, abs=1e-5)
    assert theorem_bound(5) == pytest.approx(2.09590, abs=1e-5)
    assert [bound_layers(steps) for steps in (1, 2, 4, 5, 13, 14, 40, 41)] == [1, 2, 2, 3, 3, 4, 4, 5]


def test_bound_is_a_ceiling_without_rounding():
    for exponent in range(1, 60):
        # 2D is even, a power of three is not: the two chains on either side of a power.
        under = (3**exponent - 1) // 2
        assert (bound_layers(under), bound_layers(under + 1)) == (exponent, exponent + 1)


@given(ORDERS, st.sampled_from(MASKS))
def test_bound_holds_and_is_never_reached_at_one_step(order, mask):
    assert exact_layers(len(order), mask, order) >= bound_layers(len(order))
    assert layers_per_step(len(order), mask, order)[1] == 2 > bound_layers(1)


# What is refused.


@pytest.mark.parametrize(
    ("steps", "order", "words"),
    [
        (0, "deepest-first", "steps: expected at least 1, found 0"),
        (MAX_STEPS + 1, "deepest-first", f"steps: expected at most {MAX_STEPS}, found {MAX_STEPS + 1}"),
        (3, (1, 2), "order: expected each of 1 to 3 once, found 1,2;"),
        (3, (1, 2, 2), "order: expected each of 1 to 3 once, found 1,2,2;"),
        (3, (0, 1, 2), "order: expected each of 1 to 3 once, found 0,1,2;"),
        (1, (), "order: expected 1, found nothing;"),
        (3, "upwards", "order: expected deepest-first, shallowest-first or pair numbers in time order, found 'up"),
    ],
)  # fmt: skip
def test_refused(steps, order, words):
    for call in (pair_order, time_order):
        with pytest.raises(UserError) as refusal:
            call(steps, order)
        assert str(refusal.value).startswith(words)
    with pytest.raises(UserError) as refusal:
        held_pieces(steps, "causal", order)
    assert str(refusal.value).startswith(words)


def test_unknown_mask_and_too_few_steps():
    with pytest.raises(UserError, match="mask: expected causal or none, found 'full'"):
        held_pieces(3, "full", "deepest-first")
    for formula in (theorem_bound, bound_layers):
        with pytest.raises(UserError, match="steps: expected at least 1, found 0"):
            formula(0)


def test_theory_is_light():
    code = (
        "import sys, hopscope.theory.information_flow; "
        "sys.exit(bool({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
