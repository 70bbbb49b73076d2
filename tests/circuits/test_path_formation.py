"""Attention on the paths of a circuit, followed over checkpoints."""

import pytest
import torch

from hopscope.circuits.built_in_tasks import VectorCircuits
from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.config import SEQUENCES, spaced
from hopscope.circuits.execution import Execution, mean_attention
from hopscope.circuits.grammar import Grammar
from hopscope.circuits.path_formation import formation, maps
from hopscope.models.patterns import MeanMap, OverRole, OwnChain
from hopscope.models.transformer import Transformer
from hopscope.tasks.retrieval import RetrievalTask
from hopscope.zoo.planted import planted_models


@pytest.fixture(scope="module")
def plant():
    return next(plant for plant in planted_models() if plant.explained and len(plant.minimal) == 1)


@pytest.fixture(scope="module")
def circuit(plant):
    """The planted reads, as paths."""
    return Circuit(
        paths=tuple(
            Path(
                layer=read.layer,
                head=read.head,
                roles=read.rows,
                rule=OwnChain(keys=read.target),
                query="",
                target="",
            )
            for read in sorted(plant.minimal[0], key=lambda read: (read.layer, read.head, str(read.rows)))
            if read.target is not None
        )
    )


def watched(task, sequences):
    return VectorCircuits(task).batch(0, sequences, "watch")


def untrained(plant) -> Transformer:
    return Transformer.initial(plant.model.config, torch.tensor([7]))


def test_paths_that_were_planted_have_formed_and_those_of_a_fresh_model_have_not(plant, circuit):
    task = RetrievalTask(plant.task)
    models = [(0, untrained(plant)), (13, plant.model)]
    found = formation(circuit, models, VectorCircuits(task), watched(task, SEQUENCES))
    assert found["checkpoints"] == [0, 13]
    assert [path["layer"] for path in found["paths"]] == [path.layer for path in circuit.paths]
    before, after = zip(*(path["attention"] for path in found["paths"]), strict=True)
    assert min(after) > 0.95
    assert max(before) < 0.5


def test_attention_is_the_mean_over_rows_of_the_mass_on_what_the_rule_reads(plant):
    task = RetrievalTask(plant.task)
    batch = watched(task, 5)
    model = untrained(plant)
    path = Path(
        layer=0,
        head=0,
        roles={"kind": 2, "step": 0},
        rule=OverRole(keys={"kind": 1, "step": 1}),
        query="",
        target="",
    )
    _, captured = model.capture(batch.inputs)
    pattern, kind, step = captured.patterns[0][0, :, 0], batch.roles["kind"][0], batch.roles["step"][0]
    masses = [
        sum(
            float(pattern[sample, row, key])
            for key in range(row + 1)
            if (kind[sample, key], step[sample, key]) == (1, 1)
        )
        for sample in range(5)
        for row in range(pattern.shape[1])
        if kind[sample, row] == 2
    ]  # fmt: skip
    grammar = Grammar(batch, causal=model.config.causal, words=task.role_values)
    slot = (path.layer, path.head, grammar.roles.index(path.roles))
    found = mean_attention(Execution(model, grammar), slot, path.rule)
    assert found == pytest.approx(sum(masses) / len(masses), abs=1e-5)


def test_rows_that_only_a_mean_map_describes_are_not_followed(plant, circuit):
    diffuse = Path(layer=0, head=0, roles={"kind": 0, "step": 1}, rule=MeanMap(), query="first 1", target="")
    both = Circuit(paths=(*circuit.paths, diffuse))
    task = RetrievalTask(plant.task)
    found = formation(both, [(3, plant.model)], VectorCircuits(task), watched(task, 3))
    followed = [(path["layer"], path["head"], path["query_role"]) for path in found["paths"]]
    assert followed == [(path.layer, path.head, path.query) for path in circuit.paths]


def test_maps_are_the_patterns_of_the_first_sequence_in_255ths(plant):
    batch = watched(RetrievalTask(plant.task), 3)
    model = untrained(plant)
    ((step, found),) = maps([(5, model)], batch)
    _, captured = model.capture(batch.inputs)
    wanted = torch.stack([pattern[0, 0] for pattern in captured.patterns])
    assert step == 5
    assert found.dtype == torch.uint8
    assert (found.float() / 255.0 - wanted).abs().max() <= 0.5 / 255.0 + 1e-6


def test_the_watched_sequences_are_not_those_that_the_reader_searches_or_validates_on(plant):
    task = RetrievalTask(plant.task)
    seen = watched(task, 3).inputs
    for step in (0, 1):
        other = task.sample(torch.tensor([0]), "circuit", step, 3).inputs
        assert not torch.equal(seen, other)
    assert torch.equal(seen, watched(task, 3).inputs)


@pytest.mark.parametrize(
    ("steps", "most", "wanted"),
    [([0, 1, 2], 5, [0, 1, 2]), (list(range(11)), 3, [0, 5, 10]), (list(range(0, 100, 10)), 2, [0, 90])],
)
def test_spaced_steps_keep_both_ends(steps, most, wanted):
    assert spaced(steps, most) == wanted
