"""Reading the circuit of a trained model: appendix E of the paper, without the human.

1.  Rows are grouped by role.  Every row role of every head is a *slot*.
2.  The search (`search`) lets as many slots as possible read nothing and finds the simplest rule for each of the
    others, several times: in the order of importance, in random orders, and once without each path of the smallest
    circuit (how often, and whether in further orders while no circuit holds, `ReaderConfig` says).  All minimal
    circuits are kept.
3.  The smallest (that holds, if that is asked for) is validated on fresh samples, in the modes *rules* and
    *recomputed* (in the first alone, if that is the proof that is asked for); every path is taken away once more, in
    three modes; everything but the circuit is kept; random circuits of the same size stand beside it.

Modes: *rules* (the paper's): every pattern is its rule, a removed path reads uniformly.  *clean*: one path reads
uniformly, all other patterns are the sample's own.  *recomputed*: paths use their own softmax over the streams as they
have become, rows outside of the circuit read nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from hopscope import rng
from hopscope.circuits.built_in_tasks import ReadTask, circuit_task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.circuit_task import CircuitTask, Use
from hopscope.circuits.config import LEAST_EFFECT, NOT_LEARNED, READ, UNEXPLAINED, ReaderConfig
from hopscope.circuits.criteria import FaithfulnessCriterion
from hopscope.circuits.execution import Assignment, Execution, Mode, Passed, Slot, mean_attention
from hopscope.circuits.path_patching import Carried, Composition, PathPatching, least_effect
from hopscope.circuits.search import Search
from hopscope.circuits.virtual_model import quickest
from hopscope.models.patterns import NOTHING, Identity, MeanMap, Rule, Uniform, reads_nothing
from hopscope.models.transformer import Transformer

HELD = 0.75
"""Share of what may be lost, that a circuit may use up on further sequences of the kind that it was searched on, to
count as one that holds (what its search could use up, if that is more): those for the report can be harder."""


@dataclass(frozen=True)
class PathEvidence:
    """What the removal of one path does.

    Attributes:
        mean_attention: on the rule's keys, in the unedited model; of a mean map, the share that follows it.
        removed: loss without it, by mode.
        needed_for: the first target that is lost without this read, in whatever heads of the circuit it is done, and
            whether its rows then read uniformly or themselves, where patterns are recomputed (or follow their rules,
            where these are the proof); `None` if none is.
        carries: what it could bring (`x_2`, `position`), and what becomes of the answers if that alone is exchanged.
        composition: its uses, the strongest first.
    """

    mean_attention: float
    removed: dict[str, float]
    needed_for: str | None
    carries: tuple[Carried, ...]
    composition: tuple[Composition, ...]


@dataclass(frozen=True)
class Reading:
    """What was found in one model.

    Attributes:
        learned: names of the learned targets.
        threshold: τ.
        circuit: the smallest minimal circuit, of those that hold if that is asked for; empty for a model that never
            learned.
        minimal: every minimal circuit, and how many searches found it.
        evidence: for each path of the circuit.
        loss: over the learned targets: `full`, `rules`, `recomputed`, `complement` (everything but the circuit, as it
            is), and `random_circuits`, a list.
        worst: largest partial loss of a learned target in mode recomputed; of a permutation model the largest accuracy
            lost of a learned skill, of a task of one's own the largest share of its floor that a learned part has.
        role_words: row roles in words, by number.
        merges: (head, head) where all paths of the first could be moved to the second.
        verdict: `READ`, `UNEXPLAINED` with the reason, or `NOT_LEARNED`.
        least_effect: rise of the loss from which on something counts as carried.
    """

    learned: tuple[str, ...]
    threshold: float
    circuit: Circuit
    minimal: tuple[tuple[Circuit, int], ...]
    evidence: tuple[PathEvidence, ...]
    loss: dict[str, Any]
    worst: float
    role_words: tuple[str, ...]
    merges: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    verdict: str
    least_effect: float = LEAST_EFFECT


Stages = MutableMapping[str, Any]
"""Finished stages of a reading as JSON values, by name: an interrupted reading goes on from them."""


def read_circuit(
    model: Transformer,
    task: ReadTask,
    config: ReaderConfig | None = None,
    *,
    stages: Stages | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Reading:
    """Read the circuit of a model.

    Args:
        model: with `member == 1`.
        task: the task that it was trained on.
        config: how.
        stages: where finished stages are kept, and taken from.
        progress: told what is being done.

    Raises:
        UserError: the threshold is below the loss of the unablated model.
    """
    circuit_task = circuit_task_of(task)
    return _Reader(
        circuit_task.model(model),
        circuit_task,
        config or ReaderConfig(),
        {} if stages is None else stages,
        progress,
    ).read()


class _Reader:
    def __init__(
        self,
        model: Transformer,
        task: CircuitTask,
        config: ReaderConfig,
        stages: Stages,
        progress: Callable[[str], None],
    ):
        self.config, self.stages, self.progress, self.task = config, stages, progress, task
        self.model = quickest(model)
        self.fresh = self._execution(config.validation or task.validation, "report")
        clean = self.fresh.clean.predictions
        self.criterion = task.criterion(clean, self.fresh.grammar.batch, config.threshold)
        self.modes: tuple[Mode, ...] = self.config.modes
        self._held: dict[str, bool] = {}

    def _execution(self, samples: int, use: Use) -> Execution:
        batch = self.task.batch(self.config.seed, samples, use)
        return Execution(self.model, self.task.grammar(batch, causal=self.model.config.causal))

    def read(self) -> Reading:
        if not self.criterion.names:
            return Reading(
                (), self.criterion.threshold, Circuit(paths=()), (), (), {}, 0.0, (), (), NOT_LEARNED
            )
        execution = self._execution(self.config.samples or self.task.samples, "search")
        criterion = self.criterion.on(execution.clean.predictions, execution.grammar.batch)
        self.search = Search(execution, criterion, self.modes, self.config.searched)
        found = self._minimal_circuits()
        return self._validated(self._best(circuit for circuit, _ in found), found)

    def _stage(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.stages:
            self.progress(name)
            self.stages[name] = make()
        return self.stages[name]

    # Search.

    def _minimal_circuits(self) -> list[tuple[Circuit, int]]:
        slots = self.search.reachable()
        importance = dict(
            zip(
                slots,
                self._stage("importance", lambda: list(self.search.importance(slots).values())),
                strict=True,
            )
        )
        # Diffuse rows go first: what would remain of them is no read that anybody could name.
        by_importance = self._diffuse_first(sorted(slots, key=importance.__getitem__))
        found = [self._circuit("order by importance", by_importance)]
        for number in range(self.config.orders + self.config.further_orders):
            if number >= self.config.orders and any(map(self._holds, found)):
                break
            found.append(self._circuit(f"order {number}", self._diffuse_first(self._shuffled(slots, number))))
        self._without_each(found, by_importance)
        # By paths, not by reads: the same reads by other heads are another way to do them.
        counted = Counter(circuit.model_dump_json() for circuit in found)
        return [(Circuit.model_validate_json(circuit), times) for circuit, times in counted.items()]

    def _diffuse_first(self, slots: Sequence[Slot]) -> list[Slot]:
        return sorted(slots, key=lambda slot: not self.search.is_diffuse(slot))

    def _circuit(self, name: str, order: Sequence[Slot]) -> Circuit:
        def search() -> Any:
            state = self.search.circuit(order)
            return Circuit.of(state.assignment, self.search.execution.grammar).model_dump(mode="json")

        return Circuit.model_validate(self._stage(name, search))

    def _without_each(self, found: list[Circuit], order: list[Slot]) -> None:
        """Look for circuits without each path of the best one: other ways to do the same."""
        rules = self._best(found).rules(self.search.execution.grammar, self.search.execution.slots)
        for slot in (
            slot for slot, rule in rules.items() if not isinstance(rule, Uniform | Identity | MeanMap)
        ):
            if len(found) < self.config.most_circuits and self._stage(
                f"without {slot}", partial(self._can_go, slot)
            ):
                first = [slot, *(other for other in order if other != slot)]
                found.append(self._circuit(f"order without {slot}", first))

    def _best(self, circuits: Iterable[Circuit]) -> Circuit:
        """The smallest, of those that are explained if there are any, and hold if that is asked for."""

        def rank(circuit: Circuit) -> tuple[bool, bool, int, int]:
            holds = not self.config.further_orders or self._holds(circuit)
            return not holds, not circuit.explained, len(circuit.reads), len(circuit.paths)

        return min(circuits, key=rank)

    def _holds(self, circuit: Circuit) -> bool:
        """Whether a circuit is explained, and uses up at most `HELD` of what may be lost on sequences drawn anew."""
        # By paths, as equal circuits in other heads are other ways to do the same.
        name = circuit.model_dump_json()
        if name not in self._held:
            anew, criterion = self._anew
            self._held[name] = circuit.explained and all(
                criterion.reached(
                    mode,
                    circuit.run(anew, mode).predictions,
                    anew.grammar.batch,
                    max(HELD, self.search.searched),
                )
                for mode in self.modes
            )
        return self._held[name]

    @cached_property
    def _anew(self) -> tuple[Execution, FaithfulnessCriterion]:
        """The model on further sequences of the kind that is searched on, and the criterion there."""
        anew = self._execution(self.config.validation or self.task.validation, "check")
        return anew, self.criterion.on(anew.clean.predictions, anew.grammar.batch)

    def _can_go(self, slot: Slot) -> bool:
        return slot not in self.search.remove(self.search.start(), [slot]).assignment.circuit

    def _shuffled(self, slots: Sequence[Slot], number: int) -> list[Slot]:
        words = rng.bits(self.config.seed, "circuit", 2 + number, torch.arange(len(slots)))[:, 0]
        return [slots[place] for place in words.argsort().tolist()]

    # Validation.

    def _validated(self, circuit: Circuit, found: Sequence[tuple[Circuit, int]]) -> Reading:
        self.progress("validation")
        fresh, criterion = self.fresh, self.criterion
        batch = fresh.grammar.batch
        rules = circuit.rules(fresh.grammar, fresh.slots)
        assignment = fresh.assigned(fresh.untouched(), rules)
        patching = PathPatching(fresh, criterion, assignment)
        passed: dict[Mode, Passed] = {"rules": fresh.run(assignment, "rules"), "recomputed": patching.base}
        inside = [slot for slot, rule in rules.items() if not reads_nothing(rule)]
        loss: dict[str, Any] = {
            "full": criterion.full,
            **{mode: criterion.loss(each.predictions, batch) for mode, each in passed.items()},
            "complement": self._loss(fresh.assigned(fresh.untouched(), dict.fromkeys(inside, Uniform()))),
            "random_circuits": self._random_circuits(len(inside)),
        }
        carried = patching.carries(self.task.counterfactuals(self.model, batch))
        needed = self._needed_for(assignment, passed[self.modes[-1]])
        evidence = tuple(
            self._path_evidence(
                assignment, passed, slot, carried[slot], needed[slot], patching.composition(slot)
            )
            for slot in sorted(inside)
        )
        worst = criterion.worst(patching.base.predictions, batch)
        merges = self._merges(circuit)
        words = tuple(map(fresh.grammar.words, fresh.grammar.roles))
        # A proof that is not asked for finds no fault: the model itself stands for it.
        answers: dict[str, Tensor] = {
            mode: (each if mode in self.modes else fresh.clean).predictions for mode, each in passed.items()
        }
        verdict = self._verdict(circuit, criterion.fault(answers, batch))
        return Reading(
            criterion.names, criterion.threshold, circuit, tuple(found), evidence, loss, worst, words, merges, verdict,
            least_effect(criterion),
        )  # fmt: skip

    def _loss(
        self, assignment: Assignment, mode: Mode = "rules", start: int = 0, base: Passed | None = None
    ) -> float:
        """Loss on the fresh samples; arguments as of `Execution.run`."""
        passed = self.fresh.run(assignment, mode, start, base)
        return self.criterion.loss(passed.predictions, self.fresh.grammar.batch)

    def _random_circuits(self, size: int) -> list[float]:
        """Losses under random circuits: other rows, other rules, the same number of them."""
        fresh = self.fresh
        nothing = fresh.assigned(fresh.untouched(), dict.fromkeys(fresh.slots, Uniform()))
        passed, losses = fresh.run(nothing, "rules"), []
        for number in range(self.config.random_circuits):
            rules = self._random_rules(size, number)
            first = min((slot[0] for slot in rules), default=0)
            losses.append(self._loss(fresh.assigned(nothing, rules), "rules", first, passed))
        return losses

    def _random_rules(self, size: int, number: int) -> dict[Slot, Rule]:
        fresh = self.fresh
        slots = self._shuffled(self.search.reachable(), 1000 + number)[:size]
        words = rng.bits(self.config.seed, "circuit", 5000 + number, torch.arange(len(slots)))[:, 0].tolist()
        rules: dict[Slot, Rule] = {}
        for slot, word in zip(slots, words, strict=True):
            choices = [rule for rule in fresh.grammar.rules(slot[2]) if not reads_nothing(rule)]
            if choices:
                rules[slot] = choices[word % len(choices)]
        return rules

    def _path_evidence(
        self,
        assignment: Assignment,
        passed: Mapping[Mode, Passed],
        slot: Slot,
        carries: tuple[Carried, ...],
        needed_for: str | None,
        uses: Sequence[Composition],
    ) -> PathEvidence:
        fresh, layer = self.fresh, slot[0]
        without = fresh.assigned(assignment, {slot: Uniform()})
        alone = fresh.assigned(fresh.untouched(), {slot: Uniform()})
        removed = {
            "rules": self._loss(without, "rules", layer, passed["rules"]),
            "clean": self._loss(alone, "rules", layer, fresh.clean),
            "recomputed": self._loss(without, "recomputed", layer, passed["recomputed"]),
        }
        attention = mean_attention(fresh, slot, assignment.rules[slot])
        return PathEvidence(attention, removed, needed_for, carries, tuple(uses))

    def _needed_for(self, assignment: Assignment, intact: Passed) -> dict[Slot, str | None]:
        """For each path, the first target that is lost without its read, in whatever heads that is done."""
        fresh = self.fresh
        reads: dict[tuple[int, str], list[Slot]] = {}
        for slot in assignment.circuit:
            target = fresh.grammar.target(slot[2], assignment.rules[slot]) or str(slot)
            reads.setdefault((slot[2], target), []).append(slot)
        found: dict[Slot, str | None] = {}
        for slots in reads.values():
            lost = [self._lost(assignment, slots, nothing, intact) for nothing in NOTHING]
            # To read uniformly may do harm of its own: what is needed is lost however nothing is read.
            both = [name for name in lost[0] if all(name in other for other in lost)]
            found |= dict.fromkeys(slots, both[0] if both else None)
        return found

    def _lost(
        self, assignment: Assignment, slots: Sequence[Slot], nothing: Rule, intact: Passed
    ) -> list[str]:
        """What is lost where some paths read nothing and the rest is recomputed, or follows its rules."""
        fresh = self.fresh
        without = fresh.assigned(assignment, dict.fromkeys(slots, nothing))
        passed = fresh.run(without, self.modes[-1], min(layer for layer, _, _ in slots), intact)
        return self.criterion.lost(passed.predictions, intact.predictions, fresh.grammar.batch)

    def _merges(self, circuit: Circuit) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
        """Pairs of heads of which the second could do what both do (paper, section 8.2, ii)."""
        search = self.search
        execution = search.execution
        rules = circuit.rules(execution.grammar, execution.slots)
        base = execution.assigned(execution.untouched(), rules)
        reads: dict[tuple[int, int], dict[int, Rule]] = {}
        for (layer, head, role), rule in rules.items():
            if not isinstance(rule, Uniform | Identity | MeanMap):
                reads.setdefault((layer, head), {})[role] = rule
        merges = []
        for one, theirs in reads.items():
            gone: dict[Slot, Rule] = {(*one, role): Uniform() for role in theirs}
            if self._kept(base, gone):
                continue  # nobody needs its values, so to move them would prove nothing
            for other, mine in reads.items():
                moved = {(*other, role): rule for role, rule in theirs.items()}
                if not set(theirs) & set(mine) and self._kept(base, gone | moved):
                    merges.append((one, other))
        return tuple(merges)

    def _kept(self, base: Assignment, changes: dict[Slot, Rule]) -> bool:
        execution = self.search.execution
        passed = execution.run(execution.assigned(base, changes), "rules")
        criterion = self.search.criterion
        return criterion.reached("rules", passed.predictions, execution.grammar.batch, self.search.searched)

    @staticmethod
    def _verdict(circuit: Circuit, fault: str | None) -> str:
        unexplained = [str(path) for path in circuit.paths if path.rule.kind == "learned"]
        if unexplained:
            return f"{UNEXPLAINED}: no rule for {'; '.join(unexplained)}"
        return READ if fault is None else f"{UNEXPLAINED}: {fault}"
