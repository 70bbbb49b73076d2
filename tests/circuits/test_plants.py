"""Planted models are what they say: they solve their task by the reads that are listed, and by nothing else."""

import math
from functools import cache
from itertools import combinations, product

import pytest
import torch

from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.circuits.plants import Plant, Read, chain_plants, plan, witness
from hopscope.circuits.weights import UNREAD, Copy, Design, Head, build
from hopscope.errors import UserError
from hopscope.tasks import Retrieval, held_out, losses
from hopscope.theory import exact_layers, exact_layers_single_target

SOLVED, BROKEN, ATTENDED = 0.02, 0.05, 0.9
KINDS = {"first": 0, "second": 1, "query": 2, "x": 0, "y": 1}


FEW = range(0, 131, 9)


@cache
def suite() -> tuple[Plant, ...]:
    return (*chain_plants(), *permutation_plants(5), *permutation_plants(4))


def chains() -> list[Plant]:
    return [plant for plant in suite() if isinstance(plant.task, Retrieval)]


@cache
def held(task, count: int = 12):
    return held_out(task, count)


@torch.no_grad()
def loss_of(model, task, batch) -> dict[str, float]:
    return {name: float(part) for name, part in losses(task, model(batch.inputs[0])[None], batch).items()}


def rows_of(batch, words: str) -> torch.Tensor:
    """Rows with roles, in words, `[batch, position]`."""
    roles = {name: role[0] for name, role in batch.roles.items()}
    found = torch.ones_like(roles["kind"], dtype=torch.bool)
    for word in words.split():
        if word.isdecimal():
            found &= roles["step"] == int(word)
        else:
            found &= roles["repeat"] == 1 if word == "repeat" else roles["kind"] == KINDS[word]
    return found


def uniform(plant: Plant) -> torch.Tensor:
    seen = torch.ones(plant.model.config.length, plant.model.config.length)
    seen = seen.tril() if plant.model.config.causal else seen
    return seen / seen.sum(-1, keepdim=True)


def loss_under(plant: Plant, batch, changes) -> float:
    """Loss with other patterns `[position, key]` at some rows of heads: (layer, head, rows, pattern)."""

    def at_layer(layer: int):
        def changed(pattern: torch.Tensor) -> torch.Tensor:
            for _, head, rows, wanted in (change for change in changes if change[0] == layer):
                pattern[:, head] = torch.where(rows[..., None], wanted, pattern[:, head])
            return pattern

        return changed

    functions = {
        f"blocks.{layer}.attn.hook_pattern": at_layer(layer) for layer in {each[0] for each in changes}
    }
    single = batch.changed(lambda tensor: tensor[0])
    return float(losses(plant.task, plant.model.intervene(single, functions)[None], batch)["loss"])


def removed(plant: Plant, batch, reads) -> float:
    flat = uniform(plant)
    changes = [(read.layer, read.head, rows_of(batch, read.rows), flat) for read in reads]
    return loss_under(plant, batch, changes)


def alone(plant: Plant, batch, circuit) -> float:
    """Loss with every other row uniform; those that first read what they are themselves."""
    shape = plant.model.config
    pattern, changes = torch.eye(shape.length) if plant.family == "leak" else uniform(plant), []
    for layer, head in product(range(shape.layers), range(shape.heads)):
        others = torch.ones_like(batch.roles["kind"][0], dtype=torch.bool)
        for read in (read for read in circuit if read[:2] == (layer, head)):
            others &= ~rows_of(batch, read.rows)
        changes.append((layer, head, others, pattern))
    return loss_under(plant, batch, changes)


def patterns(plant: Plant, batch) -> list[torch.Tensor]:
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(plant.model.config.layers)]
    return list(plant.model.cache(batch.inputs[0], names).values())


def attended(inside: list[torch.Tensor], batch, read: Read) -> float:
    """Mean attention at the rows of a read on what it reads, which is a relation or a token of the own chain."""
    pattern = inside[read.layer][:, read.head]
    rows, length = rows_of(batch, read.rows), pattern.shape[-1]
    if read.target is not None:
        chain = batch.roles["chain"][0]
        wanted = (chain[:, :, None] == chain[:, None]) & rows_of(batch, read.target)[:, None]
    else:
        own = torch.arange(length).expand(len(pattern), -1)
        key = own if read.rule == "identity" else batch.relations[read.rule][0]
        wanted, rows = key[..., None] == torch.arange(length), rows & (key >= 0)
    assert rows.any()
    return float((pattern * wanted).sum(-1)[rows].mean())


# Witnesses.


def pair_task(steps: int, **changes) -> Retrieval:
    return Retrieval(steps=steps, position="pair", **changes)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("steps", range(1, 9))
def test_witnesses_solve_the_task_in_the_fewest_layers(steps, causal):
    task = pair_task(steps)
    model, batch = witness(task, causal=causal), held_out(task, 250)
    assert model.config.layers == exact_layers(steps, "causal" if causal else "none", "deepest-first")
    assert model.config.heads <= (1 if causal else 2)
    found = loss_of(model, task, batch)
    assert max(loss for name, loss in found.items() if name.startswith("loss")) < 0.01


@pytest.mark.parametrize("steps", [*range(1, 18), 31, 40, 41, 64])
def test_plans_are_as_short_as_can_be_and_allowed_by_the_theory(steps):
    """A position may read one that shares a piece with it, and gets all that it has; the query ends with all pieces."""
    causal, free = (plan(range(1, steps + 1), causal=causal) for causal in (True, False))
    assert len(causal) == exact_layers_single_target(steps) == exact_layers(steps, "causal", "deepest-first")
    assert {len(free)} == {exact_layers(steps, "none", f"{end}-first") for end in ("deepest", "shallowest")}
    assert max(map(len, causal)) == 1 and max(map(len, free)) <= 2
    for layers in (causal, free):
        held = {place: {place - 1, place} for place in range(2 * steps + 1)}
        for heads in layers:
            after = {place: set(pieces) for place, pieces in held.items()}
            for read in (read for head in heads for read in head.reads.items()):
                row, target = (
                    2 * int(words[-2:]) - ("first" in words) if words != "query" else 0 for words in read
                )
                assert held[row] & held[target]
                assert layers is free or -((target + 1) // 2) <= -((row + 1) // 2)
                after[row] |= held[target]
            held = after
        assert held[0] >= set(range(2 * steps + 1))


def test_a_plan_asks_for_no_more_than_is_wanted():
    assert len(plan((1, 3))) == len(plan((1, 2, 3)))
    assert sum(len(head.reads) for heads in plan([1]) for head in heads) == 2


@pytest.mark.parametrize(
    ("changes", "causal", "most"),
    [
        ({"chains": 5, "symbol_dim": 2}, True, 0.01),
        ({"chains": 5, "symbol_dim": 2}, False, 0.15),
        ({"chains": 1}, True, 0.01),
        ({"frequencies": "geometric"}, True, 0.01),
        ({"targets": "last"}, True, 0.01),
        ({"targets": (1, 3), "order": "random"}, False, 0.01),
    ],
)
def test_other_tasks_are_solved_too(changes, causal, most):
    task = pair_task(3, **changes)
    assert loss_of(witness(task, causal=causal), task, held_out(task, 250))["loss"] < most


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"position": "token"},
            "task: expected a chain of steps with position='pair', found position='token'",
        ),
        ({"order": "random"}, "order: expected 'deepest-first' under the causal mask, found 'random'"),
        ({"steps": 20, "symbol_dim": 2}, "position codes: expected to differ by 0.004 or more"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(UserError, match=words):
        witness(Retrieval(**{"steps": 3, "position": "pair"} | changes))


@pytest.mark.parametrize("frequencies", ["harmonic", "geometric"])
@pytest.mark.parametrize("shift", [-3, -1, 0])
def test_rows_find_the_pair_at_a_shifted_place(shift, frequencies):
    task = pair_task(2, chains=3, frequencies=frequencies, frequency_base=50.0)
    reader = Head((-1, -1), (Copy(UNREAD, 0),), "unpaired", shift)
    model = build(Design(task, [plan([1, 2])[0], [reader]], answers=[((0, 1.0),)] * 2))
    pattern = model.cache(held_out(task, 31).inputs[0])["blocks.1.attn.hook_pattern"][:, 0]
    pairs = torch.arange(-min(shift, 0), 6 - max(shift, 0))
    assert pattern[:, 2 * pairs + 1, 2 * (pairs + shift) + 1].mean(0).min() > 0.9


# Planted circuits.


def test_there_are_enough_and_all_kinds():
    assert len({plant.name for plant in suite()}) == len(suite()) == 131
    assert sum(not plant.explained for plant in suite()) >= 30
    assert sum(len(plant.circuits) > 1 for plant in suite()) >= 10
    for plant in suite():
        used = {(read.layer, read.head) for circuit in plant.circuits for read in circuit}
        assert used.isdisjoint((decoy.layer, decoy.head) for decoy in plant.decoys)


def test_they_solve_their_task():
    for plant in chains():
        assert loss_of(plant.model, plant.task, held(plant.task, 30))["loss"] < SOLVED, plant.name
    for plant in (plant for plant in suite() if plant not in chains()):
        batch = held(plant.task, 64)
        repeats, predictions = (batch.roles["repeat"][0] == 1).any(-1), plant.model(batch.inputs[0]).detach()
        plain = losses(plant.task, predictions[None, ~repeats], batch.take(~repeats))["loss"]
        assert float(plain) == pytest.approx(math.lgamma(plant.task.values + 1) / plant.task.values, abs=1e-3)
        assert (predictions.argmax(-1)[:, -1] == batch.targets[0, :, -1]).all(), plant.name


def test_true_reads_and_decoys_attend_to_what_is_said():
    for plant in suite():
        batch = held(plant.task)
        inside = patterns(plant, batch)
        reads = frozenset().union(*plant.circuits) if isinstance(plant.task, Retrieval) else ()
        single = [read for read in reads if read.target and "+" not in read.target]
        for read in (*single, *(decoy for decoy in plant.decoys if decoy.rule != "uniform")):
            assert attended(inside, batch, read) > ATTENDED, (plant.name, read)


@pytest.mark.parametrize("number", FEW)
def test_a_circuit_is_enough_and_each_of_its_reads_is_needed(number):
    plant = suite()[number]
    chain = isinstance(plant.task, Retrieval)
    batch = held(plant.task, 12 if chain else 512)
    floor = removed(plant, batch, [])
    for read in frozenset.intersection(*plant.circuits):
        assert removed(plant, batch, [read]) > floor + BROKEN / 2, read
    for circuit in plant.circuits if plant.explained and chain else ():
        assert alone(plant, batch, circuit) < SOLVED + BROKEN / 2


def test_one_route_may_be_missing_and_two_may_not():
    for plant in (plant for plant in chains() if len(plant.circuits) > 1):
        batch, every = held(plant.task), frozenset().union(*plant.circuits)
        routes = [every - circuit for circuit in plant.circuits]
        assert all(removed(plant, batch, route) < BROKEN for route in routes), plant.name
        assert all(removed(plant, batch, a | b) > BROKEN for a, b in combinations(routes, 2)), plant.name


def test_no_token_of_the_own_chain_has_the_attention_of_a_hidden_read():
    for plant in chains():
        batch, inside = held(plant.task), patterns(plant, held(plant.task))
        tokens = [f"{kind} {step + 1}" for kind in ("first", "second") for step in range(plant.task.steps)]
        for read in plant.circuits[0]:
            for target in ("query", *tokens) if read.rows == "query" and read.target is None else ():
                assert attended(inside, batch, read._replace(target=target)) < 0.85, plant.name


@pytest.mark.parametrize("number", FEW)
def test_nothing_reads_what_decoys_write(number):
    plant = suite()[number]
    weights, shape = plant.model.weights(), plant.model.config
    parts = ("attention.query", "attention.key", "attention.value", "mlp.inner")

    def written_and_read(layer: int, head: int) -> bool:
        rows = slice(head * shape.head_size, (head + 1) * shape.head_size)
        streams = weights[f"layers.{layer}.attention.output.weight"][rows].any(0)
        later = [f"layers.{n}.{part}" for n in range(layer, shape.layers) for part in parts]
        readers = [name for name in later if name not in [f"layers.{layer}.{part}" for part in parts[:3]]]
        return any(bool(weights[f"{name}.weight"][streams].any()) for name in (*readers, "readout"))

    assert not any(written_and_read(decoy.layer, decoy.head) for decoy in plant.decoys)
    assert all(written_and_read(read.layer, read.head) for read in plant.circuits[0])
