"""Planted models are what they say: they solve their task, by the reads that are listed and by nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, combinations, pairwise

import pytest
import torch

from hopscope.models.edits import Edits
from hopscope.models.interventions import ReplacePattern
from hopscope.models.resolving import selected, visible_keys
from hopscope.tasks.retrieval import FIRST, QUERY, SECOND, RetrievalTask
from hopscope.zoo.planted import Planted, PlantedDecoy, PlantedRead, planted_models

from .suites import suite, target_keys

SAMPLES = 12
FEW = 6
"""Samples where a difference is large, or none."""

SOLVED, KEPT, THRESHOLD = 0.02, 0.045, 0.05
ATTENTION = 0.9


@pytest.fixture(params=[pytest.param(7, id="a seventh"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def plants(request) -> tuple[Planted, ...]:
    """Where every plant takes long: a seventh of the suite, of every family."""
    return suite()[:: request.param]


def redundant() -> list[Planted]:
    return [plant for plant in suite() if len(plant.minimal) > 1]


def hidden() -> list[Planted]:
    return [plant for plant in suite() if not plant.explained]


@cache
def held_out(task, samples: int = SAMPLES):
    made = RetrievalTask(task)
    return made, made.evaluation(samples)


@cache
def captured(number: int):
    """Loss of a model of the suite, and what happens inside."""
    plant = suite()[number]
    made, batch = held_out(plant.task)
    with torch.no_grad():
        predictions, inside = plant.model.capture(batch.inputs)
        return float(made.losses(predictions[:, :, made.readout], batch)["loss"]), inside


def clean_runs():
    for number, plant in enumerate(suite()):
        yield plant, *captured(number)


def losses(
    plant: Planted, variants: Sequence[Sequence[ReplacePattern]], batch=None, samples: int = SAMPLES
) -> list[float]:
    """Loss of every variant; patterns downstream of a replaced one follow from the new streams."""
    made, held = held_out(plant.task, samples)
    batch = held if batch is None else batch
    found = []
    with torch.no_grad():
        for variant in variants:
            predictions = plant.model(batch.inputs, Edits(plant.model, variant, batch))
            found.append(float(made.losses(predictions, batch)["loss"]))
    return found


def uniform(read: PlantedRead) -> ReplacePattern:
    return ReplacePattern(layer=read.layer, heads=(read.head,), rows=read.rows, by="uniform")


def every_role(plant: Planted) -> list[dict[str, int]]:
    steps = range(1, plant.task.steps + 1)
    tokens = [{"kind": kind, "step": step} for kind in (FIRST, SECOND) for step in steps]
    return [{"kind": QUERY, "step": 0}, *tokens]


def all_rows(plant: Planted) -> set[PlantedRead]:
    """Rows of every role, of every head."""
    config = plant.model.config
    return {
        PlantedRead(layer, head, roles, None)
        for layer in range(config.layers)
        for head in range(config.heads)
        for roles in every_role(plant)
    }


def without(plant: Planted, kept: frozenset[PlantedRead]) -> list[ReplacePattern]:
    """Everything uniform but these reads."""
    config, used = plant.model.config, {(read.layer, read.head) for read in kept}
    unused = [
        ReplacePattern(layer=layer, heads=(head,), by="uniform")
        for layer in range(config.layers)
        for head in range(config.heads)
        if (layer, head) not in used
    ]
    return [*unused, *(each for layer, head in used for each in _other_rows(plant, layer, head, kept))]


def _other_rows(plant: Planted, layer: int, head: int, kept: frozenset[PlantedRead]) -> list[ReplacePattern]:
    """The rows of a head that none of these reads names; all of a kind at once where there are no others."""
    named = [read.rows for read in kept if (read.layer, read.head) == (layer, head)]
    kinds = {rows["kind"] for rows in named}
    rows = [{"kind": kind} for kind in (FIRST, SECOND, QUERY) if kind not in kinds]
    rows += [roles for roles in every_role(plant) if roles["kind"] in kinds and roles not in named]
    return [ReplacePattern(layer=layer, heads=(head,), rows=roles, by="uniform") for roles in rows]


def base_of(plant: Planted) -> frozenset[PlantedRead]:
    return frozenset.intersection(*plant.minimal)


def all_of(plant: Planted) -> frozenset[PlantedRead]:
    return frozenset.union(*plant.minimal)


def optional(plant: Planted) -> list[PlantedRead]:
    return sorted(
        all_of(plant) - base_of(plant), key=lambda read: (read.layer, read.head, *read.rows.values())
    )


# The suite.


def test_there_are_enough_and_all_kinds():
    decoys = [decoy for plant in suite() for decoy in plant.decoys]
    assert len(suite()) >= 100
    assert len({plant.name for plant in suite()}) == len(suite())
    assert len(hidden()) >= 30
    assert len([plant for plant in redundant() if plant.explained]) >= 10
    assert len(decoys) >= 100
    assert 2 * sum(decoy.sharp for decoy in decoys) >= len(decoys)
    assert {"uniform", "identity", "pair_mate", "same_symbol", "previous", "hop_1", "hop_2", "hop_5"} <= {
        decoy.attends for decoy in decoys
    }
    explained = [plant for plant in suite() if plant.explained]
    for plants in (explained, hidden()):
        assert {plant.task.steps for plant in plants} == {1, 2, 3, 4, 5}
        assert {plant.model.config.heads for plant in plants} == {1, 2, 3}
    assert {plant.model.config.causal for plant in explained} == {True, False}


def test_they_are_single_ordinary_models_and_small():
    for plant in suite():
        config = plant.model.config
        assert (plant.model.members, config.norm, config.positions) == (1, "pre", "carried")
        assert config.length <= 55 and config.layers <= 10 and config.width <= 250, plant.name


def test_they_are_the_same_every_time():
    again = list(planted_models())
    assert [plant.name for plant in again] == [plant.name for plant in suite()]
    for one, other in zip(again, suite(), strict=True):
        assert one.model.config == other.model.config
        assert torch.equal(one.model.parameters.flat, other.model.parameters.flat), one.name
        assert (one.minimal, one.decoys) == (other.minimal, other.decoys)


def test_circuits_name_places_that_exist_once():
    for plant in suite():
        roles = every_role(plant)
        for circuit in plant.minimal:
            places = {replace(read, target=None) for read in circuit}
            assert len(places) == len(circuit) and places <= all_rows(plant), plant.name
            assert all(read.target is None or read.target in roles for read in circuit)
            assert all(read.target is not None for read in circuit) == plant.explained, plant.name
        assert len(set(plant.minimal)) == len(plant.minimal)
        used = {(read.layer, read.head) for read in all_of(plant)}
        assert used.isdisjoint((decoy.layer, decoy.head) for decoy in plant.decoys)


def test_true_layers_and_heads_stand_anywhere():
    gaps, numbers = set(), set()
    for plant in suite():
        layers = sorted({read.layer for read in all_of(plant)})
        gaps |= {later - layer for layer, later in pairwise(layers)}
        gaps |= {layers[0], plant.model.config.layers - 1 - layers[-1]}
        numbers |= {read.head for read in all_of(plant)}
    assert gaps == {0, 1, 2} and numbers == {0, 1, 2}


# The mechanisms.


def test_they_solve_their_task():
    for plant, loss, _ in clean_runs():
        assert loss < SOLVED, plant.name


def test_true_reads_attend_to_their_targets():
    for plant, _, inside in clean_runs():
        _, batch = held_out(plant.task)
        for read in all_of(plant):
            if read.target is None:
                continue
            keys = target_keys(read, batch)
            weights = inside.patterns[read.layer][:, :, read.head].gather(-1, keys.clamp(min=0)[..., None])
            assert float(weights[..., 0][keys >= 0].mean()) >= ATTENTION, (plant.name, read)


def test_what_every_circuit_needs_is_needed(plants):
    for plant in plants:
        reads = list(base_of(plant))
        for read, loss in zip(reads, losses(plant, [[uniform(read)] for read in reads]), strict=True):
            assert loss > THRESHOLD, (plant.name, read)


def test_a_circuit_is_enough_and_none_of_its_reads_can_be_left_out(plants):
    for plant in plants:
        for number, circuit in enumerate(plant.minimal):
            rest = without(plant, circuit)
            # Of a plant without redundancy the reads are left out one by one above.
            both = number == 0 and len(plant.minimal) > 1
            fewer = [[*rest, uniform(read)] for read in circuit] if both else []
            enough, *found = losses(plant, [rest, *fewer], samples=SAMPLES if both else FEW)
            assert enough < THRESHOLD, plant.name
            assert not found or min(found) > 0.06, plant.name


def test_one_route_may_be_missing_and_two_may_not():
    for plant in redundant():
        alone = [read for read in optional(plant) if sum(read in circuit for circuit in plant.minimal) > 1]
        routes = [all_of(plant) - circuit for circuit in plant.minimal]
        assert alone and all(routes), plant.name
        one = losses(plant, [[uniform(read) for read in route] for route in routes])
        two = losses(plant, [[uniform(read) for read in a | b] for a, b in combinations(routes, 2)])
        assert max(one) < KEPT, plant.name
        assert min(two) > 0.06, plant.name


def test_the_listed_minimal_circuits_are_all_there_are():
    """Of the reads that are not in every circuit, any selection works if and only if it holds a listed one."""
    for plant in redundant():
        some = optional(plant)
        kept = [
            base_of(plant) | set(chosen)
            for chosen in chain(*(combinations(some, size) for size in range(len(some) + 1)))
        ]
        found = losses(plant, [without(plant, reads) for reads in kept])
        for reads, loss in zip(kept, found, strict=True):
            assert (loss < THRESHOLD) == any(circuit <= reads for circuit in plant.minimal), plant.name


def test_rules_alone_solve_the_task_where_they_are_said_to():
    """Every read of a circuit becomes its target and nothing else, all other rows uniform."""
    for plant in suite():
        if not plant.explained:
            continue
        _, batch = held_out(plant.task)
        circuit = plant.minimal[0]
        rules, relations = [], dict(batch.relations)
        for number, read in enumerate(sorted(circuit, key=lambda read: (read.layer, read.head))):
            relations[f"read {number}"] = target_keys(read, batch)
            rules.append(
                ReplacePattern(
                    layer=read.layer,
                    heads=(read.head,),
                    rows=read.rows,
                    by="one_hot",
                    relation=f"read {number}",
                )
            )
        ruled = replace(batch, relations=relations)
        (found,) = losses(plant, [[*without(plant, circuit), *rules]], ruled)
        assert found < THRESHOLD, plant.name


# Outside the grammar.


@dataclass(frozen=True)
class Rules:
    """Patterns `[member, batch, query, key]` of rules, by name; rows to which a rule does not apply are uniform."""

    single: dict[str, torch.Tensor]
    spread: dict[str, torch.Tensor]


def rules_of(plant: Planted, batch, mean: torch.Tensor) -> Rules:
    """All rules, of which `single` ones read one token; `mean` is the position-only map."""
    roles, positions = batch.roles, batch.inputs.shape[2]
    visible = visible_keys(positions, plant.model.config.causal, batch.inputs.device)
    flat = (visible / visible.sum(-1, keepdim=True)).expand(*batch.inputs.shape[:2], -1, -1)

    def spread(keys: torch.Tensor) -> torch.Tensor:
        seen = (keys & visible).float()
        total = seen.sum(-1, keepdim=True)
        return torch.where(total > 0, seen / total.clamp(min=1), flat)

    here = torch.arange(positions)
    own = roles["chain"][..., :, None] == roles["chain"][..., None, :]
    # Of a query: itself, the pairs that its hops lead to and the token with the same symbol are of its own chain.
    single = {"previous": spread(batch.relations["previous"][..., None] == here)}
    wide = {"uniform": flat, "mean": mean.expand_as(flat)}
    for role in every_role(plant):
        holders = selected(batch, role)[..., None, :]
        single[f"own {role}"] = spread(own & holders)
        wide[f"all {role}"] = spread(holders.expand_as(own))
    return Rules(single, wide)


def ruled_losses(
    plant: Planted,
    read: PlantedRead,
    patterns: list[torch.Tensor],
    batch,
    beside: Sequence[ReplacePattern] = (),
) -> list[float]:
    """Loss with each of these patterns at the rows of a read, and others replaced beside it."""
    made, _ = held_out(plant.task)
    edits, found = Edits(plant.model, [*beside, uniform(read)], batch), []
    rows = selected(batch, read.rows)[..., None]
    for pattern in patterns:
        where = edits.replaced[read.layer][1][:, :, read.head]
        where.copy_(torch.where(rows, pattern, where))
        with torch.no_grad():
            found.append(float(made.losses(plant.model(batch.inputs, edits), batch)["loss"]))
    return found


def rules_for_query(plant: Planted, batch) -> tuple[PlantedRead, Rules]:
    """The hidden read of the query, and the rules for it."""
    (read,) = {read for read in all_of(plant) if read.target is None and read.rows["kind"] == QUERY}
    _, many = held_out(plant.task, 32)
    with torch.no_grad():
        inside = plant.model.capture(many.inputs)[1].patterns[read.layer][:, :, read.head]
    return read, rules_of(plant, batch, inside.mean(1, keepdim=True))


def mixtures(rules: Rules) -> list[torch.Tensor]:
    """Equal mixtures of two tokens of the own chain."""
    own = [pattern for name, pattern in rules.single.items() if name != "previous"]
    return [(a + b) / 2 for a, b in combinations(own, 2)]


def test_no_rule_can_stand_in_for_a_hidden_read_of_the_query(plants):
    """Neither a single rule nor an equal mixture of two tokens; and no token has all of the attention."""
    for number, plant in enumerate(suite()):
        if plant.explained or plant not in plants:
            continue
        _, batch = held_out(plant.task, 4)
        read, rules = rules_for_query(plant, batch)
        inside = captured(number)[1].patterns[read.layer][:, :4, read.head]
        rows = selected(batch, read.rows)
        for name, pattern in rules.single.items():
            assert float((pattern * inside).sum(-1)[rows].mean()) < 0.85, (plant.name, name)
        patterns = [*rules.single.values(), *rules.spread.values(), *mixtures(rules)]
        assert min(ruled_losses(plant, read, patterns, batch)) > THRESHOLD, plant.name


def own_instead(plant: Planted, batch):
    """Every hidden read of other rows than the query's, made to read what it copies in its own chain by a rule."""
    # First tokens of the step that is copied read themselves, so that second ones can be told from them.
    copied = max(read.rows["step"] for read in all_of(plant) if read.rows == read.target)
    relations, rules = dict(batch.relations), []
    for read in all_of(plant):
        if read.target is not None or read.rows["kind"] == QUERY:
            continue
        target = {"kind": read.rows["kind"], "step": copied}
        name = f"{read.rows} to {target}"
        relations[name] = target_keys(replace(read, target=target), batch)
        rules.append(
            ReplacePattern(layer=read.layer, heads=(read.head,), rows=read.rows, by="one_hot", relation=name)
        )
    return replace(batch, relations=relations), rules


def test_rules_can_do_what_a_relay_does_but_not_what_a_leak_does():
    """Copies in the own chain, read there, are a circuit too, though not that of the model."""
    for plant in hidden():
        _, batch = held_out(plant.task, 4)
        ruled, beside = own_instead(plant, batch)
        if not beside:
            continue
        leaks = "leak" in plant.name
        read, rules = rules_for_query(plant, batch)
        patterns = [*rules.single.values(), *(mixtures(rules) if leaks else [])]
        best = min(ruled_losses(plant, read, patterns, ruled, beside))
        assert (best > THRESHOLD) if leaks else (best < SOLVED), (plant.name, best)
    strict = [plant for plant in hidden() if "leak" in plant.name]
    assert len(strict) >= 30


def test_the_test_of_rules_finds_a_rule_that_fits():
    plant = next(plant for plant in suite() if plant.explained and plant.task.steps == 3)
    _, batch = held_out(plant.task, 8)
    (read,) = {read for read in base_of(plant) if read.layer == plant.model.config.layers - 1}
    rules = rules_of(plant, batch, torch.zeros(1, 1, 1, 1))
    assert read.target == {"kind": SECOND, "step": 2}
    names = list(rules.single)
    patterns = list(rules.single.values())
    found = dict(zip(names, ruled_losses(plant, read, patterns, batch), strict=True))
    assert {name for name, loss in found.items() if loss < SOLVED} == {f"own {read.target}"}


# Decoys.


def test_decoys_attend_as_described():
    for plant, _, inside in clean_runs():
        _, batch = held_out(plant.task)
        positions = batch.inputs.shape[2]
        for decoy in plant.decoys:
            pattern = inside.patterns[decoy.layer][:, :, decoy.head]
            if decoy.attends == "uniform":
                visible = visible_keys(positions, plant.model.config.causal, batch.inputs.device)
                expected = (visible / visible.sum(-1, keepdim=True)).expand_as(pattern)
                torch.testing.assert_close(pattern, expected)
                continue
            own = torch.arange(positions).expand(batch.inputs.shape[:3])
            key = own if decoy.attends == "identity" else batch.relations[decoy.attends]
            rows = selected(batch, decoy.rows) & (key >= 0)
            assert bool(rows.any()), (plant.name, decoy)
            weights = pattern.gather(-1, key.clamp(min=0)[..., None])[..., 0]
            assert float(weights[rows].mean()) >= ATTENTION, (plant.name, decoy)


def test_decoys_are_not_needed(plants):
    for plant in plants:
        removed = [
            [removal(decoy, "identity" if decoy.attends == "uniform" else "uniform")]
            for decoy in plant.decoys
        ]
        removed.append([removal(decoy, "identity") for decoy in plant.decoys])
        same, *found = losses(plant, [[], *removed], samples=FEW)
        assert found == [pytest.approx(same, abs=1e-3)] * len(removed), plant.name


def removal(decoy: PlantedDecoy, by: str) -> ReplacePattern:
    return ReplacePattern(layer=decoy.layer, heads=(decoy.head,), by=by)


def test_nothing_reads_what_decoys_write():
    """The streams that a decoy writes to have weights of zero in every later query, key, value, MLP and readout."""
    for plant in suite():
        for decoy in plant.decoys:
            written = written_streams(plant, decoy.layer, decoy.head)
            assert int(written.sum()) > 0
            for name, weight in readers(plant, decoy.layer).items():
                assert not bool(weight[written].any()), (plant.name, decoy, name)


def test_true_heads_are_read():
    """The check above can fail."""
    for plant in suite():
        for read in all_of(plant):
            written = written_streams(plant, read.layer, read.head)
            assert any(bool(weight[written].any()) for weight in readers(plant, read.layer).values())


def written_streams(plant: Planted, layer: int, head: int) -> torch.Tensor:
    size = plant.model.config.head_size
    output = plant.model.weights[f"layers.{layer}.attention.output.weight"][0]
    return output[head * size : (head + 1) * size].any(0)


def readers(plant: Planted, layer: int) -> dict[str, torch.Tensor]:
    """Matrices that read the stream after the attention of a layer."""
    parts = ("attention.query", "attention.key", "attention.value")
    later = range(layer + 1, plant.model.config.layers)
    names = [f"layers.{number}.{part}" for number in later for part in parts]
    names += [f"layers.{number}.mlp.inner" for number in range(layer, plant.model.config.layers)]
    return {name: plant.model.weights[f"{name}.weight"][0] for name in (*names, "readout")}


def test_decoys_write_as_much_as_true_heads():
    for plant, _, inside in clean_runs():
        if not plant.decoys:
            continue
        _, batch = held_out(plant.task)
        true = [loudness(plant, inside, batch, read.layer, read.head, read.rows) for read in all_of(plant)]
        for decoy in plant.decoys:
            found = loudness(plant, inside, batch, decoy.layer, decoy.head, decoy.rows)
            assert sum(true) / len(true) < 4.0 * found < 16.0 * max(true), (plant.name, decoy, found, true)


def loudness(plant: Planted, inside, batch, layer: int, head: int, rows) -> float:
    """Mean length of what a head writes."""
    size = plant.model.config.head_size
    output = plant.model.weights[f"layers.{layer}.attention.output.weight"][0]
    written = inside.heads[layer][:, :, head] @ output[head * size : (head + 1) * size]
    return float(written.norm(dim=-1)[selected(batch, rows)].mean())
