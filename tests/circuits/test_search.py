"""Slots are given their first choice many at once: the same as one plain recursion, with fewer tests."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.circuits.search import Search, State
from hopscope.models.patterns import NOTHING, Identity, Learned, MeanMap, Uniform, description_length

SLOTS = [(0, 0, role) for role in range(13)]
COSTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=len(SLOTS), max_size=len(SLOTS))


class Priced(Search):
    """Every slot has a price for each way of reading nothing, and no more than `most` may be spent."""

    def __init__(self, costs, most):
        self.costs, self.most, self.tested = dict(zip(SLOTS, costs, strict=True)), most, []

    def changed(self, state, changes):
        rules = {**state.assignment.rules, **changes}
        self.tested.append(tuple(rules.values()))
        price = sum(self.costs[slot][NOTHING.index(rule)] for slot, rule in rules.items() if rule in NOTHING)
        return State(SimpleNamespace(rules=rules), {}) if price <= self.most else None

    @staticmethod
    def untouched():
        return State(SimpleNamespace(rules=dict.fromkeys(SLOTS, Learned())), {})


def plainly(search, state, slots, choices):
    """The same changes, without remembering what has failed."""
    slots = [slot for slot in slots if choices(state, slot)]
    if not slots:
        return state
    for many in [0] if len(slots) > 1 else range(len(choices(state, slots[0]))):
        changed = search.changed(state, {slot: choices(state, slot)[many] for slot in slots})
        if changed is not None:
            return changed
    if len(slots) == 1:
        return state
    half = len(slots) // 2
    return plainly(search, plainly(search, state, slots[:half], choices), slots[half:], choices)


def nothing(_state, _slot):
    return NOTHING


@given(COSTS, st.integers(0, 20))
def test_many_at_once_equals_the_plain_recursion(costs, most):
    fast, slow = Priced(costs, most), Priced(costs, most)
    found = fast.remove(fast.untouched(), SLOTS).assignment.rules
    assert found == plainly(slow, slow.untouched(), SLOTS, nothing).assignment.rules
    assert len(fast.tested) == len({str(rules) for rules in fast.tested})
    assert len(fast.tested) <= len(slow.tested)


def test_what_has_failed_is_not_tested_again():
    costs = [(9, 9) if slot == SLOTS[-1] else (0, 0) for slot in SLOTS]
    fast, slow = Priced(costs, 8), Priced(costs, 8)
    found = fast.remove(fast.untouched(), SLOTS).assignment.rules
    assert found == {**dict.fromkeys(SLOTS[:-1], Uniform()), SLOTS[-1]: Learned()}
    plainly(slow, slow.untouched(), SLOTS, nothing)
    assert len(fast.tested) < len(slow.tested)


def test_a_slot_is_given_its_second_choice_where_the_first_will_not_do():
    search = Priced([(9, 0)] * len(SLOTS), 8)
    assert search.remove(search.untouched(), SLOTS[:1]).assignment.rules[SLOTS[0]] == Identity()
    assert search.remove(search.untouched(), []).assignment.rules == dict.fromkeys(SLOTS, Learned())


@given(st.integers(0, 2**31), st.integers(2, 5), st.data())
def test_whatever_does_the_result_is_the_same(seed, odds, data):
    """What does depends on all rules together, and slots have different choices, some of them none."""
    offered = data.draw(st.lists(st.integers(0, 3), min_size=len(SLOTS), max_size=len(SLOTS)))
    rules = [Uniform(), Identity(), MeanMap()]

    class Whimsical(Priced):
        def changed(self, state, changes):
            found = {**state.assignment.rules, **changes}
            self.tested.append(tuple(found.values()))
            does = random.Random(f"{seed} {list(found.values())}").randrange(odds) == 0
            return State(SimpleNamespace(rules=found), {}) if does else None

        def _simpler(self, state, slot):
            now = state.assignment.rules[slot]
            return [
                rule
                for rule in rules[: offered[slot[2]]]
                if description_length(rule) < description_length(now)
            ]

    fast, slow = Whimsical([(0, 0)] * len(SLOTS), 0), Whimsical([(0, 0)] * len(SLOTS), 0)
    found = fast.simplify(fast.untouched(), SLOTS).assignment.rules
    assert found == plainly(slow, slow.untouched(), SLOTS, slow._simpler).assignment.rules
    assert len(fast.tested) <= len(slow.tested)


@pytest.mark.parametrize("searched", [0.3, 1.0])
def test_a_search_uses_up_no_more_than_its_share(searched):
    """The goal is told how much may be used up: of the search's own share, what leaves room for other sequences."""
    shares = []
    goal = SimpleNamespace(searched=searched, reached=lambda *given: shares.append(given[-1]) or True)
    passed = SimpleNamespace(predictions=None)
    execution = SimpleNamespace(
        assigned=lambda base, changes: SimpleNamespace(rules={**base.rules, **changes}),
        run=lambda *_: passed,
        grammar=SimpleNamespace(batch=None),
    )
    search = Search(execution, goal)
    search.share = 0.5
    begun = State(Priced.untouched().assignment, dict.fromkeys(("rules", "recomputed"), passed))
    assert search.changed(begun, {SLOTS[0]: Uniform()}) is not None
    assert shares == [0.5 * searched] * 2
