"""What stands beside a circuit: bounds for each of its paths, and what it reaches in another model.

A path's effect says little by itself.  Beside it stands what it costs to take the same rows away in heads that the
circuit does not name, and in all heads of the path's layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from hopscope import rng
from hopscope.circuits.built_in_tasks import ReadTask, circuit_task_of
from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.config import ReaderConfig
from hopscope.circuits.criteria import FaithfulnessCriterion, Predictions
from hopscope.circuits.execution import Execution, Mode, Slot
from hopscope.circuits.virtual_model import quickest
from hopscope.errors import UserError
from hopscope.models.patterns import Uniform, reads_nothing
from hopscope.models.transformer import Transformer

OTHERS = 20
"""Heads outside of the circuit of which the rows of a path are taken away, at most."""

_STREAM = 9000
"""Number of the first random draw; the reader's own are lower."""


@dataclass(frozen=True)
class PathBounds:
    """What one path costs, between two bounds: losses of the model itself over the targets that it learned.

    All other attention is the model's own, and follows what is changed below it.

    Attributes:
        path: the path.
        removed: loss where its rows read uniformly.
        others: the same of the same rows in heads that the circuit does not name, drawn at random.
        layer: the same in all heads of the path's layer at once.
    """

    path: Path
    removed: float
    others: tuple[float, ...]
    layer: float


@dataclass(frozen=True)
class Transferred:
    """What a circuit reaches in a model; mean losses over the targets that the model has learned.

    Attributes:
        full: of the model itself.
        rules: where every pattern is its rule.
        recomputed: where paths use their own softmax over the streams as they have become.
    """

    full: float
    rules: float
    recomputed: float


def path_bounds(
    model: Transformer, task: ReadTask, circuit: Circuit, config: ReaderConfig | None = None
) -> list[PathBounds]:
    """The bounds of every path of a circuit.

    Args:
        model: with `member == 1`, which has learned something.
        task: that it was trained on.
        circuit: its own, or another one.
        config: of the sequences, and of the random draws.

    Raises:
        UserError: the circuit does not fit the model.
    """
    config = config or ReaderConfig()
    execution, criterion = _reported(model, task, [circuit], config)
    rules = circuit.rules(execution.grammar, execution.slots)
    outside = [slot for slot, rule in rules.items() if reads_nothing(rule)]

    def cost(slots: Sequence[Slot]) -> float:
        first = min(layer for layer, _, _ in slots)
        gone = execution.assigned(execution.untouched(), dict.fromkeys(slots, Uniform()))
        passed = execution.run(gone, "recomputed", first, execution.clean)
        return criterion.loss(passed.predictions, execution.grammar.batch)

    # Paths of the same rows share their others: each head is taken away once.
    known: dict[Slot, float] = {}
    found = []
    for path in circuit.paths:
        role = execution.grammar.roles.index(path.roles)
        heads = range(execution.model.config.heads)
        others = _drawn([slot for slot in outside if slot[2] == role], config.seed, role)
        known |= {slot: cost([slot]) for slot in others if slot not in known}
        found.append(
            PathBounds(
                path,
                cost([(path.layer, path.head, role)]),
                tuple(known[slot] for slot in others),
                cost([(path.layer, head, role) for head in heads]),
            )
        )
    return found


def transferred(
    model: Transformer, task: ReadTask, circuits: Sequence[Circuit], config: ReaderConfig | None = None
) -> list[Transferred]:
    """What circuits, such as those that were read in other seeds, reach in a model; one entry for each circuit.

    Args:
        model, task, config: as of `path_bounds`.
        circuits: whose layers and heads are meant as they are numbered.

    Raises:
        UserError: a circuit does not fit the model.
    """
    execution, criterion = _reported(model, task, circuits, config or ReaderConfig())

    def loss(circuit: Circuit, mode: Mode) -> float:
        return criterion.loss(circuit.run(execution, mode).predictions, execution.grammar.batch)

    return [
        Transferred(criterion.full, loss(circuit, "rules"), loss(circuit, "recomputed"))
        for circuit in circuits
    ]


def fault_in(
    model: Transformer, task: ReadTask, circuit: Circuit, config: ReaderConfig | None = None
) -> str | None:
    """What a circuit, such as one that was read before weights were rounded, lacks in a model; `None`: it holds.

    It must hold as in a reading: on the sequences that are reported on, for everything that the model has learned,
    under what `config.proof` asks for, with every path by a rule.

    Args:
        model, task, config: as of `path_bounds`.
        circuit: whose layers and heads are meant as they are numbered.

    Raises:
        UserError: the circuit does not fit the model, or the model has learned nothing.
    """
    config = config or ReaderConfig()
    execution, criterion = _reported(model, task, [circuit], config)
    if not circuit.explained:
        return "a path without a rule"
    # A proof that is not asked for finds no fault: the model itself stands for it.
    answers: dict[str, Predictions] = {
        mode: (circuit.run(execution, mode) if mode in config.modes else execution.clean).predictions
        for mode in get_args(Mode)
    }
    return criterion.fault(answers, execution.grammar.batch)


def _reported(
    model: Transformer, task: ReadTask, circuits: Sequence[Circuit], config: ReaderConfig
) -> tuple[Execution, FaithfulnessCriterion]:
    """The model on the sequences that everything about a circuit is reported on."""
    put = circuit_task_of(task)
    shape = put.model(model).config
    batch = put.batch(config.seed, config.validation or put.validation, "report")
    grammar = put.grammar(batch, causal=shape.causal)
    for path in (path for circuit in circuits for path in circuit.paths):
        if path.layer >= shape.layers or path.head >= shape.heads or path.roles not in grammar.roles:
            raise UserError(
                f"circuit: expected rows and heads of a model of {shape.layers} layers with {shape.heads} heads, "
                f"found {path}; take a circuit of a model of the same shape and task"
            )
    execution = Execution(quickest(put.model(model)), grammar)
    criterion = put.criterion(execution.clean.predictions, batch, config.threshold)
    if not criterion.names:
        raise UserError(
            "circuit: expected a model that has learned something, found one whose loss is above the plateau"
        )
    return execution, criterion


def _drawn(slots: Sequence[Slot], seed: int, role: int) -> list[Slot]:
    """At most `OTHERS` of some slots."""
    if len(slots) <= OTHERS:
        return list(slots)
    words = rng.bits(seed, "circuit", _STREAM + role, torch.arange(len(slots)))[:, 0]
    return [slots[place] for place in words.argsort().tolist()[:OTHERS]]
