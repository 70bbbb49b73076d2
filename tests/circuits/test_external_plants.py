"""The reader against models that other code has set: it finds their circuits, or says that no rule describes them."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.oracles import external as folder
from tests.oracles.external.machine import forward
from tests.oracles.external.plant import Plant, Read

from hopscope.circuits.config import ReaderConfig

from .external import RECORD, TRAINED, compared, hand_set, losses, misread, named, names, predictions

QUICK_ONES = (
    "walk, D = 1, post-norm, decoys",
    "forwards, D = 2, post-norm",
    "two heads, either of which will do, no mask",
    "roots, D = 2",
    "same symbols, D = 2",
    "elimination, V = 5, 1 heads, none-norm",
    "equations, D = 1, N = 5, none-norm",
    "content at a place drawn at random, N = 5",
    "one of two tokens by the sign of the query, N = 3",
    "three tokens in unequal parts",
)

SOLVED, NEEDED = 0.02, 0.05
"""Loss of a plant at most, and without a read at least: τ of tasks on vectors, more than is allowed in others."""


def some(*, known_misread: bool = False, outside: bool = True) -> list:
    """All plants of these sorts, as soak tests but for the quick ones."""
    return [
        pytest.param(name, id=name, marks=() if name in QUICK_ONES else pytest.mark.soak)
        for name in names()
        if (known_misread or name not in misread())
        and (outside or name in TRAINED or not hand_set()[name].outside)
    ]


# The plants are what they say, by their own code.


def test_there_are_enough_of_all_kinds():
    read = [plant for name, plant in hand_set().items() if name not in misread()]
    inside = [plant for plant in read if not plant.outside]
    outside = [plant for plant in read if plant.outside]
    assert len(inside) >= 20 and len(outside) >= 5
    assert {plant.kind for plant in inside} == {"retrieval", "permutation", "equations"}
    assert {plant.task.get("steps") for plant in inside} == {1, 2, 3, None}
    assert {plant.task.get("order") for plant in inside} >= {"deepest-first", "shallowest-first", "random"}
    for field, values in {
        "causal": {True, False},
        "norm": {"none", "pre", "post"},
        "heads": {1, 2, 3},
    }.items():
        assert {plant.shape[field] for plant in inside} == values
    assert {1, 2, 3, 4, 6} <= {plant.shape["layers"] for plant in inside}
    assert any(len(plant.minimal) > 1 for plant in inside)
    assert set(QUICK_ONES) <= {plant.name for plant in read}
    assert len(set(names())) == len(names()) == len(hand_set()) + len(TRAINED)


def test_nothing_but_the_packing_knows_the_laboratory():
    folders = Path(str(folder.__file__)).parent
    knows = {path.name for path in folders.glob("*.py") if "hopscope" in _imported(path)}
    assert knows == {"packing.py"}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize("name", some(known_misread=True))
def test_it_solves_its_task(name):
    plant = named(name)
    inputs, answers = plant.samples(5, 200)
    assert abs(losses(plant, predictions(plant, inputs), answers).mean()) < SOLVED


@pytest.mark.parametrize("name", some(known_misread=True))
def test_the_model_that_is_read_is_the_one_that_was_set(name):
    plant = named(name)
    inputs, _ = plant.samples(7, 3)
    slow = np.stack([_slow(plant, sample) for sample in inputs])
    # The laboratory computes in float32, and logits are large.
    assert np.allclose(predictions(plant, inputs), slow, rtol=1e-3, atol=0.01)


def _slow(plant: Plant, inputs: np.ndarray, blind=()) -> np.ndarray:
    said, _ = forward(plant.shape, plant.weights, plant.embed(inputs), blind)
    return said[list(plant.shape["readout"])]


@pytest.mark.parametrize("name", some(outside=False))
def test_it_attends_as_its_truth_says_and_needs_every_read(name):
    plant = named(name)
    # In every other sequence one pair of a mapping is recalled.
    inputs, answers = plant.samples(11, 120 if plant.kind == "permutation" else 24)
    needed = frozenset.intersection(*plant.minimal)
    for read in needed:
        _attends(plant, read, inputs)
        assert _without(plant, [read], inputs, answers) > NEEDED, read
    optional = [circuit - needed for circuit in plant.minimal]
    for reads in filter(None, optional):
        for read in reads:
            _attends(plant, read, inputs)
        assert _without(plant, sorted(reads), inputs, answers) < SOLVED
    if any(optional):
        assert _without(plant, sorted(frozenset.union(*optional)), inputs, answers) > NEEDED


def _without(plant: Plant, reads: list[Read], inputs: np.ndarray, answers: np.ndarray) -> float:
    """Mean loss where the rows of some reads look at everything alike."""
    said = []
    for sample in inputs:
        rows = {
            (layer, head, frozenset(row for row, _ in plant.linked(sample, rows, keys)))
            for layer, head, rows, keys in reads
        }
        said.append(_slow(plant, sample, [(layer, head, sorted(where)) for layer, head, where in rows]))
    return float(losses(plant, np.stack(said), answers).mean())


def _attends(plant: Plant, read: Read, inputs: np.ndarray) -> None:
    layer, head, rows, keys = read
    for sample in inputs[:3]:
        patterns = forward(plant.shape, plant.weights, plant.embed(sample))[1][layer][head]
        linked = plant.linked(sample, rows, keys)
        for row in {row for row, _ in linked}:
            assert sum(patterns[row, key] for other, key in linked if other == row) > 0.9, read


# The reader.


@pytest.mark.parametrize("name", some())
def test_the_reader_says_what_is_true(name):
    result = compared(named(name))
    assert result.right, (result.reading.verdict, str(result.reading.circuit))
    if not result.plant.outside:
        assert (result.precision, result.recall) == (1.0, 1.0)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=why)) for name, why in misread().items()],
)
@pytest.mark.soak
def test_what_the_reader_is_known_to_misread(name):
    assert compared(named(name), ReaderConfig()).right


@pytest.mark.parametrize("change", ["missing", "extra", "elsewhere"])
def test_a_wrong_truth_is_noticed(change):
    plant = named("roots, D = 2")
    one, *rest = sorted(*plant.minimal)
    wrong = {
        "missing": rest,
        "extra": [one, *rest, (0, 0, "query", "second 2")],
        "elsewhere": [(one[0], 1 - one[1], *one[2:]), *rest],
    }[change]
    result = compared(replace(plant, minimal=(frozenset(wrong),)))
    assert not result.right
    assert (result.precision < 1.0) == (change != "extra")
    assert (result.recall < 1.0) == (change != "missing")


def test_the_record_tells_of_every_plant():
    told = json.loads(RECORD.read_text(encoding="utf-8"))
    assert [row["plant"] for row in told] == names()
    for row in told:
        name = row["plant"]
        assert row["right"] == (name not in misread())
        assert row["outside"] == (name in hand_set() and bool(hand_set()[name].outside))
