"""Slots are given their first choice many at once: the same as one plain recursion, with fewer tests."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from hopscope.circuits.rules import NOTHING, Identity, Learned, Uniform
from hopscope.circuits.search import Search, State

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


def plainly(search, state, slots):
    """The same removals, without remembering what has failed."""
    for nothing in NOTHING if len(slots) == 1 else NOTHING[:1]:
        changed = search.changed(state, dict.fromkeys(slots, nothing))
        if changed is not None:
            return changed
    if len(slots) == 1:
        return state
    half = len(slots) // 2
    return plainly(search, plainly(search, state, slots[:half]), slots[half:])


@given(COSTS, st.integers(0, 20))
def test_many_at_once_equals_the_plain_recursion(costs, most):
    fast, slow = Priced(costs, most), Priced(costs, most)
    found = fast.remove(fast.untouched(), SLOTS).assignment.rules
    assert found == plainly(slow, slow.untouched(), SLOTS).assignment.rules
    assert len(fast.tested) == len({str(rules) for rules in fast.tested})
    assert len(fast.tested) <= len(slow.tested)


def test_what_has_failed_is_not_tested_again():
    costs = [(9, 9) if slot == SLOTS[-1] else (0, 0) for slot in SLOTS]
    fast, slow = Priced(costs, 8), Priced(costs, 8)
    found = fast.remove(fast.untouched(), SLOTS).assignment.rules
    assert found == {**dict.fromkeys(SLOTS[:-1], Uniform()), SLOTS[-1]: Learned()}
    plainly(slow, slow.untouched(), SLOTS)
    assert len(fast.tested) < len(slow.tested)


def test_a_slot_is_given_its_second_choice_where_the_first_will_not_do():
    search = Priced([(9, 0)] * len(SLOTS), 8)
    assert search.remove(search.untouched(), SLOTS[:1]).assignment.rules[SLOTS[0]] == Identity()
    assert search.remove(search.untouched(), []).assignment.rules == dict.fromkeys(SLOTS, Learned())
