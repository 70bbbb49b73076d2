"""The task of the conditional study: graphs with the same questions, and chains among them."""

import pytest
import torch

import hopscope as hs
from hopscope.studies.conditional.task import PARENTS, Branching
from hopscope.tasks.draws import Draws

CASES = {
    "two parents": {},
    "chain": {"graph": "chain"},
    "root and parent": {"graph": "root and parent"},
    "z alone": {"targets": "last"},
    "mixed": {"chain_share": 0.5},
    "chain first": {"chain_until": 3},
    "z alone first": {"chain_until": 3, "easier_first": False},
    "mixed, chain first": {"chain_share": 0.5, "chain_until": 3},
}
SAMPLES, CHAINS, DIM = 31, 3, 2


def task(**fields):
    return Branching(**{"chains": CHAINS, "symbol_dim": DIM, **fields})


def drawn(given, step=2, use="train"):
    return given.sample(Draws.of(torch.tensor([3, 11]), use, step, SAMPLES))


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_it_keeps_the_contract(fields):
    hs.testing.check_task(task(**fields))


@pytest.mark.parametrize("graph", PARENTS)
def test_z_is_found_by_its_keys(graph):
    """Look-ups that are written out: through the tables, by equal symbols."""
    batch, parents = drawn(task(graph=graph)), PARENTS[graph]
    names = ("a", "x", "y", "z")
    for member in range(2):
        for sample in range(5):
            symbols = batch.inputs[member, sample, :, :DIM]
            node = batch.roles["node"][member, sample].tolist()
            for query in range(CHAINS):
                known = {"a": symbols[len(symbols) - CHAINS + query]}
                for place, (name, keys) in enumerate({"x": ("a",), "y": ("a",), "z": parents}.items()):
                    wanted = torch.stack([known[key] for key in keys])
                    start = [p for p in range(len(symbols) - CHAINS) if node[p] == names.index(name)]
                    rows = [start[i : i + len(keys) + 1] for i in range(0, len(start), len(keys) + 1)]
                    found = [row[-1] for row in rows if torch.equal(symbols[row[:-1]], wanted)]
                    assert len(found) == 1
                    known[name] = symbols[found[0]]
                    asked = batch.targets[member, sample, query, place * DIM : (place + 1) * DIM]
                    assert torch.equal(asked, known[name])


def shows_chains(batch):
    """A chain is half as long: the first positions are blank."""
    return (batch.inputs[:, :, 0] == 0).all(-1)


def test_a_chain_among_branching_samples_is_a_chain():
    given = task(**CASES["mixed"])
    mixed, chain, plain = drawn(given), drawn(task(graph="chain")), drawn(task())
    is_chain, before = shows_chains(mixed), mixed.inputs.shape[2] - chain.inputs.shape[2]
    assert 10 < int(is_chain.sum()) < 52
    assert torch.equal(mixed.groups["chain"], is_chain) and torch.equal(mixed.groups["branching"], ~is_chain)
    assert torch.equal(mixed.inputs[is_chain][:, before:], chain.inputs[is_chain])
    assert not mixed.inputs[is_chain][:, :before].any()
    assert torch.equal(mixed.targets[is_chain], chain.targets[is_chain])
    assert torch.equal(mixed.inputs[~is_chain], plain.inputs[~is_chain])
    assert torch.equal(mixed.targets[~is_chain], plain.targets[~is_chain])


@pytest.mark.parametrize(("step", "first"), [(0, True), (2, True), (3, False), (7, False)])
def test_chains_come_first(step, first):
    assert bool(shows_chains(drawn(task(chain_until=3), step)).all()) == first
    assert bool(shows_chains(drawn(task(chain_until=3), step)).any()) == first


def test_held_out_samples_branch_also_before_the_switch():
    assert not shows_chains(drawn(task(chain_until=3), 0, "held-out")).any()
    assert not shows_chains(drawn(task(chain_until=3), 0, "probe")).any()


@pytest.mark.parametrize(("step", "expected"), [(2, [0, 0, 0, 0, 3, 3]), (3, [1, 1, 1, 1, 1, 1])])
def test_at_first_z_counts_alone(step, expected):
    batch = drawn(task(**CASES["z alone first"]), step)
    assert batch.weights.expand(1, SAMPLES, 1, 6)[0, :, 0].unique(dim=0).tolist() == [expected]
    assert drawn(task(chain_until=3), step).weights is None
