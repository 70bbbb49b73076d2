"""Reading of external plants: the places that a circuit's rows read, sample by sample, beside the true ones.

`python -m tests.circuits.external` reads all of them as `hopscope circuit` would, and writes the record that the table
in `docs/circuits.md` is made of.  `python -m tests.circuits.external FOLDER` writes them as folders that `hopscope zoo`
scores circuits of.
"""

import json
import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tests.oracles.external.limits import misread_plants
from tests.oracles.external.lines import equations_plants
from tests.oracles.external.outside import outside_plants
from tests.oracles.external.packing import packed
from tests.oracles.external.plant import Plant, Read
from tests.oracles.external.retrieval import retrieval_plants
from tests.oracles.external.tokens import permutation_plants
from tests.oracles.external.trained import TRAINED

from hopscope.circuits.built_in_tasks import ReadTask, circuit_task_of, task_of
from hopscope.circuits.circuit import Circuit
from hopscope.circuits.config import READ, UNEXPLAINED
from hopscope.circuits.execution import Execution
from hopscope.circuits.reader import ReaderConfig, Reading, read_circuit
from hopscope.finders.catalogue import HeadRow, PlantedTruth, ZooModel, export_model
from hopscope.models.patterns import Learned, reads_nothing
from hopscope.models.transformer import Transformer
from hopscope.tasks.config import EquationsConfig, PermutationConfig, RetrievalConfig

_FEW = ReaderConfig(samples=16, validation=32, orders=1, random_circuits=2)

QUICK = {
    "retrieval": _FEW,
    "permutation": _FEW.model_copy(update={"samples": 256, "validation": 512}),
    "equations": _FEW.model_copy(update={"samples": 64, "validation": 128}),
}
"""How plants of each task are read: vectors as the zoo's planted models; right or wrong answers take more sequences."""

_CONFIGS = {"retrieval": RetrievalConfig, "permutation": PermutationConfig, "equations": EquationsConfig}

_ATTENDED = 0.01
"""Share of attention from which on a rule reads a key."""

Cell = tuple[int, int, int, int, int]
"""Layer, head, sample, row, key."""


@dataclass(frozen=True)
class Compared:
    """What was found beside what is true.

    Attributes:
        plant: the plant.
        reading: what the reader says.
        found, true: cells of every minimal circuit.
        seconds: that the reading took.
    """

    plant: Plant
    reading: Reading
    found: frozenset[frozenset[Cell]]
    true: frozenset[frozenset[Cell]]
    seconds: float

    @property
    def same(self) -> bool:
        """Whether every minimal circuit is a true one and every true one was found."""
        return self.reading.verdict == READ and self.found == self.true

    @property
    def precision(self) -> float:
        """Share of the cells found, over all minimal circuits, that are in a true one."""
        found, true = _any(self.found), _any(self.true)
        return len(found & true) / max(1, len(found))

    @property
    def recall(self) -> float:
        """Share of the true cells that are in a circuit found."""
        found, true = _any(self.found), _any(self.true)
        return len(found & true) / max(1, len(true))

    @property
    def unexplained(self) -> set[tuple[int, int]]:
        """Layer and head of paths without a rule."""
        return {
            (each.layer, each.head) for each in self.reading.circuit.paths if isinstance(each.rule, Learned)
        }

    @property
    def right(self) -> bool:
        """Whether the reader says what is true: the circuits, or that there is no rule, and where."""
        if not self.plant.outside:
            return self.same
        said = self.reading.verdict.startswith(f"{UNEXPLAINED}: no rule for")
        return said and self.unexplained == set(self.plant.outside)


def _any(circuits: frozenset[frozenset[Cell]]) -> frozenset[Cell]:
    return frozenset().union(*circuits)


def task_of_plant(plant: Plant) -> ReadTask:
    """The laboratory's task that a plant solves."""
    return task_of(_CONFIGS[plant.kind].model_validate(dict(plant.task)))


def compared(plant: Plant, config: ReaderConfig | None = None, samples: int = 5) -> Compared:
    """Read a plant, and hold what was found against what is true on other sequences."""
    model, task = packed(plant), task_of_plant(plant)
    start = time.perf_counter()
    reading = read_circuit(model, task, config or QUICK[plant.kind])
    seconds = time.perf_counter() - start
    execution = execution_of(model, task, samples)
    found = frozenset(cells(circuit, execution) for circuit, _ in reading.minimal)
    inputs = execution.grammar.batch.inputs[0].numpy()
    true = frozenset(true_cells(plant, circuit, inputs) for circuit in plant.minimal)
    return Compared(plant, reading, found, true, seconds)


def execution_of(model: Transformer, task: ReadTask, samples: int) -> Execution:
    """The model on sequences that the reader has not seen."""
    setting = circuit_task_of(task)
    batch = setting.batch(99, samples, "search")
    model = setting.model(model)
    return Execution(model, setting.grammar(batch, causal=model.config.causal))


def cells(circuit: Circuit, execution: Execution) -> frozenset[Cell]:
    """What the rows of a circuit read, place by place."""
    grammar, found = execution.grammar, set()
    for (layer, head, role), rule in circuit.rules(grammar, execution.slots).items():
        if reads_nothing(rule):
            continue
        pattern = execution.rule_pattern((layer, head, role), rule)
        read = (pattern > _ATTENDED) & grammar.rows[role][..., None]
        found |= {(layer, head, *place) for place in map(tuple, read.nonzero().tolist())}
    return frozenset(found)


def true_cells(plant: Plant, circuit: frozenset[Read], inputs: np.ndarray) -> frozenset[Cell]:
    """What a plant says that its rows read."""
    return frozenset(
        (layer, head, sample, row, key)
        for layer, head, rows, keys in circuit
        for sample, sequence in enumerate(inputs)
        for row, key in plant.linked(sequence, rows, keys)
    )


def losses(plant: Plant, said: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Loss of each sample and answer: squared error, or nats beyond the best possible cross-entropy."""
    if plant.kind == "retrieval":
        return ((said - answers) ** 2).mean(-1)
    chance = said - np.log(np.exp(said - said.max(-1, keepdims=True)).sum(-1, keepdims=True))
    chance -= said.max(-1, keepdims=True)
    found = -np.take_along_axis(chance, answers[..., None], -1)[..., 0]
    # Of a mapping k values are left where k answers are to come, and each is as likely.
    left = np.arange(found.shape[-1], 0, -1) if plant.kind == "permutation" else np.ones(found.shape[-1])
    return found - np.log(left)


def predictions(plant: Plant, inputs: np.ndarray) -> np.ndarray:
    """What the packed model says `[sample, readout, output]`."""
    given = torch.tensor(inputs)
    with torch.no_grad():
        said = packed(plant)(given.float()[None] if given.is_floating_point() else given[None])
    return np.asarray(said[0].double())


# All plants.


@cache
def hand_set() -> dict[str, Plant]:
    """Plants that were set by hand, by name; those that are known to be misread come last."""
    plants = [*retrieval_plants(), *permutation_plants(), *equations_plants(), *outside_plants()]
    return {plant.name: plant for plant in [*plants, *(plant for plant, _ in _misread())]}


@cache
def _misread() -> tuple[tuple[Plant, str], ...]:
    return tuple(misread_plants())


def misread() -> dict[str, str]:
    """Names of plants that are known to be misread, with the reason."""
    return {plant.name: reason for plant, reason in _misread()}


def names() -> list[str]:
    """Names of all plants, also of those that are trained when they are asked for."""
    read = [*(name for name in hand_set() if name not in misread()), *TRAINED]
    return [*read, *misread()]


@cache
def named(name: str) -> Plant:
    """A plant by its name."""
    return TRAINED[name](name) if name in TRAINED else hand_set()[name]


def record(result: Compared) -> dict[str, object]:
    """What is told of a plant that was read."""
    plant = result.plant
    return {
        "plant": plant.name,
        "task": plant.kind,
        "layers": plant.shape["layers"],
        "heads": plant.shape["heads"],
        "outside": bool(plant.outside),
        "misread": plant.name in misread(),
        "verdict": result.reading.verdict,
        "right": result.right,
        "precision": round(result.precision, 4),
        "recall": round(result.recall, 4),
        "seconds": round(result.seconds, 1),
    }


RECORD = Path(__file__).resolve().parents[2] / "docs" / "results" / "external_plants.json"


# For the benchmark of finders.


def zoo_model(plant: Plant) -> ZooModel:
    """A plant as a model of the benchmark.  Where no rule names the reads, every head that writes is in the circuit."""
    circuits = [
        [HeadRow(layer=layer, head=head, rows=rows, reads=keys) for layer, head, rows, keys in sorted(reads)]
        for reads in plant.minimal
    ]
    if not circuits or plant.outside:
        circuits = [[HeadRow(layer=layer, head=head) for layer, head in _writing(plant)]]
    if plant.name in TRAINED:
        family = "external, trained"
    elif plant.outside or plant.name in misread():
        family = f"external, {'no rule' if plant.outside else 'misread'}"
    else:
        family = f"external, {plant.kind}"
    name = "external-" + re.sub("[^a-z0-9]+", "-", plant.name.lower()).strip("-")
    truth = PlantedTruth(
        name=name, title=plant.name, family=family, grammar=not plant.outside,
        task=_CONFIGS[plant.kind].model_validate(dict(plant.task)), circuits=tuple(map(tuple, circuits)),
    )  # fmt: skip
    return ZooModel(name, lambda: (truth, packed(plant)))


def _writing(plant: Plant) -> list[tuple[int, int]]:
    """Heads that write anything: idle ones have values or outputs of zero."""
    size, found = int(str(plant.shape["head_dim"])), []
    for layer in range(int(str(plant.shape["layers"]))):
        name = f"layers.{layer}.attention"
        for head in range(int(str(plant.shape["heads"]))):
            here = slice(head * size, (head + 1) * size)
            written = (
                plant.weights[f"{name}.value.weight"][:, here] @ plant.weights[f"{name}.output.weight"][here]
            )
            if np.abs(written).max() > 1e-9:
                found.append((layer, head))
    return found


def export(folder: Path) -> None:
    """Write every plant as a folder."""
    for name in names():
        print(export_model(zoo_model(named(name)), folder), flush=True)


def main() -> None:
    """Read every plant in the usual way, and write the record."""
    torch.set_num_threads(1)
    rows = []
    for name in names():
        rows.append(record(compared(named(name), ReaderConfig())))
        print(rows[-1], flush=True)
        RECORD.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    export(Path(sys.argv[1])) if sys.argv[1:] else main()
