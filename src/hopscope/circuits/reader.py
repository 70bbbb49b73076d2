"""Reading the circuit of a trained model: appendix E of the paper, without the human (docs/circuits.md).

Every row role of every head is a *slot*.  The search finds minimal circuits; the smallest is validated on fresh
samples, where every path is taken away once more.  A removed path reads uniformly, in three modes.  *rules* (the
paper's): every pattern is given by its rule.  *clean*: patterns are as in the unedited model.  *recomputed*: paths use
their own softmax over the streams as they have become, rows outside of the circuit read nothing.  A circuit runs in the
first mode or the last (`Mode`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from pydantic import Field

from hopscope import rng
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.criterion import Criterion, criterion_of
from hopscope.circuits.execution import MODES, Execution, Mode, Pass, Slot
from hopscope.circuits.grammar import Grammar, Rows
from hopscope.circuits.path_patching import PathPatching, Use, exchanged
from hopscope.circuits.rules import NOTHING, Learned, Rule, Uniform, is_sharp, reads_nothing
from hopscope.circuits.search import Search
from hopscope.config import Config
from hopscope.errors import UserError
from hopscope.models.transformer import Transformer
from hopscope.tasks import Task, draw

Merge = tuple[tuple[int, int], tuple[int, int]]

READ, NOT_LEARNED, UNEXPLAINED = "read", "no circuit: above plateau", "unexplained"
"""Verdicts on a model; the last with the reason behind it."""

HELD = 0.75
"""A circuit holds if it uses up at most this share of the allowed loss (or `searched`, if that is more) on new samples
of the kind that it was searched on.  Samples of the report can be harder."""

# Use and step of samples.
_DRAWS = {"search": ("circuit", 0), "check": ("circuit", 1), "report": ("held-out", 1)}
# Samples to search on.  Classes say less than vectors do: of these as many as have so many weights of a head.
_VECTORS, _MOST_WEIGHTS, _FEWEST, _MOST = 48, 32_000, 32, 512
_REPORTED = 4  # how many times as many are reported on


class ReaderConfig(Config):
    """How a model is read.

    Attributes:
        threshold: τ; by default that of the criterion.
        proof: what a circuit must hold under: `both`, its rules and its own softmax recomputed; or `rules` alone, as in
            the paper, which keep no head that only shapes the keys of later ones.
        samples, validation: for the search (by default 32 to 512), and fresh ones for the report (four times as many).
        orders: random orders of elimination.
        further_orders: at most so many more, until a circuit is explained and holds on samples drawn anew; the circuit
            is then chosen among such ones.
        most_circuits: after so many searches none begins for another circuit, without some path of the smallest one.
        random_circuits: of equal size, for comparison.
        searched: share of the allowed loss that a search may use up, so that its circuits hold on fresh samples too.
        seed: of orders, random circuits and samples.
    """

    threshold: float | None = None
    proof: Literal["both", "rules"] = "both"
    samples: int | None = Field(None, ge=1)
    validation: int | None = Field(None, ge=1)
    orders: int = Field(4, ge=0)
    further_orders: int = Field(0, ge=0)
    most_circuits: int = Field(12, ge=0)
    random_circuits: int = Field(20, ge=0)
    searched: float = Field(0.75, gt=0.0, le=1.0)
    seed: int = Field(0, ge=0, lt=1 << 62)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The ways to run a circuit under which it must hold, by `proof`."""
        return MODES[:1] if self.proof == "rules" else MODES

    def again(self, number: int) -> "ReaderConfig":
        """The same for a further reading, from 1: with other orders and samples, and without random circuits."""
        return self.model_copy(update={"seed": self.seed + number, "random_circuits": 0})


class Evidence(Config, allow_inf_nan=True, ser_json_inf_nan="constants"):
    """What the removal of one path does.

    Attributes:
        mean_attention: on the rule's keys, in the unedited model; of a mean map, the share that follows it.
        removed: loss without it, by mode.
        needed_for: the first target that is lost when no head of the circuit does this read, both where its rows then
            read uniformly and where they read themselves; `None` if none is.
        carries: what it could bring, and the rise of the loss if that alone is exchanged.
        composition: its uses, the strongest first.
    """

    mean_attention: float
    removed: dict[str, float]
    needed_for: str | None
    carries: dict[str, float]
    composition: tuple[Use, ...]


class Reading(Config, allow_inf_nan=True, ser_json_inf_nan="constants"):
    """What was found in one model.

    Attributes:
        verdict: `READ`, `NOT_LEARNED`, or `UNEXPLAINED` with the reason.
        learned: names of the learned targets.
        threshold: τ; `least_effect`: rise of the loss from which on something counts as carried.
        circuit: the smallest; `evidence` has an entry for each of its paths.
        minimal: all that were found, and how often.
        loss: of the model (`full`), of the circuit by mode, and of everything but the circuit (`complement`).
        random: losses of random circuits of the same size.
        worst: largest loss when recomputed, as a share of its floor; of skills, the accuracy lost.
        merges: pairs of heads (layer, head) of which the second could do what both do (paper, section 8.2, ii).
    """

    verdict: str
    learned: tuple[str, ...]
    threshold: float
    least_effect: float
    circuit: Circuit = Circuit()
    evidence: tuple[Evidence, ...] = ()
    minimal: tuple[tuple[Circuit, int], ...] = ()
    loss: dict[str, float] = {}
    random: tuple[float, ...] = ()
    worst: float = 0.0
    merges: tuple[Merge, ...] = ()


def read(
    model: Transformer, task: Task, config: ReaderConfig | None = None, progress: Callable[[str], None] = lambda _: None
) -> Reading:  # fmt: skip
    """Read the circuit of a single model, or of an ensemble of one member (see the module).

    `task` is what it was trained on; `progress` is told what is being done.  `UserError`: the threshold is below the
    loss of the unablated model, or there are several members.
    """
    return Reader(model, task, config or ReaderConfig()).read(progress)


class Reader:
    """One model on the samples that it is read on.

    Attributes:
        fresh, criterion: the model on the samples that are reported on, and what a circuit must reach there.
    """

    def __init__(self, model: Transformer, task: Task, config: ReaderConfig):
        if len(model) > 1:
            raise UserError(f"model: expected a single one, found {len(model)} members; take .member(i)")
        self._model = model.member(0) if model.members is not None else model
        self._task, self._config = task, config
        usual = min(_MOST, max(_FEWEST, _MOST_WEIGHTS // model.config.length**2))
        self._samples = config.samples or (_VECTORS if task.shape().outputs == "vectors" else usual)
        self._rows = Rows.drawn(task, config.seed, self._model.readout.weight.device)
        self.fresh = self._execution("report")
        batch, clean = self.fresh.grammar.batch, self.fresh.clean
        self.criterion = criterion_of(task, batch, clean.predictions, config.threshold)

    def _execution(self, what: str) -> Execution:
        fresh, causal = self._config.validation or _REPORTED * self._samples, self._model.config.causal
        seeds = torch.tensor([self._config.seed], device=self._model.readout.weight.device)
        batch = draw(self._task, seeds, *_DRAWS[what], self._samples if what == "search" else fresh)
        return Execution(self._model, Grammar(self._task, self._rows, batch, causal=causal))

    def read(self, progress: Callable[[str], None]) -> Reading:
        """See `read` of the module."""
        criterion, config = self.criterion, self._config
        about: dict[str, Any] = {"learned": criterion.names, "threshold": criterion.threshold}
        about["least_effect"] = criterion.least_effect
        if not criterion.names:
            return Reading(verdict=NOT_LEARNED, **about)
        execution = self._execution("search")
        self._search = Search(execution, criterion.on(execution), config.modes, config.searched)
        found = self._minimal(progress)
        progress("validation")
        return Reading(**about, **self._validated(self._best(found), found))

    # Search.

    def _minimal(self, progress: Callable[[str], None]) -> list[Circuit]:
        config, search, found = self._config, self._search, list[Circuit]()

        def look(name: str, order: Sequence[Slot]) -> None:
            progress(name)
            found.append(Circuit.of(search.circuit(order), search.execution.grammar))

        by_importance = search.by_importance()
        look("order by importance", by_importance)
        for number in range(config.orders + config.further_orders):
            if number >= config.orders and any(map(self._holds, found)):
                break
            look(f"order {number}", search.ordered(self._shuffled(search.execution.reachable, 2 + number)))
        # Circuits without each path of the best one: other ways to do the same.
        for slot, rule in self._best(found).rules(search.execution).items():
            if is_sharp(rule) and len(found) < config.most_circuits and search.can_go(slot):
                look(f"order without {slot}", [slot, *(other for other in by_importance if other != slot)])
        return found

    def _best(self, circuits: Iterable[Circuit]) -> Circuit:
        # The smallest, of those that are explained if there are any, and hold if that is asked for.
        def rank(circuit: Circuit) -> tuple[bool, bool, int, int]:
            holds = not self._config.further_orders or self._holds(circuit)
            return not holds, not circuit.explained, len(circuit.reads), len(circuit.paths)

        return min(circuits, key=rank)

    def _holds(self, circuit: Circuit) -> bool:
        (anew, criterion), most = self._anew, max(HELD, self._config.searched)
        passed = ((mode, circuit.run(anew, mode).predictions) for mode in self._config.modes)
        return circuit.explained and all(criterion.budget_used(*each) <= most for each in passed)

    @cached_property
    def _anew(self) -> tuple[Execution, Criterion]:
        execution = self._execution("check")
        return execution, self.criterion.on(execution)

    def _words(self, number: int, count: int) -> list[int]:
        return rng.bits(self._config.seed, "circuit", number, torch.arange(count))[:, 0].tolist()

    def _shuffled(self, slots: Sequence[Slot], number: int) -> list[Slot]:
        words = self._words(number, len(slots))
        return [slots[place] for place in sorted(range(len(slots)), key=words.__getitem__)]

    # Validation.

    def _validated(self, circuit: Circuit, found: Sequence[Circuit]) -> dict[str, Any]:
        fresh, criterion = self.fresh, self.criterion
        circuit = Circuit.of(circuit.rules(fresh), fresh.grammar)  # what a rule leads to, on more samples
        passed: dict[str, Pass] = {mode: circuit.run(fresh, mode) for mode in MODES}
        predictions = {mode: passed[mode].predictions for mode in MODES}
        bases = {"clean": fresh.clean, **passed}
        some, slots = fresh.grammar.batch.take(slice(self._samples)), sorted(passed["rules"].circuit)
        on_few = criterion.on(fresh, self._samples)
        patching = PathPatching(fresh, on_few, passed["recomputed"].first(self._samples))
        carried = patching.carries(exchanged(self._task, self._rows, some, fresh))
        needed = self._needed_for(passed[self._config.modes[-1]])
        evidence = [
            Evidence(
                mean_attention=fresh.attention_on(slot, passed["rules"].rules[slot]),
                removed={name: self._without(base, slot) for name, base in bases.items()},
                needed_for=needed[slot],
                carries=carried[slot],
                composition=patching.composition(slot),
            )
            for slot in slots
        ]
        losses = {str(mode): criterion.loss(each) for mode, each in predictions.items()}
        losses |= {"full": criterion.full, "complement": self._without(fresh.clean, *slots)}
        fault = criterion.fault({mode: predictions[mode] for mode in self._config.modes})
        if not circuit.explained:
            fault = f"no rule for {'; '.join(str(path) for path in circuit.paths if path.rule == Learned())}"
        elif not fresh.grammar.rows.any(0).all():
            fault = "fresh samples have rows with roles that were never searched"
        # By paths, not by reads: the same reads by other heads are another way to do them.
        counted = Counter(each.model_dump_json() for each in found)
        return {
            "verdict": READ if fault is None else f"{UNEXPLAINED}: {fault}",
            "circuit": circuit,
            "evidence": evidence,
            "minimal": [(Circuit.model_validate_json(each), times) for each, times in counted.items()],
            "loss": losses,
            "random": self._random(len(evidence)),
            "worst": criterion.worst(predictions["recomputed"]),
            "merges": self._merges(circuit),
        }

    def _random(self, size: int) -> list[float]:
        fresh, losses = self.fresh, list[float]()
        nothing = Circuit().run(fresh)
        for number in range(self._config.random_circuits):
            slots = self._shuffled(self._search.execution.reachable, 1000 + number)[:size]
            rules: dict[Slot, Rule] = {}
            for slot, word in zip(slots, self._words(5000 + number, len(slots)), strict=True):
                choices = [rule for rule, _ in fresh.grammar.candidates(slot[2]) if not reads_nothing(rule)]
                rules |= {slot: choices[word % len(choices)]} if choices else {}
            losses.append(self.criterion.loss(fresh.under(nothing, rules).predictions))
        return losses

    def _without(self, base: Pass, *slots: Slot) -> float:
        return self.criterion.loss(self.fresh.under(base, dict.fromkeys(slots, Uniform())).predictions)

    def _needed_for(self, intact: Pass) -> dict[Slot, str | None]:
        grammar, reads = self.fresh.grammar, defaultdict[tuple[int, str], list[Slot]](list)
        for slot in intact.circuit:
            reads[slot[2], grammar.target(slot[2], intact.rules[slot]) or str(slot)].append(slot)
        found: dict[Slot, str | None] = {}
        for slots in reads.values():
            # To read uniformly may do harm of its own: what is needed is lost however nothing is read.
            without = (self.fresh.under(intact, dict.fromkeys(slots, nothing)) for nothing in NOTHING)
            lost, as_well = (self.criterion.lost(each.predictions, intact.predictions) for each in without)
            found |= dict.fromkeys(slots, next((name for name in lost if name in as_well), None))
        return found

    def _merges(self, circuit: Circuit) -> list[Merge]:
        search, reads = self._search, defaultdict[tuple[int, int], dict[int, Rule]](dict)
        base = circuit.run(search.execution)

        def kept(changes: Mapping[Slot, Rule]) -> bool:
            now = search.execution.under(base, changes).predictions
            return search.criterion.budget_used("rules", now) <= search.searched

        for (layer, head, role), rule in base.rules.items():
            if is_sharp(rule):
                reads[layer, head][role] = rule
        merges = []
        for one, theirs in reads.items():
            gone: dict[Slot, Rule] = {(*one, role): Uniform() for role in theirs}
            # Where nobody needs its values, to move them would prove nothing.
            for other, mine in () if kept(gone) else reads.items():
                moved = {(*other, role): rule for role, rule in theirs.items()}
                if not set(theirs) & set(mine) and kept(gone | moved):
                    merges.append((one, other))
        return merges
