import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.oracles.tasks import reference_sample

from hopscope.tasks.batch import NO_RELATION
from hopscope.tasks.conditional import ConditionalTask
from hopscope.tasks.config import ConditionalConfig, RetrievalConfig
from hopscope.tasks.retrieval import RetrievalTask

from .factories import FUNCTIONS, RELATIVES, nodes_of
from .reading import asked_symbols, readings, symbols_of

SEEDS = torch.tensor([19, 23])


def config(graph=None, **changes):
    return ConditionalConfig(**({} if graph is None else {"nodes": nodes_of(graph)}), **changes)


def task(graph=None, **changes):
    return ConditionalTask(config(graph, **changes))


@st.composite
def configs(draw):
    """Any graph of up to five nodes with up to three parents each, under any options but a random order."""
    names, nodes, tables = "abcde"[: draw(st.integers(2, 5))], [], []
    for name in names:
        before = [node["name"] for node in nodes]
        least = 1 if name == names[-1] and not tables else 0
        keys = (
            draw(st.lists(st.sampled_from(before), unique=True, min_size=least, max_size=3)) if before else []
        )
        nodes.append({"name": name, "parents": tuple(keys)})
        tables += [name] if keys else []
    chosen = draw(st.lists(st.sampled_from(tables), unique=True, min_size=1))
    orders = st.one_of(
        st.sampled_from(["deepest-first", "shallowest-first"]), st.permutations(tables).map(tuple)
    )
    return ConditionalConfig(
        nodes=tuple(nodes),
        chains=draw(st.integers(1, 3)),
        symbol_dim=draw(st.sampled_from([2, 4])),
        order=draw(orders),
        targets=draw(st.sampled_from(["ic", "last", tuple(chosen)])),
        position=draw(st.sampled_from(["token", "pair"])),
        pool=draw(st.sampled_from([None, 7])),
    )


# What a sample is.


@settings(max_examples=40)
@given(config=configs(), seed=st.integers(0, 2**63 - 1))
def test_who_follows_equal_vectors_finds_every_target(config, seed):
    batch = ConditionalTask(config).sample(torch.tensor([seed]), "train", 5, 2)
    assert batch.inputs.shape == (1, 2, config.positions, 2 * config.symbol_dim)
    for inputs, targets in zip(batch.inputs[0], batch.targets[0], strict=True):
        (reading,) = readings(config, symbols_of(config, inputs))
        assert asked_symbols(config, reading) == targets.tolist()


@settings(max_examples=20)
@given(config=configs())
def test_a_symbol_is_shown_once_and_with_every_combination_of_the_other_keys(config):
    inputs = ConditionalTask(config).sample(SEEDS[:1], "train", 5, 1).inputs[0, 0]
    symbols = symbols_of(config, inputs)
    expected = []
    for node in config.nodes:
        users = [len(user.parents) for user in config.nodes if node.name in user.parents]
        used = 1 + sum(config.chains ** (keys - 1) for keys in users)
        values = config.chains ** max(1, len(node.parents))
        expected += [used] * config.chains + [1] * (values - config.chains)
    assert sorted(symbols.count(symbol) for symbol in set(symbols)) == sorted(expected)


@settings(max_examples=10)
@given(config=configs(), order=st.sampled_from(["keep", "random"]))
def test_equal_to_the_plain_reference(config, order):
    asked = ConditionalTask(config if order == "keep" else config.model_copy(update={"order": "random"}))
    batch = asked.sample(SEEDS[:1], "train", 5, 2)
    for index in range(2):
        expected = reference_sample(asked.config, 19, "train", 5, index)
        assert {name: role[0, index].tolist() for name, role in batch.roles.items()} == expected["roles"]
        found = {name: relation[0, index].tolist() for name, relation in batch.relations.items()}
        assert found == expected["relations"]
        for name in ("inputs", "targets"):
            torch.testing.assert_close(
                getattr(batch, name)[0, index], torch.tensor(expected[name]), rtol=0, atol=1e-6
            )


@pytest.mark.parametrize("chains", [1, 2, 3, 4, 5])
def test_the_papers_length(chains):
    asked = task(chains=chains)
    assert asked.positions == asked.config.positions == 3 * chains**2 + 5 * chains
    assert asked.readout == tuple(range(asked.positions - chains, asked.positions))
    if chains == 4:
        assert asked.positions == 68


@pytest.mark.parametrize(
    ("graph", "positions"),
    [
        # F4, four of everything: 16 triples, 4 + 4 pairs, 4 queries of a function and its argument.
        (FUNCTIONS, 16 * 3 + 8 * 2 + 4 * 2),
        (RELATIVES, 16 * 3 + 3 * 8 + 4),
        ("a b c w(a,b,c)", 64 * 4 + 4 * 3),
    ],
)
def test_length_of_other_graphs(graph, positions):
    assert task(graph).positions == config(graph).positions == positions


def test_the_papers_sequence():
    """Paper, section 3.1: `… x y z … a y … a x … a`."""
    asked = task(chains=3)
    batch = asked.sample(SEEDS, "train", 3, 7)
    words = asked.role_values["kind"]
    assert words == ("key1", "key2", "value", "first", "second", "query")
    shown = ["key1", "key2", "value"] * 9 + ["first", "second"] * 6 + ["query"] * 3
    assert (batch.roles["kind"] == torch.tensor([words.index(word) for word in shown])).all()
    assert asked.role_values["node"] == ("a", "x", "y", "z")
    nodes = torch.tensor([3] * 27 + [2] * 6 + [1] * 6 + [0] * 3)
    assert (batch.roles["node"] == nodes).all()
    assert (batch.roles["slot"] == torch.tensor([0, 1, 2] * 9 + [0, 1] * 6 + [0] * 3)).all()
    place = torch.arange(9).repeat_interleave(3).tolist() + [0, 0, 1, 1, 2, 2] * 2 + [0, 1, 2]
    assert (batch.roles["place"] == torch.tensor(place)).all()
    on_chain = torch.stack([(batch.roles["chain"] == chain).sum(-1) for chain in range(4)])
    # Each chain has one triple, two pairs and its query; six triples lie on no chain.
    assert on_chain[:3].eq(3 + 4 + 1).all() and on_chain[3].eq(6 * 3).all()
    assert asked.readout == (39, 40, 41) and batch.weights is None


def test_a_sequence_by_hand():
    """One chain of F4, "g = f. a = 2. f(2) = 3. g(a) = ?", where every table has one tuple."""
    batch = task(FUNCTIONS, chains=1).sample(SEEDS[:1], "train", 3, 1)
    none = NO_RELATION
    # f n value | a n | g f | g a
    assert {name: role[0, 0].tolist() for name, role in batch.roles.items()} == {
        "kind": [0, 1, 2, 3, 4, 3, 4, 5, 5],
        "node": [4, 4, 4, 3, 3, 2, 2, 0, 1],
        "slot": [0, 1, 2, 0, 1, 0, 1, 0, 1],
        "chain": [0] * 9,
        "place": [0] * 9,
        "holds": [2, 3, 4, 1, 3, 0, 2, 0, 1],
    }
    assert {name: relation[0, 0].tolist() for name, relation in batch.relations.items()} == {
        "previous": [none, 0, 1, 2, 3, 4, 5, 6, 7],
        "pair_mate": [2, 2, 0, 4, 3, 6, 5, none, none],
        "same_symbol": [6, 4, none, 8, 1, 7, 0, 5, 3],
        "to_f": [none, none, none, none, none, 6, none, 6, 6],
        "to_n": [none, none, none, 4, none, none, none, none, 4],
        "to_value": [2, 2, none, 2, 2, 2, 2, 2, 2],
    }
    assert batch.targets.shape[:3] == (1, 1, 1)


def test_relations_point_at_the_symbols_that_they_name():
    asked = task(RELATIVES, chains=3, order="random")
    batch = asked.sample(SEEDS, "train", 3, 7)
    symbols, chain = batch.inputs[..., :4], batch.roles["chain"]

    def there(values, relation):
        return torch.take_along_dim(values, batch.relations[relation].clamp(min=0)[..., None], 2)

    for number, name in enumerate(asked.config.tables):
        # From the queries to the right answers, and from a symbol on a chain to another of its chain.
        right = batch.targets.unflatten(-1, (4, 4))[..., number, :]
        assert torch.equal(there(symbols, f"to_{name}")[:, :, list(asked.readout)], right)
        has = batch.relations[f"to_{name}"] >= 0
        assert torch.equal(there(chain[..., None], f"to_{name}")[..., 0][has], chain[has])
        assert (chain[has] < 3).all()
    kinds = asked.role_values["kind"]
    brings = torch.isin(
        batch.roles["kind"], torch.tensor([kinds.index(k) for k in ("value", "second", "query")])
    )
    has = batch.relations["same_symbol"] >= 0
    assert torch.equal(there(symbols, "same_symbol")[has], symbols[has])
    assert has[~brings].all() and (there(brings[..., None], "same_symbol")[..., 0] != brings)[has].all()
    # Values that lie on no chain are keys of nothing, and nothing follows from the places where people live.
    last = brings & (batch.roles["node"] == 4)
    assert torch.equal(~has, (brings & (chain == 3)) | last)
    mates = there(batch.roles["place"][..., None], "pair_mate")[..., 0]
    of_tuples = batch.relations["pair_mate"] >= 0
    assert torch.equal(mates[of_tuples], batch.roles["place"][of_tuples])
    assert torch.equal(of_tuples, batch.roles["kind"] != kinds.index("query"))


def test_a_path_has_the_relations_of_the_retrieval_problem_and_others_have_none():
    assert {"hop_1", "hop_2"} < task("p q(p) r(q)").sample(SEEDS, "train", 3, 1).relations.keys()
    for graph in (None, "p q(p) r(p)", "p q r(q)", FUNCTIONS):
        assert not config(graph).is_path
        assert not any(name.startswith("hop") for name in task(graph).sample(SEEDS, "train", 3, 1).relations)


# The answer needs every key.


def symbol_of(batch, chain, name):
    """Where a node of the paper's graph is brought for a chain of the first sample, and its symbol."""
    node = "axyz".index(name)
    is_there = (batch.roles["chain"] == chain) & (batch.roles["node"] == node)
    (place,) = (
        (is_there & ((batch.roles["kind"] == 2) | (batch.roles["kind"] == 4)))[0, 0].nonzero()[:, 0].tolist()
    )
    return place, tuple(batch.inputs[0, 0, place, :4].tolist())


@pytest.mark.parametrize(("changed", "kept"), [("y", "x"), ("x", "y")])
def test_changing_one_key_alone_changes_the_answer(changed, kept):
    """Two chains exchange their y: x stays what it is, and still z becomes another one."""
    asked = task(chains=3)
    batch = asked.sample(SEEDS[:1], "train", 3, 1)
    before = readings(asked.config, symbols_of(asked.config, batch.inputs[0, 0]))[0]
    places = [symbol_of(batch, chain, changed) for chain in (0, 1)]
    exchanged = batch.inputs[0, 0].clone()
    exchanged[[places[0][0], places[1][0]], :4] = exchanged[[places[1][0], places[0][0]], :4]
    after = readings(asked.config, symbols_of(asked.config, exchanged))[0]
    order = batch.roles["chain"][0, 0, -3:].tolist()
    for chain, old, new in zip(order, before, after, strict=True):
        assert new[kept] == old[kept]
        assert (new["z"] != old["z"]) == (new[changed] != old[changed]) == (chain in (0, 1))
        if chain == 2:
            continue
        # The new answer stands beside the chain's own kept symbol and the other chain's changed one.
        key = {kept: old[kept], changed: places[1 - chain][1]}
        symbols = symbols_of(asked.config, batch.inputs[0, 0])
        (z,) = [symbols[n + 2] for n in range(0, 27, 3) if symbols[n : n + 2] == [key["x"], key["y"]]]
        assert new["z"] == z and z not in [answer["z"] for answer in before]


@pytest.mark.parametrize("key", ["x", "y"])
def test_one_key_alone_leaves_n_possible_answers(key):
    asked = task(chains=5)
    inputs = asked.sample(SEEDS[:1], "train", 3, 1).inputs[0, 0]
    symbols = symbols_of(asked.config, inputs)
    (reading,) = readings(asked.config, symbols)
    slot = "xy".index(key)
    for query in reading:
        beside = [symbols[n + 2] for n in range(0, 75, 3) if symbols[n + slot] == query[key]]
        assert len(set(beside)) == 5 and query["z"] in beside


def test_a_random_order_can_be_told_from_the_keys():
    asked = task(chains=2, order="random")
    batch = asked.sample(SEEDS[:1], "train", 3, 31)
    seen = set()
    for inputs, targets, nodes in zip(
        batch.inputs[0], batch.targets[0], batch.roles["node"][0].tolist(), strict=True
    ):
        (reading,) = readings(asked.config, symbols_of(asked.config, inputs))
        assert asked_symbols(asked.config, reading) == targets.tolist()
        seen.add(tuple(dict.fromkeys(nodes)))
    assert len(seen) == 6
    # x and y of the same query, asked for by nobody: nothing tells which is which.
    twins = task("a x(a) y(a)", chains=2, order="random")
    inputs = twins.sample(SEEDS[:1], "train", 3, 1).inputs[0, 0]
    assert len(readings(twins.config, symbols_of(twins.config, inputs))) == 2


# The retrieval problem as a special case.


@pytest.mark.parametrize(
    ("steps", "changes", "other"),
    [
        (1, {}, {}),
        (3, {}, {}),
        (3, {"order": "shallowest-first", "position": "pair"}, {}),
        (3, {"order": "random", "pool": 13}, {}),
        (4, {"symbol_dim": 6, "frequencies": "geometric"}, {"order": (2, 4, 1, 3), "targets": (3, 1)}),
        (5, {"targets": "last", "chains": 11}, {}),
    ],
)
def test_a_path_is_the_retrieval_problem(steps, changes, other):
    nodes = " ".join(["0", *(f"{step}({step - 1})" for step in range(1, steps + 1))])
    linear = RetrievalTask(RetrievalConfig(steps=steps, **changes, **other))
    renamed = {name: tuple(str(step) for step in chosen) for name, chosen in other.items()}
    path = task(nodes, **changes, **renamed)
    assert path.readout == linear.readout and path.output_size == linear.output_size
    for stream, step in (("train", 3), ("train", range(5, 7)), ("evaluate", 0)):
        expected, found = (asked.sample(SEEDS, stream, step, 11) for asked in (linear, path))
        for name in ("inputs", "targets"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
        assert linear.role_values["kind"] == path.role_values["kind"]
        same = {"kind": "kind", "step": "node", "chain": "chain", "place": "place", "holds": "holds"}
        for name, role in expected.roles.items():
            assert torch.equal(found.roles[same[name]], role), name
        for name, relation in expected.relations.items():
            assert torch.equal(found.relations[name], relation), name
        readout = list(linear.readout)
        for k in range(1, steps + 1):
            assert torch.equal(
                found.relations[f"to_{k}"][..., readout], expected.relations[f"hop_{k}"][..., readout]
            )
    predictions = torch.zeros_like(expected.targets)
    losses = [list(asked.losses(predictions, found).values()) for asked in (linear, path)]
    assert torch.equal(torch.stack(losses[0]), torch.stack(losses[1]))


# Position codes and held-out data.


@pytest.mark.parametrize("order", ["deepest-first", "random"])
def test_all_tokens_of_a_tuple_and_of_a_query_share_a_code(order):
    batch = task(FUNCTIONS, chains=3, position="pair", order=order).sample(SEEDS, "train", 3, 7)
    for member, sample in product(range(2), range(7)):
        codes = [tuple(code) for code in batch.inputs[member, sample, :, 4:].tolist()]
        starts = batch.roles["slot"][member, sample].tolist()
        tuples = [[]]
        for code, slot in zip(codes, starts, strict=True):
            if slot == 0:
                tuples.append([])
            tuples[-1].append(code)
        shared = [set(codes) for codes in tuples[1:]]
        assert len(shared) == 9 + 3 + 3 + 3 and all(len(codes) == 1 for codes in shared)
        assert len(set.union(*shared)) == 18
    # In the order of time, whatever stands there.
    first = batch.inputs[..., 0, 4:]
    assert torch.equal(first, torch.tensor([1.0, 1.0, 0.0, 0.0]).expand_as(first))


# What is asked.


def guesses(asked, batch, name):
    """Predictions of a node by the mean of what is left, by how many of its keys are known (the first ones)."""
    nodes = {node.name: node.parents for node in asked.config.nodes}
    parents, size = nodes[name], asked.config.chains ** len(nodes[name])
    mine = (batch.roles["node"] == asked.config.names.index(name))[0, 0].nonzero()[:, 0]
    table = batch.inputs[:, :, mine, :4].unflatten(2, (size, len(parents) + 1))
    fits = torch.ones(*batch.targets.shape[:3], size)
    for known, key in enumerate(parents):
        yield fits @ table[..., -1, :] / fits.sum(-1, keepdim=True)
        start = 4 * asked.names.index(key)
        right = batch.targets[..., start : start + 4]
        fits = fits * (right[..., None, :] == table[:, :, None, :, known]).all(-1)


def test_floors_are_what_such_predictions_cost():
    asked = task("a p(a) q(a) r(p) z(p,q) w(r,q,p)", chains=3)
    batch = asked.evaluation(1009)
    third = pytest.approx(2 / 3)
    pair = {"zero": 1.0, "position": third}
    assert asked.config.floors_by_name == {
        **dict.fromkeys("pqr", pair),
        "z": {"zero": 1.0, "position": pytest.approx(8 / 9), "keys_1": third},
        "w": {
            "zero": 1.0,
            "position": pytest.approx(26 / 27),
            "keys_1": pytest.approx(8 / 9),
            "keys_2": third,
        },
    }
    for name in "zw":
        floors = dict(asked.config.floors_by_name[name])
        assert floors.pop("zero") == asked.config.zero_floor
        part = slice(4 * asked.names.index(name), 4 * asked.names.index(name) + 4)
        for floor, predicted in zip(floors.values(), guesses(asked, batch, name), strict=True):
            predictions = torch.zeros_like(batch.targets)
            predictions[..., part] = predicted
            assert float(asked.losses(predictions, batch)[f"loss_{name}"]) == pytest.approx(floor, abs=0.02)


def test_the_plateau_of_all_that_is_asked():
    asked = task(chains=3)
    batch = asked.evaluation(1009)
    # r is known from no key but a, which is in the sequence and no target.
    x, y = (batch.targets[..., 4 * n : 4 * n + 4].mean(2, keepdim=True) for n in range(2))
    z = next(guesses(asked, batch, "z"))
    predictions = torch.cat((x.expand_as(z), y.expand_as(z), z), -1)
    assert asked.config.plateau == pytest.approx((2 * 2 / 3 + 8 / 9) / 3)
    assert float(asked.losses(predictions, batch)["loss"]) == pytest.approx(asked.config.plateau, abs=0.02)
    assert config(targets="last").plateau == pytest.approx(15 / 16)


def test_losses_and_accuracies_are_named_after_the_nodes():
    asked = task(FUNCTIONS, chains=5, targets=("value", "f"))
    assert asked.names == ("f", "value") and asked.output_size == 8
    batch = asked.evaluation(503)
    noise = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(31))
    predictions = torch.cat((batch.targets[..., :4] + 0.1, noise[..., 4:]), -1)
    losses, accuracies = asked.losses(predictions, batch), asked.accuracies(predictions, batch)
    assert set(losses) == {"loss", "loss_f", "loss_value"}
    assert float(losses["loss_f"]) == pytest.approx(0.01, abs=1e-5)
    assert float(losses["loss_value"]) == pytest.approx(2.0, abs=0.1)
    assert float(losses["loss"]) == pytest.approx(float(losses["loss_f"] + losses["loss_value"]) / 2)
    assert set(accuracies) == {"accuracy_f", "accuracy_value"}
    assert float(accuracies["accuracy_f"]) > 0.95
    assert abs(float(accuracies["accuracy_value"]) - asked.config.guess) < 4 * math.sqrt(0.16 / (5 * 503))


# Configurations.


@pytest.mark.parametrize(
    ("graph", "changes", "complaint"),
    [
        ("", {}, "nodes: expected at least one with parents, found none"),
        ("a b", {}, "nodes: expected at least one with parents, found a, b"),
        ("a x(a) x(a)", {}, "nodes: expected different names, found a, x, x"),
        ("x(x)", {}, r"expected as parents of x different nodes before it \(none\), found x"),
        ("x(a) a", {}, r"expected as parents of x different nodes before it \(none\), found a"),
        (
            "a x(a) z(x,y) y(a)",
            {},
            r"expected as parents of z different nodes before it \(a, x\), found x, y",
        ),
        ("a x(a) z(x,x)", {}, r"different nodes before it \(a, x\), found x, x"),
        (None, {"order": ("x", "y")}, "order: expected a permutation of x, y, z, found x, y"),
        (None, {"order": ("x", "y", "y")}, "order: expected a permutation of x, y, z, found x, y, y"),
        (None, {"order": ("a", "x", "y", "z")}, "order: expected a permutation of x, y, z, found a, x, y, z"),
        (None, {"order": ()}, "order: .*found none"),
        (None, {"targets": ()}, "targets: expected 'ic', 'last' or different nodes of x, y, z, found none"),
        (None, {"targets": ("a", "z")}, "targets: .*found a, z"),
        (None, {"targets": ("z", "w")}, "targets: .*found z, w"),
        (None, {"targets": ("z", "z")}, "targets: .*found z, z"),
        (None, {"chains": 37}, "nodes: expected at most 4096 positions .*found 4292; take fewer chains"),
        ("a b c d w(a,b,c,d)", {"chains": 6}, "expected at most 4096 positions .*found 6504"),
        (
            None,
            {"pool": 2**32 // 28 + 1},
            f"pool: expected at most {2**32 // 28} samples of 112 numbers each",
        ),
        (None, {"symbol_dim": 5}, "symbol_dim"),
        (None, {"steps": 3}, "steps"),
    ],
)
def test_what_cannot_be_is_refused(graph, changes, complaint):
    with pytest.raises(ValidationError, match=complaint):
        config(graph, **changes)


def test_the_longest_sequence_is_allowed():
    assert config(chains=36).positions == 3 * 36**2 + 5 * 36 <= 4096


def test_names_and_numbers_of_nodes():
    chosen = config(FUNCTIONS, targets=("value", "n"))
    assert chosen.names == ("g", "a", "f", "n", "value") and chosen.tables == ("f", "n", "value")
    assert chosen.parents == ((), (), (0,), (1,), (2, 3))
    assert chosen.asked == ("n", "value") and config(FUNCTIONS, targets="last").asked == ("value",)
    assert config(FUNCTIONS).asked == chosen.tables
    # The last node may be a query symbol.
    assert config("a x(a) b z(x,b) c", targets="last").asked == ("z",)
    assert chosen.symbols == 4 * 4 + 16 and chosen.tables_in_time == ("value", "n", "f")
    assert config(order="random").tables_in_time is None
    assert ConditionalConfig.model_validate_json(chosen.model_dump_json()) == chosen
