"""The search for a circuit: as many rows as possible read nothing, and the others read by rules (docs/circuits.md).

A change is kept while the loss stays under the threshold in every mode that is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

from hopscope.circuits import rules
from hopscope.circuits.criterion import Criterion
from hopscope.circuits.execution import Execution, Mode, Pass, Slot
from hopscope.circuits.grammar import distance
from hopscope.circuits.rules import NOTHING, Learned, Rule, description_length, reads_nothing

_NEAR = 0.1  # rules are tried that are at most this much farther from a head's pattern than the nearest
_SHARP = 0.5  # no rule describes a pattern that is farther from it than this; it may still be a mean map
_CLEAR = 0.25  # a pattern that is nearer than this to a rule is given the rule before anything is taken away
_AT_FIRST = 0.8  # share of what may be lost that the first removals may use up
_ON_FEW = 0.75  # share of that, where they are tried on the first quarter of the samples
_LEAST_FEW = 8  # samples in a quarter, if there is to be one
_TOO_MUCH = 1.5  # slots that by themselves cost so many times more than may be lost are not tried together


class State(NamedTuple):
    """Passes under the threshold in every mode, the shares of what may be lost that they use, changes that failed."""

    passed: Mapping[Mode, Pass]
    used: Mapping[Mode, float]
    failed: set[tuple[float, frozenset[tuple[Slot, int]]]]

    @property
    def rules(self) -> Mapping[Slot, Rule]:
        """What every slot does."""
        return self.passed["rules"].rules


Choices = Callable[[State, Slot], Sequence[Rule]]


class Search:
    """Searches on one batch.

    Attributes:
        execution, criterion: what is run, and what it must reach, in all `modes`.
        searched: share of what may be lost that changes may use up; `share` of that now.
        start: the model as it is.
    """

    def __init__(self, execution: Execution, criterion: Criterion, modes: Sequence[Mode], searched: float):
        self.execution, self.criterion, self.modes, self.searched = execution, criterion, modes, searched
        self.start, self.share = self._begin(execution.clean), 1.0
        self._costs, self._rules = dict[Slot, float](), dict[Slot, tuple[list[Rule], list[Rule]]]()
        far = {slot: self._distances(slot) for slot in execution.reachable}
        self._nearest = {slot: min((each for _, each in some), default=1.0) for slot, some in far.items()}
        self._on_few: Search | None = None
        if (few := execution.clean.predictions.shape[1] // 4) >= _LEAST_FEW:
            self._on_few = copy(self)  # what rules and distances are, all samples tell
            self._on_few.criterion = criterion.on(execution, few)
            self._on_few.start = self._begin(execution.clean.first(few))

    def _begin(self, clean: Pass) -> State:
        passed = {mode: clean._replace(mode=mode) for mode in self.modes}
        return State(passed, dict.fromkeys(self.modes, 0.0), set())

    def changed(self, state: State, changes: Mapping[Slot, Rule]) -> State | None:
        """The state with some changes, or `None` if that is over the threshold in any mode."""
        known = self.share, frozenset((slot, id(rule)) for slot, rule in changes.items())
        if known in state.failed:
            return None
        passed, used, most = dict(state.passed), dict(state.used), self.share * self.searched
        for mode, base in state.passed.items():
            passed[mode] = self.execution.under(base, changes)
            used[mode] = self.criterion.budget_used(mode, passed[mode].predictions)
            if not used[mode] <= most:
                state.failed.add(known)
                return None
        return State(passed, used, set())

    # Steps of the search.

    def _first_that_do(
        self, state: State, slots: Sequence[Slot], choices: Choices, failed: bool = False
    ) -> State:
        # Greedy: each slot, in this order, is given the first of its choices that does.  All are tried with their first
        # at once, then each half: the same as one slot at a time, where costs add up.  `failed`: it is known that not
        # all slots can have their first choice.
        first = {slot: some[0] for slot in slots if (some := choices(state, slot))}
        if not first:
            return state
        slots = [*first]
        # What slots cost by themselves is known of removals.
        left = max(0.0, self.share * self.searched - state.used["rules"])
        cost = sum(max(0.0, self._costs.get(slot, 0.0)) for slot in slots)
        hopeless = len(slots) > 1 and choices is _nothing and cost > _TOO_MUCH * left
        if not failed and not hopeless and (changed := self.changed(state, first)) is not None:
            return changed
        if len(slots) > 1:
            half = len(slots) // 2
            state = self._first_that_do(state, slots[:half], choices)
            # If all of these have it, to give it to the others too is what has failed.
            have = all(state.rules[slot] == first[slot] for slot in slots[:half])
            failed = have and (failed or not hopeless)
            return self._first_that_do(state, slots[half:], choices, failed)
        for rule in choices(state, slots[0])[1:]:
            if (changed := self.changed(state, {slots[0]: rule})) is not None:
                return changed
        return state

    def _remove(self, state: State, slots: Sequence[Slot]) -> State:
        reading = [slot for slot in slots if not reads_nothing(state.rules[slot])]
        return self._first_that_do(state, reading, _nothing)

    def _simpler(self, state: State, slot: Slot) -> list[Rule]:
        now, (near, far) = state.rules[slot], self._described(slot)
        tried = [*near, *(far if isinstance(now, Learned) else [])]
        return [rule for rule in tried if description_length(rule) < description_length(now)]

    def _described(self, slot: Slot) -> tuple[list[Rule], list[Rule]]:
        # Rules that could be what a head's row does: those near to its pattern, the simplest first, and farther ones.
        if slot not in self._rules:
            role, grammar, own = slot[2], self.execution.grammar, self.execution.own_pattern(slot)
            found, rows = self._distances(slot), grammar.rows[role]
            two = grammar.two_targets(role, own[rows])
            for rule in [*([two] if two else []), *grammar.weighted(role)]:
                found.append((rule, distance(grammar.pattern(role, rule, own)[rows], own[rows])))
            farthest = min(min((far for _, far in found), default=1.0) + _NEAR, _SHARP)
            found.sort(key=lambda pair: description_length(pair[0]))
            near = [rule for rule, far in found if far <= farthest]
            # Where there are chains a mean map says the least that can be said: it may be far.  Elsewhere mean weights
            # are near to everything: a rule that a row needs can be farther than they are.
            farther = [rule for rule, far in found if farthest < far <= _SHARP]
            both = (near, farther) if grammar.allows_mean_weights else ([*near, rules.History()], [])
            self._rules[slot] = both
        return self._rules[slot]

    def _distances(self, slot: Slot) -> list[tuple[Rule, float]]:
        grammar = self.execution.grammar
        own, candidates = self.execution.own_pattern(slot)[grammar.rows[slot[2]]], grammar.candidates(slot[2])
        return [(rule, distance(each, own)) for rule, each in candidates if not reads_nothing(rule)]

    # Orders, and what is found in them.

    def ordered(self, slots: Sequence[Slot]) -> list[Slot]:
        """Diffuse rows first: what would remain of them is no read that anybody could name."""
        return sorted(slots, key=lambda slot: self._nearest[slot] < _SHARP)

    def by_importance(self) -> list[Slot]:
        """Slots by what it costs if one of them is uniform and all other patterns are as they are (mode *clean*)."""
        for slot in self.execution.reachable:
            without = self.execution.under(self.execution.clean, {slot: NOTHING[0]})
            self._costs[slot] = self.criterion.budget_used("rules", without.predictions)
        return self.ordered(sorted(self.execution.reachable, key=self._costs.__getitem__))

    def can_go(self, slot: Slot) -> bool:
        """Whether a slot may read nothing in the model as it is."""
        self.share = 1.0
        return reads_nothing(self._remove(self.start, [slot]).rules[slot])

    def circuit(self, order: Sequence[Slot]) -> Mapping[Slot, Rule]:
        """The rules of a minimal circuit: slots are taken away in this order, and what stays is given rules.

        Taking away stops short of the threshold at first, or nothing would be left for the rules to cost.  It begins on
        a quarter of the samples; what these allow is tried on all, and everything after that.
        """
        if self._on_few is None:
            state = self._first_removals(order, _AT_FIRST)
        else:
            wanted = self._on_few._first_removals(order, _ON_FEW * _AT_FIRST).rules
            given = [slot for slot in self.execution.slots if slot not in order]
            given += [slot for slot in order if not isinstance(wanted[slot], Learned)]
            self.share = _AT_FIRST
            state = self._first_that_do(self.start, given, lambda _, slot: [wanted[slot]])
        self.share, unnamed = 1.0, Learned | rules.History | rules.TwoTargets
        while True:
            before = state.rules
            some = [slot for slot in order if isinstance(before[slot], unnamed)]
            state = self._remove(self._first_that_do(state, some, self._simpler), order)
            if state.rules == before:
                return before

    def _first_removals(self, order: Sequence[Slot], share: float) -> State:
        self.share = share
        state = self._remove(self.start, [slot for slot in self.execution.slots if slot not in order])
        clear = [slot for slot in order if self._nearest[slot] < _CLEAR]
        return self._remove(self._first_that_do(state, clear, self._simpler), order)


def _nothing(_state: State, _slot: Slot) -> Sequence[Rule]:
    return NOTHING
