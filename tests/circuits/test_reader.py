"""The reader finds what was planted: all of it, nothing else, every way that there is, and says where it cannot."""

import math
from functools import cache, partial

import numpy as np
import pytest
import torch

from hopscope.circuits.circuit import Circuit, Path
from hopscope.circuits.criterion import Criterion, criterion_of, lowest_floors
from hopscope.circuits.execution import Execution, _index
from hopscope.circuits.grammar import Grammar, Rows
from hopscope.circuits.interventions import ReplacePattern
from hopscope.circuits.path_patching import PathPatching, exchanged, resampled
from hopscope.circuits.permutation_plants import permutation_plants
from hopscope.circuits.plants import Plant, chain_plants
from hopscope.circuits.reader import NOT_LEARNED, READ, UNEXPLAINED, Reader, ReaderConfig, Reading, read
from hopscope.circuits.rules import History, Identity, Learned, OverRole, Uniform, reads_nothing
from hopscope.circuits.search import Search, State
from hopscope.errors import UserError
from hopscope.models.config import Model, TransformerConfig
from hopscope.models.sites import Cache, calling
from hopscope.models.transformer import Transformer
from hopscope.tasks import Batch, Permutation, Retrieval, Shape, Task, draw

QUICK = ReaderConfig(samples=16, validation=32, orders=1, random_circuits=3)


@cache
def plants() -> dict[str, Plant]:
    return {plant.name: plant for plant in (*chain_plants(), *permutation_plants(4))}


@cache
def reading(name):
    plant = plants()[name]
    config = QUICK if isinstance(plant.task, Retrieval) else ReaderConfig(orders=1, random_circuits=0)
    return read(plant.model, plant.task, config)


def found(circuit):
    return frozenset((path.layer, path.head, path.query, path.target) for path in circuit.paths)


def one_of_each():
    """Of every family the first plant and, of retrieval, one with other heads, idle layers and decoys."""
    chosen = {
        f"{family} {number}"
        for number in (1, 5)
        for family in ("doubling", "reflection", "walk", "leak", "relay")
    }
    chosen |= {"copies 1", "leaking relay 1"}
    names = [name for name, plant in plants().items() if isinstance(plant.task, Permutation)]
    return sorted(chosen & set(plants())) + names[:3] + names[-1:]


@pytest.mark.parametrize("name", one_of_each())
def test_what_was_planted_is_found_and_nothing_else(name):
    plant, got = plants()[name], reading(name)
    if not plant.explained:
        assert got.verdict.startswith(UNEXPLAINED)
        return
    truths = {
        frozenset((each.layer, each.head, each.rows, each.target) for each in circuit)
        for circuit in plant.circuits
    }
    assert got.verdict == READ
    assert {found(circuit) for circuit, _ in got.minimal} == truths
    assert found(got.circuit) in truths
    assert got.loss["rules"] < got.threshold < min([got.loss["complement"], *got.random])
    if len(truths) == 1 and isinstance(plant.task, Retrieval):
        assert None not in [each.needed_for for each in got.evidence]
        assert all(each.removed["recomputed"] > got.loss["recomputed"] for each in got.evidence)


@pytest.mark.soak
@pytest.mark.parametrize("name", list(plants()))
def test_everything_that_was_planted_is_found(name):
    test_what_was_planted_is_found_and_nothing_else(name)


def test_what_flows_along_the_paths_of_a_doubling():
    got = reading("doubling 5")
    mates = [
        each for path, each in zip(got.circuit.paths, got.evidence, strict=True) if path.query != "query"
    ]
    assert all(each.mean_attention > 0.9 for each in got.evidence)
    assert {use.part for use in mates[0].composition} >= {"K"}
    last = got.evidence[-1]
    assert [use.layer for use in last.composition] == [None] and last.carries["position"] < 0.01
    assert max(last.carries, key=last.carries.__getitem__).startswith("x_")


def test_a_rules_only_proof_keeps_no_read_that_only_shapes_keys():
    plant = plants()["doubling 1"]
    got = read(plant.model, plant.task, QUICK.model_copy(update={"proof": "rules"}))
    assert (got.verdict, [path.query for path in got.circuit.paths]) == (READ, ["query"])


def test_a_model_that_never_learned_has_no_circuit():
    plant = plants()["doubling 1"]
    got = read(Transformer.initial(plant.model.config, torch.tensor([7])), plant.task, QUICK)
    assert (got.verdict, got.circuit.paths, got.minimal) == (NOT_LEARNED, (), ())


def test_a_threshold_below_the_model_s_own_loss():
    plant = plants()["doubling 1"]
    with pytest.raises(
        UserError, match=r"threshold: expected more than the loss of the unablated model, 0\.0"
    ):
        read(plant.model, plant.task, QUICK.model_copy(update={"threshold": 1e-30}))


def test_several_members_are_not_one():
    plant = plants()["doubling 1"]
    with pytest.raises(UserError, match=r"model: expected a single one, found 2 members; take .member\(i\)"):
        read(Transformer.initial(plant.model.config, torch.tensor([3, 5])), plant.task, QUICK)


def test_a_row_that_was_never_searched_is_told(monkeypatch):
    plant, known = plants()["doubling 1"], Rows.drawn
    monkeypatch.setattr(Rows, "drawn", lambda *given: known(*given)._replace(roles=known(*given).roles[1:]))
    got = read(plant.model, plant.task, QUICK)
    assert got.verdict == f"{UNEXPLAINED}: fresh samples have rows with roles that were never searched"


def test_a_loss_that_is_no_number_can_be_kept():
    got = reading("doubling 5").model_copy(update={"loss": {"rules": float("inf"), "full": float("nan")}})
    again = Reading.model_validate_json(got.model_dump_json()).loss
    assert again["rules"] == float("inf") and again["full"] != again["full"]


def test_further_orders_are_tried_only_while_nothing_holds():
    config, orders = QUICK.model_copy(update={"orders": 0, "further_orders": 2, "most_circuits": 1}), []
    for name in ("doubling 1", "leaking relay 1"):
        said: list[str] = []
        read(plants()[name].model, plants()[name].task, config, said.append)
        orders.append([each for each in said if each.startswith("order")])
    assert orders == [["order by importance"], ["order by importance", "order 0", "order 1"]]


# Circuits are values.


def test_a_circuit_is_a_value():
    circuit = reading("doubling 5").circuit
    again = Circuit.model_validate_json(circuit.model_dump_json())
    assert (again, hash(again), str(again)) == (circuit, hash(circuit), "\n".join(map(str, circuit.paths)))
    assert reading("doubling 5").model_validate_json(reading("doubling 5").model_dump_json()) == reading(
        "doubling 5"
    )
    assert circuit != circuit.model_copy(update={"paths": circuit.paths[1:]})
    assert str(Circuit()) == "no path"


def test_a_read_comes_after_those_that_it_builds_on():
    def path(layer, query, target, rule=OverRole(keys={"kind": 1})):  # noqa: B008
        return Path(layer=layer, head=0, roles={"kind": 0}, rule=rule, query=query, target=target)

    mates = path(0, "second 1", "first 1"), path(1, "second 2", "first 2")
    hops = path(3, "query", "second 1"), path(4, "query", "second 2 + all first 1")
    expected = ((1, "second 1", "first 1"), (1, "second 2", "first 2"), (2, "query", "second 1"))
    assert Circuit(paths=(*mates, *hops)).reads == (*expected, (3, "query", "second 2 + all first 1"))
    silent = path(2, "query", "", History())
    assert Circuit(paths=(mates[0], silent, hops[0])) == Circuit(paths=(mates[0], hops[0]))
    # What is read may be told by fewer roles than rows have.
    below = mates[0].model_copy(update={"roles": {"kind": 1, "step": 1}})
    assert [deep for deep, *_ in Circuit(paths=(below, path(3, "query", "all first"))).reads] == [1, 2]


def test_a_circuit_of_another_shape():
    plant = plants()["doubling 1"]
    reader = Reader(plant.model, plant.task, QUICK)
    with pytest.raises(
        UserError, match="circuit: expected rows and heads of a model of 2 layers with 1 heads"
    ):
        reading("doubling 5").circuit.run(reader.fresh)


# Passes.

SHAPES = {
    "pre-norm, causal": {"mlp_ratio": 0.0},
    "pre-norm, MLP, all": {"causal": False, "heads": 2},
    "post-norm, MLP": {"norm": "post"},
    "no norm": {"norm": "none", "mlp_ratio": 1.0, "layers": 2},
}
TASKS = {
    "chain": Retrieval(steps=2, chains=3),
    "any order": Retrieval(steps=2, chains=2, order="random"),
    "permutation": Permutation(values=5, repeat_ratio=0.5),
}


@cache
def execution(task, shape):
    found, fields = (
        TASKS[task],
        {"layers": 3, "heads": 3, "width": 14, "head_dim": 5, "mlp_ratio": 2.0, **SHAPES[shape]},
    )
    config = TransformerConfig.model_validate(
        {
            **fields, "length": found.shape().positions, "input_kind": found.shape().inputs,
            "input_size": found.shape().input_size, "output_size": found.shape().output_size,
            "readout": found.shape().readout, "positions": "none" if found.shape().position_size else "learned",
        }
    )  # fmt: skip
    model, generator = Transformer(config), torch.Generator().manual_seed(3)
    for name, weight in model.weights().items():
        weight.copy_(
            0.4 * torch.randn(weight.shape, generator=generator) + ("norm" in name and "weight" in name)
        )
    seeds = torch.tensor([11])
    rows = Rows.drawn(found, 11, "cpu")
    return Execution(model, Grammar(found, rows, draw(found, seeds, "circuit", 0, 13), causal=config.causal))


def everywhere(run, shift):
    """A rule for every slot, of every kind."""
    found = {}
    for number, slot in enumerate(run.slots):
        candidates = [rule for rule, _ in run.grammar.candidates(slot[2])]
        kinds = [Uniform(), Identity(), candidates[number % len(candidates)], History(), Learned()]
        found[slot] = kinds[(number * number + shift) % len(kinds)]
    return found


def interventions(circuit, execution, mode):
    """A circuit as interventions: a model under them predicts what `run` does, more slowly."""
    # Rows of no role keep the pattern of the model as it is, and one on which a rule leads nowhere reads itself.
    layers = range(execution.model.config.layers) if mode == "rules" else ()
    found = [ReplacePattern(layer=layer, by=Learned()) for layer in layers]
    for (layer, head, role), rule in circuit.rules(execution).items():
        rows = execution.grammar.roles[role]
        for by in (Identity(), rule) if mode == "rules" or reads_nothing(rule) else ():
            found.append(ReplacePattern(layer=layer, heads=(head,), rows=rows, by=by))
    return found


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
def test_passes_are_those_of_the_model_under_interventions(task, shape, mode):
    run = execution(task, shape)
    alone = run.grammar.batch.changed(lambda tensor: tensor[0])
    torch.testing.assert_close(run.clean.predictions[0], run.model(alone.inputs), rtol=1e-3, atol=1e-4)
    circuit = Circuit.of(everywhere(run, 2), run.grammar)
    fast = circuit.run(run, mode).predictions[0]
    slow = run.model.intervene(alone, interventions(circuit, run, mode))
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-4)
    assert (fast - run.clean.predictions[0]).abs().max() > 0.01


@pytest.mark.parametrize("mode", ["rules", "recomputed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
def test_a_change_of_a_pass_is_the_changed_pass(task, shape, mode):
    run = execution(task, shape)
    clean = run.clean._replace(mode=mode)
    passed, rules = run.under(clean, everywhere(run, 2)), everywhere(run, 3)
    for count in (1, 1, 2, 7):
        slots = run.slots[count * 5 % 11 :: len(run.slots) // count][:count]
        changes = {slot: rules[slot] for slot in slots}
        fast, whole = run.under(passed, changes), run.under(clean, {**passed.rules, **changes})
        assert fast.rules == whole.rules
        torch.testing.assert_close(fast.predictions, whole.predictions, rtol=1e-3, atol=1e-4)
        few = run.under(passed.first(5), changes).predictions
        torch.testing.assert_close(few, fast.predictions[:, :5], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
def test_a_patch_is_a_function_of_what_the_heads_bring_home(task, shape):
    run = execution(task, shape)
    circuit = Circuit.of(everywhere(run, 2), run.grammar)
    passed, slot = circuit.run(run, "recomputed"), run.slots[len(run.slots) // 2]
    layer, head, role = slot
    read = torch.randn((*run.clean.values[0].shape[:2], 5), generator=torch.Generator().manual_seed(1))
    held, rows = run.held(passed), run.grammar.rows[role]
    kept = {each: run.brought_home(held, each) for each in range(run.model.config.layers)}
    same = run.under(run.clean, circuit.rules(run), brought=kept).predictions
    torch.testing.assert_close(same, passed.predictions, rtol=1e-3, atol=1e-4)
    heads = kept[layer].clone()
    heads[:, :, head] = torch.where(rows.t()[..., None], read, heads[:, :, head])
    fast = run.under(passed, {slot: passed.rules[slot]}, brought={layer: heads}).predictions[0]

    def patched(z):
        z[:, :, head] = torch.where(rows[..., None], read.transpose(0, 1), z[:, :, head])
        return z

    alone = run.grammar.batch.changed(lambda tensor: tensor[0])
    functions = [*interventions(circuit, run, "recomputed"), {f"blocks.{layer}.attn.hook_z": patched}]
    torch.testing.assert_close(fast, run.model.intervene(alone, functions), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("task", "shape"), [("chain", "pre-norm, causal"), ("any order", "post-norm, MLP")])
def test_what_a_path_carries_and_who_uses_it_are_those_of_the_model(task, shape, monkeypatch):
    """Against the model's own sites: one head's rows are given what they would bring home from the other pass."""
    run, given = execution(task, shape), TASKS[task]
    criterion = Criterion(
        given, run.grammar.batch, lowest_floors(given, run.grammar.batch), run.clean.predictions
    )
    monkeypatch.setattr(criterion, "least_effect", -math.inf)  # every use counts
    circuit = Circuit.of(everywhere(run, 2), run.grammar)
    base = circuit.run(run, "recomputed")
    patching, causal = PathPatching(run, criterion, base), run.model.config.causal
    alone, layers = run.grammar.batch.changed(lambda tensor: tensor[0]), range(run.model.config.layers)

    def sites(functions, inputs):
        cache = Cache()
        at = calling(run.model.site_functions(alone, functions))
        with torch.no_grad():
            predictions = run.model(inputs, lambda name, tensor: cache(name, at(name, tensor)))
        return predictions, {name: cache[name] for name in cache}

    under = interventions(circuit, run, "recomputed")
    predictions, usual = sites(under, alone.inputs)
    loss = criterion.loss(predictions[None])

    def rise(slot, pattern, values):
        layer, head, role = slot
        home, rows = pattern @ values, run.grammar.rows[role]

        def patched(z):
            z[:, :, head] = torch.where(rows[..., None], home, z[:, :, head])
            return z

        found, _ = sites([*under, {f"blocks.{layer}.attn.hook_z": patched}], alone.inputs)
        return criterion.loss(found[None]) - loss

    def of_head(cached, layer, head, what):
        return cached[f"blocks.{layer}.attn.hook_{what}"][:, :, head]

    def pattern_of(cached, layer, head):
        return cached[f"blocks.{layer}.attn.hook_pattern"][:, head]

    held = {f"blocks.{at}.attn.hook_pattern": partial(lambda own, _: own, usual[f"blocks.{at}.attn.hook_pattern"])
            for at in layers}  # fmt: skip
    others = exchanged(given, Rows.drawn(given, 11, "cpu"), run.grammar.batch, run)
    carried = patching.carries({"x_1": others["x_1"]})
    _, exchange = sites([held], given.counterfactuals(run.grammar.batch)["x_1"][0])
    seen = set()
    for slot in [*base.circuit][:: max(1, len(base.circuit) // 4)]:
        layer, head, _ = slot
        expected = rise(slot, pattern_of(usual, layer, head), of_head(exchange, layer, head, "v"))
        assert carried[slot]["x_1"] == pytest.approx(expected, abs=1e-4)
        _, without = sites(
            interventions(Circuit.of({**base.rules, slot: Uniform()}, run.grammar), run, "recomputed"),
            alone.inputs,
        )
        for use in (each for each in patching.composition(slot) if each.layer is not None):
            own = {
                what: of_head(without if use.part == what.upper() else usual, use.layer, use.head, what)
                for what in "qkv"
            }
            scores = own["q"] @ own["k"].mT / math.sqrt(run.model.config.head_size)
            hidden = torch.ones_like(scores).triu(1).bool() if causal else torch.zeros_like(scores).bool()
            pattern = scores.masked_fill(hidden, -math.inf).softmax(-1)
            pattern = pattern_of(usual, use.layer, use.head) if use.part == "V" else pattern
            role = next(
                at for at, roles in enumerate(run.grammar.roles) if run.grammar.words(roles) == use.rows
            )
            assert use.rise == pytest.approx(rise((use.layer, use.head, role), pattern, own["v"]), abs=1e-4)
            seen.add(use.part)
    assert seen == {*"QKV"}


@pytest.mark.parametrize(
    ("positions", "moved"), [("learned", [*range(1, 9), 0]), ("pair", [1, 1, 2, 2, 3, 3, 4, 4, 0])]
)
def test_position_codes_are_moved_on_by_one(positions, moved):
    task = Permutation(values=5)
    fields = Model(layers=1, heads=1, width=16, positions=positions, norm="none")
    model, rows = Transformer.initial(fields.for_task(task.shape()), 3), Rows.drawn(task, 0, "cpu")
    batch = draw(task, torch.tensor([0]), "circuit", 0, 4)
    found = exchanged(task, rows, batch, Execution(model, Grammar(task, rows, batch, causal=True)))[
        "position"
    ]
    tokens = model.weights()["embed.token.weight"][batch.inputs[0]]
    codes = model.weights()["embed.position.weight"][moved]
    torch.testing.assert_close(found.transpose(0, 1), tokens + codes)


@pytest.mark.parametrize("task", TASKS)
def test_the_readout_alone_misses_one_read_and_no_other(task):
    run = execution(task, "pre-norm, causal")
    batch, own = run.grammar.batch, run.clean.predictions
    criterion = Criterion(TASKS[task], batch, lowest_floors(TASKS[task], batch), own)
    criterion.least_effect = -math.inf
    base = Circuit.of(everywhere(run, 2), run.grammar).run(run, "recomputed")
    slot = next(each for each in run.reachable[::-1] if each in base.circuit)
    without = run.under(run.held(base), {slot: Uniform()})
    (use,) = PathPatching(run, criterion, base).composition(slot)
    expected = criterion.loss(without.predictions) - criterion.loss(base.predictions)
    assert use.layer is None and use.rise == pytest.approx(expected, abs=1e-5)


# The search.


class Priced(Search):
    """Every slot has a price for each way of reading nothing, and no more than `most` may be spent."""

    def __init__(self, costs, most):
        self._prices, self._most, self.tried = costs, most, 0
        self._on_few, self._costs, self.share, self.searched = None, {}, 1.0, 1.0

    def changed(self, state, changes):
        self.tried += 1
        rules = {**state.rules, **changes}
        price = sum(
            self._prices[slot][isinstance(rule, Identity)]
            for slot, rule in rules.items()
            if rule != Learned()
        )
        passed = {"rules": state.passed["rules"]._replace(rules=rules)}
        return state._replace(passed=passed) if price <= self._most else None


@pytest.mark.parametrize("most", [0, 3, 8, 100])
def test_many_at_once_is_one_after_another(most):
    slots = [(0, 0, role) for role in range(13)]
    search = Priced({slot: ((7 * slot[2]) % 5, (3 * slot[2]) % 4) for slot in slots}, most)
    clean = execution("chain", "pre-norm, causal").clean
    start = State({"rules": clean._replace(rules=dict.fromkeys(slots, Learned()))}, {"rules": 0.0}, set())
    found, left = {}, most
    for slot in slots:
        price = next((each for each in search._prices[slot] if each <= left), None)
        if price is not None:
            left -= price
            found[slot] = (Uniform(), Identity())[search._prices[slot].index(price)]
    assert search._remove(start, slots).rules == {**dict.fromkeys(slots, Learned()), **found}
    assert search.tried == 1 if most == 100 else search.tried < 3 * len(slots)


# Any task.


class Sum(Task):
    """The value at each of two fixed places, one part of the loss each; every third sample is of a group of its own."""

    scale: float = 1.0

    def shape(self):
        return Shape(
            inputs="vectors", input_size=7, positions=5, readout=(4,), output_size=2, position_size=5
        )

    def sample(self, draws):
        numbers = draws.normal("numbers", (5, 2)) * draws.constant([1.0, self.scale], (5, 2))
        targets = torch.stack((numbers[..., 0, 0], numbers[..., 2, 1]), -1)[..., None, :]
        codes = torch.eye(5, device=draws.device).expand(*draws.size, -1, -1)
        inputs = torch.cat((numbers, codes), -1)
        return Batch(inputs, targets, groups={"third": (draws.index % 3 == 0).expand(draws.size)})

    def parts(self, predictions, batch):
        first, second = (predictions - batch.targets).square().mean((1, 2)).unbind(-1)
        right = -(predictions - batch.targets).abs().mean((1, 2, 3))
        return {"loss": first + second, "loss_first": first, "loss_second": second, "likeness": right}


def sum_model(task, second=1.0):
    """Two heads find the places by position codes."""
    config = TransformerConfig(
        layers=1, heads=2, head_dim=2, width=8, mlp_ratio=0.0, norm="none", positions="carried", position_size=5,
        length=5, input_kind="vectors", input_size=7, output_size=2, readout=(4,),
    )  # fmt: skip
    model, sharp = Transformer(config), 50.0
    entries = {
        "embed.vector.weight": {(0, 0): 1.0, (1, 1): 1.0, (6, 2): 1.0, (2, 3): 1.0, (4, 4): 1.0},
        "layers.0.attention.query.weight": {(2, 0): sharp, (2, 2): sharp},
        "layers.0.attention.key.weight": {(3, 0): sharp, (4, 2): sharp},
        "layers.0.attention.value.weight": {(0, 0): 1.0, (1, 3): 1.0},
        "layers.0.attention.output.weight": {(0, 5): 1.0, (3, 6): second},
        "readout.weight": {(5, 0): 1.0, (6, 1): 1.0},
    }
    for name, weight in model.weights().items():
        weight.zero_()
        for place, value in entries.get(name, {}).items():
            weight[place] = value
    return model


@pytest.mark.parametrize("scale", [1.0, 0.03])
def test_a_task_without_roles_and_relations(scale):
    task = Sum(scale=scale)
    got = read(sum_model(task), task, QUICK)
    assert got.verdict == READ
    assert got.learned == ("first", "second", "first@third", "second@third")
    assert [str(path) for path in got.circuit.paths] == [
        "layer 0, head 0: position 4 → position 0",
        "layer 0, head 1: position 4 → position 2",
    ]
    brought = [
        [name for name, rise in each.carries.items() if rise >= got.least_effect] for each in got.evidence
    ]
    assert brought == [["position 0"], ["position 2"]]
    assert [each.needed_for for each in got.evidence] == ["first", "second"]


def test_what_was_not_learned_is_not_asked_for():
    got = read(sum_model(Sum(), second=0.0), Sum(), QUICK)
    assert got.learned == ("first", "first@third")
    assert [path.head for path in got.circuit.paths] == [0]


class Named(Sum):
    """The same with a role and relations of its own."""

    def sample(self, draws):
        batch = super().sample(draws)
        kind = draws.constant([0, 1, 0, 1, 2], (5,))
        relations = {"start": draws.constant(-1, (5,)), "middle": draws.constant(-1, (5,))}
        for name, place in (("start", 0), ("middle", 2)):
            relations[name][..., 4] = place
        return Batch(batch.inputs, batch.targets, roles={"kind": kind}, relations=relations)

    @property
    def words(self):
        return {"roles": {"kind": ("item", "", "query")}}


def test_a_task_s_own_words():
    got = read(sum_model(Named()), Named(), QUICK)
    assert [(path.query, path.target) for path in got.circuit.paths] == [
        ("query", "start (item)"),
        ("query", "middle (item)"),
    ]


def test_floors_are_the_task_s_or_those_of_a_guess():
    batch = draw(Sum(scale=3.0), torch.tensor([1]), "probe", 0, 2000)
    floors = lowest_floors(Sum(scale=3.0), batch)
    assert set(floors) == {"loss_first", "loss_second", "loss_first@third", "loss_second@third"}
    assert floors["loss_second"] == pytest.approx(9.0, rel=0.1) and floors["loss_first"] == pytest.approx(
        1.0, rel=0.1
    )
    chain = Retrieval(steps=2, chains=5)
    samples = draw(chain, torch.tensor([1]), "probe", 0, 7)
    assert lowest_floors(chain, samples) == {"loss_step_1": 0.8, "loss_step_2": 0.8}


def test_losses_what_is_learned_what_may_be_lost_and_what_is():
    task = Retrieval(steps=2, chains=4)
    batch = draw(task, torch.tensor([1]), "probe", 0, 64)
    exact = batch.targets
    criterion = criterion_of(task, batch, exact, None)
    assert criterion.names == ("step_1", "step_2")
    assert criterion.threshold == pytest.approx(0.05) and criterion.least_effect == pytest.approx(0.02)
    near, far = exact.clone(), exact.clone()
    near[..., 4:] += 0.55  # a squared error of 0.30: less than half of the plateau, 0.75
    far[..., 4:] += 0.65
    assert (criterion.lost(near, exact), criterion.lost(far, exact)) == ([], ["step_2"])
    assert criterion.lost(far, near) == []  # against a pass that is itself no better than this
    assert criterion.budget_used("rules", near) == pytest.approx(0.15 / 0.05, rel=0.02)
    assert criterion.budget_used("recomputed", near) == pytest.approx(0.3 / 0.25, rel=0.02)
    assert criterion.fault({"rules": exact, "recomputed": far}) is None
    assert "τ is 0.05" in criterion.fault({"rules": near})
    assert "75%" in criterion.fault({"rules": exact, "recomputed": exact + 0.75})
    assert criterion_of(task, batch, far, None).names == ("step_1",)
    # A squared error under 0.25, and one above it.
    learned, missed = (torch.cat((exact[..., :4], exact[..., 4:] + off), -1) for off in (0.49, 0.51))
    assert criterion_of(task, batch, learned, None).names == ("step_1", "step_2")
    assert criterion_of(task, batch, missed, None).names == ("step_1",)


def test_skills_what_is_learned_and_what_may_be_lost():
    task = Permutation(values=5, repeat_ratio=0.5)
    batch = draw(task, torch.tensor([1]), "probe", 0, 400)
    right = 9.0 * torch.nn.functional.one_hot(batch.targets, 6).float()
    criterion = criterion_of(task, batch, right, None)
    assert criterion.names == ("elimination", "recall")
    assert criterion.threshold == pytest.approx(criterion.full + 0.02)
    repeats = batch.roles["repeat"][0, :, -1] == 1
    wrong = right.clone()
    wrong[0, repeats.nonzero()[:5, 0], -1] = 0.0
    lost = 5 / int(repeats.sum())
    assert criterion.worst(wrong) == pytest.approx(lost)
    assert criterion.budget_used("rules", wrong) == pytest.approx(
        2.0 * criterion.budget_used("recomputed", wrong)
    )
    assert "points of a skill" in criterion.fault({"rules": wrong})
    wrong[0, repeats, -1] = 0.0
    assert criterion.lost(wrong, right) == ["recall"]
    assert criterion_of(task, batch, wrong, None).names == ("elimination",)


def test_inputs_of_a_role_come_from_the_next_sample():
    inputs = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]])
    here = torch.tensor([[[True, False, True, False], [False, True, False, False], [False] * 4]])
    assert resampled(inputs, here, 0).tolist() == [[[6, 2, 6, 4], [5, 6, 7, 8], [9, 10, 11, 12]]]
    vectors = torch.stack((inputs, -inputs), -1).float()
    kept = resampled(vectors, here, 1)
    assert torch.equal(kept[..., 1], vectors[..., 1]) and kept[0, 0, 0].tolist() == [6.0, -1.0]


def test_counterfactuals_unlike_the_inputs_are_one_clear_line():
    class Wrong(Sum):
        def counterfactuals(self, batch):
            return {"x": batch.inputs[..., :1]}

    reader = Reader(sum_model(Sum()), Wrong(), QUICK)
    with pytest.raises(UserError, match=r"Wrong.counterfactuals: 'x': expected inputs as those of the batch"):
        exchanged(Wrong(), reader._rows, reader.fresh.grammar.batch, reader.fresh)


def test_a_role_that_the_samples_lack_has_no_rows():
    positions = np.zeros(3, dtype=bool)
    assert torch.arange(3.0)[_index(positions)].numel() == 0


@pytest.mark.parametrize("field", ["samples", "validation", "orders", "random_circuits", "seed"])
def test_a_field_out_of_range_is_one_line(field):
    with pytest.raises(UserError, match=f"ReaderConfig: {field}: expected greater than or equal to"):
        ReaderConfig(**{field: -1})
