"""What every task keeps, ours and a user's: samples are functions of their addresses, and annotations are true."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope_next.errors import UserError
from hopscope_next.tasks import (
    Batch,
    Permutation,
    Retrieval,
    Shape,
    Task,
    check_task,
    default_gradient,
    default_parts,
    draw,
    has_standard_loss,
    held_out,
    joined,
    losses,
)


class Copy(Task):
    length: int = 11
    values: int = 7
    back: int = 3

    def shape(self):
        readout = (self.length - 1,)
        sizes = {"input_size": self.values, "output_size": self.values}
        return Shape(inputs="tokens", positions=self.length, readout=readout, **sizes)

    def sample(self, draws):
        tokens = draws.integers("tokens", self.values, (self.length,))
        source = self.length - 1 - self.back
        return Batch(
            tokens,
            tokens[..., source : source + 1],
            groups={"even": tokens[..., 0] % 2 == 0},
            relations={"source": draws.constant(source, (self.length,))},
        )


GRAPH = ({"name": "a"}, {"name": "x", "parents": ["a"]}, {"name": "y", "parents": ["a"]})
GRAPH = (*GRAPH, {"name": "z", "parents": ["x", "y"]})
TASKS = [
    Copy(), Retrieval(), Retrieval(position="pair", steps=2, targets="last", schedule=((2, "ic"),)),
    Retrieval(nodes=GRAPH, chains=3, order="random"), Permutation(values=4, repeat_ratio=0.5), Permutation(values=9),
]  # fmt: skip
SEEDS = torch.tensor([2, 3, 5])


def equal(first, second):
    assert torch.equal(first.inputs, second.inputs) and torch.equal(first.targets, second.targets)
    for kind in ("groups", "roles", "relations"):
        one, other = getattr(first, kind), getattr(second, kind)
        assert set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(params=TASKS, ids=repr)
def task(request):
    return request.param


def test_samples_are_functions_of_their_addresses(task):
    check_task(task)
    for use in ("train", "held-out", "probe"):
        together = draw(task, SEEDS, use, range(1, 4), 7)
        equal(draw(task, SEEDS[1:2], use, range(1, 4), 7), together.member(1))
        equal(draw(task, SEEDS, use, torch.tensor(2), 7), together.take(slice(7, 14)))
        equal(draw(task, SEEDS, use, 3, 4, start=3), together.take(torch.arange(17, 21)))
        equal(joined(list(together.pieces(5))), together)
        uses = [draw(task, SEEDS, other, 1, 7) for other in ("train", "held-out", "probe") if other != use]
        assert not any(torch.equal(together.inputs[:, :7], other.inputs) for other in uses)
    assert len(held_out(task, 11).inputs) == 1
    pool = draw(task, SEEDS, "train", 0, 64, examples=2)
    assert all(len(member.unique(dim=0)) <= 2 for member in pool.inputs.flatten(2))


def test_the_loss_is_the_default_one_and_groups_are_apart(task):
    batch = draw(task, SEEDS, "train", 5, 13)
    shape = (*batch.targets.shape[:3], task.shape().output_size)
    predictions = torch.randn(shape, generator=torch.Generator().manual_seed(7)).requires_grad_()
    found = losses(task, predictions, batch)
    assert has_standard_loss(task)
    torch.testing.assert_close(found["loss"], default_parts(predictions, batch)["loss"])
    (slope,) = torch.autograd.grad(found["loss"].sum(), predictions)
    torch.testing.assert_close(slope, default_gradient(predictions, batch), rtol=1e-5, atol=1e-8)
    for group in batch.groups:
        here = batch.groups[group]
        for member in range(len(SEEDS)):
            if here[member].any():
                some = batch.member(member).take(here[member])
                alone = task.parts(predictions[member : member + 1, here[member]], some)["loss"][0]
                torch.testing.assert_close(found[f"loss@{group}"][member], alone)
            else:
                assert found[f"loss@{group}"][member].isnan()


def test_annotations_are_true(task):
    batch = draw(task, SEEDS, "probe", 3, 17)
    inputs = batch.inputs if batch.inputs.ndim == 4 else batch.inputs[..., None]
    inputs = inputs[..., : task.symbol_dim] if isinstance(task, Retrieval) else inputs
    for name, partner in ((name, batch.relations[name]) for name in batch.relations):
        assert (partner >= -1).all() and (partner < inputs.shape[2]).all()
        if name == "same_symbol":
            there = inputs.gather(2, partner.clamp(min=0)[..., None].expand_as(inputs))
            assert (there == inputs)[partner >= 0].all()
            assert (partner >= 0).any() == (getattr(task, "repeat_ratio", 1.0) > 0.0)
        if "chain" in batch.roles and name.startswith(("hop", "to_", "pair")):
            chain, mate = batch.roles["chain"], batch.roles["chain"].gather(2, partner.clamp(min=0))
            on_one = (chain < task.chains) & (partner >= 0)
            assert (chain == mate)[on_one].all()


def test_answers_follow_the_chain():
    task = Retrieval(steps=3, order="random")
    batch = draw(task, SEEDS, "train", 0, 5)
    symbols = batch.inputs[..., : task.symbol_dim]
    for place, row in enumerate(task.shape().readout):
        for step in range(1, 4):
            here = batch.relations[f"hop_{step}"][:, :, row, None, None].expand(-1, -1, 1, task.symbol_dim)
            answer = batch.targets[:, :, place].unflatten(-1, (3, -1))[:, :, step - 1]
            assert torch.equal(symbols.gather(2, here)[:, :, 0], answer)


@settings(max_examples=25)
@given(
    chains=st.integers(2, 4),
    data=st.data(),
    order=st.sampled_from(["deepest-first", "shallowest-first", "random"]),
)
def test_floors_of_graphs_are_reached_by_what_they_name(chains, data, order):
    nodes = [{"name": "n0"}]
    for number in range(1, data.draw(st.integers(2, 4))):
        earlier = [node["name"] for node in nodes]
        nodes.append(
            {
                "name": f"n{number}",
                "parents": data.draw(st.sets(st.sampled_from(earlier), min_size=1, max_size=2)),
            }
        )
    task = Retrieval(nodes=nodes, chains=chains, order=order)
    batch = draw(task, torch.tensor([3]), "probe", 0, 700)
    zero = task.parts(torch.zeros_like(batch.targets), batch)
    assert zero["loss"].item() == pytest.approx(task.floors()["zero"], rel=0.1)
    holds, kind = batch.roles["holds"], batch.roles["kind"]
    values = [task.layout.kinds.index(word) for word in ("value", "second") if word in task.layout.kinds]
    symbols = batch.inputs[..., : task.symbol_dim]
    for number, (name, node) in enumerate(task.asked.items()):
        is_value = torch.isin(kind, torch.tensor(values)) & (holds == node) & (batch.roles["node"] == node)
        mean = (symbols * is_value[..., None]).sum(2) / is_value.sum(-1, keepdim=True)
        right = batch.targets.unflatten(-1, (len(task.asked), -1))[..., number, :]
        floor = task.floors()[f"loss_{name}"]["position"]
        assert (right - mean[:, :, None]).square().mean().item() == pytest.approx(floor, rel=0.15)


@settings(max_examples=25)
@given(
    values=st.integers(3, 12),
    ratio=st.sampled_from([0.0, 0.3, 1.0]),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 99),
)
def test_held_out_mappings_are_never_trained(values, ratio, share, seed):
    task = Permutation(values=values, repeat_ratio=ratio, held_out_share=share, split_seed=seed)

    def mappings(use):
        batch = draw(task, SEEDS, use, 0, 50).plain()
        whole = torch.cat((batch.inputs, batch.targets[..., -1:]), -1).unflatten(-1, (-1, 2))
        assert bool((batch.targets == whole[..., 1]).all())
        seen = torch.zeros(*whole.shape[:2], values, dtype=torch.int64)
        seen.scatter_(2, whole[..., 0] - 1, whole[..., 1])
        return {tuple(each) for each in seen.flatten(0, 1).tolist() if ratio == 0.0}

    assert not mappings("train") & mappings("held-out")
    assert task.mappings(True) + task.mappings(False) == int(np.prod(range(1, values + 1)))


class Bad(Copy):
    fault: str = ""

    def sample(self, draws):
        batch = super().sample(draws)
        match self.fault:
            case "global":
                return Batch(torch.randint_like(batch.inputs, 7), batch.targets)
            case "numpy":
                number = int(np.random.randint(0, 7))  # noqa: NPY002
                return Batch(batch.inputs, torch.full_like(batch.targets, number))
            case "shape":
                return Batch(batch.inputs[..., 1:], batch.targets)
            case "range":
                return Batch(batch.inputs + 1, batch.targets)
            case "role":
                return Batch(batch.inputs, batch.targets, roles={"kind": batch.inputs.float()})
            case "weights":
                return Batch(
                    batch.inputs, batch.targets, weights=torch.ones(2, 5, 1, dtype=torch.float64) - 2.0
                )
            case "twice":
                draws.uniform("tokens")
        return 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("global", "none from torch or numpy"),
        ("numpy", "none from torch or numpy"),
        ("shape", "inputs: expected shape"),
        ("range", "ids from 0 to 6"),
        ("role", r"roles\['kind'\]"),
        ("weights", "numbers from 0"),
        ("twice", "twice"),
        ("none", "expected an hs.Batch"),
    ],
)
def test_a_task_that_breaks_the_contract_is_told(fault, words):
    before = torch.random.get_rng_state()
    with pytest.raises(UserError, match=words):
        check_task(Bad(fault=fault))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (Retrieval, {"symbol_dim": 5}, "even"),
        (Retrieval, {"order": (1, 2)}, "permutation of 1 to 3"),
        (Retrieval, {"targets": (4,)}, "different ones"),
        (Retrieval, {"schedule": ((0, "ic"),)}, "ascending"),
        (Retrieval, {"shares": (0.5,)}, "for each step"),
        (Retrieval, {"nodes": GRAPH[1:]}, "nodes before it"),
        (Retrieval, {"nodes": GRAPH, "chains": 40}, "at most 4096 positions"),
        (Retrieval, {"nodes": GRAPH[:1]}, "with parents"),
        (Permutation, {"repeat_slots": (6,)}, "slots from 1 to 5"),
        (Permutation, {"repeat_sources": (5,)}, "before a slot"),
    ],
)
def test_bad_fields_are_told(kind, fields, words):
    with pytest.raises(ValueError, match=words):
        kind(**fields)
