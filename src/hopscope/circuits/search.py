"""The search for a circuit: as many rows as possible read nothing, and the others read by rules.

A change is kept while the loss stays under the threshold in both modes: with every pattern given by its rule, and with
the patterns of the circuit recomputed from what is left.  The first alone would drop a head that only shapes later
*keys*, because under given patterns only values flow; the second alone would not say what the rows read.  A search may
ask for the first alone even so, as the paper does: `modes`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from hopscope.circuits.criteria import FaithfulnessCriterion
from hopscope.circuits.execution import Assignment, Execution, Mode, Passed, Slot
from hopscope.models.patterns import (
    NOTHING,
    History,
    Learned,
    MeanMap,
    Rule,
    TwoTargets,
    description_length,
    reads_nothing,
)

_NEAR = 0.1
"""Rules are tried that are at most this much farther from a head's pattern than the nearest (total variation)."""

_SHARP = 0.5
"""No rule describes a pattern that is farther from it than this; it may still be a mean map."""

_CLEAR = 0.25
"""A row whose pattern is nearer than this to a rule is given the rule before anything is taken away."""

_AT_FIRST = 0.8
"""Share of what the loss may rise by, that the first removals may use up."""


@dataclass(frozen=True)
class State:
    """An assignment that is under the threshold, with its passes in every mode that is asked for."""

    assignment: Assignment
    passed: Mapping[Mode, Passed]


class Search:
    """Searches on one batch.

    Attributes:
        execution, criterion: what is run, and what it must reach.
        modes: in which it must reach it.
        searched: share of what may be lost that changes may use up.
        share: of what the loss may rise by, that changes may use up now.
    """

    def __init__(
        self,
        execution: Execution,
        criterion: FaithfulnessCriterion,
        modes: Sequence[Mode] = ("rules", "recomputed"),
        searched: float = 1.0,
    ):
        """`searched`: largest share of what may be lost that changes may use up; the criterion's, if that is less."""
        self.execution, self.criterion, self.modes = execution, criterion, modes
        self.searched = min(searched, criterion.searched)
        self.share = 1.0
        self._near: dict[Slot, list[Rule]] = {}
        self._far: dict[Slot, list[Rule]] = {}
        self._distant: dict[Slot, list[tuple[Rule, float]]] = {}

    # States.

    def start(self) -> State:
        """The model as it is."""
        clean = self.execution.clean
        return State(self.execution.untouched(), dict.fromkeys(self.modes, clean))

    def changed(self, state: State, changes: Mapping[Slot, Rule]) -> State | None:
        """The state with some changes, or `None` if that is over the threshold in any mode."""
        assignment = self.execution.assigned(state.assignment, changes)
        start = min(layer for layer, _, _ in changes)
        modes = self.modes
        if all(not reads_nothing(rule) and self._in_circuit(state, slot) for slot, rule in changes.items()):
            modes = ("rules",)
        passed, batch = dict(state.passed), self.execution.grammar.batch
        for mode in modes:
            passed[mode] = self.execution.run(assignment, mode, start, state.passed[mode])
            if not self.criterion.reached(mode, passed[mode].predictions, batch, self.share * self.searched):
                return None
        return State(assignment, passed)

    @staticmethod
    def _in_circuit(state: State, slot: Slot) -> bool:
        return not reads_nothing(state.assignment.rules[slot])

    # Steps of the search.

    def remove(self, state: State, slots: Sequence[Slot]) -> State:
        """Let slots read nothing where that is possible, in this order; many at once where many can go."""
        return self._first_that_do(state, slots, lambda _, __: NOTHING)

    def simplify(self, state: State, slots: Sequence[Slot]) -> State:
        """Give slots the simplest near rule that does, if simpler than what they have; many at once where many can."""
        return self._first_that_do(state, slots, self._simpler)

    def _first_that_do(
        self,
        state: State,
        slots: Sequence[Slot],
        choices: Callable[[State, Slot], Sequence[Rule]],
        *,
        failed: bool = False,
    ) -> State:
        """Give each slot, in this order, the first of its choices that does: many their first at once where many can.

        Args:
            state: to start from.
            slots: those without choices are left as they are.
            choices: for a slot, in a state that has not changed it.
            failed: it is known that not all slots can have their first choice.
        """
        slots = [slot for slot in slots if choices(state, slot)]
        if not slots:
            return state
        first = {slot: choices(state, slot)[0] for slot in slots}
        if not failed:
            changed = self.changed(state, first)
            if changed is not None:
                return changed
        if len(slots) > 1:
            half = len(slots) // 2
            state = self._first_that_do(state, slots[:half], choices)
            # If all of these have it, to give it to the others too is what has failed.
            failed = all(state.assignment.rules[slot] == first[slot] for slot in slots[:half])
            return self._first_that_do(state, slots[half:], choices, failed=failed)
        for rule in choices(state, slots[0])[1:]:
            changed = self.changed(state, {slots[0]: rule})
            if changed is not None:
                return changed
        return state

    def _simpler(self, state: State, slot: Slot) -> list[Rule]:
        now = state.assignment.rules[slot]
        rules = [*self.near(slot), *(self._far[slot] if isinstance(now, Learned) else [])]
        return [rule for rule in rules if description_length(rule) < description_length(now)]

    def near(self, slot: Slot) -> list[Rule]:
        """Rules that could be what a head's row does: those near to its pattern, the simplest first."""
        if slot not in self._near:
            layer, head, role = slot
            grammar, own = self.execution.grammar, self.execution.patterns[layer][0, :, head]
            found = list(self._distances(slot))
            singles = [rule for rule, _ in found]
            two = grammar.two_targets(role, own, singles)
            further = [*([] if two is None else [two]), *grammar.weighted(role, own)]
            found += [(rule, grammar.distance(role, rule, own)) for rule in further]
            farthest = min(min((distance for _, distance in found), default=1.0) + _NEAR, _SHARP)
            found.sort(key=lambda pair: description_length(pair[0]))
            near = [rule for rule, distance in found if distance <= farthest]
            # Where there are chains a mean map says the least that can be said: it may be far.
            self._near[slot] = near if grammar.weighs else [*near, MeanMap()]
            # Mean weights are near to everything: a rule that a row needs can be farther than they are.
            far = [rule for rule, distance in found if farthest < distance <= _SHARP]
            self._far[slot] = far if grammar.weighs else []
        return self._near[slot]

    def nearest_distance(self, slot: Slot) -> float:
        """How far a head's pattern is from the nearest rule."""
        return min((distance for _, distance in self._distances(slot)), default=1.0)

    def _distances(self, slot: Slot) -> list[tuple[Rule, float]]:
        """Rules of one target with their distances from a head's pattern."""
        if slot not in self._distant:
            layer, head, role = slot
            grammar, own = self.execution.grammar, self.execution.patterns[layer][0, :, head]
            rules = [rule for rule in grammar.rules(role) if not reads_nothing(rule)]
            self._distant[slot] = [(rule, grammar.distance(role, rule, own)) for rule in rules]
        return self._distant[slot]

    def is_diffuse(self, slot: Slot) -> bool:
        """Whether no rule describes a head's pattern."""
        return self.nearest_distance(slot) >= _SHARP

    def reachable(self) -> list[Slot]:
        """Slots that can matter at all: in the last layer, only the rows that are read out."""
        last = self.execution.model.config.layers - 1
        readout = torch.zeros(self.execution.grammar.rows.shape[-1], dtype=torch.bool)
        readout[list(self.execution.model.config.readout_positions)] = True
        asked = (self.execution.grammar.rows & readout).any((1, 2))
        return [slot for slot in self.execution.slots if slot[0] < last or bool(asked[slot[2]])]

    def importance(self, slots: Sequence[Slot]) -> dict[Slot, float]:
        """Loss with one slot uniform and all other patterns as they are (mode *clean*)."""
        start = self.start()
        found = {}
        for slot in slots:
            assignment = self.execution.assigned(start.assignment, {slot: NOTHING[0]})
            passed = self.execution.run(assignment, "rules", slot[0], self.execution.clean)
            found[slot] = self.criterion.loss(passed.predictions, self.execution.grammar.batch)
        return found

    def circuit(self, order: Sequence[Slot]) -> State:
        """A minimal circuit: slots are taken away in this order, and what stays is given rules.

        Taking away stops short of the threshold at first, or nothing would be left for the rules to cost.
        """
        self.share = _AT_FIRST
        state = self.remove(self.start(), sorted(set(self.execution.slots) - set(order)))
        state = self.simplify(state, [slot for slot in order if self.nearest_distance(slot) < _CLEAR])
        state = self._removed(state, order)
        self.share = 1.0
        while True:
            before = state.assignment.rules
            state = self.simplify(state, [slot for slot in order if self._unnamed(state, slot)])
            state = self._removed(state, order)
            if state.assignment.rules == before:
                return state

    def _removed(self, state: State, order: Sequence[Slot]) -> State:
        return self.remove(state, [slot for slot in order if self._in_circuit(state, slot)])

    @staticmethod
    def _unnamed(state: State, slot: Slot) -> bool:
        return isinstance(state.assignment.rules[slot], Learned | MeanMap | History | TwoTargets)
