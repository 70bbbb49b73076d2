"""Paths through checkpoints, training again without some of them, and what stands beside a circuit."""

import pytest
import torch

from hopscope.circuits.circuit import Circuit
from hopscope.circuits.history import clamp, controls, formation, trained_again
from hopscope.circuits.interventions import ReplacePattern
from hopscope.circuits.plants import chain_plants
from hopscope.circuits.reader import Reader, ReaderConfig, read
from hopscope.errors import UserError
from hopscope.models.config import Model
from hopscope.models.transformer import Transformer
from hopscope.tasks import Retrieval, held_out
from hopscope.training.config import Training
from hopscope.training.train import train

QUICK = ReaderConfig(samples=16, validation=32, orders=1, random_circuits=0)
TASK = Retrieval(chains=3, steps=2, symbol_dim=6)
MODEL = Model(layers=2, heads=2, width=13, head_dim=3, mlp_ratio=0.0)
TRAINING = Training(steps=7, batch_size=11, checkpoint_every=3, evaluate_every=3, warmup_steps=2)


@pytest.fixture(scope="module")
def plant():
    return next(each for each in chain_plants() if each.name == "doubling 5")


@pytest.fixture(scope="module")
def circuit(plant):
    return read(plant.model, plant.task, QUICK).circuit


def test_attention_on_a_path_rises_from_chance_to_all(plant, circuit):
    initial = Transformer.initial(plant.model.config, torch.tensor([3])).member(0)
    found = formation(circuit, [(0, initial), (100, plant.model)], plant.task, samples=17)
    assert [path for path, _ in found] == list(circuit.paths)
    assert all(attention[0] < 0.5 < 0.9 < attention[100] for _, attention in found)


def test_controls_are_rows_of_heads_that_read_nothing(plant, circuit):
    execution = Reader(plant.model, plant.task, QUICK).fresh
    found = controls(circuit.paths, [circuit], execution)
    assert found is not None
    places = [(each.layer, each.heads, tuple(each.rows.items())) for each in found]
    used = [(each.layer, (each.head,), tuple(each.roles.items())) for each in circuit.paths]
    assert len({*places, *used}) == 2 * len(circuit.paths)
    roles, last = execution.grammar.roles, plant.model.config.layers - 1
    read_out = {slot[2] for slot in execution.reachable if slot[0] == last}
    assert all(each.layer < last or roles.index(each.rows) in read_out for each in found)
    every = [
        path.model_copy(update={"layer": layer, "head": head, "roles": roles[role]})
        for path in circuit.paths[:1]
        for layer, head, role in execution.reachable
    ]
    assert controls(circuit.paths, [Circuit(paths=tuple(every))], execution) is None


@pytest.mark.parametrize(
    ("members", "by", "words"),
    [
        ([0, 0], "uniform", "member: expected an ensemble of one"),
        ([0], "history", "clamps: expected no pattern"),
    ],
)
def test_what_cannot_be_clamped_is_told(plant, members, by, words):
    several = Transformer.initial(plant.model.config, torch.tensor([3])).select(members)
    with pytest.raises(UserError, match=words):
        trained_again(several, TRAINING, {"one": [ReplacePattern(layer=0, by=by)]}, steps=1, every=1)


def test_the_order_in_which_paths_are_written_does_not_count(circuit):
    assert Circuit(paths=circuit.paths[::-1]) == circuit


def test_a_run_without_a_clamp_repeats_the_training_and_one_with_it_does_not():
    members, query = {}, {"kind": 2}

    def keep(_, state):
        arrays, about = state
        weights = {name.removeprefix("weights/"): torch.from_numpy(each) for name, each in arrays.items()}
        members[about["step"]] = weights

    def member(step):
        own = Transformer(MODEL.for_task(TASK.shape()), 1)
        return own.load({name: members[step][name] for name in own.weights()}).knowing(TASK, [5], step)

    trained = train(TASK, MODEL, TRAINING, [5], engine="autograd", keep=keep)
    clamps = {"nothing": [], "query": [clamp(1, head, query) for head in (0, 1)], "again": []}
    runs = trained_again(member(0), TRAINING, clamps, steps=9, every=2, samples=19)
    assert {name: [*run["loss"]] for name, run in runs.items()} == {
        name: [0, 1, 2, 4, 6, 7] for name in clamps
    }
    batch = held_out(TASK, 19)
    last = float(TASK.parts(trained(batch.inputs).detach(), batch)["loss"])
    assert runs["nothing"]["loss"][7] == pytest.approx(last, abs=1e-6)
    assert runs["again"]["loss"] == pytest.approx(runs["nothing"]["loss"], abs=1e-6)
    assert all(abs(runs["query"]["loss"][at] - loss) > 1e-4 for at, loss in runs["nothing"]["loss"].items())
    # A later step counts as the first of a fresh optimiser.
    again = trained_again(member(3), TRAINING, {"nothing": []}, steps=2, every=2, samples=19)["nothing"][
        "loss"
    ]
    assert [*again] == [3, 4, 6] and abs(again[6] - runs["nothing"]["loss"][6]) > 1e-9
    with pytest.raises(UserError, match="heads: expected some of 0 to 1, found"):
        trained_again(member(3), TRAINING, {"a": [clamp(0, 2, {})]}, steps=1, every=1)
